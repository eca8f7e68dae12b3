//! What a recorder with trace events leaves in tracefs: nothing, as soon as it is dropped or has finished. In a process of its own, for
//! instances are told apart by that.

#![allow(clippy::unwrap_used)]

mod tracefs_support;

use headstart_model::trace::EndReason;
use headstart_record::{BackendChoice, Options, Recorder};
use std::fs;
use std::path::Path;
use tracefs_support::is_root;

/// How many instances of this process there are; tracefs is where the recorder found it.
fn instances() -> usize {
    let prefix = format!("headstart-{}-", std::process::id());
    let places = [
        "/sys/kernel/tracing/instances",
        "/sys/kernel/debug/tracing/instances",
    ];
    let place = places.iter().find(|place| Path::new(place).exists());
    let names = fs::read_dir(place.expect("tracefs is mounted")).unwrap();
    names
        .filter(|entry| {
            let name = entry.as_ref().unwrap().file_name();
            name.to_string_lossy().starts_with(&prefix)
        })
        .count()
}

#[test]
fn an_instance_is_gone_with_its_recorder() {
    if !is_root() {
        return;
    }
    let start = || {
        let recorder = Recorder::start(&Options {
            backend: BackendChoice::Tracefs,
            ..Options::system()
        });
        assert_eq!(instances(), 1);
        recorder.unwrap()
    };
    drop(start());
    assert_eq!(instances(), 0, "dropped");
    start().finish(EndReason::Exit(0)).unwrap();
    assert_eq!(instances(), 0, "finished");
}
