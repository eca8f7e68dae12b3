//! What is learned of services, which process 1 starts.

use crate::common::{Case, eventually};
use crate::harness::*;
use headstart_model::Key;
use headstart_model::outcome::Mode;
use headstart_system::testing::{ControlGroup, LoopFs};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A process that has no parent but process 1, and executes a program with its files in a control group once it is told to, by the file that is given.
fn waiting(case: &Case, fs: &LoopFs, name: &str, group: &Path) -> PathBuf {
    let fifo = case.path(name);
    run({
        let mut command = Command::new("mkfifo");
        command.arg(&fifo);
        command
    });
    let mut shell = Command::new("sh");
    shell.args([
        "-c",
        "{ read line <\"$0\"; echo 0 >\"$1\"/cgroup.procs; shift; exec \"$@\"; } &",
    ]);
    shell.args([&fifo, group]).arg(fs.mount_point().join(name));
    shell.args(files(fs, name));
    run({
        shell
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        shell
    });
    fifo
}

/// Starts a service, as process 1 does one with `ExecStartPre=` and `ExecStart=`: the second when the first has ended.
fn serve(case: &Case, fs: &LoopFs, group: &Path) {
    let all = ["pre", "main"];
    let waiting = all.map(|name| waiting(case, fs, name, group));
    let is_empty = || fs::read_to_string(group.join("cgroup.procs")).unwrap().is_empty();
    for (fifo, name) in waiting.iter().zip(all) {
        fs::write(fifo, "\n").unwrap();
        eventually(&format!("{name} begins"), || !is_empty());
        while !is_empty() {
            std::hint::spin_loop();
        }
        fs::remove_file(fifo).unwrap();
    }
}

#[test]
fn what_a_service_executes_one_after_the_other_is_one_start() {
    if !can_watch() {
        return;
    }
    let case = Case::new();
    let mut fs = disk(&["pre", "main"]);
    let group = ControlGroup::new("system.slice/headstart-test.service").unwrap();
    let daemon = Daemon::start(&case);
    let name = group.path().file_name().unwrap().to_string_lossy();
    let unit = Key::new(name.as_ref()).unwrap();
    fs.remount_cold().unwrap();
    serve(&case, &fs, group.path());
    assert_eq!(kept(&case, &unit, 1)[0].mode, Mode::Record);
    fs.remount_cold().unwrap();
    serve(&case, &fs, group.path());
    let second = &kept(&case, &unit, 2)[1];
    assert_eq!((second.mode, second.status), (Mode::Replay, Some(0)));
    let issued: u64 = second.stages.iter().map(|stage| stage.issued_pages).sum();
    assert!(issued >= 2 * 20 * 256, "{second:?}");
    daemon.stop();
}
