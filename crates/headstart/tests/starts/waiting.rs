//! Who waits for what: a start that waits for a device has not ended, however long that takes, and nobody
//! waits for a server that the command would not ask.

use crate::common::{Case, can_record, is_root};
use headstart_system::testing::{DeadMount, Frozen, LoopFs, Spec, can_mount};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

#[test]
fn a_start_that_waits_for_a_device_is_not_quiet() {
    if !is_root() || !can_mount() || !can_record() {
        return;
    }
    let case = Case::new();
    let disk = LoopFs::create(&Spec::new("ext4"), |_| Ok(())).unwrap();
    let root = &disk.mount_point();
    let behind = case.write("behind", "what it reads behind the wait");
    let script = "touch \"$1\"; cat \"$2\"; exec sleep 4";
    let waited = root.join("waited");
    let words = [
        "record", "--until", "idle", "--limit", "30", "-o", "t.trace", "--", "sh", "-c", script, "sh",
    ];
    let words: Vec<&str> = words
        .into_iter()
        .chain([waited.to_str().unwrap(), behind.to_str().unwrap()])
        .collect();
    let frozen = Frozen::freeze(root).unwrap();
    let ran = std::thread::scope(|scope| {
        let start = scope.spawn(|| case.headstart(&words));
        // Twice as long as a start that has ended is quiet for.
        std::thread::sleep(Duration::from_secs(4));
        drop(frozen);
        start.join().unwrap()
    });
    assert_eq!(ran.code(), 0, "{}", ran.err);
    let shown = case.json(&["show", "t.trace", "--json"]);
    assert_eq!(shown["end"]["reason"], "Quiet", "{}", shown["end"]);
    let read = shown["files"].as_array().unwrap().iter();
    let paths: Vec<&str> = read.filter_map(|file| file["path"].as_str()).collect();
    assert!(paths.contains(&behind.to_str().unwrap()), "{paths:?}");
}

#[test]
fn a_word_that_leads_to_a_server_that_never_answers_holds_nobody() {
    if !is_root() || !can_mount() {
        return;
    }
    let case = Case::new();
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let server = DeadMount::new(dir.path()).unwrap();
    // It is gone when all is over, or when somebody has waited for long.
    let (over, is_over) = channel::<()>();
    let ends = std::thread::spawn(move || {
        let _ = is_over.recv_timeout(Duration::from_secs(30));
        drop(server);
    });
    let below = dir.path().join("a/b");
    let below = below.to_str().unwrap();
    let begun = Instant::now();
    let words = ["run", "--wait", "--", "sh", "-c", "exit 7", "sh", below];
    let by_text = format!("cat {} >x", below.rsplit_once("/tmp/").unwrap().1);
    let from_above =
        format!("cd /var/tmp && exec \"$H\" run --wait -- sh -c '[ -n \"$1\" ] || {by_text}; exit 7' sh x");
    let ran = [case.headstart(&words), case.script(&from_above)];
    let took = begun.elapsed();
    over.send(()).unwrap();
    ends.join().unwrap();
    assert_eq!(
        ran.each_ref().map(|ran| ran.code()),
        [7; 2],
        "{} {}",
        ran[0].err,
        ran[1].err
    );
    assert!(took < Duration::from_secs(20), "{took:?}");
}
