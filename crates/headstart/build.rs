//! Tells the linker what the program of starts begins with (`headstart_system::own_program`), where that lies
//! (`first.ld`), and what becomes of the tables by which a panic unwinds.

use std::path::Path;

/// The scripts, and what the first of them includes.
const FILES: [&str; 4] = ["first.ld", "order.ld", "unwind.ld", "abort.ld"];

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    for file in FILES {
        println!("cargo::rerun-if-changed={file}");
    }
    let is =
        |what: &str, known: &[&str]| std::env::var(what).is_ok_and(|value| known.contains(&value.as_str()));
    if !is("CARGO_CFG_TARGET_ARCH", &["x86_64", "aarch64"]) {
        return Ok(());
    }
    let here = std::env::current_dir()?;
    // Where the script finds `order.ld`.
    link("headstart", &format!("-Wl,-L,{}", here.display()));
    link("headstart", "-Wl,-e,headstart_first");
    by("headstart", &here.join("first.ld"));
    if is("CARGO_CFG_PANIC", &["abort"]) {
        for program in ["headstart", "headstart-inspect", "headstart-layout"] {
            by(program, &here.join("abort.ld"));
        }
    } else {
        by("headstart", &here.join("unwind.ld"));
    }
    Ok(())
}

fn link(program: &str, argument: &str) {
    println!("cargo::rustc-link-arg-bin={program}={argument}");
}

/// Links a program by a script. LLVM's linker, which newer Rust takes by itself, would put the constants
/// before the program's text, and has the kernel clear a second page.
fn by(program: &str, script: &Path) {
    link(program, "-fuse-ld=bfd");
    link(program, &format!("-Wl,-T,{}", script.display()));
}
