//! Files of remote file systems: a plan is made of what recordings saw of them, for the server is not asked.
//! The replay checks them, as it does all: by size and time.

use headstart_model::machine::{Cost, Device, DeviceClass, FileFacts, Machine, PathKind};
use headstart_model::profile::{Entry, Need, Policy};
use headstart_model::{FilePath, Profile};
use headstart_store::Store;
use headstart_system::device::{default_cost, request_limit};
use headstart_system::mounts::{Mount, MountTable};
use sha2::{Digest, Sha256};
use std::collections::HashMap;

/// Adds the facts of what a profile needs of remote file systems. A boot needs nothing of them: its services
/// wait until their network is there.
pub fn add(machine: &mut Machine, profile: &Profile, store: &Store) {
    let Ok(mounts) = MountTable::read() else { return };
    if profile.policy == Policy::Boot || !mounts.all().iter().any(|mount| mount.is_remote) {
        return;
    }
    add_of(machine, profile, &mounts, &|uuid| {
        store.device_cost(uuid).map(|known| known.cost)
    });
}

fn add_of(
    machine: &mut Machine,
    profile: &Profile,
    mounts: &MountTable,
    cost: &dyn Fn(&[u8; 16]) -> Option<Cost>,
) {
    let mut at: HashMap<FilePath, usize> = (machine.files.iter().enumerate())
        .map(|(index, facts)| (facts.path.clone(), index))
        .collect();
    let mut devices: HashMap<u32, u32> = HashMap::new();
    for entry in &profile.entries {
        let Some(mount) = mounts
            .lookup(entry.path.as_bytes())
            .filter(|mount| mount.is_remote)
        else {
            continue;
        };
        // What the profile does not want enough is in no snapshot.
        let Some(index) = at.remove(&entry.path) else {
            continue;
        };
        let device = *devices.entry(mount.id).or_insert_with(|| {
            machine.devices.push(device(mount, cost));
            machine.devices.len() as u32 - 1
        });
        machine.files[index] = facts(entry, device);
    }
}

fn device(mount: &Mount, cost: &dyn Fn(&[u8; 16]) -> Option<Cost>) -> Device {
    let uuid = identity(mount);
    let cost = cost(&uuid).unwrap_or_else(|| default_cost(DeviceClass::Network));
    Device {
        major: mount.major,
        minor: mount.minor,
        node: FilePath::default(),
        mount_point: mount.mount_point.clone(),
        fstype: mount.fstype.clone(),
        uuid,
        cost,
        first_touch: None,
        request_limit: request_limit(mount, None, &uuid).min(share(&cost)),
        sequential_cutoff: None,
        metadata_by_block: false,
        compression: None,
    }
}

/// The largest request, bytes, with which all that are in flight take the link for a tenth of a second: what
/// the start itself asks for waits behind them. A smaller request than [`SMALLEST`] costs more than its
/// bytes.
fn share(cost: &Cost) -> u32 {
    let each = cost.bandwidth * LINK_SECONDS / f64::from(cost.depth.max(1));
    (each as u32).max(SMALLEST)
}

const LINK_SECONDS: f64 = 0.1;
const SMALLEST: u32 = 16 << 10;

/// What a remote file system is known by, for it has no UUID that could be asked for: its type, and where it
/// comes from.
fn identity(mount: &Mount) -> [u8; 16] {
    let mut hash = Sha256::new();
    for part in [
        mount.fstype.as_bytes(),
        mount.source.as_bytes(),
        mount.root.as_bytes(),
    ] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&hash.finalize()[..16]);
    uuid
}

fn facts(entry: &Entry, device: u32) -> FileFacts {
    let found = match (entry.need, entry.version) {
        (_, Some(_)) => PathKind::File,
        (Need::Missing, None) => PathKind::Missing,
        (Need::List, None) => PathKind::Directory,
        (Need::Stat | Need::Open, None) => PathKind::File,
    };
    FileFacts {
        path: entry.path.clone(),
        found,
        device: Some(device).filter(|_| found != PathKind::Missing),
        inode: 0,
        // A server's is not relied on: size and time tell one file from another.
        generation: 0,
        size: entry.version.map_or(0, |version| version.size),
        mtime_ns: entry.version.map_or(0, |version| version.mtime_ns),
        owner: u32::MAX,
        others_may_write: false,
        extents: Vec::new(),
        metadata: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_model::Key;
    use headstart_model::profile::Version;

    fn entry(path: &str, need: Need, size: Option<u64>) -> Entry {
        Entry {
            path: path.into(),
            overlay: None,
            need,
            weight: 1.0,
            first_use_ns: 0,
            stage: 0,
            version: size.map(|size| Version {
                size,
                mtime_ns: 5,
                generation: 9,
            }),
            ranges: Vec::new(),
            tail: None,
            touches: None,
        }
    }

    #[test]
    fn a_remote_file_is_what_recordings_saw_of_it() {
        let mounts = MountTable::parse(
            b"1 1 8:1 / / rw - ext4 /dev/a rw\n2 1 0:50 / /net rw - nfs4 server:/x rw\n\
              3 1 0:51 / /home/u/s rw - fuse.sshfs s: rw,user_id=1000\n",
        );
        let mut profile = Profile::new(Key::new("k").unwrap(), 4096, Policy::Decay);
        profile.entries = vec![
            entry("/home/u/s/f", Need::Open, Some(1)),
            entry("/net/data", Need::Open, Some(7)),
            entry("/net/dir", Need::List, None),
            entry("/net/none", Need::Missing, None),
            entry("/net/stat", Need::Stat, None),
            entry("/usr/x", Need::Open, Some(3)),
        ];
        let elsewhere = |entry: &Entry| FileFacts {
            found: PathKind::NotLocal,
            ..facts(entry, 7)
        };
        let mut machine = Machine {
            files: profile.entries.iter().map(elsewhere).collect(),
            ..Machine::default()
        };
        add_of(&mut machine, &profile, &mounts, &|_| None);
        let found: Vec<PathKind> = machine.files.iter().map(|facts| facts.found).collect();
        use PathKind::{Directory, File, Missing, NotLocal};
        assert_eq!(found, [NotLocal, File, Directory, Missing, File, NotLocal]);
        assert_eq!((machine.files[1].size, machine.files[1].generation), (7, 0));
        assert_eq!(machine.devices.len(), 1);
        let device = &machine.devices[0];
        assert_eq!(device.mount_point, "/net".into());
        assert_eq!(device.cost.class, DeviceClass::Network);
        assert_ne!(device.uuid, [0; 16]);
    }

    #[test]
    fn what_is_in_flight_takes_a_slow_link_for_a_moment_only() {
        let of = |bandwidth| {
            share(&Cost {
                bandwidth,
                ..default_cost(DeviceClass::Network)
            })
        };
        assert!(of(125e6) > 512 << 10);
        assert_eq!(of(10e6), 62_500);
        assert_eq!((of(1.0), of(f64::NAN)), (SMALLEST, SMALLEST));
    }

    #[test]
    fn where_it_comes_from_tells_one_server_from_another() {
        let of = |line: &str| identity(&MountTable::parse(line.as_bytes()).all()[0]);
        let one = of("1 1 0:50 / /net rw - nfs4 server:/x rw");
        assert_eq!(one, of("9 1 0:77 / /elsewhere ro - nfs4 server:/x rw"));
        for other in [
            "1 1 0:50 / /net rw - nfs4 server:/y rw",
            "1 1 0:50 /sub /net rw - nfs4 server:/x rw",
            "1 1 0:50 / /net rw - nfs server:/x rw",
        ] {
            assert_ne!(one, of(other), "{other}");
        }
    }
}
