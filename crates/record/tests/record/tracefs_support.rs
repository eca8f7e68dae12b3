//! A file system of its own for a test, and a process that waits to be recorded.

#![allow(dead_code)] // Each test binary uses its part.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Whether tests can mount and trace. If not that is a failure, or with `HEADSTART_TESTS_SKIP` in the environment said.
#[track_caller]
pub fn is_root() -> bool {
    if rustix::process::geteuid().is_root() {
        return true;
    }
    skip("mounting and tracing lack", "root");
    false
}

/// A test cannot do its work for want of something: a failure, or with `HEADSTART_TESTS_SKIP` in the environment said.
#[track_caller]
pub fn skip(what: &str, missing: &str) {
    assert!(
        std::env::var_os("HEADSTART_TESTS_SKIP").is_some(),
        "{what} {missing:?}; HEADSTART_TESTS_SKIP=1 leaves out what cannot be tested here"
    );
    eprintln!("skipped: {what} {missing:?}");
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// tracefs, mounted for a test alone until this is dropped.
pub struct Tracefs(tempfile::TempDir);

impl Tracefs {
    /// A mount of it; `None` (and a line that says so) without root.
    #[track_caller]
    pub fn new() -> Option<Tracefs> {
        if !is_root() {
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        run(Command::new("mount")
            .args(["-t", "tracefs", "tracefs"])
            .arg(dir.path()));
        Some(Tracefs(dir))
    }

    /// Where its instances are.
    pub fn instances(&self) -> PathBuf {
        self.0.path().join("instances")
    }
}

impl Drop for Tracefs {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.0.path()).status().unwrap();
        assert!(
            unmounted.success() || std::thread::panicking(),
            "unmounting tracefs"
        );
    }
}

/// A file system in a file, mounted on a directory; gone when dropped.
pub struct Private {
    dir: tempfile::TempDir,
    at: String,
    device: String,
}

impl Private {
    /// A new one; `None` (and a line that says so) without root.
    #[track_caller]
    pub fn new(fstype: &str) -> Option<Private> {
        if !is_root() {
            return None;
        }
        // Not below /tmp, which may be memory.
        let dir = tempfile::Builder::new()
            .prefix("headstart-test-")
            .tempdir_in("/var/tmp")
            .unwrap();
        let image = dir.path().join("image");
        std::fs::File::create(&image).unwrap().set_len(512 << 20).unwrap();
        run(Command::new(format!("/sbin/mkfs.{fstype}")).arg("-q").arg(&image));
        let at = dir.path().join("mount").to_str().unwrap().to_owned();
        std::fs::create_dir(&at).unwrap();
        let device = run(Command::new("/sbin/losetup")
            .args(["--find", "--show"])
            .arg(&image));
        let private = Private { dir, at, device };
        run(Command::new("mount").args([&private.device, &private.at]));
        Some(private)
    }

    /// Where it is mounted.
    pub fn path(&self) -> &str {
        &self.at
    }

    /// The block device's numbers.
    pub fn device(&self) -> (u32, u32) {
        let rdev = std::fs::metadata(&self.device).unwrap().rdev();
        (rustix::fs::major(rdev), rustix::fs::minor(rdev))
    }

    /// Writes so many bytes to a file, with its directories.
    pub fn write(&self, name: &str, bytes: usize) {
        let path = std::path::Path::new(&self.at).join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, vec![b'x'; bytes]).unwrap();
    }

    /// A file's inode number.
    pub fn inode(&self, name: &str) -> u64 {
        std::fs::metadata(format!("{}/{name}", self.at)).unwrap().ino()
    }

    /// Copies a program into `bin` and its libraries into `lib`, the loader as `lib/ld`.
    pub fn copy_program(&self, name: &str) {
        let path = run(Command::new("sh").args(["-c", &format!("command -v {name}")]));
        let script = format!(
            "mkdir -p {at}/bin {at}/lib && cp {path} {at}/bin/ && \
             for l in $(ldd {path} | grep -o '/[^ ]*'); do cp $l {at}/lib/; case $l in */ld-*) cp $l {at}/lib/ld;; esac; done",
            at = self.at
        );
        run(Command::new("sh").args(["-c", &script]));
    }

    /// Nothing of it is in memory afterwards.
    pub fn make_cold(&self) {
        run(Command::new("umount").arg(&self.at));
        run(Command::new("/sbin/blockdev").args(["--flushbufs", &self.device]));
        run(Command::new("mount").args([&self.device, &self.at]));
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // As much as can be undone is, whatever state the test left.
        let _ = Command::new("umount").args(["--lazy", &self.at]).status();
        let _ = Command::new("/sbin/losetup")
            .args(["--detach", &self.device])
            .status();
        let _ = self.dir.path();
    }
}

/// A shell that waits for a word before it becomes the script's.
pub struct Waiting(Child);

impl Drop for Waiting {
    fn drop(&mut self) {
        // Ended already, unless the test failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Waiting {
    /// Starts it.
    pub fn start(script: &str) -> Waiting {
        let script = format!(
            "read go || exit 1; exec sh -c '{}'",
            script.replace('\'', "'\\''")
        );
        Waiting(
            Command::new("sh")
                .args(["-c", &script])
                .stdin(Stdio::piped())
                .spawn()
                .unwrap(),
        )
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Lets it go and waits for its end; the status as wait(2) has it.
    pub fn run(mut self) -> i32 {
        self.0.stdin.take().unwrap().write_all(b"go\n").unwrap();
        self.0.wait().unwrap().into_raw()
    }
}
