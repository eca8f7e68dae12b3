//! Containers: what an engine executes for one, in another control group and in namespaces of its own, is
//! part of the start of its client. The engine is a shell by other names: `tests/cases/vm/containers` has
//! real ones.

use crate::common::{Case, eventually};
use crate::harness::*;
use headstart_model::Key;
use headstart_model::outcome::{Mode, Outcome};
use headstart_system::testing::{ControlGroup, LoopFs};
use serde_json::Value;
use std::fs;
use std::process::{Command, Stdio};

/// Puts an engine onto the file system: `podman run IMAGE…` has `crun` executed in this control group, which
/// executes the container's command in a mount namespace of its own.
fn add_engine(fs: &LoopFs, group: &ControlGroup) {
    let at = fs.mount_point();
    for name in ["podman", "crun"] {
        fs::copy("/bin/dash", at.join(name)).unwrap();
    }
    let client = format!(
        "shift; sh -c 'echo 0 >\"$0\"/cgroup.procs; exec \"$@\"' {} {}/crun create \"$@\"\n",
        group.path().display(),
        at.display()
    );
    fs::write(at.join("run"), client).unwrap();
    fs::write(at.join("create"), "exec unshare --mount \"$@\"\n").unwrap();
}

/// The client of a container of an image in which the program `NAME` reads its files.
fn container(fs: &LoopFs, name: &str) -> Command {
    let mut client = Command::new(fs.mount_point().join("podman"));
    client.args(["run", "image"]).arg(fs.mount_point().join(name));
    client.args(files(fs, name)).current_dir(fs.mount_point());
    client.stdin(Stdio::null()).stdout(Stdio::null());
    client
}

/// The same client below `headstart run`, which returns when the start is finished.
fn container_by_run(case: &Case, fs: &LoopFs, name: &str) -> Command {
    let client = container(fs, name);
    let mut run = case.command(&["run", "--wait", "--control-every", "0", "--"]);
    run.arg(client.get_program()).args(client.get_args());
    run.current_dir(fs.mount_point()).stdout(Stdio::null());
    run
}

fn key_of_container(fs: &LoopFs, name: &str) -> Key {
    let at = fs.mount_point().display().to_string();
    Key::new(format!("{at}/podman image {at}/{name}")).unwrap()
}

/// All files of the container's program were requested ahead.
#[track_caller]
fn is_read_ahead(outcome: &Outcome) {
    assert_eq!(outcome.mode, Mode::Replay);
    let issued: u64 = outcome.stages.iter().map(|stage| stage.issued_pages).sum();
    assert!(issued >= 20 * 256, "{outcome:?}");
}

/// Waits until the daemon has finished a first start, and gives it. Starts by `headstart run` do not count
/// here.
#[track_caller]
fn first_of_the_daemon(case: &Case, key: &Key) -> Outcome {
    eventually(&format!("the daemon has finished a start of {key}"), || {
        finished(case, key) == 1
    });
    outcomes(case, key).pop().unwrap()
}

#[test]
fn a_container_is_read_ahead_by_what_others_of_its_image_have_taught() {
    if !can_watch() {
        return;
    }
    let case = Case::new();
    let mut fs = disk(&["one"]);
    let group = ControlGroup::new("headstart-container").unwrap();
    add_engine(&fs, &group);
    let daemon = Daemon::start(&case);
    let key = key_of_container(&fs, "one");
    run(container(&fs, "one"));
    assert_eq!(kept(&case, &key, 1)[0].mode, Mode::Record);
    fs.remount_cold().unwrap();
    run(container(&fs, "one"));
    is_read_ahead(&kept(&case, &key, 2)[1]);
    daemon.stop();
    // The engine's parts have no keys of their own.
    let status = case.json(&["status", "--json"]);
    let is_part = |one: &Value| one["key"].as_str().unwrap().contains("/crun");
    assert!(!status.as_array().unwrap().iter().any(is_part), "{status}");
}

#[test]
fn what_headstart_run_learns_of_a_container_the_daemon_reads_ahead_and_the_other_way_round() {
    if !can_watch() {
        return;
    }
    let case = Case::new();
    let mut fs = disk(&["one", "two"]);
    let group = ControlGroup::new("headstart-shared").unwrap();
    add_engine(&fs, &group);
    let [one, two] = ["one", "two"].map(|name| key_of_container(&fs, name));
    // No daemon runs beside `headstart run`, so it is clear who has learned.
    fs.remount_cold().unwrap();
    run(container_by_run(&case, &fs, "one"));
    let learned = outcomes(&case, &one);
    assert_eq!((learned.len(), learned[0].mode), (1, Mode::Record));

    let daemon = Daemon::start(&case);
    fs.remount_cold().unwrap();
    run(container(&fs, "one"));
    is_read_ahead(&first_of_the_daemon(&case, &one));
    run(container(&fs, "two"));
    assert_eq!(first_of_the_daemon(&case, &two).mode, Mode::Record);
    daemon.stop();

    fs.remount_cold().unwrap();
    run(container_by_run(&case, &fs, "two"));
    let both = outcomes(&case, &two);
    assert_eq!(both.len(), 2);
    is_read_ahead(&both[1]);
}
