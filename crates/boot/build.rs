//! Builds the program that stands in the place of process 1 (`init/main.rs`): without a library, and so by
//! other options than all that cargo builds.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    let source = "init/main.rs";
    println!("cargo::rerun-if-changed=init");
    println!("cargo::rerun-if-changed=../system/src/own_program/way.rs");
    println!("cargo::rerun-if-changed=../store/src/name_of_boots.rs");
    let variable = |name: &str| std::env::var_os(name).unwrap_or_else(|| panic!("cargo sets {name}"));
    let output = PathBuf::from(variable("OUT_DIR")).join("headstart-init");
    let known = ["x86_64", "aarch64"].map(std::ffi::OsString::from);
    if !known.contains(&variable("CARGO_CFG_TARGET_ARCH")) {
        std::fs::write(&output, []).unwrap_or_else(|error| panic!("{}: {error}", output.display()));
        return;
    }
    // The largest that kernels for it have; they refuse what is laid out for less.
    let page_size = match variable("CARGO_CFG_TARGET_ARCH") == known[0] {
        true => 4096,
        false => 65536,
    };
    let mut rustc = Command::new(variable("RUSTC"));
    rustc
        .args(["--edition=2024", "--crate-name=headstart_init", "--target"])
        .arg(variable("TARGET"))
        .args([
            "-Cpanic=abort",
            "-Copt-level=s",
            "-Cstrip=symbols",
            "-Cforce-unwind-tables=no",
        ])
        .args(["-Crelocation-model=static", "-Ctarget-feature=+crt-static"])
        .args(["-Clink-arg=-nostdlib", "-Clink-arg=-static"])
        .arg(format!(
            "-Clink-arg=-Wl,--build-id=none,-z,norelro,-z,max-page-size={page_size}"
        ))
        .arg("-o")
        .arg(&output)
        .arg(source);
    if let Some(linker) = std::env::var_os("RUSTC_LINKER") {
        let mut option = std::ffi::OsString::from("-Clinker=");
        option.push(linker);
        rustc.arg(option);
    }
    let status = rustc
        .status()
        .unwrap_or_else(|error| panic!("{rustc:?}: {error}"));
    assert!(status.success(), "{rustc:?}: {status}");
}
