//! Files from anywhere: whatever is in them, an error or a result, never a crash or a hang. The tests of the
//! model say what a reader makes of each field.

use crate::common::{Case, Ran, finish};
use headstart_model::FilePath;
use headstart_model::plan::{NO_FILE, PlanDraft, PlanFileEntry, Request, RequestKind};
use headstart_model::profile::{Entry, Profile};
use headstart_model::testing;
use std::process::{Command, Stdio};

fn profile(paths: &[FilePath]) -> Profile {
    let entry = |path: &FilePath| Entry {
        path: path.clone(),
        ranges: vec![testing::range(0, 4, 1.0)],
        ..testing::entry("/")
    };
    let mut entries: Vec<Entry> = paths.iter().map(entry).collect();
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    testing::profile(entries)
}

fn plan(paths: &[FilePath]) -> PlanDraft {
    let mut requests = vec![Request::new(RequestKind::Metadata, NO_FILE, 4096)];
    for file in 0..paths.len() as u32 {
        requests.push(Request::new(RequestKind::Stat, file, 0));
        requests.push(Request::new(RequestKind::List, file, 0));
        requests.push(Request::new(RequestKind::Data, file, 16_384));
    }
    let file = |path: &FilePath| PlanFileEntry {
        path: path.clone(),
        ..testing::planned("/")
    };
    testing::draft(testing::FLASH, paths.iter().map(file).collect(), requests)
}

/// Seconds of processor time, after which the kernel kills headstart: a hundred times what the reading of a
/// file takes, on the slowest machine too, for what other processes do does not count.
const MOST_CPU: u64 = 5;

/// Runs headstart, which must not loop; nor wait for what never comes, which `finish` sees to.
fn in_time(case: &Case, words: &[&str], why: &str) -> Ran {
    let mut command = Command::new("prlimit");
    command.arg(format!("--cpu={MOST_CPU}")).arg("--");
    let of_headstart = case.command(words);
    command
        .arg(of_headstart.get_program())
        .args(of_headstart.get_args());
    command.envs(
        of_headstart
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    command.current_dir(of_headstart.get_current_dir().unwrap());
    command.env_remove("HEADSTART_SYNC").stdin(Stdio::null());
    let ran = finish(command, b"");
    assert_eq!(
        ran.raw & 0x7f,
        0,
        "{words:?} of {why}: killed by signal {}",
        ran.raw & 0x7f
    );
    ran
}

/// Runs all that reads a file of this kind.
fn read_by_all(case: &Case, name: &str, words: &[&[&str]], why: &str) -> bool {
    let mut any = false;
    for words in words {
        let words: Vec<&str> = words
            .iter()
            .map(|word| if *word == "FILE" { name } else { word })
            .collect();
        let ran = in_time(case, &words, why);
        match ran.code() {
            0 => any = true,
            _ => ran.refused(&[]),
        }
    }
    any
}

const OF_TRACE: &[&[&str]] = &[
    &["show", "FILE"],
    &["learn", "FILE", "-o", "out"],
    &["export", "FILE", "--to", "csv", "-o", "out"],
];
const OF_PROFILE: &[&[&str]] = &[
    &["export", "FILE", "--for", "squashfs", "-o", "out"],
    &["export", "FILE", "--for", "nydus2", "-o", "out"],
    &[
        "export", "FILE", "--for", "nydus3", "--image", "FILE", "-o", "out",
    ],
];
const OF_PLAN: &[&[&str]] = &[&["show", "FILE", "--pages"], &["replay", "FILE", "--wait"]];

#[test]
fn cut_files_are_refused() {
    let case = Case::new();
    let paths = [FilePath::from("/etc/passwd")];
    for (bytes, commands) in [
        (testing::trace().to_bytes().unwrap(), OF_TRACE),
        (profile(&paths).to_bytes().unwrap(), OF_PROFILE),
        (plan(&paths).to_bytes().unwrap(), OF_PLAN),
    ] {
        case.write("whole", &bytes);
        assert!(
            read_by_all(&case, "whole", commands, "the whole"),
            "the whole file is read"
        );
        for length in [0, 20, 64, bytes.len() / 2, bytes.len() - 1] {
            case.write("cut", &bytes[..length]);
            let read = read_by_all(&case, "cut", commands, &format!("{length} bytes"));
            assert!(!read, "{length} of {} bytes were believed", bytes.len());
        }
    }
}

#[test]
fn entries_that_are_no_regular_files_are_skipped_and_counted() {
    let case = Case::new();
    let at = |name: &str| FilePath::from(case.path(name).as_path());
    std::os::unix::fs::symlink("/etc/passwd", case.path("link")).unwrap();
    let made = std::process::Command::new("mkfifo")
        .arg(case.path("fifo"))
        .status()
        .unwrap();
    assert!(made.success());
    let paths = [
        at("link"),
        at("fifo"),
        at("removed"),
        "/dev/zero".into(),
        "/dev/tty".into(),
        "/proc/self/mem".into(),
        "/proc/kmsg".into(),
        "/sys/kernel/tracing/trace_pipe".into(),
        FilePath::from(case.path("fifo").parent().unwrap()),
    ];
    case.write("plan", plan(&paths).to_bytes().unwrap());
    let ran = in_time(&case, &["replay", "plan", "--wait", "--json"], "no regular files");
    let replayed: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(replayed["data_bytes"], 0, "{replayed}");
    let skipped: u64 = replayed["skipped"]
        .as_object()
        .unwrap()
        .values()
        .map(|n| n.as_u64().unwrap())
        .sum();
    assert!(skipped >= paths.len() as u64, "{replayed}");

    case.write("profile", profile(&paths).to_bytes().unwrap());
    let planned = case.json(&["plan", "profile", "-o", "out", "--device", "disk", "--json"]);
    assert_eq!(planned["data_bytes"], 0, "{planned}");
}
