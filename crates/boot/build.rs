//! Builds the programs without a library, and so by other options than all that cargo builds: the one that
//! stands in the place of process 1 (`init/main.rs`), and the one that touches a volume (`hydrate/main.rs`).

use std::path::{Path, PathBuf};
use std::process::Command;

/// What the programs are compiled of, beside their own directories.
const SHARED: [&str; 4] = [
    "init",
    "../system/src/own_program/way.rs",
    "../store/src/name_of_boots.rs",
    "../model/src/range_list",
];

fn variable(name: &str) -> std::ffi::OsString {
    std::env::var_os(name).unwrap_or_else(|| panic!("cargo sets {name}"))
}

fn main() {
    println!("cargo::rerun-if-changed=hydrate");
    for path in SHARED {
        println!("cargo::rerun-if-changed={path}");
    }
    let output = PathBuf::from(variable("OUT_DIR"));
    compile("init/main.rs", &output.join("headstart-init"), &[]);
    let hydrate = output.join("headstart-hydrate");
    // Core's own code is in it; all at once it becomes a third smaller.
    compile("hydrate/main.rs", &hydrate, &["-Clto=fat", "-Ccodegen-units=1"]);
    // `headstart` executes it: it looks beside itself, where cargo puts the programs that it builds by
    // itself. OUT_DIR is build/NAME/out below that place.
    if let Some(place) = output.ancestors().nth(3) {
        put(&hydrate, &place.join("headstart-hydrate"));
    }
}

/// Puts a copy there, whole or not at all: another build may execute it.
fn put(program: &Path, place: &Path) {
    let new = place.with_extension("new");
    std::fs::copy(program, &new)
        .and_then(|_| std::fs::rename(&new, place))
        .unwrap_or_else(|error| panic!("{}: {error}", place.display()));
}

fn compile(source: &str, output: &Path, options: &[&str]) {
    let known = ["x86_64", "aarch64"].map(std::ffi::OsString::from);
    if !known.contains(&variable("CARGO_CFG_TARGET_ARCH")) {
        std::fs::write(output, []).unwrap_or_else(|error| panic!("{}: {error}", output.display()));
        return;
    }
    // The largest that kernels for it have; they refuse what is laid out for less.
    let page_size = match variable("CARGO_CFG_TARGET_ARCH") == known[0] {
        true => 4096,
        false => 65536,
    };
    let name = match output.file_name().and_then(|name| name.to_str()) {
        Some(name) => name.replace('-', "_"),
        None => panic!("{} has no name", output.display()),
    };
    let mut rustc = Command::new(variable("RUSTC"));
    rustc
        .args(["--edition=2024", "--crate-name", &name, "--target"])
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
        .args(options)
        .arg("-o")
        .arg(output)
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
