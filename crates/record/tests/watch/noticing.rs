//! What is told of a program that is executed, and of which nothing is told.

use crate::harness::{Watched, file, go_on, program, start, waiting};
use crate::support::{can_record, with_disk};
use headstart_record::Standing;
use headstart_system::testing::undisturbed;
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn a_program_that_is_ignored_is_told_of_again_when_it_had_much_to_read() {
    if !can_record() {
        return;
    }
    undisturbed(|| {
        let (_mounted, disk) = with_disk("ext4");
        let (one, small, large) = (program(&disk, "one"), file(&disk, "s", 4), file(&disk, "l", 600));
        rustix::fs::sync();
        let cold = |path: &Path| {
            let file = fs::File::open(path).unwrap();
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        };
        let mut watched = Watched::below(&disk);
        let run = |watched: &mut Watched, path: &Path| {
            assert!(start(&one, &[path]).wait().unwrap().success());
            watched.for_a_while();
            watched.noticed.len()
        };
        assert_eq!(run(&mut watched, &small), 1);
        let program = watched.noticed[0].program;
        let forever = Standing::IgnoredUntil(u64::MAX);
        watched.watch.set_standing(program, forever).unwrap();
        assert_eq!(run(&mut watched, &small), 1);
        assert_eq!(run(&mut watched, &large), 1, "in memory");
        cold(&large);
        assert_eq!(run(&mut watched, &large), 1, "only afterwards is it known");
        assert_eq!(run(&mut watched, &small), 2);
        watched.watch.set_standing(program, Standing::Known).unwrap();
        assert_eq!(run(&mut watched, &small), 3);
    });
}

#[test]
fn a_program_is_told_of_again_when_what_it_reads_has_left_memory() {
    if !can_record() {
        return;
    }
    undisturbed(|| {
        let (_mounted, disk) = with_disk("ext4");
        let (one, a) = (program(&disk, "one"), file(&disk, "a", 64));
        let looked_up = disk.join("looked up");
        fs::create_dir(&looked_up).unwrap();
        let mut watched = Watched::below(&disk);
        let told = |watched: &mut Watched, starts: usize| {
            let before = watched.noticed.len();
            for _ in 0..starts {
                assert!(start(&one, &[&a]).wait().unwrap().success());
            }
            watched.for_a_while();
            watched.noticed.len() - before
        };
        assert_eq!(told(&mut watched, 1), 1);
        let program = watched.noticed[0].program;
        watched.watch.set_standing(program, Standing::Known).unwrap();
        let opened = fs::File::open(&a).unwrap();
        let path = OFlags::PATH | OFlags::CLOEXEC;
        let hour = Duration::from_secs(3600);
        let leave = |watched: &mut Watched, how_long| {
            let files = [opened.try_clone().unwrap().into()];
            let names = [openat(CWD, &looked_up, path, Mode::empty()).unwrap()];
            let left = watched
                .watch
                .leave_while_in_memory(program, how_long, &files, &names);
            left.unwrap()
        };
        // None within five seconds; a machine on which as many starts take longer is asked once more.
        let soon = Duration::from_secs(5);
        let none = (0..20).any(|_| {
            let begun = Instant::now();
            assert!(leave(&mut watched, hour));
            let some = told(&mut watched, 40);
            let is_soon = begun.elapsed() < soon;
            assert!(!is_soon || some == 0, "{some} of 40");
            is_soon
        });
        assert!(none, "40 starts always take more than {soon:?}");
        // Then one of eight.
        std::thread::sleep(soon);
        let some = told(&mut watched, 40);
        assert!(some < 25, "{some} of 40");
        rustix::fs::fadvise(&opened, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        assert!(!leave(&mut watched, hour), "nothing of it is in memory");
        // It is that itself which reads the file again.
        rustix::fs::fadvise(&opened, 0, None, rustix::fs::Advice::Random).unwrap();
        assert_eq!(told(&mut watched, 1), 1, "it has left memory");
        assert!(told(&mut watched, 40) < 25, "and is there again");
        assert!(leave(&mut watched, Duration::ZERO));
        assert_eq!(told(&mut watched, 5), 5, "its time is over");
        assert!(leave(&mut watched, hour));
        watched.watch.set_standing(program, Standing::Known).unwrap();
        assert_eq!(told(&mut watched, 5), 5, "something else was learned of it");
        assert!(leave(&mut watched, hour));
        fs::rename(&looked_up, disk.join("another name")).unwrap();
        assert_eq!(told(&mut watched, 5), 5, "a name that is not there any more");
        fs::rename(disk.join("another name"), &looked_up).unwrap();
        assert!(leave(&mut watched, hour));
        fs::write(disk.join("new"), vec![1; 64 << 12]).unwrap();
        fs::rename(disk.join("new"), &a).unwrap();
        drop(opened);
        let other = told(&mut watched, 5);
        assert_eq!(other, 5, "another file is in its place");
    });
}

#[test]
fn what_is_ignored_of_one_user_is_told_of_another() {
    if !can_record() {
        return;
    }
    let (mounted, disk) = with_disk("ext4");
    for dir in [mounted.beside(), &*disk] {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let (one, a) = (program(&disk, "one"), file(&disk, "a", 4));
    let mut watched = Watched::below(&disk);
    let run = |watched: &mut Watched, user: u32| {
        let mut command = Command::new(&one);
        command.arg(&a).stdout(Stdio::null()).uid(user).gid(user);
        assert!(command.status().unwrap().success());
        watched.for_a_while();
        watched.noticed.len()
    };
    let forever = Standing::IgnoredUntil(u64::MAX);
    assert_eq!(run(&mut watched, 1001), 1);
    let program = watched.noticed[0].program;
    watched.watch.set_standing(program, Standing::Known).unwrap();
    assert_eq!(run(&mut watched, 1002), 2);
    let by_other = watched.noticed[1].program;
    assert_ne!(program, by_other);
    watched.watch.set_standing(by_other, forever).unwrap();
    assert_eq!(run(&mut watched, 1002), 2);
    assert_eq!(run(&mut watched, 1001), 3, "known, whatever became of another's");
    watched.watch.set_standing(program, forever).unwrap();
    assert_eq!(run(&mut watched, 1001), 3);
    // What was learned of it since lets it be told again, but not of whom it was not learned.
    watched.watch.set_standing(program, Standing::Known).unwrap();
    assert_eq!(run(&mut watched, 1002), 3);
    assert_eq!(run(&mut watched, 1001), 4);
}

#[test]
fn an_interpreter_is_as_many_programs_as_it_is_given() {
    if !can_record() {
        return;
    }
    let (_mounted, disk) = with_disk("ext4");
    let (one, a, b) = (program(&disk, "one"), file(&disk, "a", 4), file(&disk, "b", 4));
    let mut watched = Watched::below(&disk);
    let run = |watched: &mut Watched, directory: &str, arguments: &[&str]| {
        let mut command = Command::new(&one);
        command.args(arguments).current_dir(directory);
        command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .stdin(Stdio::null());
        command.status().unwrap();
        watched.for_a_while();
        watched.noticed.len()
    };
    let (a, b) = (a.to_str().unwrap(), b.to_str().unwrap());
    assert_eq!(run(&mut watched, "/", &[a]), 1);
    let executable = watched.noticed[0].executable;
    assert_eq!(watched.noticed[0].program, executable, "not known to be one yet");
    watched
        .watch
        .set_standing(executable, Standing::ByArguments)
        .unwrap();
    let ignore = |watched: &Watched| {
        let last = watched.noticed.last().unwrap();
        assert_ne!(last.program, executable);
        let forever = Standing::IgnoredUntil(u64::MAX);
        watched.watch.set_standing(last.program, forever).unwrap();
    };
    assert_eq!(run(&mut watched, "/", &[a]), 2);
    ignore(&watched);
    assert_eq!(run(&mut watched, "/tmp", &[a, b]), 2, "what it is told besides");
    assert_eq!(run(&mut watched, "/", &[b]), 3, "another script");
    assert_eq!(run(&mut watched, "/", &["-c", "one"]), 4);
    ignore(&watched);
    assert_eq!(
        run(&mut watched, "/", &["-c", "another"]),
        4,
        "all one-liners are alike"
    );
    assert_eq!(run(&mut watched, "/", &["-m", "one"]), 5);
    ignore(&watched);
    assert_eq!(run(&mut watched, "/", &["-m", "another"]), 6);
    assert_eq!(run(&mut watched, "/usr", &["relative"]), 7);
    ignore(&watched);
    assert_eq!(run(&mut watched, "/var", &["relative"]), 8, "another file");
}

#[test]
fn what_is_in_no_directory_and_what_another_namespace_runs_is_nobodys_start() {
    if !can_record() {
        return;
    }
    let (_mounted, disk) = with_disk("ext4");
    let one = program(&disk, "one");
    let mut watched = Watched::below(&disk);
    let deleted = fs::File::open(&one).unwrap();
    fs::remove_file(&one).unwrap();
    use std::os::fd::AsRawFd;
    let by_descriptor = format!("/proc/{}/fd/{}", std::process::id(), deleted.as_raw_fd());
    assert!(
        Command::new(&by_descriptor)
            .arg("/dev/null")
            .status()
            .unwrap()
            .success()
    );
    watched.for_a_while();
    assert_eq!(watched.noticed.len(), 0);
    let two = program(&disk, "two");
    let before = watched.watch.counts().foreign;
    // In one that was made by somebody whose start is not recorded, as is known by then.
    let waits = disk.join("waits");
    let script = format!(
        "unshare --mount sh -c 'echo >{}; read line; exec {} /dev/null'",
        waits.display(),
        two.display()
    );
    let child = waiting(Path::new("/bin/sh"), &script);
    while !waits.exists() {
        watched.drain();
    }
    watched.for_a_while();
    go_on(child);
    watched.for_a_while();
    assert_eq!(watched.noticed.len(), 0);
    assert!(watched.watch.counts().foreign > before);
}

#[test]
fn arguments_are_told_up_to_a_bound() {
    if !can_record() {
        return;
    }
    let (_mounted, disk) = with_disk("ext4");
    let one = program(&disk, "one");
    let mut watched = Watched::below(&disk);
    let long = "x".repeat(100_000);
    let mut child = Command::new(&one)
        .arg0("another")
        .args(["--", "/dev/null", &long])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child.wait().unwrap();
    watched.until_ended(1);
    let told = &watched.noticed[0].arguments;
    assert_eq!(told.len(), 8 << 10);
    assert!(told.starts_with(b"another\0--\0/dev/null\0xxx"));
}
