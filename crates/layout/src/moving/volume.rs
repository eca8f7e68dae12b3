//! A mounted file system that files are moved on, and room on it.

use super::ext4::Ext4;
use super::mover::Mover;
use super::space_below;
use super::xfs::Xfs;
use headstart_model::machine::Extent;
use headstart_system::direct::{Aligned, BLOCK, Direct};
use headstart_system::mounts::MountTable;
use headstart_system::open;
use headstart_system::sys;
use rustix::fs::{Mode, OFlags, StatVfsMountFlags};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Why a program stays where it is.
pub const RUNS: &str = "a program that runs";
/// Bytes that are read at once.
const READ: u64 = 1 << 20;
/// Why all programs stay.
pub const TAINTS: &str = "programs: moved at the next shutdown, for this kernel is marked as tainted where their execution is held";
/// So many pieces are given back to what lies below, at most; the rest when the file system is trimmed.
pub(super) const MOST_TRIMMED: usize = 4096;

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

/// Whether somebody may execute a file of this name and mode. Shared libraries are mapped and not executed,
/// also where they have the permission; the dynamic linker is both, and that of musl is its `libc.so`.
pub fn may_be_executed(path: &Path, mode: u32) -> bool {
    let name = path.file_name().map(OsStrExt::as_bytes).unwrap_or_default();
    let holds = |part: &[u8]| name.windows(part.len()).any(|window| window == part);
    mode & 0o111 != 0 && !(name.starts_with(b"lib") && holds(b".so") && name != b"libc.so")
}

/// Whether the kernel itself reads files of this path: modules, firmware, and a kernel for kexec. It refuses
/// one that is open for writing at that instant, and does not wait.
fn is_the_kernels(path: &Path) -> bool {
    let path = path.as_os_str().as_bytes();
    let holds = |part: &[u8]| path.windows(part.len()).any(|window| window == part);
    holds(b"/lib/modules/") || holds(b"/lib/firmware/") || path.starts_with(b"/boot/")
}

/// Whether anybody uses a file that may be executed; the descriptor is one for reading, and the only one of
/// this process.
pub fn runs(file: &File) -> io::Result<bool> {
    sys::is_open_elsewhere(file.as_fd())
}

/// A mounted file system that files are moved on.
pub struct Volume {
    root: OwnedFd,
    device: (u32, u32),
    node: PathBuf,
    pub(super) mover: Box<dyn Mover>,
    pub(super) switch: Option<headstart_system::executions::DeadMansSwitch>,
    /// Whether what may be executed stays: who executes it would have to be held.
    leaves_programs: bool,
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
        let switch = headstart_system::executions::DeadMansSwitch::new().ok();
        Ok(Volume {
            root,
            device: (mount.major, mount.minor),
            node: node.to_owned(),
            mover,
            switch,
            leaves_programs: false,
            swaps: swaps(),
        })
    }

    /// Leaves what may be executed where it is.
    pub fn leave_programs(&mut self) {
        self.leaves_programs = true;
    }

    /// Why a file stays where it is, as far as it tells without being opened for writing; `None` if it may be
    /// moved.
    pub fn why_immovable(&self, path: &Path, file: &File) -> io::Result<Option<&'static str>> {
        if is_the_kernels(path) {
            return Ok(Some(
                "what the kernel itself loads: a module, firmware, or a kernel",
            ));
        }
        let facts = file.metadata()?;
        if !facts.is_file() {
            return Ok(Some("no regular file"));
        }
        if self.leaves_programs && may_be_executed(path, facts.mode()) {
            return Ok(Some(TAINTS));
        }
        if self.swaps.contains(&(facts.dev(), facts.ino())) {
            return Ok(Some("a swap file"));
        }
        if facts.nlink() > 1 {
            return Ok(Some("it has several names"));
        }
        self.mover.why_immovable(file)
    }

    /// Bytes of a block.
    pub fn block(&self) -> u64 {
        self.mover.block()
    }

    /// Whether a donor has to be filled from its beginning to its end.
    pub fn fills_in_order(&self) -> bool {
        self.mover.keeps_size()
    }

    /// Bytes that ordinary users may still fill: what is kept for root is not taken, or they could write
    /// nothing meanwhile.
    pub fn free(&self) -> io::Result<u64> {
        let facts = rustix::fs::fstatvfs(&self.root)?;
        Ok(facts.f_bavail.saturating_mul(facts.f_frsize))
    }

    /// All bytes of it.
    pub fn size(&self) -> io::Result<u64> {
        let facts = rustix::fs::fstatvfs(&self.root)?;
        Ok(facts.f_blocks.saturating_mul(facts.f_frsize))
    }

    /// How many bytes may be taken of what it lies on, where that is known: an image with holes may have less
    /// room than its file system.
    pub fn free_below(&self) -> Option<u64> {
        space_below::free(self.device)
    }

    /// Whether it still takes writes; else why not.
    pub fn check_writable(&self) -> io::Result<()> {
        let flags = rustix::fs::fstatvfs(&self.root)?.f_flag;
        match flags.contains(StatVfsMountFlags::RDONLY) {
            true => Err(io::ErrorKind::ReadOnlyFilesystem.into()),
            false => Ok(()),
        }
    }

    /// Has all that was written and moved on it on the device, in one go for all files.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(&self.root)?)
    }

    /// The same, and what it noted of itself in its journal is also written where it belongs: nothing of it
    /// waits for room below any more.
    pub fn settle(&self) -> io::Result<()> {
        self.sync()?;
        self.mover.settle(self.root.as_fd())
    }

    /// Tells what it lies on that these places of it hold nothing, as far as they are free by now. Where that
    /// is not possible nothing happens.
    pub fn trim(&self, places: &[Extent]) {
        for place in places.iter().take(MOST_TRIMMED) {
            if sys::trim(self.root.as_fd(), place.physical, place.length).is_err() {
                break;
            }
        }
    }

    /// Reads `length` bytes of its device from `start` on, past all caches, and hands them to `take`.
    pub fn read(&self, start: u64, length: u64, take: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        let device = Direct::open(&self.node)?;
        let mut done = 0;
        while done < length {
            let at = (start + done) / BLOCK * BLOCK;
            let before = start + done - at;
            let part = (length - done).min(READ - before);
            let mut buffer = Aligned::new((before + part).next_multiple_of(BLOCK) as usize);
            // The kernel tells the next reader what it could not write to the device, once, and reads nothing
            // for it.
            let read = device.read(at, &mut buffer);
            let read = read.or_else(|_| device.read(at, &mut buffer))?;
            if (read as u64) < before + part {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            take(&buffer.bytes()[before as usize..(before + part) as usize]);
            done += part;
        }
        Ok(())
    }

    /// Its device, open for writing.
    pub(super) fn device(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let device = rustix::fs::open(&self.node, flags, Mode::empty())?;
        let number = rustix::fs::fstat(&device)?.st_rdev;
        match (rustix::fs::major(number), rustix::fs::minor(number)) == self.device {
            true => Ok(device),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// The root of its mount.
    pub(super) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }
}

/// The swap files in use, as far as they can be told.
fn swaps() -> Vec<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    let paths = text
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().next());
    // Spaces in a path are written \040; who has them there has a swap file that the kernel itself refuses to
    // move.
    paths
        .filter_map(|path| std::fs::metadata(path).ok())
        .filter(std::fs::Metadata::is_file)
        .map(|facts| (facts.dev(), facts.ino()))
        .collect()
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
