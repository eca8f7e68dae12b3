//! A start that waits for a device has not ended, however long that takes. Needs root, for a file system that lets nobody
//! write for a while, and the recorder.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Case, can_record, is_root};
use headstart_system::testing::{Frozen, LoopFs, Spec, can_mount};
use std::time::Duration;

#[test]
fn a_start_that_waits_for_a_device_is_not_quiet() {
    if !is_root() || !can_mount() || !can_record() {
        return;
    }
    let case = Case::new();
    let disk = LoopFs::create(&Spec::new("ext4"), |_| Ok(())).unwrap();
    let root = &disk.mount_point();
    let behind = case.write("behind", "what it reads behind the wait");
    let script = "touch \"$1\"; cat \"$2\"; exec sleep 4";
    let waited = root.join("waited");
    let words = [
        "record", "--until", "idle", "--limit", "30", "-o", "t.trace", "--", "sh", "-c", script, "sh",
    ];
    let words: Vec<&str> = words
        .into_iter()
        .chain([waited.to_str().unwrap(), behind.to_str().unwrap()])
        .collect();
    let frozen = Frozen::begin(root).unwrap();
    let ran = std::thread::scope(|scope| {
        let start = scope.spawn(|| case.headstart(&words));
        // Twice as long as a start that has ended is quiet for.
        std::thread::sleep(Duration::from_secs(4));
        drop(frozen);
        start.join().unwrap()
    });
    assert_eq!(ran.code(), 0, "{}", ran.err);
    let shown = case.json(&["show", "t.trace", "--json"]);
    assert_eq!(shown["end"]["reason"], "Quiet", "{}", shown["end"]);
    let read = shown["files"].as_array().unwrap().iter();
    let paths: Vec<&str> = read.filter_map(|file| file["path"].as_str()).collect();
    assert!(paths.contains(&behind.to_str().unwrap()), "{paths:?}");
}
