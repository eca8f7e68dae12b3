//! A root that boots, as far as what comes before the real init goes.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

/// A root with headstart-init, and with scripts for the real init and for headstart that leave a file. The
/// system's own root is seen at `host` when it boots.
pub fn root() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    for path in [
        "host",
        "run/headstart",
        "usr/bin",
        "usr/sbin",
        "usr/lib/systemd",
        "sbin",
    ] {
        fs::create_dir_all(root.join(path)).unwrap();
    }
    for path in ["lib", "lib64"] {
        symlink(Path::new("host").join(path), root.join(path)).unwrap();
    }
    for (path, says) in [("sbin/init", "init"), ("usr/bin/headstart", "headstart")] {
        let script = format!("#!/host/bin/sh\necho \"$0 $*\" >/{says}\n");
        fs::write(root.join(path), script).unwrap();
        fs::set_permissions(root.join(path), fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::write(root.join("usr/lib/systemd/systemd"), "").unwrap();
    let enabled = Command::new(env!("CARGO_BIN_EXE_headstart"))
        .args(["boot", "enable", "--root"])
        .arg(root)
        .output()
        .unwrap();
    assert!(enabled.status.success(), "{enabled:?}");
    dir
}

/// A script in namespaces of its own, with the root as `$0` and its process 1 called with `words`.
pub fn process_1(root: &Path, script: &str, words: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private", "--pid", "--fork"])
        .args(["sh", "-ec"])
        .arg(format!("mount --bind / \"$0/host\"; {script}"))
        .arg(root)
        .args(words);
    command
}

/// What the root's machine is called, once boots are bypassed there.
const MACHINE: &str = "0123456789abcdef0123456789abcdef";

/// Has boots bypassed, of which one in `every` re-evaluates that.
pub fn write_bypass(root: &Path, every: u32, kernel: &str) {
    let kept = root
        .join("var/lib/headstart/keys")
        .join(headstart_store::NAME_OF_BOOTS);
    fs::create_dir_all(&kept).unwrap();
    fs::create_dir_all(root.join("etc")).unwrap();
    fs::write(root.join("etc/machine-id"), format!("{MACHINE}\n")).unwrap();
    fs::write(
        kept.join("bypass"),
        format!("{every}\n{kernel}\n{MACHINE}\nrecord\nno gain\n"),
    )
    .unwrap();
}
