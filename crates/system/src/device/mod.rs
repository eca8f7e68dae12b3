//! What a block device is and what reading from it costs: facts from sysfs, a guess at its class from them
//! ([`DeviceFacts::guess`]), and a short measurement that corrects the guess ([`probe`]).

mod classify;
mod cost;
mod decompression;
pub(crate) mod devices_below;
mod lazily_filled;
mod medium;
mod probe;

pub use classify::{Samples, classify};
pub use cost::{Guess, default_cost};
pub use decompression::decompression_rate;
pub use devices_below::sequential_cutoff;
pub use medium::{lies_in_memory, optical_cost};
pub use probe::{Measured, ProbeError, ProbeOptions, probe, probe_node};

use crate::mounts::Mount;
use headstart_model::sort::Sort;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a disk is looked at to see whether it is idle, and how many requests are nobody at work: a
/// journal's commit.
const IDLE: Duration = Duration::from_millis(100);
const FEW: u64 = 3;

/// What sysfs tells of a block device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceFacts {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// Kernel name, such as `sda1`.
    pub name: String,
    /// Device node, if there is one with this number.
    pub node: Option<PathBuf>,
    /// Name of the whole disk; `name` itself unless that is a partition.
    pub disk: String,
    /// Partition number.
    pub partition: Option<u32>,
    /// The file behind a loop device.
    pub loop_file: Option<PathBuf>,
    /// Names of the devices that a device-mapper or RAID device is made of.
    pub slaves: Vec<String>,
    /// The disk's vendor and model.
    pub model: String,
    /// What tells the disk from another of its model: serial number or world-wide name, empty where it has
    /// none.
    pub serial: String,
    /// Path of the disk in sysfs, which names the buses it hangs on.
    pub sysfs: PathBuf,
    /// What the kernel believes about moving heads; virtual devices say what they like.
    pub rotational: Option<bool>,
    /// Bytes that the kernel reads ahead.
    pub read_ahead: u64,
    /// Bytes of the largest request.
    pub max_request: u64,
    /// Size in bytes.
    pub size: u64,
}

impl DeviceFacts {
    /// Facts of a block device by its number, or `None` if sysfs has no such device (anonymous devices of
    /// btrfs, overlay, network and memory file systems).
    pub fn read(major: u32, minor: u32) -> Option<DeviceFacts> {
        Self::read_in(Path::new("/sys"), Path::new("/dev"), major, minor)
    }

    /// Facts of the device that a mount reads from: by number, else by the mount's source (btrfs has numbers
    /// of its own). `None` for overlays, whose layers have their own mounts.
    pub fn of_mount(mount: &Mount) -> Option<DeviceFacts> {
        if let Some(facts) = Self::read(mount.major, mount.minor) {
            return Some(facts);
        }
        let metadata = std::fs::metadata(mount.source.as_path()).ok()?;
        if !mount.source.is_absolute() || !metadata.file_type().is_block_device() {
            return None;
        }
        Self::read(
            rustix::fs::major(metadata.rdev()),
            rustix::fs::minor(metadata.rdev()),
        )
    }

    fn read_in(sys: &Path, dev: &Path, major: u32, minor: u32) -> Option<DeviceFacts> {
        let own = sys
            .join(format!("dev/block/{major}:{minor}"))
            .canonicalize()
            .ok()?;
        let partition = number(&own.join("partition")).map(|n| n as u32);
        let disk = if partition.is_some() {
            own.parent()?.to_path_buf()
        } else {
            own.clone()
        };
        let name = name_of(&own)?;
        let text = |path: &str| {
            std::fs::read_to_string(disk.join(path))
                .unwrap_or_default()
                .trim()
                .to_string()
        };
        let model = format!("{} {}", text("device/vendor"), text("device/model"))
            .trim()
            .to_string();
        let serial = ["wwid", "device/wwid", "serial", "device/serial"];
        let serial = serial.into_iter().map(text).find(|serial| !serial.is_empty());
        let node_name = devname(&own).unwrap_or_else(|| name.clone());
        Some(DeviceFacts {
            major,
            minor,
            node: node(&dev.join(node_name), major, minor),
            disk: name_of(&disk)?,
            partition,
            loop_file: Some(text("loop/backing_file"))
                .filter(|f| !f.is_empty())
                .map(PathBuf::from),
            slaves: slaves(&disk),
            model,
            serial: serial.unwrap_or_default(),
            rotational: number(&disk.join("queue/rotational")).map(|n| n != 0),
            read_ahead: number(&disk.join("queue/read_ahead_kb")).unwrap_or(0) * 1024,
            max_request: number(&disk.join("queue/max_sectors_kb")).unwrap_or(0) * 1024,
            size: number(&own.join("size")).unwrap_or(0) * 512,
            sysfs: disk,
            name,
        })
    }

    /// Which device this is, as far as what it costs to read is concerned, in a line: what was measured of
    /// another does not hold for it. Not its name or place, which change from one boot to the next.
    pub fn identity(&self) -> String {
        let file = self.loop_file.as_deref().unwrap_or(Path::new(""));
        format!(
            "model {:?} serial {:?} size {} rotational {:?} file {:?} parts {}",
            self.model,
            self.serial,
            self.size,
            self.rotational,
            file,
            self.slaves.len()
        )
    }

    /// Whether nobody else uses the disk just now: for a tenth of a second hardly a request is made, and none
    /// is under way.
    pub fn is_idle(&self) -> bool {
        // Documentation/block/stat.rst: reads are the first number, writes the fifth, those in flight the
        // ninth.
        let look = || -> Option<(u64, u64)> {
            let text = std::fs::read_to_string(self.sysfs.join("stat")).ok()?;
            let numbers: Vec<u64> = text.split_ascii_whitespace().flat_map(str::parse).collect();
            Some((numbers.first()? + numbers.get(4)?, *numbers.get(8)?))
        };
        let Some((before, 0)) = look() else { return false };
        std::thread::sleep(IDLE);
        look().is_some_and(|(after, flying)| flying == 0 && after.saturating_sub(before) <= FEW)
    }

    /// The share of such a while from now on in which the disk had requests under way: those of others, if
    /// the caller makes none. `None` where it does not tell.
    pub fn busy_for(&self, look: Duration) -> Option<f64> {
        // Documentation/block/stat.rst: the tenth number is the time in which requests were under way, ms.
        let busy = || -> Option<u64> {
            let text = std::fs::read_to_string(self.sysfs.join("stat")).ok()?;
            text.split_ascii_whitespace().nth(9)?.parse().ok()
        };
        let (before, began) = (busy()?, Instant::now());
        std::thread::sleep(look);
        let busy = busy()?.saturating_sub(before) as f64 / 1000.0;
        Some(busy / began.elapsed().as_secs_f64())
    }

    /// The largest read, in bytes, that the kernel serves from one fadvise(WILLNEED) or readahead call; it
    /// stops silently after that. At least a page, at most 1 GiB.
    pub fn request_limit(&self) -> u32 {
        self.read_ahead.max(self.max_request).clamp(4096, 1 << 30) as u32
    }
}

/// The request limit of a mounted file system. Btrfs reads through a backing device of its own, whose
/// readahead counts (linux/fs/btrfs/super.c sets it to 4 MiB) and whose largest request is the default 128
/// KiB; so does a remote file system.
pub fn request_limit(mount: &Mount, facts: Option<&DeviceFacts>, uuid: &[u8; 16]) -> u32 {
    /// What the kernel assumes of a backing device without a disk: VM_READAHEAD_PAGES.
    const DEFAULT: u64 = 128 << 10;
    if mount.fstype == "btrfs" {
        let id: Vec<String> = uuid.iter().map(|b| format!("{b:02x}")).collect();
        let id = [&id[..4], &id[4..6], &id[6..8], &id[8..10], &id[10..]]
            .map(|part| part.concat())
            .join("-");
        let own = number(&PathBuf::from(format!("/sys/fs/btrfs/{id}/bdi/read_ahead_kb")));
        return own.map_or(DEFAULT, |kib| (kib * 1024).max(DEFAULT)).min(1 << 30) as u32;
    }
    let Some(facts) = facts else {
        let bdi = format!("/sys/class/bdi/{}:{}/read_ahead_kb", mount.major, mount.minor);
        let own = number(Path::new(&bdi)).unwrap_or(0);
        return (own * 1024).clamp(DEFAULT, 1 << 30) as u32;
    };
    facts.request_limit()
}

fn number(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn name_of(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_str()?.to_string())
}

/// The node's name below /dev as udev knows it: slashes of kernel names are `!` in sysfs.
fn devname(sysfs: &Path) -> Option<String> {
    let uevent = std::fs::read_to_string(sysfs.join("uevent")).ok()?;
    uevent
        .lines()
        .find_map(|line| line.strip_prefix("DEVNAME="))
        .map(str::to_string)
}

fn node(path: &Path, major: u32, minor: u32) -> Option<PathBuf> {
    let metadata = std::fs::metadata(path).ok()?;
    let same = metadata.file_type().is_block_device() && metadata.rdev() == rustix::fs::makedev(major, minor);
    same.then(|| path.to_path_buf())
}

fn slaves(disk: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(disk.join("slaves")) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort_small();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_partition_has_the_queue_of_its_disk() {
        let sys = tempfile::tempdir().unwrap();
        let disk = sys.path().join("devices/pci0/block/sda");
        let part = disk.join("sda2");
        for dir in ["queue", "device", "slaves"] {
            std::fs::create_dir_all(disk.join(dir)).unwrap();
        }
        std::fs::create_dir_all(&part).unwrap();
        std::fs::create_dir_all(sys.path().join("dev/block")).unwrap();
        symlink(
            "../../devices/pci0/block/sda/sda2",
            sys.path().join("dev/block/8:2"),
        )
        .unwrap();
        for (file, text) in [
            ("queue/rotational", "1\n"),
            ("queue/read_ahead_kb", "128\n"),
            ("queue/max_sectors_kb", "1280\n"),
            ("device/vendor", "ATA     \n"),
            ("device/model", "WDC WD10\n"),
            ("device/wwid", "naa.5001\n"),
            ("sda2/partition", "2\n"),
            ("sda2/size", "2048\n"),
            ("sda2/uevent", "MAJOR=8\nDEVNAME=sda2\n"),
        ] {
            std::fs::write(disk.join(file), text).unwrap();
        }
        let facts = DeviceFacts::read_in(sys.path(), Path::new("/nowhere"), 8, 2).unwrap();
        assert_eq!(
            (facts.name.as_str(), facts.disk.as_str(), facts.partition),
            ("sda2", "sda", Some(2))
        );
        assert_eq!(
            (facts.model.as_str(), facts.rotational, facts.node.clone()),
            ("ATA WDC WD10", Some(true), None)
        );
        assert_eq!((facts.request_limit(), facts.size), (1280 << 10, 1 << 20));
        assert_eq!(facts.serial, "naa.5001");
        // Another name or place is not another device; another disk of the model is.
        let moved = DeviceFacts {
            name: "sdb2".into(),
            disk: "sdb".into(),
            major: 9,
            ..facts.clone()
        };
        assert_eq!(moved.identity(), facts.identity());
        let other = DeviceFacts {
            serial: "naa.5002".into(),
            ..facts.clone()
        };
        assert_ne!(other.identity(), facts.identity());
        assert_eq!(
            DeviceFacts::read_in(sys.path(), Path::new("/nowhere"), 8, 3),
            None
        );
    }
}
