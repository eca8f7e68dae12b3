//! A small sound file of each kind as DIR/KIND/seed, and the same with nothing compressed, for the fuzzers to
//! begin from: few changes of a compressed section leave anything to decode. The target `structured` begins
//! from all, and writes them, for it uses all kinds.

use headstart_model::format::{Container, Kind, Writer};
use headstart_model::machine::FirstTouch;
use headstart_model::outcome::{Mode, Resident, StageOutcome};
use headstart_model::plan::{Fill, NO_FILE, Request, RequestKind, Touch};
use headstart_model::profile::Entry;
use headstart_model::profile_set::{Owner, Package};
use headstart_model::testing::{
    DISK, activity, draft, entry, file, key, lookup, planned, profile, range, trace, used,
};
use headstart_model::trace::{Ahead, Mapping, Mark, MetadataMiss, UseKind};
use headstart_model::{Outcome, PageRange, Profile, ProfileSet, WindowUse};
use std::path::Path;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn a_trace() -> Result<Vec<u8>> {
    let mut it = trace();
    it.files = vec![file("/usr/bin/true"), file("/usr/lib/libc.so.6")];
    it.files[1].overlay = Some("/merged/libc.so.6".into());
    it.mappings = vec![Mapping {
        file: 0,
        pages: PageRange::new(2, 9),
    }];
    it.uses = vec![used(0, 0, 0, 2), used(7, 0, 7, 2), used(9, 1, 3, 2)];
    it.uses[1].kind = UseKind::Map;
    it.uses[2].kind = UseKind::Fault;
    it.windows = WindowUse::of(&used(4, 1, 250, 9)).collect();
    it.windows[1].kind = UseKind::Fault;
    it.lookups = vec![lookup(2, "/etc"), lookup(3, "/etc/ld.so.preload")];
    it.lookups[1].found = false;
    it.metadata = vec![MetadataMiss {
        time_ns: 1,
        major: 8,
        minor: 1,
        start: 40,
        pages: 1,
    }];
    it.marks = vec![Mark {
        time_ns: 1,
        stage: "login".into(),
    }];
    it.activity = Some(activity());
    let ahead = |file, start| Ahead {
        file,
        start,
        pages: 8,
        issued_ns: 1_000_000,
        done_ns: 3_000_000,
    };
    it.ahead = Some(vec![ahead(0, 0), ahead(0, 64)]);
    Ok(it.to_bytes()?)
}

fn a_profile() -> Result<Vec<u8>> {
    let first = Entry {
        overlay: Some("/merged/true".into()),
        ranges: vec![range(0, 3, 0.7), range(9, 3, 0.7)],
        ..entry("/usr/bin/true")
    };
    let second = Entry {
        version: None,
        ..entry("/usr/share")
    };
    let mut it = profile(vec![first, second]);
    it.cpu_ns = Some(7);
    it.timeline_ns = 9;
    Ok(it.to_bytes()?)
}

/// Two keys that share a file, of a package.
fn a_set() -> Result<Vec<u8>> {
    let mut set = ProfileSet::default();
    for name in ["/usr/bin/true", "boot"] {
        let file = Entry {
            ranges: vec![range(0, 3, 0.7), range(9, 3, 0.7)],
            tail: Some(vec![range(0, 1, 0.7)]),
            touches: Some(Default::default()),
            ..entry("/usr/bin/true")
        };
        let directory = Entry {
            version: None,
            ..entry("/usr/share")
        };
        set.add(Profile {
            key: key(name),
            cpu_ns: Some(7),
            timeline_ns: 9,
            ..profile(vec![file, directory])
        })?;
    }
    set.packages.push(Package {
        name: "coreutils".into(),
        version: "9.1-1".into(),
    });
    let version = set.profiles()[0].entries[0].version.ok_or("it is a file")?;
    let owner = Owner {
        size: version.size,
        package: 0,
    };
    set.owners.insert("/usr/bin/true".into(), owner);
    Ok(set.to_bytes()?)
}

fn a_plan() -> Result<Vec<u8>> {
    let metadata = Request {
        offset: 4096,
        ..Request::new(RequestKind::Metadata, NO_FILE, 4096)
    };
    let requests = vec![
        metadata,
        Request::new(RequestKind::Stat, 0, 0),
        Request::new(RequestKind::Data, 0, 4904),
    ];
    let mut it = draft(DISK, vec![planned("/usr/bin/true")], requests);
    it.fills = vec![Fill {
        device: 0,
        first_touch: FirstTouch {
            granule: 512 << 10,
            latency: 0.033,
            depth: 10,
        },
        touches: vec![Touch {
            offset: 0,
            request: 0,
        }],
    }];
    Ok(it.to_bytes()?)
}

fn an_outcome() -> Result<Vec<u8>> {
    let mut it = Outcome::new(key("k"), Mode::Replay);
    it.status = Some(0);
    it.blocked_ns = Some(1);
    it.resident_before = Some(Resident::default());
    it.stages = vec![StageOutcome {
        stage: "start".into(),
        issued_pages: 4,
        ..StageOutcome::default()
    }];
    it.memory_pressure = Some(0.5);
    it.not_learned = Some("3 events were lost".into());
    Ok(it.to_bytes()?)
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

/// Where the environment names a directory for them, writes the seeds there and ends the process.
pub fn write_if_asked() {
    if let Some(dir) = std::env::var_os("HEADSTART_FUZZ_SEEDS") {
        let written = write(Path::new(&dir));
        if let Err(error) = &written {
            eprintln!("the seeds cannot be written: {error}");
        }
        std::process::exit(i32::from(written.is_err()));
    }
}

fn write(dir: &Path) -> Result<()> {
    for (name, bytes) in [
        ("trace", a_trace()?),
        ("profile", a_profile()?),
        ("profiles", a_set()?),
        ("plan", a_plan()?),
        ("outcome", an_outcome()?),
    ] {
        let kind = Kind::detect(&bytes).ok_or("a seed has no magic")?;
        for (at, file) in [
            (dir.join(name), "seed".to_string()),
            (dir.join("structured"), name.to_string()),
        ] {
            std::fs::create_dir_all(&at)?;
            std::fs::write(at.join(&file), &bytes)?;
            std::fs::write(at.join(format!("{file}-unpacked")), unpacked(kind, &bytes)?)?;
        }
    }
    Ok(())
}
