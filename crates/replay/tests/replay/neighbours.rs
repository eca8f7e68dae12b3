//! Neighbours on the device are asked for together. Needs root, for loop devices.

use crate::common::*;
use headstart_model::machine::DeviceClass;
use headstart_model::outcome::Skipped;
use headstart_model::plan::{PlanDraft, RequestKind::Data};
use headstart_system::extents::extents;
use headstart_system::testing::{Spec, undisturbed};
use std::fs::File;
use std::path::PathBuf;

const FILES: u64 = 100;
/// Of each file.
const PAGES: u64 = 3;

/// A plan for small files in the order in which they lie, and how many of them lie right behind the one
/// before.
fn plan(disk: &Mounted) -> (PlanDraft, Vec<PathBuf>, u64) {
    let place = |n| {
        let path = disk.root().join(format!("f{n:03}"));
        let extents = extents(File::open(&path).unwrap()).unwrap();
        assert_eq!(extents.len(), 1, "{path:?}");
        (extents[0].physical, path)
    };
    let mut places: Vec<_> = (0..FILES).map(place).collect();
    places.sort();
    let mut plan = draft(vec![disk.planned(DeviceClass::Flash, 4)]);
    for (_, path) in &places {
        add(&mut plan, Data, entry(path), 0, PAGES * PAGE);
    }
    let mut neighbours = 0;
    for (request, two) in plan.requests[1..].iter_mut().zip(places.windows(2)) {
        request.follows = two[1].0 - two[0].0 == PAGES * PAGE;
        neighbours += u64::from(request.follows);
    }
    (
        plan,
        places.into_iter().map(|(_, path)| path).collect(),
        neighbours,
    )
}

#[test]
fn neighbours_of_different_files_are_one_request() {
    undisturbed(|| {
        let ring = headstart_system::features::features().io_uring.yes();
        for fstype in ["ext4", "xfs"] {
            let mut disk = Mounted::new(Spec::new(fstype), 512, |root| {
                let content = vec![7u8; (PAGES * PAGE) as usize];
                (0..FILES).for_each(|n| std::fs::write(root.join(format!("f{n:03}")), &content).unwrap());
            });
            let mut requests = Vec::new();
            for io_uring in [true, false] {
                disk.cool();
                let (plan, paths, neighbours) = plan(&disk);
                assert!(
                    neighbours > FILES * 9 / 10,
                    "{fstype} scattered them: {neighbours}"
                );
                let before = disk.reads();
                let report = start_with(&plan, io_uring).finish();
                requests.push(disk.reads() - before);
                assert_eq!((report.stopped, report.skipped), (None, Skipped::default()));
                let pages: u64 = report.issued.iter().map(|one| one.arrived_pages).sum();
                assert_eq!(pages, FILES * PAGES, "{fstype}, {io_uring}");
                for path in paths {
                    assert_eq!(resident(&path), [(0, PAGES)], "{fstype}, {io_uring}: {path:?}");
                }
                if ring && io_uring {
                    // One call serves 128 KiB, the last of its parts may be cut, and others end where
                    // neighbours do.
                    let calls = (FILES * PAGES).div_ceil(32) + FILES - neighbours;
                    assert!(requests[0] <= calls, "{fstype}: {requests:?} of {calls}");
                }
            }
            assert!(!ring || requests[0] * 3 < requests[1], "{fstype}: {requests:?}");
        }
    });
}
