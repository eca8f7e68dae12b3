//! A user's lease on a file costs that file its new place, and nobody else anything.

use crate::common::{NOBODY, binary, finish, start};
use headstart_model::Key;
use headstart_store::Store;
use headstart_system::testing::numbered::{backwards, contents, path};
use headstart_system::testing::{LoopFs, Process, Spec, can_mount};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const FILES: u64 = 60;
const LEASED: u64 = 10;

/// Leases files for good; with `again` gives each up and leases it anew, all the time.
const LEASE: &str = r#"
import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
os.setgid(65534); os.setuid(65534)
again, paths = sys.argv[1] == "again", sys.argv[2:]
held = {}
def lease(path):
    try:
        held[path] = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        fcntl.fcntl(held[path], fcntl.F_SETLEASE, fcntl.F_WRLCK)
        return 1
    except OSError:
        return 0
count = sum(lease(path) for path in paths)
print(count, flush=True)
while again:
    for path in paths:
        if path in held: os.close(held.pop(path))
        lease(path)
signal.pause()
"#;

struct Leased {
    _process: Process,
    held: u64,
}

impl Leased {
    fn new(how: &str, paths: &[PathBuf]) -> Leased {
        let mut command = Command::new("python3");
        command.args(["-c", LEASE, how]).args(paths).stdin(Stdio::null());
        let (child, mut lines) = start(command);
        let held = lines.next().unwrap().unwrap().parse().unwrap();
        Leased {
            _process: Process(child),
            held,
        }
    }
}

#[test]
fn a_lease_costs_its_file_alone_and_no_room_is_kept() {
    if !can_mount() {
        return;
    }
    let spec = Spec {
        size: 128 << 20,
        ..Spec::new("ext4")
    };
    let fill = |at: &Path| -> std::io::Result<()> {
        for number in 0..FILES {
            fs::write(path(at, number), contents(number, 150_000))?;
            if number < LEASED {
                std::os::unix::fs::chown(path(at, number), Some(NOBODY), Some(NOBODY))?;
            }
        }
        // Who leases the file needs to come to it.
        fs::set_permissions(at, std::os::unix::fs::PermissionsExt::from_mode(0o755))
    };
    let mut fs = LoopFs::create(&spec, fill).unwrap();
    let (at, state) = (fs.mount_point(), tempfile::tempdir_in("/var/tmp").unwrap());
    let (store, key) = (Store::new(state.path()), Key::new("l").unwrap());
    let profile = backwards(&key, &at, FILES).unwrap();
    store.make().unwrap();
    store.key(&key).lock().unwrap().save_profile(&profile).unwrap();
    let free = || {
        rustix::fs::sync();
        rustix::fs::statvfs(&at).unwrap().f_bfree
    };
    let before = free();
    let apply = || {
        let mut command = Command::new(binary());
        command
            .arg("--state")
            .arg(state.path())
            .args(["layout", "apply", "--force", "--json", "l"]);
        let ran = finish(command, b"");
        assert_eq!(ran.code(), 0, "{}{}", ran.out, ran.err);
        let json: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        assert_eq!(json[0]["state"], "complete", "{json}");
        json[0].clone()
    };
    let paths: Vec<PathBuf> = (0..LEASED).map(|number| path(&at, number)).collect();
    let leased = Leased::new("hold", &paths);
    assert_eq!(leased.held, LEASED);
    let kept = apply();
    assert_eq!(kept["files"], FILES - LEASED, "{kept}");
    let left: u64 = kept["left"]
        .as_object()
        .unwrap()
        .values()
        .map(|count| count.as_u64().unwrap())
        .sum();
    assert_eq!(left, LEASED, "{kept}");
    drop(leased);
    // At any moment of a move.
    let leased = Leased::new("again", &paths);
    for _ in 0..5 {
        let kept = apply();
        let moved = kept["files"].as_u64().unwrap();
        assert!(moved >= FILES - LEASED, "{kept}");
    }
    drop(leased);
    assert_eq!(apply()["files"], FILES);
    assert_eq!(free(), before, "no room is kept");
    fs.remount_cold().unwrap();
    for number in 0..FILES {
        assert!(
            fs::read(path(&at, number)).unwrap() == contents(number, 150_000),
            "file {number}"
        );
    }
    let names = fs::read_dir(&at)
        .unwrap()
        .flatten()
        .filter(|file| file.file_name().to_string_lossy().contains("headstart"));
    assert_eq!(names.count(), 0);
    fs.check().unwrap();
}
