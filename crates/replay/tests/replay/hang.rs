//! Files that cannot be opened because somebody else does not answer. Needs root, and fanotify's permission
//! events.

use crate::common::*;
use headstart_model::machine::DeviceClass;
use headstart_model::plan::{PlanDraft, PlanFile, RequestKind::*};
use headstart_replay::{Options, Replay};
use headstart_system::testing::{NeverOpened, can_mount};
use std::sync::mpsc;
use std::time::Duration;

/// Nothing is expected to come in this time: what waits here waits for ever.
const SHORT: Duration = Duration::from_secs(3);

/// Generous: to hang is to hang for ever.
fn bounded<T: Send + 'static>(what: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, waiting) = mpsc::channel();
    std::thread::spawn(move || done.send(what()));
    waiting.recv_timeout(Duration::from_secs(60)).expect("it hangs")
}

fn plan(disk: &Mounted, class: DeviceClass) -> PlanDraft {
    let mut plan = draft(vec![disk.planned(class, 8)]);
    for name in ["first", "never", "last"] {
        add(&mut plan, Data, entry(&disk.root().join(name)), 0, 4 * PAGE);
    }
    hold(&mut plan, 0);
    plan
}

#[test]
fn a_read_that_never_ends_does_not_hold_the_finish() {
    if !can_mount() {
        return;
    }
    let mut disk = Mounted::ext4(64, |root| {
        for name in ["first", "never", "last"] {
            std::fs::write(root.join(name), vec![7u8; 4 * PAGE as usize]).unwrap();
        }
    });
    for class in [DeviceClass::Disk, DeviceClass::Flash] {
        disk.cool();
        let plan = plan(&disk, class);
        let never = NeverOpened::new(&disk.root().join("never")).unwrap();
        let options = Options {
            finish_limit: SHORT,
            barrier_limit: SHORT,
            ..options()
        };
        let replay = Replay::start(PlanFile::new(plan.to_bytes().unwrap()), options).unwrap();
        let life = replay.life();
        let report = bounded(move || {
            replay.wait_released();
            replay.finish()
        });
        let why = report.stopped.clone().unwrap_or_default();
        assert!(why.contains("left behind"), "{report:?}");
        assert!(!report.issued.iter().any(|i| i.request == 1), "{report:?}");
        assert_eq!(report.issued.len() as u64 + report.skipped.total(), 3);
        // Its threads are there as long as the read is.
        assert!(life.is_running());
        drop(never);
        bounded(move || {
            while life.is_running() {
                std::thread::sleep(Duration::from_millis(10));
            }
        });
    }
}
