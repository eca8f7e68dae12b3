//! One user takes nothing from others. What concerns the daemon is in tests/daemon (users.rs, leased.rs, holding.rs).

use crate::common::{Case, can_record, is_root};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const OWNER: u32 = 65534;

struct Leased(Child);

impl Leased {
    /// Its owner leases a file, and gives that up for nobody.
    fn new(path: &Path) -> Leased {
        let lease = "import fcntl, signal, sys, time
signal.signal(signal.SIGIO, signal.SIG_IGN)
fcntl.fcntl(0, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print('leased', flush=True)
time.sleep(1000)
";
        let mut python = Command::new("python3");
        python.args(["-c", lease]).stdin(fs::File::open(path).unwrap());
        python
            .uid(OWNER)
            .gid(OWNER)
            .current_dir("/")
            .stdout(Stdio::piped());
        let mut leased = Leased(python.spawn().unwrap());
        let mut line = String::new();
        let output = leased.0.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
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

/// The kernel takes it away only after somebody has waited for it.
fn is_leased(path: &Path) -> bool {
    let inode = format!(":{} ", fs::metadata(path).unwrap().ino());
    let locks = fs::read_to_string("/proc/locks").unwrap();
    locks
        .lines()
        .any(|line| line.contains(" LEASE ") && line.contains(&inode))
}

#[test]
fn a_planned_file_that_its_owner_has_leased_makes_no_start_wait() {
    if !is_root() || !can_record() {
        return;
    }
    let case = Case::new();
    let file = case.write("file", vec![7; 1 << 20]);
    case.write("other", vec![7; 1 << 20]);
    case.write("script", "cat other; [ -e leased ] || cat file");
    std::os::unix::fs::chown(&file, Some(OWNER), None).unwrap();
    for turn in 0..4 {
        let leased = (turn >= 2).then(|| {
            case.write("leased", "");
            Leased::new(&file)
        });
        case.evict("other");
        let ran = case.run("leases", &["sh", "script"]);
        assert_eq!((ran.code(), &*ran.err), (0, ""));
        assert_eq!(ran.out.len(), if turn < 2 { 2 << 20 } else { 1 << 20 });
        assert!(leased.is_none() || is_leased(&file), "somebody has waited for it");
    }
}
