//! Files that their owner has leased (`F_SETLEASE`): whoever opens one waits 45 s, and so does whoever would
//! wait for that one.

use crate::common::{Case, NOBODY, binary, eventually, is_root, lease};
use crate::harness::*;
use std::process::{Child, Command, Stdio};

/// A process that is about to execute this, and waits for the lease. To start it at once would be to wait for
/// that here.
pub fn executes(program: &std::path::Path) -> Child {
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$0\" /dev/null"]).arg(program);
    let child = shell.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    eventually("it waits for the lease", || {
        let at = std::fs::read_to_string(format!("/proc/{}/wchan", child.id()));
        at.unwrap().contains("break_lease")
    });
    child
}

#[test]
fn a_leased_file_makes_no_daemon_by_fanotify_wait() {
    if !can_watch() || !is_root() {
        return;
    }
    let case = Case::new();
    let fs = disk(&["one"]);
    let_all_into(&fs.mount_point());
    let program = fs.mount_point().join("one");
    std::os::unix::fs::chown(&program, Some(NOBODY), None).unwrap();
    let daemon = Daemon::start_by(
        &case,
        Command::new(binary()),
        &["--no-control", "--notice", "fanotify"],
    );
    let leased = lease(&program);
    // It waits for the lease, as without headstart.
    let mut waits = executes(&program);
    run(Command::new("true"));
    std::thread::sleep(std::time::Duration::from_millis(300));
    let wchan = std::fs::read_to_string(format!("/proc/{}/wchan", daemon.child.id())).unwrap();
    assert!(!wchan.contains("lease"), "{wchan}");
    // It hears that it is to end, while the lease is still there.
    daemon.stop();
    assert!(
        waits.try_wait().unwrap().is_none(),
        "nobody has waited for the lease"
    );
    drop(leased);
    assert!(waits.wait().unwrap().success());
}
