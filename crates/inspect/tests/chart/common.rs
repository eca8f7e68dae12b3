//! Starts made up by a rule, alike each time: as large as wanted, and as odd.

#![allow(dead_code, clippy::unwrap_used)]

use headstart_inspect::chart::{FloorLine, Start};
use headstart_model::activity::{
    Activity, BlockDevice, BlockRequest, BusySample, MemorySample, RequestKind, Slice, ThreadState,
};
use headstart_model::trace::{Ahead, Mark, Process, Trace, Use, UseKind};
use headstart_model::{FilePath, testing};

const MS: u64 = 1_000_000;

/// Numbers that look as if by chance.
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        Chance(seed)
    }

    /// One below `most`.
    pub fn below(&mut self, most: u64) -> u64 {
        // Knuth's constants for a linear congruence modulo 2^64; the high bits are the good ones.
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most.max(1)
    }
}

/// A start of about so many events in so many milliseconds: a fifth are uses, a fifth requests, the rest
/// slices. With a replay that asked for most of what is used: a tenth late, a tenth never.
pub fn start(events: usize, elapsed_ms: u64, replayed: bool) -> Trace {
    let mut chance = Chance::new(events as u64);
    let mut trace = testing::trace();
    let elapsed = elapsed_ms * MS;
    trace.end.elapsed_ns = elapsed;
    trace.end.blocked_ns = Some(elapsed / 3);
    trace.meta.command = vec!["/usr/bin/office".into(), "--writer".into()];
    trace.meta.replayed = replayed;
    processes(&mut trace, &mut chance, elapsed);
    uses(&mut trace, &mut chance, events / 5, elapsed, replayed);
    let mut activity = Activity {
        devices: vec![BlockDevice {
            major: 8,
            minor: 0,
            name: "sda".into(),
            sectors: 40 << 21,
        }],
        ..Activity::default()
    };
    requests(&mut activity, &mut chance, events / 5, elapsed, replayed);
    slices(
        &mut activity,
        &mut chance,
        events * 3 / 5,
        elapsed,
        trace.processes.len(),
    );
    for i in 1..=elapsed_ms / 20 {
        let at = i * 20 * MS;
        activity.processors.push(BusySample {
            time_ns: at,
            busy: 0.3 + 0.05 * chance.below(14) as f32,
        });
        activity.memory.push(MemorySample {
            time_ns: at,
            free: (4 << 30) - i * (2 << 30) / (elapsed_ms / 20),
            page_cache: (1 << 29) + i * (2 << 30) / (elapsed_ms / 20),
            dirty: chance.below(64 << 20),
        });
    }
    trace.activity = Some(activity);
    for (share, stage) in [(1, "local-fs"), (3, "basic"), (6, "login screen")] {
        trace.marks.push(Mark {
            time_ns: elapsed * share / 10,
            stage: stage.into(),
        });
    }
    trace
}

fn processes(trace: &mut Trace, chance: &mut Chance, elapsed: u64) {
    const NAMES: [&str; 8] = [
        "office",
        "soffice.bin",
        "oosplash",
        "dbus-daemon",
        "gvfsd",
        "fc-match",
        "sed",
        "javaldx",
    ];
    trace.processes = (0..60u32)
        .map(|i| Process {
            pid: 1000 + i,
            parent: i.checked_sub(1).map(|_| chance.below(u64::from(i.min(6))) as u32),
            start_ns: elapsed / 70 * u64::from(i),
            executable: format!("/usr/lib/office/program/{}", NAMES[i as usize % 8])
                .as_str()
                .into(),
        })
        .collect();
}

fn uses(trace: &mut Trace, chance: &mut Chance, count: usize, elapsed: u64, replayed: bool) {
    let files = (count / 6).clamp(1, 60_000);
    let path = |i: usize| -> FilePath {
        let directory = [
            "lib/office/program",
            "share/fonts/truetype",
            "lib/x86_64-linux-gnu",
            "share/icons/hicolor",
        ][i / 40 % 4];
        format!("/usr/{directory}/lib-of-number-{i}.so").as_str().into()
    };
    trace.files = (0..files)
        .map(|i| headstart_model::trace::File {
            size: 8 << 20,
            ..testing::file(&path(i).to_string())
        })
        .collect();
    let mut next = vec![0u64; files];
    let mut ahead = Vec::new();
    for i in 0..count {
        // Files come one after another, and some are used again.
        let front = (i * files / count).max(1);
        let file = if chance.below(4) > 0 {
            front - 1
        } else {
            chance.below(front as u64) as usize
        };
        let pages = 1 + chance.below(24) as u32;
        let start = next[file];
        next[file] = start + u64::from(pages);
        let time_ns = (elapsed as u128 * 9 / 10 * i as u128 / count as u128) as u64;
        trace.uses.push(Use {
            time_ns,
            process: chance.below(60) as u32,
            file: file as u32,
            start,
            pages,
            kind: UseKind::Read,
        });
        let lot = chance.below(10);
        if lot < 9 {
            let issued_ns = if lot == 8 { time_ns + 5 * MS } else { time_ns / 3 };
            ahead.push(Ahead {
                file: file as u32,
                start,
                pages,
                issued_ns,
                done_ns: issued_ns + MS,
            });
        }
    }
    ahead.sort_by_key(|request| request.issued_ns);
    trace.ahead = replayed.then_some(ahead);
}

fn requests(activity: &mut Activity, chance: &mut Chance, count: usize, elapsed: u64, replayed: bool) {
    let mut at = 4u64 << 21;
    for i in 0..count as u64 {
        let issued_ns = elapsed / count.max(1) as u64 * i;
        // A replay goes by address, a start without one wherever it must.
        at = match replayed {
            true => (4 << 21) + i * (30 << 21) / count as u64 + chance.below(4096),
            false => (4 << 21) + chance.below(30 << 21),
        };
        let kind = if chance.below(20) == 0 {
            RequestKind::Write
        } else {
            RequestKind::Read
        };
        activity.requests.push(BlockRequest {
            issued_ns,
            completed_ns: Some(issued_ns + MS / 2 + chance.below(3 * elapsed / count.max(1) as u64)),
            device: 0,
            sector: at,
            sectors: 8 << chance.below(6),
            kind,
            metadata: chance.below(8) == 0,
            ahead: chance.below(3) == 0,
            process: None,
        });
    }
    let _ = at;
}

fn slices(activity: &mut Activity, chance: &mut Chance, count: usize, elapsed: u64, processes: usize) {
    for i in 0..count as u64 {
        let from_ns = elapsed / count.max(1) as u64 * i;
        let busy = chance.below(8);
        let process = if busy < 4 {
            1
        } else {
            chance.below(processes as u64) as u32
        };
        activity.slices.push(Slice {
            from_ns,
            to_ns: from_ns + chance.below(elapsed * 2 / count.max(1) as u64 + 1),
            process,
            thread: 1000 + process,
            state: if chance.below(3) == 0 {
                ThreadState::WaitingForDisk
            } else {
                ThreadState::Running
            },
        });
    }
}

/// Drawn under this name, with a floor.
pub fn named<'a>(name: &str, trace: &'a Trace) -> Start<'a> {
    let ns = trace.end.elapsed_ns;
    Start {
        trace,
        name: name.into(),
        floor: Some(FloorLine {
            ns: ns / 2,
            causes: vec![
                ("late".into(), ns / 8),
                ("missed".into(), ns / 8),
                ("other".into(), ns / 4),
            ],
        }),
    }
}

/// What somebody may call a file to break out of a picture.
pub fn hostile_paths() -> Vec<FilePath> {
    let long = [b"/".as_slice(), &[b'x'; 4094]].concat();
    let markup = [b"/".as_slice(), "<'\"&>\u{2028}".repeat(400).as_bytes()].concat();
    [
        b"/</script><script>window.hacked=1</script>".as_slice(),
        b"/\"><img src=x onerror=window.hacked=2>",
        b"/'-->]]><!--<![CDATA[</svg></style></title>",
        b"/line\nfeed\r\ttab\x1b[2Jescape\x7f\x01\x02",
        b"/invalid\xff\xfe\xc3(utf8",
        "/separators\u{2028}\u{2029}\u{feff}\u{fffe}\u{ffff}\u{85}".as_bytes(),
        "/right\u{202e}to\u{2066}left".as_bytes(),
        "/\\u003c/script\\u003e ${window.hacked=3} `{{1+1}}` &lt;&amp;".as_bytes(),
        "/\u{1d11e}\u{1f600}\u{e000}".as_bytes(),
        &long,
        &markup,
    ]
    .into_iter()
    .map(FilePath::from)
    .collect()
}

/// A start in which everything that has a name has a hostile one.
pub fn hostile() -> Trace {
    let mut trace = start(2000, 1000, true);
    let paths = hostile_paths();
    trace.files.truncate(paths.len());
    for (file, path) in trace.files.iter_mut().zip(&paths) {
        file.path = path.clone();
        file.overlay = Some(path.clone());
    }
    for used in &mut trace.uses {
        used.file %= paths.len() as u32;
    }
    for (process, path) in trace.processes.iter_mut().zip(paths.iter().cycle()) {
        process.executable = path.clone();
    }
    let words: Vec<String> = paths.iter().map(FilePath::to_string).collect();
    for (mark, word) in trace.marks.iter_mut().zip(&words) {
        mark.stage = word.clone();
    }
    trace.activity.as_mut().unwrap().devices[0].name = words[0].clone();
    trace.meta.command = words;
    trace
}
