//! Writes a small sound file of each kind into DIR/KIND/seed, and the same with nothing compressed, for the fuzzers to
//! begin from: few changes of a compressed section leave anything to decode.

use headstart_model::format::{Container, Kind, Writer};
use headstart_model::machine::{Cost, DeviceClass};
use headstart_model::outcome::{Mode, Resident, Skipped, StageOutcome};
use headstart_model::plan::{NO_FILE, PlanDevice, PlanDraft, PlanFileEntry, Request, RequestKind};
use headstart_model::profile::{Entry, Need, Policy, Version, WeightedRange};
use headstart_model::trace::*;
use headstart_model::{Key, Outcome, PageRange, Profile, Trace};
use std::path::Path;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn trace() -> Result<Vec<u8>> {
    let file = File {
        filesystem: Some(0),
        path: "/usr/bin/true".into(),
        overlay: None,
        inode: 12,
        generation: 3,
        size: 9000,
        mtime_ns: 4,
        mode: 0o100755,
        state: FileState::Present,
    };
    let used = |start, kind| Use {
        time_ns: start * 1000,
        process: 0,
        file: 0,
        start,
        pages: 2,
        kind,
    };
    let trace = Trace {
        meta: Meta {
            started_unix_ns: 1,
            kernel: "6.12".into(),
            page_size: 4096,
            backend: Backend::Bpf,
            evidence: Evidence::Uses,
            scope: Scope::Tree,
            command: vec!["true".into()],
            recorder: "0".into(),
            replayed: false,
        },
        end: End {
            reason: EndReason::Exit(0),
            elapsed_ns: 5,
            cpu_ns: None,
            events: 0,
            blocked_ns: Some(3),
        },
        lost: Lost::default(),
        processes: vec![Process {
            pid: 1,
            parent: None,
            start_ns: 0,
            executable: "/usr/bin/true".into(),
        }],
        filesystems: vec![Filesystem {
            major: 8,
            minor: 1,
            fstype: "ext4".into(),
            mount_point: "/".into(),
            local: true,
        }],
        files: vec![file],
        mappings: vec![Mapping {
            file: 0,
            pages: PageRange::new(2, 9),
        }],
        uses: vec![
            used(0, UseKind::Read),
            used(7, UseKind::Map),
            used(3, UseKind::Fault),
        ],
        lookups: vec![Lookup {
            time_ns: 2,
            process: 0,
            path: "/etc".into(),
            kind: LookupKind::List,
            found: true,
        }],
        metadata: vec![MetadataMiss {
            time_ns: 1,
            major: 8,
            minor: 1,
            start: 40,
            pages: 1,
        }],
        marks: vec![Mark {
            time_ns: 1,
            stage: "login".into(),
        }],
    };
    Ok(trace.to_bytes()?)
}

fn profile() -> Result<Vec<u8>> {
    let range = |start| WeightedRange {
        start,
        pages: 3,
        weight: 0.7,
        first_use_ns: 5,
        stage: 0,
    };
    let profile = Profile {
        key: Key::new("true")?,
        page_size: 4096,
        runs: 2,
        mass: 1.8,
        cpu_ns: Some(7),
        timeline_ns: 9,
        updated_unix_ns: 3,
        policy: Policy::Decay,
        stages: vec!["start".into()],
        entries: vec![Entry {
            path: "/usr/bin/true".into(),
            overlay: Some("/merged/true".into()),
            need: Need::Open,
            weight: 1.0,
            first_use_ns: 4,
            stage: 0,
            version: Some(Version {
                size: 90000,
                mtime_ns: 4,
                generation: 3,
            }),
            ranges: vec![range(0), range(9)],
        }],
    };
    Ok(profile.to_bytes()?)
}

fn plan() -> Result<Vec<u8>> {
    let request = |kind, file, length| Request {
        kind,
        stage: 0,
        device: 0,
        file,
        offset: 4096,
        length,
        bridged: 0,
        deadline_us: 9,
    };
    let draft = PlanDraft {
        key: Key::new("true")?,
        page_size: 4096,
        created_unix_ns: 1,
        budget: 1 << 20,
        cut: 3,
        stages: vec!["start".into()],
        devices: vec![PlanDevice {
            mount_point: "/".into(),
            uuid: [7; 16],
            cost: Cost {
                class: DeviceClass::Disk,
                bandwidth: 120e6,
                latency: 0.008,
                depth: 1,
            },
            request_limit: 128 << 10,
            hold: 3,
        }],
        files: vec![PlanFileEntry {
            path: "/usr/bin/true".into(),
            device: 0,
            inode: 12,
            generation: 3,
            size: 9000,
            mtime_ns: 4,
        }],
        requests: vec![
            request(RequestKind::Metadata, NO_FILE, 4096),
            request(RequestKind::Stat, 0, 0),
            request(RequestKind::Data, 0, 4904),
        ],
    };
    Ok(draft.to_bytes()?)
}

fn outcome() -> Result<Vec<u8>> {
    let outcome = Outcome {
        key: Key::new("true")?,
        started_unix_ns: 1,
        mode: Mode::Replay,
        elapsed_ns: 2,
        status: Some(0),
        blocked_ns: Some(1),
        resident_before: Some(Resident {
            sampled_pages: 64,
            resident_pages: 7,
        }),
        replay_ns: 3,
        stages: vec![StageOutcome {
            stage: "start".into(),
            issued_pages: 4,
            ..StageOutcome::default()
        }],
        skipped: Skipped {
            changed: 1,
            ..Skipped::default()
        },
        memory_available: 1 << 30,
        memory_pressure: Some(0.5),
        not_learned: Some("3 events were lost".into()),
    };
    Ok(outcome.to_bytes()?)
}

/// The same file with each section as it is when decoded.
fn unpacked(kind: Kind, bytes: &[u8]) -> Result<Vec<u8>> {
    let file = Container::new(kind, bytes)?;
    let mut plain = Writer::new(kind);
    for tag in file.tags() {
        plain.raw(&tag, &file.section(&tag, usize::MAX)?);
    }
    Ok(plain.finish()?)
}

fn main() -> Result<()> {
    let dir = std::env::args().nth(1).ok_or("usage: seeds DIR")?;
    for (kind, bytes) in [
        ("trace", trace()?),
        ("profile", profile()?),
        ("plan", plan()?),
        ("outcome", outcome()?),
    ] {
        let at = Path::new(&dir).join(kind);
        std::fs::create_dir_all(&at)?;
        let kind = Kind::of(&bytes).ok_or("a seed has no magic")?;
        std::fs::write(at.join("unpacked"), unpacked(kind, &bytes)?)?;
        std::fs::write(at.join("seed"), bytes)?;
    }
    Ok(())
}
