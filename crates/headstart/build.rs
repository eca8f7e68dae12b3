//! Tells the linker what the program of starts begins with (`headstart_system::own_program`), and where that lies: `first.ld`.

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=first.ld");
    println!("cargo::rerun-if-changed=order.ld");
    let known = ["x86_64", "aarch64"];
    if std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| known.contains(&arch.as_str())) {
        println!("cargo::rustc-link-arg-bin=headstart=-Wl,-e,headstart_first");
        let here = std::env::current_dir()?;
        // Where the script finds `order.ld`.
        println!("cargo::rustc-link-arg-bin=headstart=-Wl,-L,{}", here.display());
        let script = here.join("first.ld");
        println!("cargo::rustc-link-arg-bin=headstart=-Wl,-T,{}", script.display());
        // LLVM's linker, which newer Rust takes by itself, would put the constants before the program's text, and has the kernel clear a second page.
        println!("cargo::rustc-link-arg-bin=headstart=-fuse-ld=bfd");
    }
    Ok(())
}
