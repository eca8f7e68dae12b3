//! Files of a file system that was unmounted before its facts could be asked: what the recording saw of them
//! is enough for a plan, but for where they lie.

use headstart_model::machine::{Device, DeviceClass, FileFacts, Machine, PathKind};
use headstart_model::trace::{File, FileState};
use headstart_model::{FilePath, Trace};
use headstart_system::device::default_cost;
use headstart_system::mounts::MountTable;
use std::collections::HashMap;

/// What the kernel assumes of a device of which nothing is known (`VM_READAHEAD_PAGES`, include/linux/mm.h),
/// bytes.
const REQUEST: u32 = 128 << 10;

/// Adds the facts of files whose file system is not mounted any more where the start has used it. A replay
/// checks them, as it does all.
pub fn add(machine: &mut Machine, trace: &Trace) {
    let Ok(mounts) = MountTable::read() else { return };
    let gone: Vec<bool> = trace
        .filesystems
        .iter()
        .map(|filesystem| {
            let now = mounts.lookup(filesystem.mount_point.as_bytes());
            let is_it = now.is_some_and(|now| {
                (now.major, now.minor) == (filesystem.major, filesystem.minor)
                    && now.mount_point == filesystem.mount_point
            });
            filesystem.local && !is_it
        })
        .collect();
    if !gone.contains(&true) {
        return;
    }
    let mut at: HashMap<FilePath, usize> = (machine.files.iter().enumerate())
        .map(|(index, facts)| (facts.path.clone(), index))
        .collect();
    let mut devices: HashMap<u32, u32> = HashMap::new();
    for file in &trace.files {
        let Some(number) = file.filesystem.filter(|number| gone[*number as usize]) else {
            continue;
        };
        if file.state != FileState::Present || file.mode & 0o170_000 != 0o100_000 {
            continue;
        }
        // What the profile does not want is in no snapshot.
        let Some(index) = at.get(&file.path).copied() else {
            continue;
        };
        let device = *devices.entry(number).or_insert_with(|| {
            machine.devices.push(device(trace, number));
            machine.devices.len() as u32 - 1
        });
        machine.files[index] = facts(file, device);
        at.remove(&file.path);
    }
}

fn device(trace: &Trace, number: u32) -> Device {
    let filesystem = &trace.filesystems[number as usize];
    Device {
        major: filesystem.major,
        minor: filesystem.minor,
        node: FilePath::default(),
        mount_point: filesystem.mount_point.clone(),
        fstype: filesystem.fstype.clone(),
        uuid: [0; 16],
        cost: default_cost(DeviceClass::Flash),
        first_touch: None,
        request_limit: REQUEST,
        sequential_cutoff: None,
        metadata_by_block: false,
        compression: None,
    }
}

fn facts(file: &File, device: u32) -> FileFacts {
    FileFacts {
        path: file.path.clone(),
        found: PathKind::File,
        device: Some(device),
        inode: file.inode,
        generation: file.generation,
        size: file.size,
        mtime_ns: file.mtime_ns,
        // Nobody has looked whose it is: a boot's plan counts it with those of ordinary users.
        owner: u32::MAX,
        others_may_write: false,
        extents: Vec::new(),
        metadata: Vec::new(),
    }
}
