//! A mounted file system that files are moved on, and room on it.

use super::ext4::Ext4;
use super::mover::{Mover, copy, reopen};
use super::xfs::Xfs;
use crate::executions::{DeadMansSwitch, Executions};
use crate::extents::Mapper;
use crate::files::Stat;
use crate::mounts::MountTable;
use crate::open::{self, Expect};
use crate::residency;
use crate::sys;
use headstart_model::machine::Extent;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Why a program stays where it is.
pub const RUNS: &str = "a program that runs";
/// The kernel's tick lasts no longer.
const TICK: Duration = Duration::from_millis(10);
/// Nobody who executes a file waits longer for a move that does not end, as on a file system that is frozen.
const MOST_WAIT: Duration = Duration::from_secs(5);
/// Nor longer than this where the process that moves is stopped or frozen: it is ended.
const MOST_STOPPED: Duration = Duration::from_secs(10);

/// Why files are moved on no file system of this type, as mounts name it; `None` where they are.
pub fn unserved(fstype: &str) -> Option<String> {
    match fstype {
        "ext4" | "xfs" => None,
        "btrfs" => Some(
            "files are not moved on btrfs: what is moved there is a copy, which snapshots and reflinks no longer share"
                .to_owned(),
        ),
        other => Some(format!("files are moved on ext4 and xfs only, and this is {other}")),
    }
}

/// Whether somebody may execute a file of this name and mode. Shared libraries are mapped and not executed, also where they have the
/// permission; the dynamic linker is both, and that of musl is its `libc.so`.
pub fn may_be_executed(path: &Path, mode: u32) -> bool {
    let name = path.file_name().map(OsStrExt::as_bytes).unwrap_or_default();
    let holds = |part: &[u8]| name.windows(part.len()).any(|window| window == part);
    mode & 0o111 != 0 && !(name.starts_with(b"lib") && holds(b".so") && name != b"libc.so")
}

/// Whether the kernel itself reads files of this path: modules, firmware, and a kernel for kexec. It refuses one that is open for writing at that
/// instant, and does not wait.
fn is_the_kernels(path: &Path) -> bool {
    let path = path.as_os_str().as_bytes();
    let holds = |part: &[u8]| path.windows(part.len()).any(|window| window == part);
    holds(b"/lib/modules/") || holds(b"/lib/firmware/") || path.starts_with(b"/boot/")
}

/// Whether anybody uses a file that may be executed; the descriptor is one for reading, and the only one of this process.
pub fn runs(file: &File) -> io::Result<bool> {
    sys::is_open_elsewhere(file.as_fd())
}

/// A mounted file system that files are moved on.
pub struct Volume {
    root: OwnedFd,
    mover: Box<dyn Mover>,
    switch: Option<DeadMansSwitch>,
    /// Device and inode numbers of the swap files in use.
    swaps: Vec<(u64, u64)>,
}

impl Volume {
    /// The one at a mount point, on this device node; `Err` says why nothing can be moved there.
    pub fn open(
        mounts: &MountTable,
        mount_point: &Path,
        node: &Path,
        fstype: &str,
    ) -> Result<Volume, String> {
        let mount = mounts
            .lookup(mount_point.as_os_str().as_encoded_bytes())
            .ok_or("it is not mounted any more")?;
        let root = open::open_root(mounts, mount).map_err(|skip| skip.to_string())?;
        let mover: Box<dyn Mover> = match fstype {
            "ext4" => Box::new(Ext4::open(node, mount)?),
            "xfs" => Box::new(Xfs::open(root.as_fd())?),
            other => return Err(unserved(other).unwrap_or_default()),
        };
        let switch = DeadMansSwitch::new().ok();
        Ok(Volume {
            root,
            mover,
            switch,
            swaps: swaps(),
        })
    }

    /// Why a file stays where it is, as far as it tells without being opened for writing; `None` if it may be moved.
    pub fn stays(&self, path: &Path, file: &File) -> io::Result<Option<&'static str>> {
        if is_the_kernels(path) {
            return Ok(Some(
                "what the kernel itself loads: a module, firmware, or a kernel",
            ));
        }
        let facts = file.metadata()?;
        if !facts.is_file() {
            return Ok(Some("no regular file"));
        }
        if self.swaps.contains(&(facts.dev(), facts.ino())) {
            return Ok(Some("a swap file"));
        }
        if facts.nlink() > 1 {
            return Ok(Some("it has several names"));
        }
        self.mover.stays(file)
    }

    /// Bytes of a block.
    pub fn block(&self) -> u64 {
        self.mover.block()
    }

    /// Whether a donor has to be filled from its beginning to its end.
    pub fn fills_in_order(&self) -> bool {
        self.mover.keeps_size()
    }

    /// Bytes that ordinary users may still fill: what is kept for root is not taken, or they could write nothing meanwhile.
    pub fn free(&self) -> io::Result<u64> {
        let found = rustix::fs::fstatvfs(&self.root)?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }

    /// All bytes of it.
    pub fn size(&self) -> io::Result<u64> {
        let found = rustix::fs::fstatvfs(&self.root)?;
        Ok(found.f_blocks.saturating_mul(found.f_frsize))
    }

    /// Has all that was written and moved on it on the device, in one go for all files.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(&self.root)?)
    }

    /// Takes `bytes` of its free room, in as few pieces as the allocator finds.
    pub fn donor(&self, bytes: u64) -> io::Result<Donor> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.root, ".", flags, Mode::RUSR | Mode::WUSR)?;
        let flags = match self.mover.keeps_size() {
            true => FallocateFlags::KEEP_SIZE,
            false => FallocateFlags::empty(),
        };
        rustix::fs::fallocate(&file, flags, 0, bytes)?;
        let room = Mapper::new().allocated(file.as_fd())?;
        Ok(Donor { file, room })
    }
}

/// The swap files in use, as far as they can be told.
fn swaps() -> Vec<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    let paths = text
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().next());
    // Spaces in a path are written \040; who has them there has a swap file that the kernel itself refuses to move.
    paths
        .filter_map(|path| std::fs::metadata(path).ok())
        .filter(std::fs::Metadata::is_file)
        .map(|facts| (facts.dev(), facts.ino()))
        .collect()
}

/// Room that was taken.
pub struct Donor {
    file: OwnedFd,
    room: Vec<Extent>,
}

impl Donor {
    /// Gives it a name at the root of its file system, so that it stays: an ordinary file that root alone may read. Fails if there
    /// is something of that name.
    pub fn keep(&self, volume: &Volume, name: &str) -> io::Result<()> {
        let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let flags = rustix::fs::AtFlags::SYMLINK_FOLLOW;
        rustix::fs::linkat(rustix::fs::CWD, own, &volume.root, name, flags)?;
        // Where the device takes nothing any more, it stays as long as the file system is mounted.
        let _ = rustix::fs::fsync(&self.file);
        Ok(())
    }

    /// Has it tell the old contents of what was moved to `[start, start + length)` of it.
    pub fn recover(&self, volume: &Volume, start: u64, length: u64) -> io::Result<()> {
        let file = File::from(self.file.try_clone()?);
        volume.mover.recover(&file, start, length)
    }

    /// Writes what it tells at `[start, start + length)` to another, at `at`.
    pub fn copy(&self, start: u64, length: u64, to: &Donor, at: u64) -> io::Result<()> {
        let [from, to] = [
            File::from(self.file.try_clone()?),
            File::from(to.file.try_clone()?),
        ];
        copy(&from, start, &to, at, length)
    }

    /// Where it is, by offset in the donor.
    pub fn room(&self) -> &[Extent] {
        &self.room
    }

    /// Gives back `[start, start + length)` of it.
    pub fn release(&self, start: u64, length: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&self.file, flags, start, length)?)
    }
}

/// When a file or its facts were changed last. Whatever changes them from now on gives it another time: these are as fine as the kernel's tick,
/// so if that was just now the next one is waited for.
fn changed(pin: &OwnedFd) -> Result<(i64, i64), String> {
    let facts = rustix::fs::fstat(pin).map_err(|error| error.to_string())?;
    let changed = (facts.st_ctime, facts.st_ctime_nsec as i64);
    let now = clock_gettime(ClockId::RealtimeCoarse);
    let since = |(seconds, nanoseconds): (i64, i64)| {
        Duration::from_secs(seconds.unsigned_abs()) + Duration::from_nanos(nanoseconds.unsigned_abs())
    };
    if since((now.tv_sec, now.tv_nsec)).abs_diff(since(changed)) < 2 * TICK {
        std::thread::sleep(2 * TICK);
    }
    Ok(changed)
}

/// A file whose data can be moved.
pub struct Movable {
    /// It cannot be read or written by this one. It is open for writing while a move lasts, and no longer: nobody can execute it then.
    pin: OwnedFd,
    /// Whether it may be executed: who does waits then, see [`Movable::unexecuted`].
    executed: bool,
    /// Its facts when it was opened.
    pub stat: Stat,
    /// When it or its facts were changed last before that, seconds and nanoseconds. Its owner can set its other times, and not this one.
    changed: (i64, i64),
}

impl Movable {
    /// Opens one, if it still is what is expected; `Err` says why it stays where it is.
    pub fn open(
        volume: &Volume,
        mounts: &MountTable,
        path: &Path,
        expect: &Expect,
    ) -> Result<Movable, String> {
        let (pin, stat) = open::pin(mounts, path).map_err(|skip| skip.to_string())?;
        // Checks what is there and that it is what is expected, on the descriptor that is opened for writing below.
        open::open_pinned(pin.as_fd(), stat, expect).map_err(|skip| skip.to_string())?;
        let changed = changed(&pin)?;
        let executed = may_be_executed(path, stat.mode);
        let why = reopen(pin.as_fd(), OFlags::RDONLY).and_then(|reading| {
            Ok(match volume.stays(path, &reading)? {
                None if executed && runs(&reading)? => Some(RUNS),
                why => why,
            })
        });
        match why.map_err(|error| error.to_string())? {
            Some(why) => Err(why.to_owned()),
            None => Ok(Movable {
                pin,
                executed,
                stat,
                changed,
            }),
        }
    }

    /// The file, to be read.
    pub fn file(&self) -> io::Result<File> {
        reopen(self.pin.as_fd(), OFlags::RDONLY)
    }

    /// Where its written data lies.
    pub fn extents(&self) -> io::Result<Vec<Extent>> {
        Mapper::new().extents(self.file()?.as_fd())
    }

    /// Has what was written to it on the device, so that pages which programs have mapped are protected from writes again: the next
    /// write changes its time. Nothing is done for a file that nobody has written of late.
    pub fn write_back(&self) -> io::Result<()> {
        let file = self.file()?;
        let counts = residency::cachestat(&file, 0, 0);
        let is_clean = counts.is_ok_and(|counts| counts.dirty == 0 && counts.writeback == 0);
        if is_clean { Ok(()) } else { file.sync_data() }
    }

    /// Whether its data and size are what they were when it was opened.
    pub fn is_unchanged(&self) -> io::Result<bool> {
        let file = self.file()?;
        let (now, facts) = (crate::files::stat(&file)?, file.metadata()?);
        let same = (now.size, now.mtime_ns) == (self.stat.size, self.stat.mtime_ns);
        Ok(same && (facts.ctime(), facts.ctime_nsec()) == self.changed)
    }

    /// Moves the data at `[start, start + length)`, which lies in one extent, to the donor's `[to, to + length)`, which does
    /// too; all are multiples of the page size, but that the last page of a file may end with its last block. One extent a
    /// call: then what a move did before it failed is told by the file's extents. Who executes the file waits for its end.
    pub fn move_to(
        &self,
        volume: &Volume,
        donor: &Donor,
        start: u64,
        to: u64,
        length: u64,
    ) -> io::Result<()> {
        let donor = donor.file.as_fd();
        let act = || {
            let file = volume.mover.open(volume.root.as_fd(), self.pin.as_fd())?;
            volume.mover.move_extent(&file, start, donor, to, length)
        };
        if self.executed {
            self.unexecuted(volume, act)
        } else {
            act()
        }
    }

    /// While a file is open for writing, the kernel refuses to execute it (ETXTBSY). So who executes one meanwhile waits until `act` is
    /// over. Where that sleeps for long in the kernel, as on a file system that is frozen, another thread lets them go on.
    fn unexecuted(&self, volume: &Volume, act: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let reading = self.file()?;
        let switch = volume.switch.as_ref();
        let switch = switch.ok_or_else(|| io::Error::other("it may be executed, and there is no timer"))?;
        let executions = Executions::new()?;
        switch.set(Some(MOST_STOPPED))?;
        let is_over = &AtomicBool::new(false);
        let moved = std::thread::scope(|scope| {
            executions.ask_about(reading.as_fd())?;
            let until = Instant::now() + MOST_WAIT;
            let other = std::thread::Builder::new().spawn_scoped(scope, move || {
                let left = || until.saturating_duration_since(Instant::now());
                while !is_over.load(Ordering::Relaxed) && !left().is_zero() {
                    std::thread::park_timeout(left());
                }
                // With it goes whoever waits; and a process for which nobody waits need not be ended.
                drop(executions);
                let _ = switch.set(None);
            })?;
            // Who was asked about before that has it open, and is not disturbed.
            let moved = match sys::is_open_elsewhere(reading.as_fd())? {
                true => Err(io::Error::other(RUNS)),
                false => act(),
            };
            is_over.store(true, Ordering::Relaxed);
            other.thread().unpark();
            moved
        });
        switch.set(None)?;
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_loads_is_told_by_its_path() {
        for (path, is_the_kernels) in [
            ("/usr/lib/modules/6.12.1/kernel/fs/ext4/ext4.ko.xz", true),
            ("/lib/firmware/iwlwifi.ucode", true),
            ("/boot/vmlinuz-6.12.1", true),
            ("/usr/lib/x86_64-linux-gnu/security/pam_unix.so", false),
            ("/home/boot/vmlinuz", false),
            ("/usr/lib/firmware-tool", false),
        ] {
            assert_eq!(super::is_the_kernels(Path::new(path)), is_the_kernels, "{path}");
        }
    }

    #[test]
    fn programs_scripts_and_the_dynamic_linker_are_executed_and_libraries_are_not() {
        for (name, mode, executed) in [
            ("/bin/bash", 0o100_755, true),
            ("a-script.py", 0o100_711, true),
            ("ld-linux-x86-64.so.2", 0o100_755, true),
            ("libc.so.6", 0o100_755, false),
            ("libm-2.36.so", 0o100_755, false),
            // musl's dynamic linker, and a text for glibc's linker.
            ("/lib/libc.so", 0o100_755, true),
            ("libc.so", 0o100_644, false),
            ("library-tool", 0o100_755, true),
            ("site.py", 0o100_644, false),
        ] {
            assert_eq!(may_be_executed(Path::new(name), mode), executed, "{name}");
        }
    }
}
