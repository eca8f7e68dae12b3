//! File systems on private loop devices, for tests and experiments: made, filled, mounted cold as often as
//! wanted, and taken apart when dropped, also when a test fails. Needs root and the file system's tools.

mod guards;
pub mod numbered;
mod scanner;
pub mod tree;

pub use guards::{ControlGroup, DeadMount, Frozen, Mounted, NeverOpened, Process, Scratch, run, unmount};
pub use headstart_model::testing::needs;
pub use scanner::Scanner;

use guards::LoopDevice;
use headstart_model::FilePath;
use headstart_model::profile::{Entry, Version};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// `read_ahead_kb` of ordinary machines; loop devices begin with more.
const READ_AHEAD_KB: &str = "128";

/// All of the file at this path, as it is now, for a profile: see [`Entry::whole`].
pub fn whole(path: &Path, first_use_ns: u64) -> io::Result<Entry> {
    let file = File::open(path)?;
    let facts = file.metadata()?;
    let version = Version {
        size: facts.len(),
        mtime_ns: facts.mtime() * 1_000_000_000 + facts.mtime_nsec(),
        generation: crate::files::generation(file.as_fd()),
    };
    let page_size = rustix::param::page_size() as u32;
    Ok(Entry::whole(
        FilePath::from(path),
        version,
        page_size,
        first_use_ns,
    ))
}

/// Lets every user into a directory. What lies beside it stays as private as it is.
///
/// # Panics
///
/// If that is not allowed.
pub fn let_all_into(directory: &Path) {
    let to_root = directory.ancestors().take_while(|path| *path != Path::new("/"));
    for path in to_root {
        let mode = path.metadata().expect("a directory").mode();
        if mode & 0o001 == 0 {
            let open = PermissionsExt::from_mode(mode | 0o711);
            std::fs::set_permissions(path, open).expect("it is this user's");
        }
    }
}

/// Puts a file out of memory, once it is on the disk.
pub fn evict(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    file.sync_all()?;
    crate::residency::advise_dontneed(&file, 0, 0)
}

/// The pages of a file that are in memory, or were until the kernel took them back, as ranges (start, end).
///
/// The kernel may take pages back at any time, as some machines do every few seconds; it tells of those where
/// it has cachestat(2) (Linux 6.5). What [`evict`] or a drop of the page cache has taken is not among them.
pub fn resident(path: &Path) -> io::Result<Vec<(u64, u64)>> {
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    let page = rustix::param::page_size() as u64;
    let mut found: Vec<(u64, u64)> = Vec::new();
    let mut add = |start: u64, end: u64| match found.last_mut() {
        Some(last) if last.1 == start => last.1 = end,
        _ if start < end => found.push((start, end)),
        _ => {}
    };
    let taken_back = |pages: std::ops::Range<u64>| {
        let length = (pages.end - pages.start) * page;
        crate::residency::cachestat(&file, pages.start * page, length).map_or(0, |counts| counts.evicted)
    };
    let in_memory = crate::residency::resident(&file, 0, size)?;
    let end = size.div_ceil(page);
    let mut from = 0;
    for range in in_memory.into_iter().chain(std::iter::once(end..end)) {
        // A length of 0 would mean the rest of the file.
        if from < range.start && taken_back(from..range.start) > 0 {
            for missing in from..range.start {
                if taken_back(missing..missing + 1) > 0 {
                    add(missing, missing + 1);
                }
            }
        }
        add(range.start, range.end);
        from = range.end;
    }
    Ok(found)
}

/// How much the kernel has taken from memory since it began, in units of several kinds: as long as this
/// stays, what is in memory stays there.
pub fn taken_from_memory() -> u64 {
    counted(&[
        "pgsteal_kswapd",
        "pgsteal_direct",
        "drop_pagecache",
        "drop_slab",
        "slabs_scanned",
    ])
}

/// The sum of these counters of `/proc/vmstat`.
fn counted(counters: &[&str]) -> u64 {
    let text = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines
        .filter(|(name, _)| counters.contains(name))
        .filter_map(|(_, count)| count.parse::<u64>().ok())
        .sum()
}

/// A test that judges by what is in memory. Where it fails and somebody has dropped the page cache meanwhile,
/// it has judged nothing, and is made anew from its beginning; any other failure stands.
pub fn undisturbed(test: impl Fn()) {
    let drops = || counted(&["drop_pagecache"]);
    for _ in 0..20 {
        let before = drops();
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(&test)) {
            Ok(()) => return,
            Err(failure) if drops() == before => std::panic::resume_unwind(failure),
            Err(_) => eprintln!("the page cache was dropped amid it: made anew"),
        }
    }
    panic!("the page cache is dropped too often for this test");
}

/// Waits until the last page before `end` (bytes, within the file) is in memory, by reading a byte of it.
pub fn wait_resident(file: &std::fs::File, end: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, &mut [0], end.saturating_sub(1))
}

/// What the kernel keeps for the BPF maps and rings that a process (its directory in /proc) has open, KiB.
pub fn bpf_memory(process: &Path) -> io::Result<u64> {
    let mut maps = BTreeMap::new();
    for entry in std::fs::read_dir(process.join("fdinfo"))?.flatten() {
        // One that was closed meanwhile.
        let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
        let number = |name| -> Option<u64> {
            let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
            rest.trim().parse().ok()
        };
        if let (Some(map), Some(bytes)) = (number("map_id:"), number("memlock:")) {
            maps.insert(map, bytes);
        }
    }
    Ok(maps.values().sum::<u64>() / 1024)
}

/// What file system to make.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Type: `ext2`, `ext3`, `ext4`, `xfs`, `btrfs`, `squashfs`, `erofs`, `vfat`.
    pub fstype: &'static str,
    /// Further arguments for the program that makes it.
    pub mkfs: Vec<String>,
    /// Options to mount it with, separated by commas.
    pub options: String,
    /// Size of the image in bytes; read-only types take what they need.
    pub size: u64,
    /// Whether the loop device reads its image past the page cache. Slower, but then a cold device is cold.
    pub direct_io: bool,
}

impl Spec {
    /// That type with default options, 512 MiB.
    pub fn new(fstype: &'static str) -> Spec {
        Spec {
            fstype,
            mkfs: Vec::new(),
            options: String::new(),
            size: 512 << 20,
            direct_io: false,
        }
    }

    /// Adds arguments for the program that makes it.
    pub fn mkfs(mut self, arguments: &[&str]) -> Spec {
        self.mkfs.extend(arguments.iter().map(|a| a.to_string()));
        self
    }

    fn read_only(&self) -> bool {
        matches!(self.fstype, "squashfs" | "erofs")
    }
}

/// Read requests and bytes of a block device since it exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// Requests, as merged by the kernel.
    pub requests: u64,
    /// Bytes.
    pub bytes: u64,
}

impl std::ops::Sub for Reads {
    type Output = Reads;

    fn sub(self, before: Reads) -> Reads {
        Reads {
            requests: self.requests - before.requests,
            bytes: self.bytes - before.bytes,
        }
    }
}

/// Whether this is root; see [`needs`].
///
/// # Panics
///
/// If it is not, unless `HEADSTART_TESTS_SKIP` is in the environment.
#[track_caller]
pub fn is_root() -> bool {
    needs("root", rustix::process::geteuid().is_root())
}

/// Whether loop devices can be had; see [`needs`].
///
/// # Panics
///
/// If they cannot, unless `HEADSTART_TESTS_SKIP` is in the environment.
#[track_caller]
pub fn can_mount() -> bool {
    is_root() && needs("/dev/loop-control", Path::new("/dev/loop-control").exists())
}

/// A file system on a loop device.
#[derive(Debug)]
pub struct LoopFs {
    spec: Spec,
    mount: Option<Mounted>,
    device: Option<LoopDevice>,
    scratch: Scratch,
}

impl LoopFs {
    /// Makes a file system, fills it by the function, which is given its root, and mounts it cold.
    pub fn create(spec: &Spec, fill: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<LoopFs> {
        let mut fs = LoopFs {
            spec: spec.clone(),
            mount: None,
            device: None,
            scratch: Scratch::new()?,
        };
        std::fs::create_dir_all(fs.mount_point())?;
        if spec.read_only() {
            let root = Scratch::new()?;
            fill(root.path())?;
            fs.pack(root.path())?;
        } else {
            fs.make()?;
            fs.mount()?;
            fill(&fs.mount_point())?;
        }
        fs.remount_cold()?;
        Ok(fs)
    }

    /// Where it is mounted.
    pub fn mount_point(&self) -> PathBuf {
        self.scratch.path().join("mnt")
    }

    /// A directory beside the mount point, for what else a test mounts or writes; removed with it.
    pub fn beside(&self) -> &Path {
        self.scratch.path()
    }

    /// The image.
    pub fn image(&self) -> PathBuf {
        self.scratch.path().join("image")
    }

    /// The loop device's node, while mounted.
    pub fn node(&self) -> PathBuf {
        self.device
            .as_ref()
            .map_or_else(PathBuf::new, |device| device.0.clone())
    }

    /// Unmounts, detaches, attaches and mounts: nothing of it is in memory but what mounting itself reads.
    /// Sets `read_ahead_kb` to 128, last.
    pub fn remount_cold(&mut self) -> io::Result<()> {
        self.unmount();
        // Unless the device reads past the cache, the image should not be there either.
        evict(&self.image())?;
        self.mount()
    }

    /// Unmounts and detaches.
    pub fn unmount(&mut self) {
        self.mount = None;
        self.device = None;
    }

    /// Unmounts an ext2/3/4, has it checked, and mounts it cold; what is wrong with it is the error.
    pub fn check(&mut self) -> io::Result<()> {
        let node = self.node();
        self.unmount();
        // Who has unshared its mounts meanwhile has a copy of this one, and what is on the device is not
        // whole until that is gone.
        let name = node.file_name().map(OsStr::to_owned).unwrap_or_default();
        let backing = Path::new("/sys/block").join(name).join("loop/backing_file");
        let image = self.image();
        let attached = || std::fs::read_to_string(&backing).is_ok_and(|file| Path::new(file.trim()) == image);
        for _ in 0..600 {
            if !attached() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        if attached() {
            return Err(io::Error::other(format!(
                "{} is in use for more than a minute: something still has it mounted, or a file of it open",
                node.display()
            )));
        }
        run(Command::new("/sbin/e2fsck").arg("-fn").arg(self.image()))?;
        self.remount_cold()
    }

    /// What was read from the device until now.
    pub fn reads(&self) -> Reads {
        let name = self.node().file_name().map(OsStr::to_owned).unwrap_or_default();
        let stat =
            std::fs::read_to_string(Path::new("/sys/block").join(name).join("stat")).unwrap_or_default();
        let fields: Vec<u64> = stat
            .split_whitespace()
            .filter_map(|field| field.parse().ok())
            .collect();
        let field = |index: usize| fields.get(index).copied().unwrap_or(0);
        Reads {
            requests: field(0),
            bytes: field(2) * 512,
        }
    }

    fn make(&self) -> io::Result<()> {
        let image = std::fs::File::create(self.image())?;
        image.set_len(self.spec.size)?;
        let quiet: &[&str] = match self.spec.fstype {
            // Nothing left to initialise in the background while a test counts reads.
            "ext2" | "ext3" | "ext4" => &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
            "xfs" | "btrfs" => &["-q", "-f"],
            _ => &[],
        };
        let program = format!("mkfs.{}", self.spec.fstype);
        run(Command::new(program)
            .args(quiet)
            .args(&self.spec.mkfs)
            .arg(self.image()))
    }

    fn pack(&self, root: &Path) -> io::Result<()> {
        let mut command = match self.spec.fstype {
            "squashfs" => Command::new("mksquashfs"),
            _ => Command::new("mkfs.erofs"),
        };
        if self.spec.fstype == "squashfs" {
            command
                .arg(root)
                .arg(self.image())
                .args(["-quiet", "-no-progress"])
                .args(&self.spec.mkfs);
        } else {
            command
                .arg("--quiet")
                .args(&self.spec.mkfs)
                .arg(self.image())
                .arg(root);
        }
        run(&mut command)
    }

    fn mount(&mut self) -> io::Result<()> {
        let device = LoopDevice::attach(&self.image(), self.spec.direct_io)?;
        let node = device.0.to_string_lossy().into_owned();
        self.device = Some(device);
        let mut options = vec![self.spec.options.as_str()];
        if self.spec.read_only() {
            options.push("ro");
        }
        if matches!(self.spec.fstype, "ext3" | "ext4") {
            // A thread would read them at any moment of the first five seconds, while a test counts reads.
            options.push("no_prefetch_block_bitmaps");
        }
        options.retain(|option| !option.is_empty());
        let options = options.join(",");
        let mut arguments = vec!["-t", self.spec.fstype, &node];
        if !options.is_empty() {
            arguments.extend(["-o", &options]);
        }
        self.mount = Some(Mounted::new(&arguments, &self.mount_point())?);
        self.limit_read_ahead()
    }

    fn limit_read_ahead(&self) -> io::Result<()> {
        let name = self.node().file_name().map(OsStr::to_owned).unwrap_or_default();
        std::fs::write(
            Path::new("/sys/block").join(&name).join("queue/read_ahead_kb"),
            READ_AHEAD_KB,
        )?;
        // Btrfs reads through a backing device of its own.
        if self.spec.fstype == "btrfs" {
            std::fs::write(btrfs_of(&name)?.join("bdi/read_ahead_kb"), READ_AHEAD_KB)?;
        }
        Ok(())
    }
}

impl Drop for LoopFs {
    fn drop(&mut self) {
        self.unmount();
    }
}

/// The mounted Btrfs that is on a device, in sysfs.
fn btrfs_of(device: &OsStr) -> io::Result<PathBuf> {
    let entries = std::fs::read_dir("/sys/fs/btrfs")?.flatten();
    let mut paths = entries.map(|entry| entry.path());
    paths
        .find(|path| path.join("devices").join(device).exists())
        .ok_or_else(|| {
            io::Error::other(format!(
                "no Btrfs on {} in /sys/fs/btrfs",
                device.to_string_lossy()
            ))
        })
}
