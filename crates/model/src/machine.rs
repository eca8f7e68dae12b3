//! The facts about a machine that a plan is made from: a snapshot, taken by `system`, read by `plan`.

use crate::{FilePath, limits};

/// What a profile's paths are on this machine, now.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// Bytes of a page.
    pub page_size: u32,
    /// Memory that can be used without reclaim of anything in use (`MemAvailable`), bytes.
    pub memory_available: u64,
    /// The devices that the files are on.
    pub devices: Vec<Device>,
    /// What the paths lead to, symbolic links and directories on the way included, each path once.
    pub files: Vec<FileFacts>,
}

/// A mounted file system and the device it is on.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// Major number, as `st_dev` of its files has it.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// Block device node, empty where there is none.
    pub node: FilePath,
    /// Where the file system is mounted.
    pub mount_point: FilePath,
    /// File system type.
    pub fstype: String,
    /// The file system's UUID; zeros where unknown.
    pub uuid: [u8; 16],
    /// What it costs to read; what was read before, where it is filled as it is read.
    pub cost: Cost,
    /// What the first read of a place costs beyond that.
    pub first_touch: Option<FirstTouch>,
    /// The largest read the kernel serves from one prefetch call: max(read_ahead_kb, max_sectors_kb), bytes.
    pub request_limit: u32,
    /// Behind a cache that sequential reads of so many bytes pass by: of how many.
    pub sequential_cutoff: Option<u64>,
    /// Whether the file system finds metadata that was read through the block device, and the node can be
    /// read.
    pub metadata_by_block: bool,
    /// How its files are compressed, where that is by blocks of one size.
    pub compression: Option<Compression>,
}

impl Device {
    /// Seconds that one request more costs the host: a system call, and its part of the queue.
    const REQUEST: f64 = 200e-6;

    /// The largest hole, in bytes, that is cheaper to read than to leave out.
    ///
    /// Where many requests are served at once it is that of its [`Cost`]. On one head a hole passes under the
    /// head in the time that reading it takes, so reading it only saves a request. It is less where what is
    /// read is also decompressed.
    pub fn bridge(&self) -> u64 {
        let jump = self.cost.bridge();
        let bridge = match self.cost.class {
            DeviceClass::Disk => jump.min((self.cost.bandwidth * Device::REQUEST) as u64),
            DeviceClass::Flash | DeviceClass::Network => jump,
        };
        let Some(compression) = self.compression else {
            return bridge;
        };
        let read = bridge as f64 / self.cost.bandwidth;
        let decompressed = compression.seconds(bridge);
        (bridge as f64 * read / (read + decompressed)) as u64
    }
}

/// The class of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceClass {
    /// Moving heads: address order, few requests.
    Disk,
    /// Solid state: many requests at once, deadline order.
    Flash,
    /// High latency, many requests at once, deadline order.
    Network,
}

/// What reads cost on a device.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Cost {
    /// Its class.
    pub class: DeviceClass,
    /// Bytes per second of a long sequential read.
    pub bandwidth: f64,
    /// Seconds of a random 4 KiB read alone; on a disk of one that is near the last, for plans go over a disk
    /// in address order.
    pub latency: f64,
    /// Requests at once beyond which more bring nothing.
    pub depth: u32,
}

impl Cost {
    /// The largest hole, in bytes, that is cheaper to read than to jump: what the device transfers in the
    /// time a further request takes at full depth.
    pub fn bridge(&self) -> u64 {
        (self.bandwidth * self.latency / f64::from(self.depth.max(1))) as u64
    }

    /// The most bytes asked for at once where many requests are served at once, so that one file's data also
    /// comes in parallel: 512 KiB, whose transfer takes 1 ms at 500 MB/s; where a request takes longer than
    /// its bytes, as many as are transferred meanwhile, up to [`Cost::LARGEST_PIECE`]. A power of two.
    pub fn piece(&self) -> u64 {
        let meanwhile = (self.bandwidth * self.latency) as u64;
        let bytes = meanwhile.clamp(Cost::SMALLEST_PIECE, Cost::LARGEST_PIECE);
        1 << bytes.ilog2()
    }

    const SMALLEST_PIECE: u64 = 512 << 10;
    /// What a disk's driver takes at most by default is 1,280 KiB.
    const LARGEST_PIECE: u64 = 1 << 20;

    /// Seconds that a start by itself waits for so many bytes: it reads [`Cost::READ`] at once, and waits for
    /// each.
    pub fn alone(&self, bytes: u64) -> f64 {
        bytes as f64 / self.bandwidth + bytes.div_ceil(Cost::READ) as f64 * self.latency
    }

    /// How much a start by itself reads at once, bytes, on average: faults, small files and the kernel's
    /// first guesses at reading ahead. The container of the lab, which reads 31.3 MiB in 911 requests, comes
    /// to 35 KiB.
    pub const READ: u64 = 32 << 10;

    /// Whether it matters where data lies, in pages of `page` bytes: on a disk, for its head has to get
    /// there; elsewhere where a request costs more than the bytes of a page, for what lies together is one
    /// request.
    pub fn place_matters(&self, page: u64) -> bool {
        self.class == DeviceClass::Disk || self.bridge() >= page
    }
}

/// What the first read of a place costs on a volume that is filled as it is read, from a snapshot elsewhere:
/// whatever of a granule is read first, all of it is fetched, and what is read of it from then on costs what
/// reads cost.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct FirstTouch {
    /// Bytes of a granule, a power of two. The first begins where the device does.
    pub granule: u64,
    /// Seconds of a fetch.
    pub latency: f64,
    /// Granules that are fetched at once.
    pub depth: u32,
}

impl FirstTouch {
    /// Seconds in which so many granules are fetched, all of them asked for at once.
    pub fn seconds(&self, granules: u64) -> f64 {
        granules.div_ceil(u64::from(self.depth.max(1))) as f64 * self.latency
    }

    /// Whether these are numbers that a device can have, by what is known of pages of so many bytes.
    pub fn makes_sense(&self, page: u64) -> bool {
        self.granule.is_power_of_two()
            && (page..=limits::GRANULE as u64).contains(&self.granule)
            && (1..=limits::DEPTH as u32).contains(&self.depth)
            && self.latency.is_finite()
            && self.latency > 0.0
    }
}

/// How a file system compresses files: by blocks, each of which is read and decompressed as a whole,
/// whichever of its pages is needed (SquashFS).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Compression {
    /// Bytes of a block when it is decompressed, a power of two. The first begins where the file does.
    pub block: u32,
    /// Megabytes (10^6 bytes) a second that one processor decompresses; 0 where that was not measured.
    pub rate: u16,
}

impl Compression {
    /// The blocks that file systems have, bytes: SquashFS allows 4 KiB to 1 MiB.
    pub const BLOCKS: std::ops::RangeInclusive<u32> = 4 << 10..=1 << 20;

    /// One of blocks of so many bytes; `None` where no file system has such.
    pub fn of_blocks(block: u64) -> Option<Compression> {
        let block = u32::try_from(block).ok()?;
        let can_be = block.is_power_of_two() && Compression::BLOCKS.contains(&block);
        can_be.then_some(Compression { block, rate: 0 })
    }

    /// Seconds that one processor takes to decompress so many bytes; 0 where that was not measured.
    pub fn seconds(&self, bytes: u64) -> f64 {
        match self.rate {
            0 => 0.0,
            rate => bytes as f64 / (f64::from(rate) * 1e6),
        }
    }

    /// How many reads at once keep so many processors busy with decompressing, where a read waits for the
    /// device for `latency` seconds: more only take processors from others. `None` where the rate was not
    /// measured.
    pub fn useful_depth(&self, latency: f64, processors: u32) -> Option<u32> {
        let seconds = self.seconds(self.block.into());
        let depth = (f64::from(processors) * (1.0 + latency / seconds)).ceil();
        (seconds > 0.0).then_some((depth as u32).max(1))
    }
}

/// What a path leads to.
#[derive(Clone, Debug, PartialEq)]
pub struct FileFacts {
    /// The path, absolute.
    pub path: FilePath,
    /// What is there.
    pub found: PathKind,
    /// Index into [`Machine::devices`]; `None` when nothing is there or it is not on a local file system.
    pub device: Option<u32>,
    /// Inode number.
    pub inode: u64,
    /// Inode generation, 0 where the file system tells none.
    pub generation: u32,
    /// Size in bytes.
    pub size: u64,
    /// Modification time, nanoseconds since 1970.
    pub mtime_ns: i64,
    /// User id of its owner; 0 where nothing is there.
    pub owner: u32,
    /// Whether others than its owner and root may write it, by its permissions or an access control list.
    pub others_may_write: bool,
    /// Where a regular file's data is, by logical offset; empty if the file system does not tell.
    pub extents: Vec<Extent>,
    /// Byte ranges of the block device that hold the inode, its extent tree, and a directory's blocks; empty
    /// where [`Device::metadata_by_block`] is false.
    pub metadata: Vec<ByteRange>,
}

/// What was found at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// Nothing.
    Missing,
    /// A device, socket or FIFO: never opened.
    Special,
    /// Something on a network, memory or pseudo file system: never touched.
    NotLocal,
}

/// A run of a file's bytes that is contiguous on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Offset in the file.
    pub logical: u64,
    /// Offset on the device.
    pub physical: u64,
    /// Length.
    pub length: u64,
}

/// A run of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteRange {
    /// First byte.
    pub start: u64,
    /// Length.
    pub length: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hole_is_bridged_up_to_what_a_jump_costs() {
        // PEERS.md: 600 KB at 5 ms and 120 MB/s.
        let disk = Cost {
            class: DeviceClass::Disk,
            bandwidth: 120e6,
            latency: 5e-3,
            depth: 1,
        };
        assert_eq!(disk.bridge(), 600_000);
    }

    #[test]
    fn on_one_head_a_hole_is_read_only_to_save_a_request() {
        let bridge = |class, latency| {
            let cost = Cost {
                class,
                bandwidth: 120e6,
                latency,
                depth: 1,
            };
            crate::testing::machine(cost, "ext4", Vec::new()).devices[0].bridge()
        };
        assert_eq!(bridge(DeviceClass::Disk, 5e-3), 24_000);
        assert_eq!(bridge(DeviceClass::Disk, 1e-4), 12_000, "a jump takes less");
        assert_eq!(bridge(DeviceClass::Network, 5e-3), 600_000);
    }

    #[test]
    fn as_many_reads_are_useful_as_keep_the_processors_decompressing() {
        let xz = Compression {
            block: 128 << 10,
            rate: 50,
        };
        assert!((xz.seconds(xz.block.into()) - 2.6e-3).abs() < 1e-4);
        // A stick that answers in 0.5 ms, a volume that answers in 33 ms.
        let depths = [(0.5e-3, 1), (0.5e-3, 2), (33e-3, 1)].map(|(at, of)| xz.useful_depth(at, of));
        assert_eq!(depths, [Some(2), Some(3), Some(14)]);
        assert_eq!(Compression { rate: 0, ..xz }.useful_depth(0.5e-3, 2), None);
        assert_eq!(xz.useful_depth(f64::NAN, 2), Some(1), "whatever a plan says");
        let blocks = [4096, 128 << 10, 1 << 20, 2048, 5000, 2 << 20, 0, 1 << 40];
        let known = blocks.map(|bytes| Compression::of_blocks(bytes).is_some());
        assert_eq!(known, [true, true, true, false, false, false, false, false]);
    }

    #[test]
    fn more_is_asked_for_at_once_where_a_request_takes_longer_than_its_bytes() {
        let piece = |bandwidth, latency| {
            let cost = Cost {
                class: DeviceClass::Network,
                bandwidth,
                latency,
                depth: 16,
            };
            cost.piece()
        };
        assert_eq!(piece(490e6, 4e-3), 1 << 20);
        assert_eq!(piece(125e6, 7e-4), 512 << 10);
        assert_eq!(piece(125e6, 3.3e-2), 1 << 20);
        // Whatever a plan says.
        for (bandwidth, latency) in [(0.0, 0.0), (1e300, 1e300), (f64::NAN, 1.0), (1e9, -1.0)] {
            assert!([512 << 10, 1 << 20].contains(&piece(bandwidth, latency)));
        }
    }
}
