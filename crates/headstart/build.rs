//! Tells the linker what the command begins with: `headstart_system::own_program`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let known = ["x86_64", "aarch64"];
    if std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| known.contains(&arch.as_str())) {
        println!("cargo::rustc-link-arg-bins=-Wl,-e,headstart_first");
    }
}
