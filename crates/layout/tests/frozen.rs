//! A move that sleeps in the kernel delays nobody for long who executes the file. Needs root and loop
//! devices. Should it fail, its process is ended by its own timer, so it is alone in it.

#![allow(clippy::unwrap_used)]

use headstart_layout::moving::movable::Movable;
use headstart_layout::moving::volume::Volume;
use headstart_system::mounts::MountTable;
use headstart_system::open::Expect;
use headstart_system::testing::{Frozen, LoopFs, Spec, can_mount, run};
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn who_executes_what_moves_on_a_frozen_file_system_goes_on_and_the_move_is_done_when_it_is_thawed() {
    if !can_mount() {
        return;
    }
    let program = "/bin/true";
    let fs = LoopFs::create(&Spec::new("ext4"), |at| {
        run(Command::new("cp").arg(program).arg(at.join("program")))
    });
    let fs = fs.unwrap();
    let (at, path) = (fs.mount_point(), fs.mount_point().join("program"));
    let mounts = MountTable::read().unwrap();
    let volume = Volume::open(&mounts, &at, &fs.node(), "ext4").unwrap();
    let file = Movable::open(&volume, &mounts, &path, &Expect::default()).unwrap();
    let donor = volume.donor(file.stat.size.next_multiple_of(4096)).unwrap();
    let before = file.extents().unwrap();
    // It is thawed also if this process is killed.
    let mut thaws = Command::new("bash")
        .args(["-c", "read -t 40; fsfreeze -u \"$0\""])
        .arg(&at)
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Who executes it is no child of this process: that would have, until then, what this one has open.
    let mut executor = Command::new("bash")
        .args(["-c", "read; \"$0\"; echo $?"])
        .arg(&path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let frozen = Frozen::freeze(&at).unwrap();
    let began = Instant::now();
    let one = before[0];
    let state = format!(
        "/proc/self/task/{}/stat",
        rustix::thread::gettid().as_raw_nonzero()
    );
    let (moved, (executed, waited)) = std::thread::scope(|scope| {
        let executes = scope.spawn(move || {
            // It thaws also if this fails.
            let _frozen = frozen;
            while !fs::read_to_string(&state).unwrap().contains(") D ") {
                assert!(began.elapsed() < Duration::from_secs(5), "nothing sleeps");
                std::thread::sleep(Duration::from_millis(5));
            }
            drop(executor.stdin.take());
            let executed = executor.wait_with_output().unwrap();
            let waited = began.elapsed();
            // For nobody's sake is this process ended.
            std::thread::sleep(Duration::from_secs(11).saturating_sub(waited));
            (executed, waited)
        });
        let moved = file.move_to(&volume, &donor, one.logical, one.logical, one.length);
        (moved, executes.join().unwrap())
    });
    drop(thaws.stdin.take());
    thaws.wait().unwrap();
    // What a shell says of what it cannot execute.
    assert_eq!(executed.stdout, b"126\n");
    assert!(waited < Duration::from_secs(9), "{waited:?}");
    moved.unwrap();
    assert!(file.extents().unwrap() != before, "it was moved");
    assert!(Command::new(&path).status().unwrap().success());
    assert!(fs::read(&path).unwrap() == fs::read(program).unwrap());
    drop((file, donor, volume, mounts));
}
