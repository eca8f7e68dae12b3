//! A command that soon ends is recorded one time in so many, and when its files have changed; one that goes
//! on each time. Needs root, for a loop device and the recorder.

use crate::common::{Case, can_record, is_root, run_words};
use headstart_system::testing::{LoopFs, Spec, can_mount};
use serde_json::Value;
use std::fs;
use std::path::Path;

const FILES: u32 = 200;

fn write(root: &Path, files: std::ops::Range<u32>, byte: u8) -> std::io::Result<()> {
    for n in files {
        fs::write(root.join(format!("f{n}")), vec![byte; 6000])?;
    }
    Ok(())
}

/// A key whose starts read the files of a disk, which is cold before each.
struct Starts {
    case: Case,
    disk: LoopFs,
}

impl Starts {
    fn new() -> Option<Starts> {
        let is_possible = is_root() && can_mount() && can_record();
        is_possible.then(|| Starts {
            case: Case::new(),
            disk: LoopFs::create(&Spec::new("ext4"), |root| write(root, 0..FILES, b'x')).unwrap(),
        })
    }

    /// A start by this script, in which `$1` is the directory; every so many are controls. Its outcome.
    fn start(&mut self, script: &str, control_every: &str) -> Value {
        self.disk.remount_cold().unwrap();
        let root = self.disk.mount_point();
        let command = ["sh", "-c", script, "sh", root.to_str().unwrap()];
        let ran = (self.case).headstart(&run_words(&["--wait"], control_every, "k", &command));
        assert_eq!((ran.code(), ran.err.as_str()), (0, ""));
        let status = self.case.json(&["status", "k", "--json"]);
        status["outcomes"].as_array().unwrap().last().unwrap().clone()
    }
}

const READ: &str = "cat \"$1\"/f* >/dev/null";

fn mode(outcome: &Value) -> (&str, bool) {
    (
        outcome["mode"].as_str().unwrap(),
        outcome["unrecorded"].as_bool().unwrap(),
    )
}

/// Starts until one is not recorded: how many are depends on how long they take, and so on who else computes.
fn until_unrecorded(starts: &mut Starts) -> Value {
    let mut outcomes = (0..40).map(|_| starts.start(READ, "0"));
    let found = outcomes.find(|outcome| mode(outcome).1);
    found.expect("a start that takes as long as to attach a recorder, and is not recorded")
}

#[test]
fn a_short_command_is_seldom_recorded_but_once_its_files_have_changed() {
    let Some(mut starts) = Starts::new() else { return };
    let first: Vec<Value> = (0..3).map(|_| starts.start(READ, "0")).collect();
    let modes: Vec<_> = first.iter().map(mode).collect();
    assert_eq!(modes, [("record", false), ("replay", false), ("replay", false)]);
    let unrecorded = until_unrecorded(&mut starts);
    assert_eq!(mode(&unrecorded), ("replay", true), "{unrecorded:#}");
    assert!(unrecorded["not_learned"].is_string() && unrecorded["stages"] == serde_json::json!([]));
    assert!(unrecorded["elapsed_ns"].as_u64() > Some(0) && unrecorded["status"] == 0);
    assert!(
        unrecorded["resident_before"].is_object(),
        "it is compared with others: {unrecorded:#}"
    );

    // An update of a tenth of its files.
    for n in 0..FILES / 10 {
        fs::remove_file(starts.disk.mount_point().join(format!("f{n}"))).unwrap();
    }
    write(&starts.disk.mount_point(), 0..FILES / 10, b'y').unwrap();
    let updated = starts.start(READ, "0");
    assert!(updated["skipped"]["changed"].as_u64() >= Some(20), "{updated:#}");
    let again = starts.start(READ, "0");
    assert_eq!(
        (mode(&again), &again["not_learned"]),
        (("replay", false), &Value::Null)
    );

    let unrecorded: Vec<bool> = (0..22).map(|_| mode(&starts.start(READ, "0")).1).collect();
    let longest = unrecorded.split(|is| !is).map(<[bool]>::len).max();
    assert!((1..=9).contains(&longest.unwrap()), "{unrecorded:?}");
}

#[test]
fn of_controls_every_other_is_recorded() {
    let Some(mut starts) = Starts::new() else { return };
    for _ in 0..20 {
        until_unrecorded(&mut starts);
        let controls: Vec<Value> = (0..3).map(|_| starts.start(READ, "1")).collect();
        let unrecorded: Vec<bool> = controls.iter().map(|outcome| mode(outcome).1).collect();
        for control in &controls {
            assert_eq!(control["mode"], "control");
            assert_eq!(control["blocked_ns"].is_null(), mode(control).1, "{control:#}");
        }
        assert!(
            !unrecorded.windows(2).any(|two| two == [true, true]),
            "{unrecorded:?}"
        );
        if unrecorded.contains(&true) {
            return;
        }
    }
    panic!("no control run went unrecorded");
}

#[test]
fn a_command_that_goes_on_is_recorded_each_time() {
    let Some(mut starts) = Starts::new() else { return };
    for _ in 0..5 {
        let outcome = starts.start("cat \"$1\"/f* >/dev/null; exec sleep 4", "0");
        assert!(!mode(&outcome).1 && outcome["status"].is_null(), "{outcome:#}");
    }
}
