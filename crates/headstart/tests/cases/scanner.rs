//! Beside an on-access scanner a start with headstart is not scanned more than one without. Needs root, for a
//! loop device, fanotify(7) and the recorder.

use crate::common::{Case, can_record, is_root, run_words};
use headstart_system::testing::{LoopFs, Scanner, Spec, can_mount};
use std::fs;
use std::time::Duration;

const FILES: u64 = 300;
/// Opens by which is found out that each is scanned: of the sample, of a replay by several threads, of a
/// snapshot.
const FEW: u64 = 60;
const TAKES: Duration = Duration::from_millis(1);

fn disk() -> LoopFs {
    LoopFs::create(&Spec::new("ext4"), |root| {
        fs::create_dir(root.join("d"))?;
        (0..FILES).try_for_each(|n| fs::write(root.join(format!("d/{n}")), "x"))
    })
    .unwrap()
}

fn can() -> bool {
    is_root() && can_mount() && can_record()
}

fn script(disk: &LoopFs) -> String {
    format!("cat {}/d/* >/dev/null", disk.mount_point().display())
}

fn run(case: &Case, every: &str, script: &str) {
    let words = run_words(&["--wait"], every, "av", &["sh", "-c", script]);
    assert_eq!(case.headstart(&words).code(), 0);
}

/// How often was scanned at a cold start beside a scanner.
fn start(case: &Case, disk: &mut LoopFs, every: &str) -> u64 {
    disk.remount_cold().unwrap();
    let scanner = Scanner::new(&disk.mount_point(), TAKES).unwrap();
    let script = script(disk);
    run(case, every, &script);
    scanner.scans()
}

#[test]
fn a_start_is_scanned_once_and_its_key_bypassed_while_there_is_a_scanner() {
    if !can() {
        return;
    }
    let (case, mut disk) = (Case::new(), disk());
    let scans: Vec<u64> = (0..5).map(|_| start(&case, &mut disk, "1000000")).collect();
    assert!(
        scans.iter().all(|scans| (FILES..=FILES + FEW).contains(scans)),
        "{scans:?}"
    );
    assert!(
        scans[2..].iter().all(|scans| *scans == FILES),
        "bypassed: {scans:?}"
    );
    let status = case.headstart(&["status", "av"]);
    assert!(status.out.contains("on-access scanner"), "{}", status.out);
}

#[test]
fn what_was_learned_before_there_was_a_scanner_is_not_opened_once_more() {
    if !can() {
        return;
    }
    let (case, mut disk) = (Case::new(), disk());
    let words = script(&disk);
    for _ in 0..2 {
        disk.remount_cold().unwrap();
        assert_eq!(case.run("av", &["sh", "-c", &words]).code(), 0);
    }
    let scans: Vec<u64> = (0..4).map(|_| start(&case, &mut disk, "1000000")).collect();
    assert!(
        scans
            .iter()
            .all(|scans| (FILES..=FILES + 2 * FEW).contains(scans)),
        "{scans:?}"
    );
    assert!(scans[1..].iter().all(|scans| *scans <= FILES + FEW), "{scans:?}");
    // Also where all starts are to be read ahead, and where nobody records.
    let replayed = start(&case, &mut disk, "0");
    assert!(replayed <= FILES + 2 * FEW, "{replayed}");
    disk.remount_cold().unwrap();
    let scanner = Scanner::new(&disk.mount_point(), TAKES).unwrap();
    assert_eq!(case.headstart(&["replay", "av", "--wait"]).code(), 0);
    let alone = scanner.scans();
    assert!(alone <= FEW, "{alone}");
}

#[test]
fn when_the_scanner_is_gone_a_re_evaluation_ends_the_bypass() {
    if !can() {
        return;
    }
    let (case, mut disk) = (Case::new(), disk());
    let first = start(&case, &mut disk, "2");
    assert!(first <= FILES + FEW, "{first}");
    let is_bypassed = || {
        case.headstart(&["status", "av"])
            .out
            .contains("on-access scanner")
    };
    assert!(is_bypassed());
    let words = script(&disk);
    // One in two re-evaluates, by chance.
    for _ in 0..40 {
        disk.remount_cold().unwrap();
        run(&case, "2", &words);
        if !is_bypassed() {
            return;
        }
    }
    panic!("bypassed for ever");
}
