//! Files that their owner has leased (`F_SETLEASE`): whoever opens one waits 45 s, and so does whoever would wait for that one.

use crate::common::{Case, binary, eventually, is_root};
use crate::harness::*;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A user's process that has leased a file of that user's, and gives it up for nobody.
pub struct Leased(Child);

impl Leased {
    pub fn new(path: &std::path::Path) -> Leased {
        let mut python = Command::new("python3");
        let lease = "import fcntl, signal, sys, time
signal.signal(signal.SIGIO, signal.SIG_IGN)
f = open(sys.argv[1])
fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print('leased', flush=True)
time.sleep(1000)
";
        python.args(["-c", lease]).arg(path).stdout(Stdio::piped());
        let mut child = by_nobody(python).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let leased = Leased(child);
        assert_eq!(line, "leased\n");
        leased
    }
}

impl Drop for Leased {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process that is about to execute this, and waits for the lease. To start it at once would be to wait for that here.
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
    let leased = Leased::new(&program);
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
