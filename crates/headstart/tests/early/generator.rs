//! headstart-init as a generator of systemd: which shows it, from 254 on, a copy of the mounts in which
//! nothing can be written.

use crate::common::is_root;
use crate::root::{process_1, root, write_bypass};
use std::fs;
use std::path::Path;

/// Runs it as systemd does; what it printed. The root is process 1's, and a mount of its own.
fn generate(root: &Path) -> String {
    let systemd = "export PATH=/host/bin:/host/usr/bin:/host/sbin:/host/usr/sbin
        unshare --mount --propagation slave sh -ec '
            mount -o remount,bind,ro /
            ! touch /written 2>&-
            for it in /usr/lib/systemd/system-generators/*; do \"$it\" /run/normal /run/early /run/late; done'";
    fs::write(root.join("systemd"), systemd).unwrap();
    fs::create_dir_all(root.join("proc")).unwrap();
    let script = "mount --bind \"$0\" \"$0\"; mount -t proc proc \"$0/proc\"; mount --bind / \"$0/host\"
        exec chroot \"$0\" /host/bin/sh -e /systemd";
    let ran = process_1(root, script, &[]).output().unwrap();
    assert!(ran.status.success() && !root.join("written").exists(), "{ran:?}");
    String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr)
}

#[test]
fn a_generator_starts_headstart_where_it_can_write_and_waits_for_it() {
    if !is_root() {
        return;
    }
    let dir = root();
    // It ends when it has written, and that is waited for.
    let script = "#!/host/bin/sh\n/host/bin/sleep 0.2\necho \"$0 $*\" >/headstart\n";
    fs::write(dir.path().join("usr/bin/headstart"), script).unwrap();
    assert_eq!(generate(dir.path()), "");
    let said = fs::read_to_string(dir.path().join("headstart")).unwrap();
    assert!(said.starts_with("/usr/bin/headstart boot run --init "), "{said}");
}

#[test]
fn a_generator_does_nothing_where_there_is_nothing_to_begin() {
    if !is_root() {
        return;
    }
    for there in [
        "run/headstart/boot.lock",
        "run/headstart/bypassed",
        "run/systemd/private",
        "etc/initrd-release",
    ] {
        let dir = root();
        let path = dir.path().join(there);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // A socket, as that of systemd is, cannot be opened.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert_eq!(generate(dir.path()), "");
        assert!(!dir.path().join("headstart").exists(), "{there}");
    }
    let dir = root();
    let running = rustix::system::uname();
    write_bypass(dir.path(), u32::MAX, running.release().to_str().unwrap());
    assert_eq!(generate(dir.path()), "");
    assert!(!dir.path().join("headstart").exists(), "bypassed");
}
