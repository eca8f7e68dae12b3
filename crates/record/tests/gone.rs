//! What a recorder with trace events leaves in tracefs: nothing, as soon as it is dropped or has finished. In a process of its own, for
//! instances are told apart by that.

#![allow(clippy::unwrap_used)]

mod tracefs_support;

use headstart_model::trace::EndReason;
use headstart_record::{BackendChoice, Options, Recorder};
use std::fs;
use tracefs_support::Tracefs;

/// How many instances of this process there are.
fn instances(tracefs: &Tracefs) -> usize {
    let prefix = format!("headstart-{}-", std::process::id());
    fs::read_dir(tracefs.instances())
        .unwrap()
        .filter(|entry| {
            let name = entry.as_ref().unwrap().file_name();
            name.to_string_lossy().starts_with(&prefix)
        })
        .count()
}

#[test]
fn an_instance_is_gone_with_its_recorder() {
    let Some(tracefs) = Tracefs::new() else { return };
    let start = || {
        let recorder = Recorder::start(&Options {
            backend: BackendChoice::Tracefs,
            ..Options::system()
        });
        assert_eq!(instances(&tracefs), 1);
        recorder.unwrap()
    };
    drop(start());
    assert_eq!(instances(&tracefs), 0, "dropped");
    start().finish(EndReason::Exit(0)).unwrap();
    assert_eq!(instances(&tracefs), 0, "finished");
}
