//! What tests take from the machine and give back when dropped: directories, mounts, loop devices.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Error};
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// An empty directory of its own, removed when dropped: below `HEADSTART_SCRATCH`, or `/var/tmp`.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes one.
    pub fn new() -> io::Result<Scratch> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let base = std::env::var_os("HEADSTART_SCRATCH").map_or_else(|| "/var/tmp".into(), PathBuf::from);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = base.join(format!("hs-test-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Scratch(path))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Should an unmount have failed, what is mounted must not be emptied.
        let mounts = crate::mounts::MountTable::read().unwrap_or_default();
        let inside = mounts
            .all()
            .iter()
            .any(|mount| mount.mount_point.as_path().starts_with(&self.0));
        if inside {
            eprintln!(
                "left behind, something is still mounted in it: {}",
                self.0.display()
            );
        } else {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

/// A child that does not outlive its test, however that ends.
#[derive(Debug)]
pub struct Process(pub Child);

impl Deref for Process {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Process {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has ended already, unless the test failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Something mounted, unmounted when dropped: bind mounts, overlays.
#[derive(Debug)]
pub struct Mounted(PathBuf);

impl Mounted {
    /// Runs mount(8) with the arguments and, last, the mount point, which is made if it is missing.
    pub fn new(arguments: &[&str], point: &Path) -> io::Result<Mounted> {
        if !point.is_file() {
            std::fs::create_dir_all(point)?;
        }
        run(Command::new("mount").args(arguments).arg(point))?;
        Ok(Mounted(point.into()))
    }

    /// Where.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        unmount_at_last(&self.0);
    }
}

/// A mounted file system whose server never answers: FUSE, of which nobody reads the requests. Whoever asks
/// it anything waits, until this is dropped: then the connection is aborted, and all waits end with an error.
#[derive(Debug)]
pub struct DeadMount {
    server: Option<File>,
    point: PathBuf,
}

impl DeadMount {
    /// Mounts it. Needs root and `/dev/fuse`.
    pub fn new(point: &Path) -> io::Result<DeadMount> {
        std::fs::create_dir_all(point)?;
        let server = File::options().read(true).write(true).open("/dev/fuse")?;
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", server.as_raw_fd());
        let options = std::ffi::CString::new(options)?;
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("dead", point, "fuse.dead", flags, Some(options.as_c_str()))?;
        Ok(DeadMount {
            server: Some(server),
            point: point.into(),
        })
    }
}

impl Drop for DeadMount {
    fn drop(&mut self) {
        // The last descriptor of the server: the kernel aborts the connection.
        self.server = None;
        let lazily = rustix::mount::UnmountFlags::DETACH;
        if let Err(error) = rustix::mount::unmount(&self.point, lazily) {
            eprintln!("{} stays mounted: {error}", self.point.display());
        }
    }
}

/// A file system to which nobody can write until this is dropped: whoever does waits as for a device (state
/// D).
#[derive(Debug)]
pub struct Frozen(PathBuf);

impl Frozen {
    /// Freezes what is mounted there. Needs root.
    pub fn freeze(point: &Path) -> io::Result<Frozen> {
        run(Command::new("fsfreeze").arg("-f").arg(point))?;
        Ok(Frozen(point.into()))
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        if let Err(error) = run(Command::new("fsfreeze").arg("-u").arg(&self.0)) {
            eprintln!("{} stays frozen: {error}", self.0.display());
        }
    }
}

/// A file that nobody can open: whoever tries waits for the permission of a listener (fanotify(7)) that gives
/// none, until this is dropped. So virus scanners and the like behave when they hang.
#[derive(Debug)]
pub struct NeverOpened {
    /// Closing it lets everybody pass.
    _listener: OwnedFd,
}

impl NeverOpened {
    /// Marks a file. Needs root and a kernel with permission events.
    pub fn new(path: &Path) -> io::Result<NeverOpened> {
        let flags = libc::FAN_CLASS_CONTENT | libc::FAN_CLOEXEC;
        // SAFETY: no pointer is passed.
        let listener = unsafe { libc::fanotify_init(flags, libc::O_RDONLY as u32) };
        if listener < 0 {
            return Err(Error::last_os_error());
        }
        // SAFETY: the kernel just gave this descriptor to us alone.
        let listener = unsafe { OwnedFd::from_raw_fd(listener) };
        let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
        let (add, events) = (libc::FAN_MARK_ADD, libc::FAN_OPEN_PERM);
        // SAFETY: the path ends in NUL and outlives the call.
        let marked =
            unsafe { libc::fanotify_mark(listener.as_raw_fd(), add, events, libc::AT_FDCWD, path.as_ptr()) };
        match marked {
            0 => Ok(NeverOpened { _listener: listener }),
            _ => Err(Error::last_os_error()),
        }
    }
}

/// A loop device.
#[derive(Debug)]
pub(super) struct LoopDevice(pub(super) PathBuf);

impl LoopDevice {
    pub(super) fn attach(image: &Path, direct_io: bool) -> io::Result<LoopDevice> {
        let direct = if direct_io {
            "--direct-io=on"
        } else {
            "--direct-io=off"
        };
        let output = Command::new("losetup")
            .args(["-f", "--show", direct])
            .arg(image)
            .output()?;
        if !output.status.success() {
            return Err(Error::other(format!(
                "losetup: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            )));
        }
        Ok(LoopDevice(PathBuf::from(
            String::from_utf8_lossy(&output.stdout).trim(),
        )))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if let Err(error) = run(Command::new("losetup").arg("-d").arg(&self.0)) {
            eprintln!("{} stays attached: {error}", self.0.display());
        }
        // Detaching waits for the last user; the next mount of the image must not find the old device.
        for _ in 0..100 {
            let name = self.0.file_name().map(OsStr::to_owned).unwrap_or_default();
            if !Path::new("/sys/block")
                .join(name)
                .join("loop/backing_file")
                .exists()
            {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Unmounts; it fails where something uses it for longer than five seconds. An indexer may look at it just
/// now, or a process that is about to end.
pub fn unmount(point: &Path) -> io::Result<()> {
    for _ in 0..100 {
        if run(Command::new("umount").arg(point)).is_ok() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    run(Command::new("umount").arg(point))
}

/// Unmounts, also what is in use: then it goes with its last user.
fn unmount_at_last(point: &Path) {
    if unmount(point).is_ok() {
        return;
    }
    if let Err(error) = run(Command::new("umount").arg("-l").arg(point)) {
        eprintln!("{} stays mounted: {error}", point.display());
    }
}

/// Runs a program to its end; what it said is the error's text.
pub fn run(command: &mut Command) -> io::Result<()> {
    let output = command
        .output()
        .map_err(|e| Error::new(e.kind(), format!("{command:?}: {e}")))?;
    if output.status.success() {
        return Ok(());
    }
    let (said, errors) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    let text = [errors.trim(), said.trim()].join("\n");
    Err(Error::other(format!(
        "{command:?}: {}: {}",
        output.status,
        text.trim()
    )))
}

/// A control group of the unified hierarchy; it goes with the value, and so do those above it that were made
/// for it.
pub struct ControlGroup(Vec<PathBuf>);

impl ControlGroup {
    /// At this path below the root of the hierarchy; the last part gets a number of its own behind its name,
    /// and keeps its extension.
    pub fn new(path: &str) -> io::Result<ControlGroup> {
        let (name, extension) = match path.rsplit_once('.') {
            Some((name, extension)) => (name, format!(".{extension}")),
            None => (path, String::new()),
        };
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        ControlGroup::named(&format!("{name}-{}-{number}{extension}", std::process::id()))
    }

    /// At just this path.
    pub fn named(path: &str) -> io::Result<ControlGroup> {
        // The only hierarchy, or that beside those of version 1.
        let unified = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
        let is_one = |root: &&Path| root.join("cgroup.controllers").exists();
        let missing = || io::Error::other("there is no unified hierarchy of control groups");
        let mut at = unified
            .map(Path::new)
            .into_iter()
            .find(is_one)
            .ok_or_else(missing)?
            .to_owned();
        let mut made = ControlGroup(Vec::new());
        for part in path.split('/') {
            at.push(part);
            match std::fs::create_dir(&at) {
                Ok(()) => made.0.push(at.clone()),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Ok(made)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        // Its own name was nobody's before.
        self.0.last().map_or(Path::new("/"), PathBuf::as_path)
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // A process that has ended may be on its way out.
        let begun = Instant::now();
        for group in self.0.iter().rev() {
            while std::fs::remove_dir(group).is_err() && begun.elapsed() < Duration::from_secs(10) {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}
