//! Facts for tests.

use crate::order::Item;
use headstart_model::PageRange;
use headstart_model::machine::{Cost, DeviceClass, Extent, FileFacts, Machine, PathKind};

pub(crate) const PAGE: u64 = 4096;

pub(crate) fn facts(path: &str, inode: u64, size: u64, extents: &[(u64, u64, u64)]) -> FileFacts {
    FileFacts {
        path: path.into(),
        found: PathKind::File,
        device: Some(0),
        inode,
        generation: 0,
        size,
        mtime_ns: 7,
        owner: 0,
        others_may_write: false,
        extents: extents
            .iter()
            .map(|(logical, physical, length)| Extent {
                logical: *logical,
                physical: *physical,
                length: *length,
            })
            .collect(),
        metadata: Vec::new(),
    }
}

pub(crate) fn machine(files: Vec<FileFacts>, class: DeviceClass, fstype: &str) -> Machine {
    let cost = Cost {
        class,
        bandwidth: 100e6,
        latency: 0.01,
        depth: 1,
    };
    headstart_model::testing::machine(cost, fstype, files)
}

/// All of a file in one range.
pub(crate) fn whole(facts: FileFacts) -> Item {
    let range = PageRange {
        start: 0,
        end: facts.size,
    };
    Item {
        ranges: vec![range],
        needed: [range].into_iter().collect(),
        own: false,
        facts,
    }
}
