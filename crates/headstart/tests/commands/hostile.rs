//! Files from anywhere: whatever is in them, an error or a result, never a crash or a hang.

use crate::common::{Case, Ran, finish};
use headstart_model::machine::{Cost, DeviceClass};
use headstart_model::plan::{NO_FILE, PlanDevice, PlanDraft, PlanFileEntry, Request, RequestKind};
use headstart_model::profile::{Entry, Need, Policy, Profile, Version, WeightedRange};
use headstart_model::trace::{
    Backend, End, EndReason, Evidence, File, FileState, Filesystem, Lost, Meta, Process, Scope, Trace, Use,
    UseKind,
};
use headstart_model::{FilePath, Key};
use std::process::{Command, Stdio};

fn key() -> Key {
    Key::new("hostile").unwrap()
}

fn trace() -> Trace {
    Trace {
        meta: Meta {
            started_unix_ns: 1,
            kernel: "6.18".into(),
            page_size: 4096,
            backend: Backend::Bpf,
            evidence: Evidence::Uses,
            scope: Scope::Tree,
            command: vec!["true".into()],
            recorder: "test".into(),
            replayed: false,
        },
        end: End {
            reason: EndReason::Exit(0),
            elapsed_ns: 1,
            cpu_ns: None,
            events: 0,
            blocked_ns: None,
        },
        lost: Lost::default(),
        processes: vec![Process {
            pid: 1,
            parent: None,
            start_ns: 0,
            executable: "/bin/true".into(),
        }],
        filesystems: vec![Filesystem {
            major: 8,
            minor: 1,
            fstype: "ext4".into(),
            mount_point: "/".into(),
            local: true,
        }],
        files: (0..20u32)
            .map(|i| File {
                filesystem: Some(0),
                path: format!("/f/{}", i.wrapping_mul(2_654_435_761)).as_str().into(),
                overlay: None,
                inode: u64::from(i),
                generation: i,
                size: 1 << 20,
                mtime_ns: i64::from(i),
                mode: 0o100_644,
                state: FileState::Present,
            })
            .collect(),
        mappings: Vec::new(),
        uses: (0..200u64)
            .map(|i| Use {
                time_ns: i * i * 1000,
                process: 0,
                file: (i * 7 % 20) as u32,
                start: i * 31 % 256,
                pages: 1 + (i % 5) as u32,
                kind: UseKind::Read,
            })
            .collect(),
        lookups: Vec::new(),
        metadata: Vec::new(),
        marks: Vec::new(),
        activity: None,
        ahead: None,
    }
}

fn entry(path: &FilePath) -> Entry {
    let range = WeightedRange {
        start: 0,
        pages: 4,
        weight: 1.0,
        first_use_ns: 0,
        stage: 0,
    };
    Entry {
        path: path.clone(),
        overlay: None,
        need: Need::Open,
        weight: 1.0,
        first_use_ns: 0,
        stage: 0,
        version: Some(Version {
            size: 1 << 20,
            mtime_ns: 0,
            generation: 0,
        }),
        ranges: vec![range],
        tail: None,
        touches: None,
    }
}

fn profile(paths: &[FilePath]) -> Profile {
    let mut entries: Vec<Entry> = paths.iter().map(entry).collect();
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    Profile {
        runs: 1,
        mass: 1.0,
        timeline_ns: 1,
        entries,
        ..Profile::new(key(), 4096, Policy::Decay)
    }
}

fn plan(paths: &[FilePath]) -> PlanDraft {
    let mut requests = vec![Request::new(RequestKind::Metadata, NO_FILE, 4096)];
    for file in 0..paths.len() as u32 {
        requests.push(Request::new(RequestKind::Stat, file, 0));
        requests.push(Request::new(RequestKind::List, file, 0));
        requests.push(Request::new(RequestKind::Data, file, 16_384));
    }
    let cost = Cost {
        class: DeviceClass::Flash,
        bandwidth: 1e9,
        latency: 1e-4,
        depth: 8,
    };
    PlanDraft {
        budget: 1 << 30,
        cut: requests.len() as u32,
        devices: vec![PlanDevice {
            uuid: [1; 16],
            hold: 1,
            ..PlanDevice::new("/".into(), cost)
        }],
        files: paths
            .iter()
            .map(|path| PlanFileEntry {
                path: path.clone(),
                device: 0,
                inode: 1,
                generation: 0,
                size: 1 << 20,
                mtime_ns: 0,
            })
            .collect(),
        requests,
        ..PlanDraft::new(key(), 4096)
    }
}

/// Seconds of processor time, after which the kernel kills headstart: a hundred times what the reading of a file takes, on the
/// slowest machine too, for what other processes do does not count.
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
const OF_PLAN: &[&[&str]] = &[&["show", "FILE", "--pages"], &["replay", "FILE", "--wait"]];

#[test]
fn cut_files_are_refused() {
    let case = Case::new();
    let paths = [FilePath::from("/etc/passwd")];
    for (bytes, commands) in [
        (trace().to_bytes().unwrap(), OF_TRACE),
        (plan(&paths).to_bytes().unwrap(), OF_PLAN),
    ] {
        case.write("whole", &bytes);
        assert!(
            read_by_all(&case, "whole", commands, "the whole"),
            "the whole file is read"
        );
        for length in (0..bytes.len()).step_by(64) {
            case.write("cut", &bytes[..length]);
            let read = read_by_all(&case, "cut", commands, &format!("{length} bytes"));
            assert!(!read, "{length} of {} bytes were believed", bytes.len());
        }
    }
}

/// Offsets and lengths of the fields of a container with so many sections.
fn header_fields(sections: usize) -> Vec<(usize, usize)> {
    let mut fields = vec![(0, 8), (8, 2), (10, 2), (12, 4), (16, 8), (24, 4), (28, 4)];
    for row in 0..sections {
        let at = 32 + 40 * row;
        fields.extend([(0, 4), (4, 4), (8, 8), (16, 8), (24, 8), (32, 4), (36, 4)].map(|(o, l)| (at + o, l)));
    }
    fields
}

#[test]
fn header_fields_of_any_value_are_survived() {
    let case = Case::new();
    let paths = [FilePath::from("/etc/passwd")];
    for (bytes, commands) in [
        (trace().to_bytes().unwrap(), OF_TRACE),
        (plan(&paths).to_bytes().unwrap(), OF_PLAN),
    ] {
        let sections = usize::from(bytes[12]);
        for (index, (at, length)) in header_fields(sections).into_iter().enumerate() {
            let random: Vec<u8> = (0..length).map(|i| (index * 97 + i * 41 + 13) as u8).collect();
            for value in [vec![0; length], vec![0xff; length], random] {
                let mut changed = bytes.clone();
                changed[at..at + length].copy_from_slice(&value);
                if at != 24 {
                    // A deceiver sets the checksum right.
                    changed[24..28].fill(0);
                    let check = crc32fast::hash(&changed[..(32 + 40 * sections).min(changed.len())]);
                    changed[24..28].copy_from_slice(&check.to_le_bytes());
                }
                case.write("changed", &changed);
                read_by_all(
                    &case,
                    "changed",
                    commands,
                    &format!("field at {at} set to {value:?}"),
                );
            }
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
