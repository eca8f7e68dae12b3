//! What does not fit a plan is left out of it.

use crate::{PlanOptions, plan};
use headstart_model::machine::{Device, FileFacts, Found, Machine};
use headstart_model::{limits, testing};

#[test]
fn audit_12_a_machine_with_many_devices_has_a_plan_that_can_be_read() {
    let many = limits::DEVICES + 10;
    let device = |index: usize| Device {
        major: 8,
        minor: index as u32,
        node: "/dev/sda".into(),
        mount_point: format!("/m{index}").as_str().into(),
        fstype: "xfs".into(),
        uuid: [1; 16],
        cost: testing::FLASH,
        first_touch: None,
        request_limit: 128 << 10,
        metadata_by_block: false,
    };
    let file = |index: usize| FileFacts {
        path: format!("/m{index}/f").as_str().into(),
        found: Found::File,
        device: Some(index as u32),
        inode: 12,
        generation: 1,
        size: 1 << 20,
        mtime_ns: 5,
        owner: 0,
        others_may_write: false,
        extents: Vec::new(),
        metadata: Vec::new(),
    };
    let machine = Machine {
        page_size: 4096,
        memory_available: 1 << 30,
        devices: (0..many).map(device).collect(),
        files: (0..many).map(file).collect(),
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
