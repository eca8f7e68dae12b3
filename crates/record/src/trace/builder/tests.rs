//! What becomes of events without end.

use super::*;
use crate::kernel::event::{FileSeen, Location, Place};
use crate::limits::{FILES, LOOKUP_BYTES, LOOKUPS, PROCESSES, USES, WINDOWS};
use headstart_model::trace::LookupKind;

fn builder(options: &Options) -> Builder {
    Builder::new(options, Backend::Bpf, Evidence::Uses, 0).unwrap()
}

/// On a device that no machine has.
fn place(path: Vec<u8>) -> Place {
    Place {
        dev: Dev {
            major: 4095,
            minor: 1,
        },
        location: Location::Within(path),
        mount: None,
    }
}

fn file(id: u64, path: Vec<u8>) -> Event {
    Event::File(FileSeen {
        id,
        place: place(path),
        inode: id,
        generation: 1,
        size: 1 << 40,
        user: 0,
        by_some_name: false,
        mtime_ns: 0,
        mode: 0o100_644,
    })
}

fn read(file: u64, page: u64) -> Event {
    Event::Use(UseSeen {
        time_ns: page,
        pid: std::process::id(),
        file,
        start: page,
        last: page,
        size: u64::MAX,
        user: 0,
        kind: UseKind::Read,
        touched: None,
        mapped: None,
    })
}

fn miss(start: u64) -> Event {
    Event::Metadata(crate::kernel::event::MetadataSeen {
        time_ns: start,
        dev: Dev {
            major: 4095,
            minor: 1,
        },
        start,
        pages: 1,
    })
}

fn look_up(path: String, uid: u32) -> Event {
    Event::Lookup(LookupSeen {
        time_ns: 1,
        pid: std::process::id(),
        path: path.into_bytes(),
        base: None,
        root: None,
        kind: LookupKind::Stat,
        found: false,
        uid,
    })
}

fn finish(builder: Builder) -> Trace {
    builder.finish(EndReason::Exit(0), Ended::default()).unwrap()
}

/// A path of 4,000 bytes.
fn long(number: u64) -> String {
    format!("/{number:09}{}", "x".repeat(3990))
}

#[test]
fn look_ups_and_metadata_beyond_the_limit_are_left_out_and_the_trace_teaches() {
    let mut builder = builder(&Options::tree(vec![]));
    builder.push(file(1, b"/used".to_vec()));
    builder.push(read(1, 0));
    for number in 0..10_000 {
        builder.push(look_up(long(number), 1000));
    }
    for number in 0..MISSES as u64 + 5 {
        builder.push(miss(number));
    }
    let trace = finish(builder);
    assert_eq!(trace.unfit(), None);
    assert_eq!(trace.metadata.len(), MISSES);
    assert_eq!(trace.lookups.len(), LOOKUP_BYTES / 4000);
    assert_eq!(trace.lost.dropped, 5 + 10_000 - LOOKUP_BYTES as u64 / 4000);
    assert_eq!(trace.uses.len(), 1);
    trace.to_bytes().unwrap();
}

#[test]
fn page_uses_beyond_a_limit_are_lost_and_the_trace_can_be_written_and_teaches_nothing() {
    for (kind, events) in [
        (
            "files",
            Box::new(|n| [file(n + 1, long(n).into_bytes()), read(n + 1, 0)])
                as Box<dyn Fn(u64) -> [Event; 2]>,
        ),
        (
            "many files",
            Box::new(|n| [file(n + 1, format!("/{n}").into_bytes()), read(n + 1, 0)]),
        ),
        (
            "pages of few windows each in many files",
            Box::new(|n| {
                [
                    file(1 + n % 200, format!("/{}", n % 200).into_bytes()),
                    read(1 + n % 200, 20 * n),
                ]
            }),
        ),
        (
            "scattered pages",
            Box::new(|n| [file(1, b"/one".to_vec()), read(1, 1000 * n)]),
        ),
        (
            "pages of two windows each",
            Box::new(|n| {
                let Event::Use(seen) = read(1, 1600 * n + 15) else {
                    unreachable!()
                };
                let last = seen.start + 1;
                [file(1, b"/one".to_vec()), Event::Use(UseSeen { last, ..seen })]
            }),
        ),
    ] {
        let mut builder = builder(&Options::tree(vec![]));
        for number in 0..WINDOWS as u64 + 1000 {
            for event in events(number) {
                builder.push(event);
            }
        }
        let trace = finish(builder);
        assert!(trace.lost.events >= 1000, "{kind}");
        assert!(trace.unfit().unwrap().contains("lost"), "{kind}");
        assert!(trace.uses.len() <= USES && trace.files.len() <= FILES, "{kind}");
        assert!(trace.use_rows() <= WINDOWS, "{kind}");
        let bytes = trace.to_bytes().unwrap_or_else(|e| panic!("{kind}: {e}"));
        assert_eq!(Trace::from_bytes(&bytes).unwrap().use_rows(), trace.use_rows());
    }
}

/// A fault that touched a page, with nothing mapped around it.
fn touch(file: u64, page: u64, time_ns: u64) -> Event {
    match read(file, page) {
        Event::Use(seen) => Event::Use(UseSeen {
            kind: UseKind::Fault,
            time_ns,
            ..seen
        }),
        other => other,
    }
}

/// Touches every other page of so many windows in an order without rule, each once.
fn resume(builder: &mut Builder, windows: u64) {
    builder.push(file(1, b"/memory".to_vec()));
    let pages = windows * 8;
    // Steps of a prime that does not divide the number of pages come by each.
    let step = 7_368_787;
    assert!(pages % step != 0);
    for number in 0..pages {
        builder.push(touch(1, number * step % pages * 2, number * 1000));
    }
}

#[test]
fn two_million_runs_of_one_file_are_kept_in_order_of_first_touch() {
    let mut builder = builder(&Options::tree(vec![]));
    let windows = 250_000;
    resume(&mut builder, windows);
    assert!(builder.bytes() < 64 << 20, "{}", builder.bytes());
    let trace = finish(builder);
    assert_eq!(trace.unfit(), None);
    let used = &trace.used_pages()[0];
    assert_eq!(
        (used.pages(), used.ranges().len()),
        (8 * windows, 8 * windows as usize)
    );
    let bytes = trace.to_bytes().unwrap();
    assert!(bytes.len() < 3 << 20, "{} bytes", bytes.len());
    let read = Trace::from_bytes(&bytes).unwrap();
    assert_eq!(read.used_pages(), trace.used_pages());
    // What was touched first stands first, and nothing later than it was.
    let when = |page: u64| {
        let first = trace.windows.iter().find(|row| row.window == page / 16);
        first.map(|row| row.time_ns)
    };
    assert_eq!(when(0), Some(0));
    assert!(trace.windows.is_sorted_by_key(|row| row.time_ns));
    assert!(read.windows.is_sorted_by_key(|row| row.time_ns));
    assert_eq!(trace.over_ns(), trace.end.elapsed_ns, "it exited");
    assert!(trace.all_uses().count() < trace.used_pages()[0].ranges().len());
}

#[test]
fn a_file_of_few_uses_keeps_them_beside_one_of_many() {
    let mut builder = builder(&Options::tree(vec![]));
    builder.push(file(2, b"/few".to_vec()));
    for page in 0..100 {
        builder.push(touch(2, 3 * page, page));
    }
    resume(&mut builder, 20_000);
    let trace = finish(builder);
    assert_eq!(trace.unfit(), None);
    let few = trace
        .files
        .iter()
        .position(|file| file.path.to_string() == "/few")
        .unwrap() as u32;
    assert_eq!(trace.uses.iter().filter(|used| used.file == few).count(), 100);
    assert!(trace.windows.iter().all(|row| row.file != few));
    assert_eq!(trace.used_pages()[1 - few as usize].pages(), 160_000);
    assert_eq!(trace.all_uses().count(), 160_100, "so few are told apart");
}

/// The same by a user of this group.
fn by(user: u8, event: Event) -> Event {
    match event {
        Event::File(seen) => Event::File(FileSeen { user, ..seen }),
        Event::Use(seen) => Event::Use(UseSeen { user, ..seen }),
        other => other,
    }
}

#[test]
fn what_a_user_uses_without_end_is_left_out_and_the_trace_teaches_what_others_use() {
    for (kind, events) in [
        (
            "long paths",
            Box::new(|n| [file(n + 10, long(n).into_bytes()), read(n + 10, 0)])
                as Box<dyn Fn(u64) -> [Event; 2]>,
        ),
        (
            "many files",
            Box::new(|n| [file(n + 10, format!("/{n}").into_bytes()), read(n + 10, 0)]),
        ),
        (
            "many sights of one",
            Box::new(|n| {
                let Event::File(seen) = file(10, b"/one".to_vec()) else {
                    unreachable!()
                };
                [Event::File(FileSeen { id: n + 10, ..seen }), read(n + 10, 0)]
            }),
        ),
        (
            "pages",
            Box::new(|n| [file(10, b"/one".to_vec()), read(10, 2 * n)]),
        ),
        (
            "scattered pages",
            Box::new(|n| [file(10, b"/one".to_vec()), read(10, 1000 * n)]),
        ),
    ] {
        let mut builder = builder(&Options::system());
        // A third user finds half of all room taken.
        for user in 1..=3 {
            for number in 0..USES as u64 {
                for event in events(number + u64::from(user) * USES as u64) {
                    builder.push(by(user, event));
                }
            }
        }
        let taken = builder.uses.added();
        assert!(taken > 0 && taken <= USES / 2, "{kind}: {taken}");
        assert!(builder.dropped > USES as u64, "{kind}");
        let before = builder.dropped;
        let at = 10 * USES as u64;
        for number in at..at + 10_000 {
            builder.push(file(number, format!("/needed/{number}").into_bytes()));
            builder.push(read(number, 0));
        }
        assert_eq!((builder.dropped, builder.lost), (before, 0), "{kind}");
        assert_eq!(builder.uses.added(), taken + 10_000, "{kind}");
    }
}

#[test]
fn a_user_leaves_room_for_another() {
    let mut builder = builder(&Options::system());
    builder.push(by(1, file(1, b"/one".to_vec())));
    for number in 0..USES as u64 {
        builder.push(by(1, read(1, 2 * number)));
    }
    let (before, taken) = (builder.dropped, builder.uses.added());
    assert!(before > 0);
    builder.push(by(2, file(2, b"/two".to_vec())));
    for number in 0..10_000 {
        builder.push(by(2, read(2, 2 * number)));
    }
    assert_eq!((builder.dropped, builder.uses.added()), (before, taken + 10_000));
}

/// Whoever asks so is told what this process took at most.
const TELL_PEAK: &str = "HEADSTART_TELLS_PEAK";

#[test]
fn all_limits_at_once_make_a_trace_that_can_be_written() {
    let mut builder = builder(&Options::tree(vec![]));
    let me = std::process::id();
    for number in 0..PROCESSES as u32 + 10 {
        let pid = 10_000_000 + number;
        let fork = crate::kernel::event::Fork {
            time_ns: 1,
            parent: me,
            pid,
        };
        builder.push(Event::Fork(fork));
    }
    for number in 0..2 * FILES as u64 {
        builder.push(file(number, format!("/{number:054}").into_bytes()));
    }
    for number in 0..2 * USES as u64 {
        builder.push(read(number % FILES as u64, number * 100));
        builder.push(miss(number));
    }
    for number in 0..2 * LOOKUPS {
        builder.push(look_up(format!("/{number:048}"), 0));
    }
    let trace = finish(builder);
    assert_eq!((trace.processes.len(), trace.files.len()), (PROCESSES, FILES));
    assert_eq!((trace.uses.len(), trace.lookups.len()), (USES, LOOKUPS));
    assert_eq!(trace.lost.events, USES as u64);
    let bytes = trace.to_bytes().unwrap();
    if std::env::var_os(TELL_PEAK).is_some() {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let peak = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        return println!("\n{peak}");
    }
    Trace::from_bytes(&bytes).unwrap();
}

/// All limits, the trace made of them, and its file: what is left of 256 MiB are the kernel's buffers and a
/// program.
#[test]
fn all_limits_at_once_take_less_than_192_mib() {
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "trace::builder::tests::all_limits_at_once_make_a_trace_that_can_be_written",
            "--exact",
            "--nocapture",
        ])
        .env(TELL_PEAK, "1")
        .output()
        .unwrap();
    let said = String::from_utf8(child.stdout).unwrap();
    let peak = said.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak: u64 = peak
        .unwrap_or_else(|| panic!("{said}"))
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    assert!(peak < 192 << 10, "{peak} KiB");
    eprintln!("all limits at once: {peak} KiB");
}

#[test]
fn what_has_no_path_of_one_spelling_is_no_file_and_no_look_up() {
    let mut builder = builder(&Options::tree(vec![]));
    for (id, path) in [(1, "/a/../mnt/dead/x"), (2, "/a//x"), (3, "/a/./x"), (4, "/fine")] {
        builder.push(file(id, path.into()));
        builder.push(read(id, 0));
    }
    builder.push(file(5, format!("/{}", "x/".repeat(2100)).into_bytes()));
    for path in ["/w/../mnt/dead/x", "/fine//y/./z", "/../w"] {
        builder.push(look_up(path.into(), 0));
    }
    let trace = finish(builder);
    let paths: Vec<String> = trace.files.iter().map(|file| file.path.to_string()).collect();
    assert_eq!((paths, trace.lost.paths), (vec!["/fine".to_owned()], 4));
    let looked_up: Vec<String> = trace.lookups.iter().map(|one| one.path.to_string()).collect();
    assert_eq!(looked_up, ["/fine/y/z", "/w"]);
    trace.to_bytes().unwrap();
}

#[test]
fn a_few_uses_that_were_not_seen_leave_a_trace_that_teaches() {
    let lost = |unseen_uses| {
        let mut builder = builder(&Options::tree(vec![]));
        builder.push(file(1, b"/one".to_vec()));
        for page in 0..999 {
            builder.push(read(1, page));
        }
        let ended = Ended {
            unseen_uses,
            ..Ended::default()
        };
        let trace = builder.finish(EndReason::Exit(0), ended).unwrap();
        (trace.lost.events, trace.lost.dropped, trace.unfit().is_none())
    };
    assert_eq!(lost(0), (0, 0, true));
    assert_eq!(lost(19), (0, 19, true), "of a thousand events");
    assert_eq!(lost(20), (20, 0, false));
}
