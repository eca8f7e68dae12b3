//! What somebody finds who asks systemd for the unit of boots, where this boot was served before systemd read
//! its units: `systemctl status headstart-boot` says so in one line, and nothing was skipped. It is a drop-in
//! of this boot alone, by which the unit starts nothing.

use crate::boot_report::WayIn;
use crate::units::{BARRIER_NAME, NAME};
use rustix::fs::{Access, Mode};
use std::io;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

/// Where systemd looks for units of this boot. That the directory is there says that systemd runs
/// (sd_booted(3)), so it is made for nobody else.
const UNITS: &str = "run/systemd/system";
/// The kernel executes this, and it may lead to systemd.
const INIT: &str = "sbin/init";
/// What public files are made with, whatever an initramfs has set.
const PUBLIC: Mode = Mode::from_raw_mode(0o022);

/// Leaves word that the boot is served in this way, below the root directory. To be called before any other
/// thread begins. What cannot be written nobody reads.
pub fn leave_word(root: &Path, way: WayIn, state: &Path) {
    let since = match way {
        WayIn::Initramfs => "since the initramfs",
        WayIn::Init => "since before process 1",
        WayIn::Generator => "since before systemd read its units",
        WayIn::Unit => return,
    };
    let device = |path: &Path| std::fs::metadata(path).map(|facts| facts.dev()).ok();
    // Without an initramfs it may be a directory on the disk still, which systemd covers.
    if device(&root.join("run")) == device(root) {
        return;
    }
    let mask = rustix::process::umask(PUBLIC);
    let _ = write(root, since, rustix::fs::access(state, Access::WRITE_OK).is_ok());
    rustix::process::umask(mask);
}

/// Where the state is writable, nothing waits until it is, and the unit for that is masked.
fn write(root: &Path, since: &str, is_writable: bool) -> io::Result<()> {
    let units = root.join(UNITS);
    let init = std::fs::read_link(root.join(INIT)).unwrap_or_default();
    if !units.is_dir() && !init.ends_with("systemd") {
        return Ok(());
    }
    let directory = units.join(format!("{NAME}.d"));
    std::fs::create_dir_all(&directory)?;
    let text = drop_in(since) + &at_shutdown(std::process::id());
    std::fs::write(directory.join("this-boot.conf"), text)?;
    match is_writable {
        true => symlink("/dev/null", units.join(BARRIER_NAME)),
        false => Ok(()),
    }
}

/// Has the process that serves this boot, if it is still there, told that the machine is shut down while
/// systemd still answers it: a machine that is shut down as soon as it is up is no failure. A second at most
/// is left to it, for it asks systemd first, and keeps what it has learned. systemd wants `$` written twice.
fn at_shutdown(process: u32) -> String {
    format!(
        "ExecStop=-/bin/sh -c 'read name </proc/{process}/comm && case $$name in headstart*) kill {process}; \
        for try in 1 2 3 4 5 6 7 8 9 10; do [ -e /proc/{process} ] || break; sleep 0.1; done ;; esac'\n"
    )
}

/// Has the unit do nothing and say `since` when the boot is served: as the hooks write it for one that is
/// bypassed.
fn drop_in(since: &str) -> String {
    format!(
        "[Unit]\nDescription=headstart serves this boot {since} (headstart boot status)\nConditionPathExists=\n\
        [Service]\nType=oneshot\nRemainAfterExit=yes\nExecCondition=\nExecStart=\nExecStop=/bin/true\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::HOOKS;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    fn with_init(name: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("sbin")).unwrap();
        symlink(name, dir.path().join(INIT)).unwrap();
        let units = dir.path().join(UNITS);
        (dir, units)
    }

    #[test]
    fn systemd_alone_is_told() {
        let (dir, units) = with_init("/lib/systemd/systemd");
        write(dir.path(), "since the initramfs", true).unwrap();
        let text = std::fs::read_to_string(units.join("headstart-boot.service.d/this-boot.conf")).unwrap();
        assert!(
            text.contains(" since the initramfs (") && text.contains("\nExecStart=\n"),
            "{text}"
        );
        let told = format!("kill {}; for ", std::process::id());
        assert!(text.ends_with("esac'\n") && text.contains(&told), "{text}");
        let barrier = std::fs::read_link(units.join("headstart-barrier.service")).unwrap();
        assert_eq!(barrier, Path::new("/dev/null"));
        // Nothing is left for another init.
        let (dir, units) = with_init("busybox");
        write(dir.path(), "", true).unwrap();
        assert!(!units.exists());
        // What comes when the root is writable may have to wait.
        let (dir, units) = with_init("../lib/systemd/systemd");
        write(dir.path(), "", false).unwrap();
        assert!(units.join("headstart-boot.service.d").exists());
        assert!(!units.join("headstart-barrier.service").exists());
    }

    #[test]
    fn everybody_may_read_it_and_nothing_stays_on_a_disk() {
        let (dir, units) = with_init("systemd");
        std::fs::create_dir(dir.path().join("run")).unwrap();
        leave_word(dir.path(), WayIn::Init, dir.path());
        assert!(!units.exists(), "systemd covers it");
        if !headstart_system::testing::can_mount() {
            return;
        }
        let run = dir.path().join("run");
        let _mounted = headstart_system::testing::Mounted::new(&["-t", "tmpfs", "tmpfs"], &run).unwrap();
        leave_word(dir.path(), WayIn::Unit, dir.path());
        assert!(!units.exists(), "the unit itself serves it");
        let before = rustix::process::umask(Mode::from_raw_mode(0o077));
        leave_word(dir.path(), WayIn::Initramfs, dir.path());
        let after = rustix::process::umask(before);
        assert_eq!(after, Mode::from_raw_mode(0o077), "as it was");
        for (path, expected) in [("", 0o755), ("headstart-boot.service.d/this-boot.conf", 0o644)] {
            let mode = std::fs::metadata(units.join(path)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, expected, "{path}");
        }
    }

    #[test]
    fn hooks_leave_the_same_where_they_bypass_a_boot() {
        let bypass = drop_in("bypassed");
        let lines: Vec<&str> = bypass.lines().skip(2).collect();
        let words = lines.join("\\n");
        let leave_it = HOOKS.iter().filter(|hook| hook.text.contains(&words));
        assert_eq!(leave_it.count(), 2, "{words}");
    }
}
