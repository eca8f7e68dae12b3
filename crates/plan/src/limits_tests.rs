//! What does not fit a plan is left out of it.

use crate::tests::facts;
use crate::{PlanOptions, Want, plan, wanted};
use headstart_model::machine::{Device, Extent, FileFacts, Machine};
use headstart_model::{FilePath, limits, testing};

fn device(mount: &str, minor: usize) -> Device {
    Device {
        minor: minor as u32,
        mount_point: mount.into(),
        metadata_by_block: false,
        ..testing::machine(testing::FLASH, "xfs", Vec::new())
            .devices
            .remove(0)
    }
}

fn file(path: &FilePath, device: usize) -> FileFacts {
    FileFacts {
        device: Some(device as u32),
        size: testing::VERSION.size,
        mtime_ns: testing::VERSION.mtime_ns,
        ..facts(&path.to_string(), &[], &[])
    }
}

#[test]
fn a_machine_with_many_devices_has_a_plan_that_can_be_read() {
    let many = limits::DEVICES + 10;
    let machine = Machine {
        page_size: 4096,
        memory_available: 1 << 30,
        devices: (0..many)
            .map(|index| device(&format!("/m{index}"), index))
            .collect(),
        files: (0..many)
            .map(|index| file(&format!("/m{index}/f").as_str().into(), index))
            .collect(),
    };
    let mut entries: Vec<_> = (0..many)
        .map(|index| headstart_model::profile::Entry {
            ranges: vec![testing::range(0, 3, 1.0)],
            ..testing::entry(&format!("/m{index}/f"))
        })
        .collect();
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    let options = PlanOptions::new(0);
    let draft = plan(&testing::profile(entries), &machine, &[], &options);
    assert_eq!(draft.devices.len(), limits::DEVICES);
    assert_eq!(draft.requests.len(), limits::DEVICES);
    testing::plan_file(&draft);
}

#[test]
fn of_a_profile_whose_paths_have_two_names_each_as_many_are_asked_for_as_a_plan_takes() {
    let entry = |index: usize| headstart_model::profile::Entry {
        overlay: Some(format!("/merged/{index:05}").as_str().into()),
        ranges: vec![
            testing::range(0, 3, 1.0),
            testing::range(9, 3, 1.0),
            testing::range(20, 3, 1.0),
        ],
        ..testing::entry(&format!("/f/{index:05}"))
    };
    let profile = testing::profile((0..limits::ENTRIES).map(entry).collect());
    let wanted = wanted(&profile);
    assert_eq!(wanted.len(), limits::PLAN_FILES);
    let far_apart = |(index, want): (usize, &Want)| FileFacts {
        inode: index as u64,
        extents: vec![Extent {
            logical: 0,
            physical: (index as u64) << 20,
            length: 1 << 20,
        }],
        ..file(&want.path, 0)
    };
    let machine = Machine {
        page_size: 4096,
        memory_available: 64 << 30,
        devices: vec![device("/", 0)],
        files: wanted.iter().enumerate().map(far_apart).collect(),
    };
    let draft = plan(&profile, &machine, &[], &PlanOptions::new(0));
    assert!(draft.files.len() <= limits::PLAN_FILES && !draft.files.is_empty());
    assert!(draft.requests.len() > draft.files.len() && draft.requests.len() <= limits::REQUESTS);
    testing::plan_file(&draft);
}

#[test]
fn a_file_that_is_touched_everywhere_has_wider_holes_bridged_instead_of_its_end_left_out() {
    let windows = limits::RANGES as u64;
    let path = FilePath::from("/memory");
    let one = headstart_model::profile::Entry {
        version: Some(headstart_model::profile::Version {
            size: windows * 5 * 4096,
            ..testing::VERSION
        }),
        // A page of five.
        ranges: (0..windows).map(|n| testing::range(n * 5, 1, 1.0)).collect(),
        ..testing::entry("/memory")
    };
    let size = windows * 5 * 4096;
    let whole = Extent {
        logical: 0,
        physical: 1 << 20,
        length: size,
    };
    let machine = Machine {
        page_size: 4096,
        memory_available: 64 << 30,
        // So quick that no hole is worth a byte.
        devices: vec![Device {
            cost: headstart_model::machine::Cost {
                latency: 1e-9,
                ..testing::FLASH
            },
            ..device("/", 0)
        }],
        files: vec![FileFacts {
            size,
            extents: vec![whole],
            ..file(&path, 0)
        }],
    };
    let draft = plan(&testing::profile(vec![one]), &machine, &[], &PlanOptions::new(0));
    let end = draft.requests.iter().map(|one| one.offset + one.length).max();
    assert_eq!(end, Some((windows - 1) * 5 * 4096 + 4096));
    assert!(draft.requests.len() <= limits::REQUESTS);
    testing::plan_file(&draft);
}
