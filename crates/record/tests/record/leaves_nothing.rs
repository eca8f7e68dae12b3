//! What a recorder with trace events leaves in tracefs: nothing, as soon as it is dropped or has finished.

use crate::support::Tracefs;
use headstart_model::trace::EndReason;
use headstart_record::{BackendChoice, Options, Recorder};
use headstart_system::testing::is_root;
use std::fs;
use std::process::Command;

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

/// In a process of its own, whose number tells its instances from those of other tests.
#[test]
fn an_instance_is_gone_with_its_recorder() {
    if !is_root() {
        return;
    }
    let alone = Command::new(std::env::current_exe().unwrap())
        .args(["gone::alone", "--exact", "--ignored"])
        .status();
    assert!(alone.unwrap().success());
}

#[test]
#[ignore = "a part of an_instance_is_gone_with_its_recorder"]
fn alone() {
    let tracefs = Tracefs::new();
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
