//! What is cold is weighed by what it costs: a plan is warm when reading the rest ahead gains nothing. Needs
//! root, for a loop device and the recorder.

use crate::common::{Case, can_record, is_root, run_words};
use headstart_model::machine::{Cost, DeviceClass};
use headstart_store::{DeviceCost, Store};
use headstart_system::device::DeviceFacts;
use headstart_system::residency::advise_dontneed;
use headstart_system::snapshot::{DeviceIdentity, Options, device_at};
use headstart_system::testing::{LoopFs, Spec, can_mount};
use serde_json::Value;
use std::fs::{self, File};
use std::path::Path;

const LIBRARIES: usize = 35;
const OWN: usize = 20 << 20;

/// A program's 35 libraries and one file of its own.
fn disk() -> LoopFs {
    LoopFs::create(&Spec::new("ext4"), |root| {
        for n in 0..LIBRARIES {
            fs::write(root.join(format!("lib{n}")), vec![7; 100 << 10])?;
        }
        fs::write(root.join("own"), vec![7; OWN])
    })
    .unwrap()
}

/// Of warm starts one in so many is a control, by chance: none of a test.
const SELDOM: &str = "1000000";

/// Starts a command under the name `k`; one in so many is a control run.
fn start(case: &Case, every: &str, script: &str) -> Value {
    let mut command = case.command(&run_words(
        &["--wait", "--json"],
        every,
        "k",
        &["sh", "-c", script],
    ));
    command.env_remove("HEADSTART_EVEN_WARM");
    let ran = crate::common::finish(command, b"");
    assert_eq!(ran.code(), 0, "{}", ran.err);
    serde_json::from_str(&ran.err).unwrap_or_else(|error| panic!("{error}: {}", ran.err))
}

fn is_bypassed(outcome: &Value) -> bool {
    let why = outcome["not_learned"].as_str().unwrap_or_default();
    why.starts_with("bypassed: what it reads is in memory")
}

fn can() -> bool {
    is_root() && can_mount() && can_record()
}

fn reads_all(root: &Path) -> String {
    format!("cd {}; cat lib* [no]*[nw] >/dev/null", root.display())
}

#[test]
fn one_cold_file_of_its_own_among_warm_libraries_is_read_ahead_each_time() {
    if !can() {
        return;
    }
    let (case, mut disk) = (Case::new(), disk());
    let root = disk.mount_point();
    let program = reads_all(&root);
    for _ in 0..2 {
        start(&case, SELDOM, &program);
        disk.remount_cold().unwrap();
    }
    for turn in 0..6 {
        for n in 0..LIBRARIES {
            fs::read(root.join(format!("lib{n}"))).unwrap();
        }
        let own = File::open(root.join("own")).unwrap();
        advise_dontneed(&own, 0, 0).unwrap();
        let outcome = start(&case, SELDOM, &program);
        assert!(!is_bypassed(&outcome), "{turn}: {outcome}");
    }
}

#[test]
fn a_warm_start_is_bypassed_also_where_no_start_is_a_control_run() {
    if !can() {
        return;
    }
    let (case, disk) = (Case::new(), disk());
    let program = reads_all(&disk.mount_point());
    start(&case, "0", &program);
    for every in ["0", SELDOM, "0"] {
        let outcome = start(&case, every, &program);
        assert!(is_bypassed(&outcome), "{every}: {outcome}");
    }
}

/// As if the disk had been measured, and took 4 ms for a read.
fn measured_as_slow(case: &Case, disk: &LoopFs) {
    let store = Store::new(case.state());
    store.make().unwrap();
    let keep = |device: &DeviceIdentity| {
        let now = std::time::UNIX_EPOCH.elapsed().unwrap();
        let stored = DeviceCost {
            cost: Cost {
                class: DeviceClass::Flash,
                bandwidth: 100e6,
                latency: 4e-3,
                depth: 16,
            },
            first_touch: None,
            decompression: None,
            device: device.facts.as_ref().map(DeviceFacts::identity).unwrap(),
            measured_unix_ns: now.as_nanos() as u64,
        };
        store.save_device_cost(&device.uuid, &stored).unwrap();
        Some((stored.cost, None))
    };
    let options = Options {
        costs: &keep,
        ..Options::default()
    };
    let device = device_at(&disk.mount_point().as_path().into(), &options).unwrap();
    assert_eq!(device.unwrap().cost.latency, 4e-3);
}

#[test]
fn a_start_that_only_lists_is_read_ahead_each_time_it_is_cold_and_bypassed_when_it_is_warm() {
    if !can() {
        return;
    }
    for fstype in ["ext4", "xfs"] {
        let fill = |root: &Path| {
            (0..120).try_for_each(|n| fs::create_dir_all(root.join(format!("a{}/b{}/c{n}", n % 4, n % 12))))
        };
        let (case, mut disk) = (Case::new(), LoopFs::create(&Spec::new(fstype), fill).unwrap());
        measured_as_slow(&case, &disk);
        let root = disk.mount_point();
        // The program is in memory, and nothing of the disk is opened but directories.
        let script = format!("find {} >/dev/null", root.display());
        for turn in 0..4 {
            disk.remount_cold().unwrap();
            let outcome = start(&case, "0", &script);
            let mode = if turn == 0 { "record" } else { "replay" };
            assert_eq!(outcome["mode"], mode, "{fstype}, {turn}: {outcome}");
        }
        for _ in 0..3 {
            let before = disk.reads();
            let outcome = start(&case, "0", &script);
            assert!(is_bypassed(&outcome), "{fstype}: {outcome}");
            assert_eq!(disk.reads(), before, "{fstype}");
        }
    }
}

#[test]
fn a_start_whose_largest_planned_file_is_gone_is_recorded_anew() {
    if !can() {
        return;
    }
    let (case, disk) = (Case::new(), disk());
    let root = disk.mount_point();
    let program = reads_all(&root);
    start(&case, SELDOM, &program);
    assert!(is_bypassed(&start(&case, SELDOM, &program)), "all is as it was");
    fs::rename(root.join("own"), root.join("new")).unwrap();
    let outcome = start(&case, SELDOM, &program);
    assert!(!is_bypassed(&outcome), "{outcome}");
    let explained = case.headstart(&["explain", "--name", "k", root.join("new").to_str().unwrap()]);
    assert_eq!(explained.code(), 0, "it was learned: {}", explained.err);
    let outcome = start(&case, SELDOM, &program);
    assert!(is_bypassed(&outcome), "not for ever: {outcome}");
}

#[test]
fn what_is_used_and_not_planned_has_starts_recorded_until_it_is_and_ever_more_seldom() {
    if !can() {
        return;
    }
    let (case, disk) = (Case::new(), disk());
    let root = disk.mount_point();
    // Its largest file is gone when it has ended: nothing can plan it.
    let script = format!("cat {0}/lib* {0}/own >/dev/null; rm {0}/own", root.display());
    let bring = || {
        let own = root.join("own");
        fs::write(&own, vec![7; OWN]).unwrap();
        let old = fs::FileTimes::new().set_modified(std::time::SystemTime::UNIX_EPOCH);
        File::options()
            .write(true)
            .open(&own)
            .unwrap()
            .set_times(old)
            .unwrap();
    };
    bring();
    start(&case, SELDOM, &script);
    bring();
    let second = start(&case, SELDOM, &script);
    assert!(
        !is_bypassed(&second),
        "its plan is in memory, and is not all of it: {second}"
    );
    let mut bypassed = 0;
    for _ in 0..12 {
        bring();
        bypassed += u32::from(is_bypassed(&start(&case, SELDOM, &script)));
    }
    assert!(bypassed >= 4, "recorded at each start for ever");
    // It stays from now on: the plan asks for it, and that it is in memory says all.
    bring();
    let program = reads_all(&root);
    let turns = case.state().join("keys");
    let turns = fs::read_dir(turns)
        .unwrap()
        .flatten()
        .next()
        .unwrap()
        .path()
        .join("turns");
    let unplanned = || {
        let text = fs::read_to_string(&turns).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()["unplanned"]
            .as_u64()
            .unwrap()
    };
    assert!(unplanned() >= 2, "{}", unplanned());
    // What only one of many starts has used is not planned yet.
    let planned = (0..8).any(|_| {
        assert_eq!(case.run("k", &["sh", "-c", &program]).code(), 0);
        unplanned() == 0
    });
    assert!(planned, "{}", unplanned());
    let last = start(&case, SELDOM, &program);
    assert!(is_bypassed(&last), "{last}");
}
