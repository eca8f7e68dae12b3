//! Containers: what an engine executes for one, in another control group and in namespaces of its own, is
//! part of the start of its client. The engine is a shell by other names: `tests/cases/vm/containers` has
//! real ones.

use crate::common::Case;
use crate::harness::*;
use headstart_model::Key;
use headstart_model::outcome::Mode;
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
    let container = |fs: &LoopFs| {
        let mut client = Command::new(fs.mount_point().join("podman"));
        client.args(["run", "image"]).arg(fs.mount_point().join("one"));
        client.args(files(fs, "one")).current_dir(fs.mount_point());
        client.stdin(Stdio::null()).stdout(Stdio::null());
        run(client);
    };
    let at = fs.mount_point().display().to_string();
    let key = Key::new(format!("{at}/podman image {at}/one")).unwrap();
    container(&fs);
    assert_eq!(kept(&case, &key, 1)[0].mode, Mode::Record);
    fs.remount_cold().unwrap();
    container(&fs);
    let second = &kept(&case, &key, 2)[1];
    assert_eq!(second.mode, Mode::Replay);
    let issued: u64 = second.stages.iter().map(|stage| stage.issued_pages).sum();
    assert!(issued >= 20 * 256, "{second:?}");
    daemon.stop();
    // The engine's parts have no keys of their own.
    let status = case.json(&["status", "--json"]);
    let is_part = |one: &Value| one["key"].as_str().unwrap().contains("/crun");
    assert!(!status.as_array().unwrap().iter().any(is_part), "{status}");
}
