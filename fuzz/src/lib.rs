//! What the fuzzers share: files with their checksums made right, for these would stop nearly every mutation
//! at the door, and a machine to plan for.

use headstart_model::machine::{
    Compression, Cost, Device, DeviceClass, Extent, FileFacts, FirstTouch, Machine, PathKind,
};
use headstart_plan::Want;

pub mod random;
pub mod seeds;
pub mod structured;
pub mod uses;

/// A machine where every path wanted is a large file, on a disk and on flash by turns.
pub fn machine(wanted: &[Want]) -> Machine {
    let device = |class, depth, metadata_by_block: bool| Device {
        major: 8,
        minor: depth,
        node: "/dev/sda".into(),
        mount_point: "/".into(),
        fstype: "ext4".into(),
        uuid: [1; 16],
        cost: Cost {
            class,
            bandwidth: 120e6,
            latency: 5e-3,
            depth,
        },
        first_touch: metadata_by_block.then_some(FirstTouch {
            granule: 512 << 10,
            latency: 33e-3,
            depth: 10,
        }),
        request_limit: 128 << 10,
        sequential_cutoff: (!metadata_by_block).then_some(4 << 20),
        metadata_by_block,
        compression: (!metadata_by_block).then_some(Compression {
            block: 128 << 10,
            rate: 50,
        }),
    };
    let file = |(index, want): (usize, &Want)| FileFacts {
        path: want.path.clone(),
        found: PathKind::File,
        device: Some((index % 2) as u32),
        inode: index as u64,
        generation: 1,
        size: i64::MAX as u64,
        mtime_ns: 1,
        owner: 1000 * (index % 2) as u32,
        others_may_write: false,
        // Far apart, in an order that is not that of the paths.
        extents: vec![Extent {
            logical: 0,
            physical: ((index as u64).wrapping_mul(0x9e37_79b9) % (1 << 20)) << 30,
            length: i64::MAX as u64,
        }],
        metadata: Vec::new(),
    };
    Machine {
        page_size: 4096,
        memory_available: u64::MAX,
        devices: vec![
            device(DeviceClass::Disk, 1, true),
            device(DeviceClass::Flash, 16, false),
        ],
        files: wanted.iter().enumerate().map(file).collect(),
    }
}

const HEADER: usize = 32;
const ROW: usize = 40;

fn number(bytes: &[u8], at: usize, size: usize) -> Option<usize> {
    let mut value = [0; 8];
    value[..size].copy_from_slice(bytes.get(at..at + size)?);
    usize::try_from(u64::from_le_bytes(value)).ok()
}

/// The file with its length and every checksum made right, as far as its table leads somewhere.
pub fn repaired(bytes: &[u8]) -> Vec<u8> {
    let mut file = bytes.to_vec();
    if file.len() < HEADER {
        return file;
    }
    let length = file.len() as u64;
    file[16..24].copy_from_slice(&length.to_le_bytes());
    let rows = number(&file, 12, 4).unwrap_or(0).min(64);
    let table = HEADER + rows * ROW;
    if file.len() < table {
        return file;
    }
    for row in 0..rows {
        let at = HEADER + row * ROW;
        let (Some(offset), Some(stored)) = (number(&file, at + 8, 8), number(&file, at + 16, 8)) else {
            continue;
        };
        let Some(section) = offset.checked_add(stored).and_then(|end| file.get(offset..end)) else {
            continue;
        };
        let check = crc32fast::hash(section);
        file[at + 32..at + 36].copy_from_slice(&check.to_le_bytes());
    }
    file[24..28].fill(0);
    let check = crc32fast::hash(&file[..table]);
    file[24..28].copy_from_slice(&check.to_le_bytes());
    file
}
