//! What belongs to a start, and what is recorded of it.

use crate::harness::{Watched, file, go_on, of_file, program, start, waiting};
use crate::support::{can_record, with_disk};
use headstart_model::trace::EndReason;
use headstart_system::testing::{ControlGroup, Frozen, Process};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn a_start_is_recorded_from_its_first_instant_to_the_end_of_its_tree() {
    if !can_record() {
        return;
    }
    let (_mounted, disk) = with_disk("ext4");
    let (shell, a, b) = (disk.join("sh"), file(&disk, "a", 40), file(&disk, "b", 7));
    fs::copy("/bin/sh", &shell).unwrap();
    let mut watched = Watched::known_below(&disk);
    let script = format!("/bin/cat {}; /bin/cat {}; exit 3", a.display(), b.display());
    let mut child = Command::new(&shell)
        .args(["-c", &script])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(3));
    watched.until_ended(1);
    let ended = &watched.ended[0];
    assert_eq!(ended.reason, EndReason::Exit(3 << 8));
    assert_eq!(watched.noticed.len(), 1, "what it executes is part of it");
    assert_eq!(watched.noticed[0].pid, child.id());
    let trace = watched.traces().remove(0);
    assert_eq!((of_file(&trace, &a), of_file(&trace, &b)), (40, 7));
    assert!(of_file(&trace, &shell) > 0);
    assert_eq!(trace.processes.len(), 3, "{:?}", trace.processes);
    assert_eq!(trace.lost.events, 0);
    let executables: Vec<String> = trace.processes.iter().map(|p| p.executable.to_string()).collect();
    assert_eq!(executables[0], shell.to_string_lossy());
    assert!(executables[1].ends_with("/cat"), "{executables:?}");
}

#[test]
fn what_is_executed_in_another_control_group_is_a_start_of_its_own() {
    if !can_record() {
        return;
    }
    let (_mounted, disk) = with_disk("ext4");
    let (shell, one, two) = (disk.join("sh"), program(&disk, "one"), program(&disk, "two"));
    fs::copy("/bin/sh", &shell).unwrap();
    let (a, b, c) = (file(&disk, "a", 40), file(&disk, "b", 20), file(&disk, "c", 7));
    let mut watched = Watched::known_below(&disk);
    let group = ControlGroup::new("headstart-test").unwrap();
    // As `systemd-run --scope` does, and whoever logs somebody in.
    let script = format!(
        "cat {a}; read line; (echo 0 >{group}/cgroup.procs; exec {one} {b}); {two} {c}; exit 0",
        a = a.display(),
        b = b.display(),
        c = c.display(),
        one = one.display(),
        two = two.display(),
        group = group.path().display(),
    );
    let child = waiting(&shell, &script);
    watched.for_a_while();
    assert_eq!(watched.watch.recorded(), 1);
    go_on(child);
    watched.until_ended(2);
    let noticed: Vec<&Path> = watched
        .noticed
        .iter()
        .map(|noticed| Path::new(std::ffi::OsStr::from_bytes(noticed.path.as_ref().unwrap())))
        .collect();
    assert_eq!(noticed, [&*shell, &*one]);
    for trace in watched.traces() {
        let whose = trace.processes[0].executable.to_string();
        let seen = [&a, &b, &c].map(|path| of_file(&trace, path));
        match whose == one.to_string_lossy() {
            true => assert_eq!(seen, [0, 20, 0], "{whose}"),
            false => assert_eq!(seen, [40, 0, 7], "{whose}"),
        }
    }
}

#[test]
fn a_session_has_what_others_fork_once_it_is_executed_in_its_control_groups() {
    if !can_record() {
        return;
    }
    let (_mounted, disk) = with_disk("ext4");
    let (shell, manager) = (disk.join("sh"), disk.join("manager"));
    fs::copy("/bin/sh", &shell).unwrap();
    fs::copy("/bin/sh", &manager).unwrap();
    let (one, two) = (program(&disk, "one"), program(&disk, "two"));
    let [a, b, c, d] =
        [("a", 40), ("b", 20), ("c", 7), ("d", 3)].map(|(name, pages)| file(&disk, name, pages));
    let mut watched = Watched::known_below(&disk);
    let outer = ControlGroup::new("headstart-user").unwrap();
    let name = outer.path().file_name().unwrap().to_str().unwrap();
    let [scope, service] =
        ["scope", "service"].map(|part| ControlGroup::named(&format!("{name}/{part}")).unwrap());
    let in_group = |group: &ControlGroup, program: &Path, file: &Path| {
        format!(
            "(echo 0 >{}/cgroup.procs; exec {} {})",
            group.path().display(),
            program.display(),
            file.display()
        )
    };
    watched.session = Some((manager.clone(), fs::metadata(outer.path()).unwrap().ino()));
    // The login screen's worker forks the session's leader.
    let worker = format!(
        "cat {}; read line; {}; exit 0",
        a.display(),
        in_group(&scope, &one, &b)
    );
    let worker = waiting(&shell, &worker);
    watched.for_a_while();
    let starts = format!(
        "read line; {}; cat {}; exit 0",
        in_group(&service, &two, &c),
        d.display()
    );
    let begun = waiting(&manager, &starts);
    watched.for_a_while();
    assert_eq!(watched.watch.recorded(), 2);
    go_on(worker);
    go_on(begun);
    watched.until_ended(2);
    assert_eq!(watched.noticed.len(), 2, "{:?}", watched.noticed);
    assert!(
        watched
            .ended
            .iter()
            .all(|ended| ended.reason == EndReason::Exit(0))
    );
    for trace in watched.traces() {
        let whose = trace.processes[0].executable.to_string();
        let seen = [&a, &b, &c, &d].map(|path| of_file(&trace, path));
        match whose == shell.to_string_lossy() {
            true => assert_eq!(seen, [40, 0, 0, 0], "{whose}"),
            false => assert_eq!(seen, [0, 20, 7, 3], "{whose}"),
        }
    }
    // Nothing joins it any more.
    let later = waiting(
        &shell,
        &format!("read line; {}; exit 0", in_group(&scope, &one, &b)),
    );
    watched.for_a_while();
    go_on(later);
    watched.until_ended(2);
    assert_eq!(watched.noticed.len(), 4);
}

#[test]
fn a_start_that_moves_itself_to_another_control_group_stays_one() {
    if !can_record() {
        return;
    }
    let (_mounted, disk) = with_disk("ext4");
    let (shell, one) = (disk.join("sh"), program(&disk, "one"));
    fs::copy("/bin/sh", &shell).unwrap();
    let (a, b) = (file(&disk, "a", 40), file(&disk, "b", 20));
    let mut watched = Watched::known_below(&disk);
    let group = ControlGroup::new("headstart-test").unwrap();
    // As flatpak and snap do, and desktops with what they start.
    let script = format!(
        "cat {a}; read line; echo $$ >{group}/cgroup.procs; exec {one} {b}",
        a = a.display(),
        b = b.display(),
        one = one.display(),
        group = group.path().display(),
    );
    let child = waiting(&shell, &script);
    watched.for_a_while();
    go_on(child);
    watched.until_ended(1);
    assert_eq!(watched.noticed.len(), 1);
    assert_eq!(watched.ended[0].user, 0);
    let trace = watched.traces().remove(0);
    assert_eq!([&a, &b].map(|path| of_file(&trace, path)), [40, 20]);
}

#[test]
fn what_a_start_executes_in_a_namespace_of_its_own_is_part_of_it_however_late_it_is_answered() {
    if !can_record() {
        return;
    }
    let (_mounted, disk) = with_disk("ext4");
    let (shell, one) = (disk.join("sh"), program(&disk, "one"));
    fs::copy("/bin/sh", &shell).unwrap();
    let (a, b) = (file(&disk, "a", 40), file(&disk, "b", 20));
    let mut watched = Watched::known_below(&disk);
    // As a service does that shuts itself in: nobody has been answered by then.
    let script = format!(
        "cat {a}; unshare --mount {one} {b}; exit 0",
        a = a.display(),
        b = b.display(),
        one = one.display()
    );
    let mut child = Command::new(&shell)
        .args(["-c", &script])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    assert!(child.wait().unwrap().success());
    watched.until_ended(1);
    assert_eq!(watched.noticed.len(), 1);
    let arguments = [shell.as_os_str().as_bytes(), b"\0-c\0", script.as_bytes(), b"\0"].concat();
    assert_eq!(watched.noticed[0].arguments, arguments);
    assert_eq!(watched.noticed[0].parent, std::process::id());
    let trace = watched.traces().remove(0);
    assert_eq!([&a, &b].map(|path| of_file(&trace, path)), [40, 20]);
    let executed = trace
        .processes
        .iter()
        .map(|process| process.executable.to_string());
    assert!(executed.collect::<Vec<_>>().contains(&one.display().to_string()));
}

#[test]
fn it_is_told_that_another_user_executed_something_in_a_start() {
    if !can_record() {
        return;
    }
    let (mounted, disk) = with_disk("ext4");
    for dir in [mounted.beside(), &*disk] {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let (shell, one, a) = (disk.join("sh"), program(&disk, "one"), file(&disk, "a", 4));
    fs::copy("/bin/sh", &shell).unwrap();
    let mut watched = Watched::known_below(&disk);
    let (one, a) = (one.display(), a.display());
    // A person counts before nobody, whose number is higher.
    let by = |user: u32| format!("setpriv --reuid {user} --clear-groups {one} {a}");
    let script = format!("read line; {}; {}; {one} {a}", by(4321), by(65534));
    let child = waiting(&shell, &script);
    watched.for_a_while();
    go_on(child);
    watched.until_ended(1);
    assert_eq!((watched.noticed[0].user, watched.ended[0].user), (0, 4321));
    // Who begins a start is told as the kernel saw it.
    let mut own = Command::new(disk.join("one"));
    own.arg(disk.join("a"))
        .uid(4321)
        .gid(4321)
        .current_dir("/")
        .stdout(Stdio::null());
    assert!(own.status().unwrap().success());
    watched.until_ended(2);
    assert_eq!(watched.noticed[1].user, 4321);
}

#[test]
fn look_ups_and_the_time_blocked_are_those_of_the_start() {
    if !can_record() {
        return;
    }
    let (_mounted, disk) = with_disk("ext4");
    let (shell, large) = (disk.join("sh"), file(&disk, "large", 2000));
    fs::copy("/bin/sh", &shell).unwrap();
    rustix::fs::sync();
    let mut watched = Watched::known_below(&disk);
    let missing = disk.join("missing");
    let run = |watched: &mut Watched, script: String| {
        let mut child = Command::new(&shell)
            .args(["-c", &script])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        watched.until_ended(1);
        child.wait().unwrap();
        let blocked_ns = watched.ended[0].blocked_ns;
        (watched.traces().remove(0), blocked_ns)
    };
    // What tells of look-ups is attached once the start is known of.
    let looks = format!("sleep 0.5; [ -e {} ]", missing.display());
    let (trace, _) = run(&mut watched, looks);
    let is_it = |path: &headstart_model::FilePath| path.as_bytes() == missing.as_os_str().as_bytes();
    let lookup = trace.lookups.iter().find(|lookup| is_it(&lookup.path));
    assert_eq!(lookup.map(|lookup| lookup.found), Some(false));
    let cold = fs::File::open(&large).unwrap();
    rustix::fs::fadvise(&cold, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let (trace, waited) = run(&mut watched, format!("/bin/cat {}", large.display()));
    assert!(waited > 0);
    assert_eq!(trace.end.blocked_ns, Some(waited));
    let (_, again) = run(&mut watched, format!("/bin/cat {}", large.display()));
    assert!(again < waited, "{again} of {waited}: now it is in memory");
}

#[test]
fn a_process_that_runs_already_is_recorded_when_it_is_asked_for() {
    if !can_record() {
        return;
    }
    let (_mounted, disk) = with_disk("ext4");
    let (before, after) = (file(&disk, "before", 9), file(&disk, "after", 9));
    let mut watched = Watched::known_below(&disk);
    // Not from below the directory, so that nobody records it by itself.
    let script = format!(
        "cat {} > /dev/null; echo; read go; cat {} > /dev/null; echo; read end",
        before.display(),
        after.display()
    );
    let mut child = Command::new("sh")
        .args(["-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut tell = child.stdin.take().unwrap();
    said.next().unwrap().unwrap();
    watched.for_a_while();
    let number = watched
        .watch
        .start_recording(&[child.id()], vec![], false)
        .unwrap()
        .unwrap();
    tell.write_all(b"go\n").unwrap();
    said.next().unwrap().unwrap();
    watched.drain();
    assert!(watched.watch.is_recorded(number));
    let ended = watched.watch.end(number, EndReason::Exit(0)).unwrap().unwrap();
    assert_eq!(ended.living, [child.id()]);
    assert!(watched.watch.end(number, EndReason::Exit(0)).unwrap().is_none());
    drop(tell);
    child.wait().unwrap();
    let trace = ended.trace().unwrap();
    assert_eq!((of_file(&trace, &before), of_file(&trace, &after)), (0, 9));
    assert!(
        watched
            .watch
            .start_recording(&[u32::MAX >> 2], vec![], false)
            .is_err(),
        "no such process"
    );
    watched.for_a_while();
    assert_eq!(watched.watch.recorded(), 0);
}

#[test]
fn programs_started_together_have_each_their_own_pages() {
    if !can_record() {
        return;
    }
    let (_mounted, disk) = with_disk("ext4");
    let programs = [program(&disk, "one"), program(&disk, "two")];
    let files = [file(&disk, "a", 300), file(&disk, "b", 300)];
    let shared = file(&disk, "shared", 20);
    let mut watched = Watched::known_below(&disk);
    for _ in 0..20 {
        let children = [0, 1].map(|i| start(&programs[i], &[&files[i], &shared]));
        for mut child in children {
            assert!(child.wait().unwrap().success());
        }
        watched.until_ended(2);
        for trace in watched.traces() {
            assert_eq!(trace.lost.events, 0);
            let own = usize::from(of_file(&trace, &files[1]) > 0);
            assert_eq!(
                of_file(&trace, &files[own]),
                300,
                "{:?} {:?}",
                trace.end,
                trace.processes
            );
            assert_eq!(of_file(&trace, &files[1 - own]), 0);
            assert_eq!(of_file(&trace, &programs[1 - own]), 0);
            assert_eq!(of_file(&trace, &shared), 20, "each start sees what it uses");
        }
    }
}

#[test]
fn a_start_that_waits_for_a_device_goes_on() {
    if !can_record() {
        return;
    }
    let (_mounted, disk) = with_disk("ext4");
    let (_other, busy) = with_disk("ext4");
    let (shell, behind) = (disk.join("sh"), file(&disk, "behind", 7));
    fs::copy("/bin/sh", &shell).unwrap();
    let mut watched = Watched::known_below(&disk);
    let script = format!(
        "touch {}/waited; cat {}; exit 0",
        busy.display(),
        behind.display()
    );
    let frozen = Frozen::freeze(&busy).unwrap();
    let mut child = Command::new(&shell)
        .args(["-c", &script])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // Twice as long as one that has ended is quiet for.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(4) {
        watched.drain();
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!((watched.noticed.len(), watched.ended.len()), (1, 0));
    drop(frozen);
    assert!(child.wait().unwrap().success());
    watched.until_ended(1);
    let trace = watched.traces().remove(0);
    assert_eq!(trace.end.reason, EndReason::Exit(0));
    assert_eq!(of_file(&trace, &behind), 7);
}

#[test]
fn who_executes_many_programs_and_hardly_waits_has_started() {
    if !can_record() {
        return;
    }
    let (_mounted, disk) = with_disk("ext4");
    let shell = disk.join("sh");
    fs::copy("/bin/sh", &shell).unwrap();
    let mut watched = Watched::known_below(&disk);
    let works = "while :; do /bin/true; done";
    // One that executes little goes on.
    let computes = "timeout 15 sh -c 'while :; do :; done'; exit 4";
    let begun = Instant::now();
    let mut children = [works, computes].map(|script| {
        let mut command = Command::new(&shell);
        command.args(["-c", script]).stdout(Stdio::null());
        Process(command.spawn().unwrap())
    });
    watched.until_ended(1);
    assert!(
        begun.elapsed() > Duration::from_secs(9),
        "a start with a replay may take so long"
    );
    assert_eq!(watched.ended[0].reason, EndReason::Quiet);
    children[0].kill().unwrap();
    watched.until_ended(2);
    let mut reasons: Vec<String> = watched
        .ended
        .iter()
        .map(|one| format!("{:?}", one.reason))
        .collect();
    reasons.sort();
    assert_eq!(reasons, ["Exit(1024)", "Quiet"]);
}
