//! A memory file of a virtual machine is touched in more places than any other file of a start. Needs root,
//! for a loop device and the recorder. The program is the lab's (lab/images/resume.toml).

use crate::common::{Case, can_record, eventually, start};
use headstart_model::trace::UseKind;
use headstart_model::{PageRange, PageSet, Trace};
use headstart_system::testing::{LoopFs, Spec, can_mount};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Pages of the memory file, every other one of which is touched.
const PAGES: usize = 416_000;
const RUNS: usize = PAGES / 2;

/// Compiles the program of the lab's image.
fn program(case: &Case) -> PathBuf {
    let recipe = include_str!("../../../../lab/images/resume.toml");
    let source = recipe.split("'''").nth(1).unwrap();
    let source = case.write("resume.c", source);
    let program = case.path("resume");
    let built = Command::new("cc")
        .args(["-O1", "-o"])
        .arg(&program)
        .arg(source)
        .status();
    assert!(built.unwrap().success(), "cc");
    program
}

/// Mounts the disk cold, with its image in memory: each page is read from the device, and no device is waited
/// for.
fn mount_cold(disk: &mut LoopFs) {
    disk.remount_cold().unwrap();
    let mut image = std::fs::File::open(disk.image()).unwrap();
    std::io::copy(&mut image, &mut std::io::sink()).unwrap();
}

/// How many pages a resume had to wait for.
fn major_faults(said: &str) -> u64 {
    let words: Vec<&str> = said.split(' ').collect();
    let at = words.iter().position(|word| *word == "major").unwrap();
    words[at - 1].parse().unwrap()
}

#[test]
fn a_resume_of_200_000_runs_is_recorded_whole_and_hardly_waits_when_it_was_replayed() {
    if !can_record() || !can_mount() {
        return;
    }
    let case = Case::new();
    let program = program(&case);
    let spec = Spec {
        size: 2 << 30,
        ..Spec::new("ext4")
    };
    let mut disk = LoopFs::create(&spec, |root| {
        let made = Command::new(&program)
            .arg("--make")
            .arg(root.join("memory"))
            .arg(PAGES.to_string())
            .status()?;
        assert!(made.success());
        Ok(())
    })
    .unwrap();
    let memory = disk.mount_point().join("memory");
    let command = [
        program.to_str().unwrap(),
        memory.to_str().unwrap(),
        "1",
        "2",
        "0r",
    ];
    mount_cold(&mut disk);
    let cold = case.headstart(&[&["record", "-o", "t.trace", "--"], &command[..]].concat());
    assert_eq!(cold.code(), 0, "{}", cold.err);
    let waits = major_faults(&cold.out);
    assert!(waits >= RUNS as u64, "{waits}");

    let bytes = std::fs::read(case.path("t.trace")).unwrap();
    assert!(bytes.len() < 1 << 20, "{} bytes", bytes.len());
    let trace = Trace::from_bytes(&bytes).unwrap();
    assert_eq!(trace.unfit(), None);
    let real = memory.canonicalize().unwrap().display().to_string();
    let file = trace.files.iter().position(|file| file.path.to_string() == real);
    let file = file.unwrap() as u32;
    let touched = trace
        .all_uses()
        .filter(|used| used.file == file && used.kind == UseKind::Fault)
        .map(|used| PageRange::new(used.start, u64::from(used.pages)));
    let touched: PageSet = touched.collect();
    assert_eq!((touched.ranges().len(), touched.pages()), (RUNS, RUNS as u64));

    case.json(&["learn", "t.trace", "t.trace", "-o", "p.profile", "--json"]);
    mount_cold(&mut disk);
    case.json(&["plan", "p.profile", "-o", "x.plan", "--json"]);
    case.json(&["replay", "x.plan", "--wait", "--json"]);
    let again = Command::new(command[0]).args(&command[1..]).output().unwrap();
    let left = major_faults(&String::from_utf8(again.stdout).unwrap());
    assert!(left * 20 < waits, "{left} of {waits} are waited for");
}

/// The most memory that a process had, KiB; 0 if it is gone.
fn peak(pid: u32) -> u64 {
    let status = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("status"));
    let status = status.unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.map_or(0, |line| line.trim().trim_end_matches(" kB").parse().unwrap())
}

#[test]
fn who_touches_pages_without_end_makes_no_recorder_take_more_than_256_mib() {
    if !can_record() || !can_mount() {
        return;
    }
    let case = Case::new();
    let program = program(&case);
    let disk = LoopFs::create(&Spec::new("ext4"), |root| {
        // One page of each window is more than a trace takes.
        std::fs::File::create(root.join("sparse"))?.set_len(32 << 30)
    })
    .unwrap();
    let sparse = disk.mount_point().join("sparse");
    let words = ["record", "-o", "t.trace", "--", program.to_str().unwrap()];
    let touches = [sparse.to_str().unwrap(), "1", "16", "0r"];
    let (mut headstart, mut said) = start(case.command(&[&words[..], &touches].concat()));
    let mut most = 0;
    eventually("the recording has ended", || {
        let is_recorder = |pid: &u32| {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            name.starts_with("headstart")
        };
        let recorders = case.processes().into_iter().filter(is_recorder);
        most = recorders.map(peak).max().unwrap_or(0).max(most);
        headstart.try_wait().unwrap().is_some()
    });
    let said = said.next().unwrap().unwrap();
    eprintln!("{said}; the recorder took {most} KiB");
    assert!(said.starts_with("524288 pages"), "{said}");
    assert!(most > 16 << 10, "{most} KiB: no recorder was seen");
    assert!(most < 256 << 10, "{most} KiB");
    let trace = Trace::from_bytes(&std::fs::read(case.path("t.trace")).unwrap()).unwrap();
    let why = trace.unfit().unwrap_or_default();
    assert!(why.contains("events were lost"), "{why}");
}
