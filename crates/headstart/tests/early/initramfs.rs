//! The hook of initramfs-tools, in a directory that stands for the initramfs, with the next root below it; and what it starts.

use crate::common::is_root;
use crate::root::{process_1, root, write_gate};
use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::Path;

const HOOK: &str = include_str!("../../../../packaging/initramfs-tools/scripts/local-bottom/headstart");
const STAMP: &str = "run/initramfs/fsck-root";

/// What came of the hook: how headstart was started, and what initramfs-tools was told.
#[derive(Debug, PartialEq)]
struct Hooked {
    started: Option<String>,
    told: Option<String>,
    pipe: bool,
}

/// Runs it as initramfs-tools does, after `change` to the next root and the initramfs, with `readonly` as the kernel command line said.
fn hook(readonly: &str, cmdline: &str, change: impl Fn(&Path, &Path)) -> Hooked {
    let dir = tempfile::tempdir().unwrap();
    let initramfs = dir.path();
    for path in ["conf", "dev", "host", "proc", "run", "root"] {
        fs::create_dir(initramfs.join(path)).unwrap();
    }
    for path in ["lib", "lib64"] {
        symlink(Path::new("host").join(path), initramfs.join(path)).unwrap();
    }
    fs::write(initramfs.join("hook"), HOOK).unwrap();
    fs::write(initramfs.join("cmdline"), cmdline).unwrap();
    let next = root();
    let command = "#!/host/bin/sh\necho \"$0 $*, $HEADSTART_INITRAMFS in $(pwd)\" >/started\n";
    fs::write(next.path().join("usr/sbin/headstart"), command).unwrap();
    change(next.path(), initramfs);
    let script =
        "mount --bind \"$1\" \"$0/root\"; mount -t proc proc \"$0/proc\"; mount -t devtmpfs dev \"$0/dev\"
        mount --bind \"$0/cmdline\" \"$0/proc/cmdline\"
        PATH=/host/usr/bin:/host/bin rootmnt=/root init=/sbin/init readonly=$2 \
            /usr/sbin/chroot \"$0\" /host/bin/sh -ec '/host/bin/sh /hook; wait; sleep 0.3'";
    let words = [next.path().to_str().unwrap(), readonly];
    assert!(process_1(initramfs, script, &words).status().unwrap().success());
    let read = |path: &str| fs::read_to_string(initramfs.join(path)).ok();
    let pipe = fs::metadata(initramfs.join("run/headstart/init"));
    Hooked {
        started: read("started"),
        told: read("conf/param.conf"),
        pipe: pipe.is_ok_and(|facts| facts.file_type().is_fifo()),
    }
}

fn stamp(initramfs: &Path) {
    fs::create_dir_all(initramfs.join("run/initramfs")).unwrap();
    fs::write(initramfs.join(STAMP), "").unwrap();
}

#[test]
fn the_hook_starts_headstart_and_has_the_real_init_wait_where_the_root_can_be_written() {
    if !is_root() {
        return;
    }
    let started = |pipe: &str| {
        Some(format!(
            "./usr/sbin/headstart boot run --next-root ., {pipe} in /root\n"
        ))
    };
    let waits = Hooked {
        started: started("3"),
        told: Some("init=/usr/sbin/headstart-init\n".into()),
        pipe: true,
    };
    let nobody_waits = Hooked {
        started: started(""),
        told: None,
        pipe: false,
    };
    let nothing = Hooked {
        started: None,
        told: None,
        pipe: false,
    };
    assert_eq!(hook("n", "quiet", |_, _| {}), waits);
    assert_eq!(hook("y", "quiet", |_, initramfs| stamp(initramfs)), waits);
    assert_eq!(hook("y", "quiet", |_, _| {}), nobody_waits, "not checked");
    assert_eq!(
        hook("n", "ro headstart=off quiet", |_, _| {}),
        nothing,
        "switched off for this boot"
    );
    let off = |root: &Path, _: &Path| {
        fs::remove_file(root.join("etc/systemd/system/sysinit.target.wants/headstart-boot.service")).unwrap();
    };
    assert_eq!(hook("n", "quiet", off), nothing, "switched off");
    let kernel = rustix::system::uname();
    let gate = |root: &Path, _: &Path| write_gate(root, u32::MAX, kernel.release().to_str().unwrap());
    let left_alone = Hooked {
        started: None,
        ..waits
    };
    assert_eq!(
        hook("n", "quiet", gate),
        left_alone,
        "the end of the pipe is a word"
    );
}

#[test]
fn headstart_enters_the_root_that_its_directory_has_become() {
    if !is_root() {
        return;
    }
    let next = root();
    let next = next.path();
    fs::create_dir(next.join("proc")).unwrap();
    // First the root is moved, so that its path leads elsewhere, and then /proc to it.
    let script = "mkdir /tmp/moved.$$; moved=/tmp/moved.$$; mount --rbind \"$0\" \"$0\"; cd \"$0\"
        \"$1\" boot run --next-root . 2>&1 &
        sleep 0.3; cd /; mount --move \"$0\" $moved; mount -t proc proc $moved/proc
        until test -s $moved/run/headstart/last.json; do sleep 0.05; done
        kill $!; wait $! || true; umount -l $moved; rmdir $moved";
    let words = [env!("CARGO_BIN_EXE_headstart")];
    let entered = process_1(
        next,
        &format!("timeout 20 sh -ec '{script}' \"$0\" \"$1\""),
        &words,
    );
    assert!({ entered }.status().unwrap().success());
    let said = fs::read_to_string(next.join("run/headstart/last.json")).unwrap();
    assert!(said.contains("\"from\": \"initramfs\""), "{said}");
}
