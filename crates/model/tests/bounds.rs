//! What a file takes to be read: below 64 MiB besides its own bytes, whatever is in it. A program of its own:
//! its allocator counts.

#![allow(clippy::unwrap_used)]

use headstart_model::activity::{Activity, BlockRequest, Slice};
use headstart_model::format::{Container, Kind, Writer};
use headstart_model::plan::{PlanFile, PlanFileEntry, Request, RequestKind};
use headstart_model::profile::Entry;
use headstart_model::profile_set::{Owner, Package};
use headstart_model::testing::Forged;
use headstart_model::trace::{MetadataMiss, Process};
use headstart_model::{FilePath, Outcome, Profile, ProfileSet, Trace, WindowUse, limits, outcome, testing};
use peak_alloc::PeakAlloc;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// What the reading of any file may take.
const MOST: usize = 64 << 20;

/// What is allocated is counted for the whole process: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads a file as what it says it is, all of it, and says whether it could be read.
fn reads(bytes: &[u8]) -> bool {
    match Kind::detect(bytes).unwrap() {
        Kind::Trace => Trace::from_bytes(bytes).is_ok(),
        Kind::Profile => Profile::from_bytes(bytes).is_ok(),
        Kind::Outcome => Outcome::from_bytes(bytes).is_ok(),
        Kind::ProfileSet => ProfileSet::from_bytes(bytes).is_ok(),
        Kind::Plan => {
            let file = PlanFile::new(bytes.to_vec());
            file.plan().is_ok_and(|plan| plan.to_draft().is_ok())
        }
    }
}

/// Reads a file and asserts that this took little memory.
fn bounded(what: &str, bytes: &[u8]) -> bool {
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    let read = reads(bytes);
    let took = MEMORY.peak_usage() - before;
    assert!(
        took <= MOST,
        "{what}: a file of {} bytes took {took}",
        bytes.len()
    );
    read
}

/// A sound file of each kind.
fn sound() -> Vec<Vec<u8>> {
    let mut trace = testing::trace();
    trace.files = vec![testing::file("/bin/true")];
    trace.uses = vec![testing::used(1, 0, 0, 3)];
    trace.windows = WindowUse::of(&testing::used(1, 0, 100, 3)).collect();
    trace.lookups = vec![testing::lookup(2, "/etc")];
    trace.activity = Some(testing::activity());
    let entry = Entry {
        ranges: vec![testing::range(0, 3, 1.0)],
        ..testing::entry("/bin/true")
    };
    let request = Request::new(RequestKind::Data, 0, 4096);
    let draft = testing::draft(testing::DISK, vec![testing::planned("/bin/true")], vec![request]);
    vec![
        trace.to_bytes().unwrap(),
        testing::profile(vec![entry]).to_bytes().unwrap(),
        draft.to_bytes().unwrap(),
        Outcome::new(testing::key("k"), outcome::Mode::Record)
            .to_bytes()
            .unwrap(),
        a_set().to_bytes().unwrap(),
    ]
}

/// Two profiles that travel, with a package.
fn a_set() -> ProfileSet {
    let mut set = ProfileSet::default();
    for key in ["/usr/bin/a", "boot"] {
        let entry = Entry {
            ranges: vec![testing::range(0, 3, 1.0)],
            tail: Some(vec![testing::range(0, 1, 1.0)]),
            touches: Some(Default::default()),
            ..testing::entry("/bin/true")
        };
        set.add(Profile {
            key: testing::key(key),
            ..testing::profile(vec![entry])
        })
        .unwrap();
    }
    set.packages.push(Package {
        name: "coreutils".into(),
        version: "9.1-1".into(),
    });
    let size = set.profiles()[0].entries[0].version.unwrap().size;
    set.owners.insert("/bin/true".into(), Owner { size, package: 0 });
    set
}

/// The file with one section replaced, compressed if it was; `None` if it became too large.
fn with(bytes: &[u8], changed: [u8; 4], section: &[u8]) -> Option<Vec<u8>> {
    let kind = Kind::detect(bytes).unwrap();
    let file = Container::new(kind, bytes).unwrap();
    let mut writer = Writer::new(kind);
    for tag in file.tags() {
        let own = file.section(&tag, usize::MAX).unwrap();
        let content = if tag == changed { section } else { &own };
        match kind {
            Kind::Plan => writer.raw(&tag, content),
            _ => writer.compressed(&tag, content, usize::MAX).unwrap(),
        }
    }
    writer.finish().ok()
}

#[test]
fn a_small_file_cannot_take_gigabytes() {
    let _alone = alone();
    // Zeros are empty texts, paths, lists and columns; of ones each element has one of something; the rest
    // are numbers and counts as large as they can be.
    let patterns: [&[u8]; 7] = [
        &[0],
        &[1],
        &[0x7f],
        &[0xff],
        &[1, 0],
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
        &[0x80, 0x80, 4],
    ];
    for file in sound() {
        assert!(bounded("a sound file", &file));
        let kind = Kind::detect(&file).unwrap();
        for tag in Container::new(kind, &file).unwrap().tags() {
            for pattern in patterns {
                // From below the limits of all sections to far above them.
                let largest = if *pattern == [0] { 100 << 20 } else { 15 << 20 };
                for bytes in [100 << 10, 4 << 20, largest] {
                    let section = pattern.repeat(bytes / pattern.len());
                    let what = format!("{kind:?} with {tag:?} of {bytes} bytes {pattern:?}");
                    if let Some(bent) = with(&file, tag, &section) {
                        bounded(&what, &bent);
                    }
                }
            }
        }
    }
}

#[test]
fn a_count_in_any_place_takes_no_memory() {
    let _alone = alone();
    for file in sound() {
        let kind = Kind::detect(&file).unwrap();
        let container = Container::new(kind, &file).unwrap();
        for tag in container.tags() {
            let section = container.section(&tag, usize::MAX).unwrap();
            for at in 0..section.len() {
                // A count of 2^14, 2^21 or 2^63 there, with as much behind it as the section may have.
                for count in [&[0x80, 0x80, 1][..], &[0x80, 0x80, 0x80, 1], &[0xff; 9]] {
                    let bomb = [&section[..at], count, &[0].repeat(2 << 20)].concat();
                    if let Some(bent) = with(&file, tag, &bomb) {
                        bounded(&format!("{kind:?} with a count at {at} of {tag:?}"), &bent);
                    }
                }
            }
        }
    }
}

/// So much activity.
fn active(requests: usize, slices: usize) -> Activity {
    let one = testing::activity();
    let (request, slice) = (one.requests[0], one.slices[0]);
    Activity {
        requests: (0..requests as u64)
            .map(|n| BlockRequest {
                issued_ns: n * 100_000,
                completed_ns: Some(n * 100_000 + 70_000),
                sector: n.wrapping_mul(0x9e37_79b9) % (1 << 31),
                ..request
            })
            .collect(),
        slices: (0..slices as u64)
            .map(|n| Slice {
                from_ns: n * 60_000,
                to_ns: n * 60_000 + 200_000,
                thread: 7 + n as u32 % 50,
                ..slice
            })
            .collect(),
        ..one
    }
}

/// A path of `length` bytes, of which there are many.
fn path(index: usize, length: usize) -> String {
    format!("/{index:0width$}", width = length - 1)
}

#[test]
fn the_largest_files_that_are_allowed_are_read_in_little_memory() {
    let _alone = alone();
    let mut trace = testing::trace();
    let process = Process {
        executable: path(0, 60).as_str().into(),
        ..trace.processes[0].clone()
    };
    trace.processes = (0..limits::PROCESSES)
        .map(|pid| Process {
            pid: pid as u32,
            ..process.clone()
        })
        .collect();
    trace.files = (0..limits::FILES)
        .map(|index| headstart_model::trace::File {
            inode: (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15),
            ..testing::file(&path(index, 60))
        })
        .collect();
    trace.uses = (0..limits::USES)
        .map(|index| testing::used(index as u64, (index % limits::FILES) as u32, index as u64 * 77, 1))
        .collect();
    trace.windows = (0..limits::WINDOWS - limits::USES)
        .map(|index| WindowUse {
            window: (index as u64).wrapping_mul(0x9e37_79b9) % (1 << 40),
            pages: 0x5555,
            ..WindowUse::of(&testing::used(index as u64, (index % limits::FILES) as u32, 0, 1))
                .next()
                .unwrap()
        })
        .collect();
    trace.lookups = (0..limits::LOOKUPS)
        .map(|index| testing::lookup(index as u64, &path(index, 60)))
        .collect();
    trace.metadata = (0..limits::MISSES as u64)
        .map(|index| MetadataMiss {
            time_ns: index << 20,
            major: 8,
            minor: index as u32,
            start: index * 99,
            pages: 1,
        })
        .collect();
    assert!(bounded("the largest trace", &trace.to_bytes().unwrap()));
    // What it leaves room for of what else was done.
    trace.windows.truncate(32 << 10);
    let left = limits::ROWS - trace.rows();
    trace.activity = Some(active(left / 4, left / 2));
    assert!(bounded(
        "the largest trace with activity",
        &trace.to_bytes().unwrap()
    ));
    trace.activity = Some(active(left / 4 + 1, left / 2));
    assert!(trace.to_bytes().is_err());
    drop(trace);
    for (requests, slices) in [(limits::REQUESTED, limits::ROWS / 2 - 2), (0, limits::SLICES - 2)] {
        let trace = Trace {
            activity: Some(active(requests, slices)),
            ..testing::trace()
        };
        assert!(bounded("the largest activity", &trace.to_bytes().unwrap()));
    }

    let length = limits::ENTRY_BYTES / limits::ENTRIES;
    let entry = |index: usize| Entry {
        ranges: vec![testing::range(0, 3, 1.0), testing::range(9, 3, 0.5)],
        ..testing::entry(&path(index, length))
    };
    let profile = testing::profile((0..limits::ENTRIES).map(entry).collect());
    assert!(bounded("the largest profile", &profile.to_bytes().unwrap()));
    drop(profile);

    // Half of what a set of profiles may have is another key's.
    let length = limits::SET_ENTRY_BYTES / limits::SET_ENTRIES;
    let entry = |index: usize| Entry {
        path: path(index, length).as_str().into(),
        ..entry(index)
    };
    let profiles = ["a", "b"].map(|key| Profile {
        key: testing::key(key),
        ..testing::profile((0..limits::SET_ENTRIES / 2).map(entry).collect())
    });
    let set = testing::profile_set(profiles.into());
    assert!(bounded("the largest profiles", &set.to_bytes().unwrap()));
    let mut many = set.into_profiles();
    many[1].entries.push(Entry {
        path: "/z".into(),
        ..entry(0)
    });
    let one_more = testing::profile_set(many);
    assert!(one_more.to_bytes().is_err());
    assert!(!bounded("one entry more", &one_more.forged().unwrap()));
    drop(one_more);

    let length = limits::TEXT / limits::PLAN_FILES - 1;
    let files: Vec<PlanFileEntry> = (0..limits::PLAN_FILES)
        .map(|index| testing::planned(&path(index, length)))
        .collect();
    let request = |index: usize| Request::new(RequestKind::Data, (index % limits::PLAN_FILES) as u32, 4096);
    let draft = testing::draft(testing::DISK, files, (0..limits::REQUESTS).map(request).collect());
    assert!(bounded("the largest plan", &draft.to_bytes().unwrap()));
}

#[test]
fn profiles_that_claim_or_have_ten_million_entries_are_refused_in_a_second() {
    let _alone = alone();
    let bytes = a_set().to_bytes().unwrap();
    let file = Container::new(Kind::ProfileSet, &bytes).unwrap();
    // 10,000,000 as a varint.
    let count = [0x80, 0xad, 0xe2, 0x04];
    for (tag, least) in [(*b"FILE", 4), (*b"KEYS", 20), (*b"PKGS", 2)] {
        let own = file.section(&tag, usize::MAX).unwrap();
        for claimed in [
            [&count[..], &own[1..]].concat(),
            [&count[..], &[0].repeat(least * 10_000_000)].concat(),
            [&count[..], &own[1..].repeat(10_000_000 / own.len())].concat(),
        ] {
            let mut writer = Writer::new(Kind::ProfileSet);
            for other in file.tags() {
                let kept = file.section(&other, usize::MAX).unwrap();
                let section = if other == tag { &claimed } else { &kept };
                writer.compressed(&other, section, usize::MAX).unwrap();
            }
            let bent = writer.finish().unwrap();
            let begun = processor_time();
            assert!(!bounded(&format!("{tag:?} of {}", claimed.len()), &bent));
            let took = processor_time() - begun;
            assert!(took < 1_000_000_000, "{tag:?} took {took} ns");
        }
    }
}

/// Of this thread, nanoseconds: what else the machine does is not counted.
fn processor_time() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn many_records_of_a_plan_cannot_share_one_long_text() {
    let _alone = alone();
    let long = FilePath::from(format!("/{}", "x".repeat(limits::PATH - 1)).as_str());
    let planned = PlanFileEntry {
        path: long,
        ..testing::planned("/")
    };
    let draft = testing::draft(testing::DISK, vec![planned], Vec::new());
    let bytes = draft.to_bytes().unwrap();
    let file = Container::new(Kind::Plan, &bytes).unwrap();
    let record = file.section(b"FILE", usize::MAX).unwrap();
    assert!(!bounded(
        "a plan",
        &with(&bytes, *b"FILE", &record.repeat(60_000)).unwrap()
    ));
    assert!(bounded(
        "a plan",
        &with(&bytes, *b"FILE", &record.repeat(2000)).unwrap()
    ));
}

#[test]
fn a_frame_cannot_ask_for_a_large_window() {
    let _alone = alone();
    // RFC 8878: magic, a frame header descriptor that says nothing of the content's size, a window of 2^31
    // bytes, and a last block of one byte repeated 100,000 times. The decoder's own memory is not Rust's: the
    // process's is looked at.
    let count = 100_000u32;
    let block = count << 3 | 1 << 1 | 1;
    let frame = [
        &[0x28, 0xb5, 0x2f, 0xfd, 0, 21 << 3][..],
        &block.to_le_bytes()[..3],
        &[0],
    ]
    .concat();
    let kind = Kind::Outcome;
    let mut writer = Writer::new(kind);
    writer.raw(b"OUTC", &frame);
    let mut bytes = writer.finish().unwrap();
    bytes[32 + 4] = 1;
    bytes[32 + 24..32 + 28].copy_from_slice(&count.to_le_bytes());
    bytes[24..28].fill(0);
    let check = crc32fast::hash(&bytes[..72]);
    bytes[24..28].copy_from_slice(&check.to_le_bytes());
    let peak = || -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() << 10
    };
    let before = peak();
    bounded("a frame with a large window", &bytes);
    assert!(
        peak() - before <= MOST,
        "the decoder took {} bytes",
        peak() - before
    );
}
