//! Compiles the BPF programs. What they need to know of the kernel is in this crate and in the BTF of the
//! kernel they are loaded into, not in that of the machine that builds them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=src/kernel/bpf");
    println!("cargo:rerun-if-env-changed=CLANG");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let mut before = Vec::new();
    for (name, defines) in [("record", &["-DHAVE_BPF_LOOP"][..]), ("record-old", &[])] {
        let object = out.join(format!("{name}.bpf.o"));
        compile(&object, defines);
        let bytes = fs::read(&object).expect("clang wrote the object");
        let packed = pack(&bytes, &before);
        fs::write(out.join(format!("{name}.bpf.o.zst")), packed).expect("OUT_DIR can be written to");
        before = bytes;
    }
}

/// Most of an object is names and line numbers, and most of the second is in the first, the dictionary that
/// it is packed by.
fn pack(object: &[u8], dictionary: &[u8]) -> Vec<u8> {
    let packer = zstd::bulk::Compressor::with_dictionary(19, dictionary);
    let packed = packer.and_then(|mut packer| packer.compress(object));
    packed.expect("an object can be packed")
}

fn compile(object: &Path, defines: &[&str]) {
    // libbpf's own headers: from its build, or where the machine has them.
    let headers = match env::var_os("CARGO_FEATURE_VENDORED") {
        Some(_) => env::var_os("DEP_BPF_INCLUDE").expect("libbpf-sys tells where its headers are"),
        None => "/usr/include".into(),
    };
    assert!(
        Path::new(&headers).join("bpf/bpf_core_read.h").is_file(),
        "libbpf's headers are not in {}: install libbpf-dev, or build with the feature `vendored`, as -p headstart does",
        Path::new(&headers).display()
    );
    let arch = match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("x86_64") => "x86",
        Ok("aarch64") => "arm64",
        Ok(other) => panic!("headstart has no BPF programs for {other} yet"),
        Err(error) => panic!("cargo sets CARGO_CFG_TARGET_ARCH: {error}"),
    };
    let clang = env::var_os("CLANG").unwrap_or_else(|| "clang".into());
    let status = Command::new(&clang)
        .args(["-g", "-O2", "-target", "bpf", "-mcpu=v3", "-Wall", "-Werror"])
        .arg(format!("-D__TARGET_ARCH_{arch}"))
        .args(defines)
        .arg("-I")
        .arg(&headers)
        // Paths of the build machine stay out of the object.
        .arg(format!(
            "-fdebug-prefix-map={}=.",
            env::var("CARGO_MANIFEST_DIR").unwrap_or_default()
        ))
        .args(["-c", "src/kernel/bpf/record.bpf.c", "-o"])
        .arg(object)
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("clang could not compile src/kernel/bpf/record.bpf.c: {status}"),
        Err(error) => {
            panic!(
                "cannot run {}: {error}; install clang (make deps) or set CLANG",
                clang.to_string_lossy()
            )
        }
    }
    // libbpf needs BTF, not DWARF, which is four fifths of the object.
    let strip = env::var_os("LLVM_STRIP").unwrap_or_else(|| "llvm-strip".into());
    if !Command::new(strip)
        .arg("-g")
        .arg(object)
        .status()
        .is_ok_and(|status| status.success())
    {
        println!("cargo:warning=llvm-strip is not there; the binary will be a little larger");
    }
    assert!(
        fs::metadata(object).is_ok_and(|m| m.len() > 0),
        "clang wrote no object"
    );
}
