//! What it costs to ask how much of a plan is in memory.
//!
//! ```text
//! cargo run --release -p headstart-replay --example sample -- /usr/lib 330
//! ```
//!
//! Takes that many files of a directory, plans two requests for most of them, reads them all, and asks a thousand
//! times; then once for each of ten times that the kernel was made to forget. Needs root.

use headstart_model::machine::{Cost, DeviceClass};
use headstart_model::plan::{PlanDevice, PlanDraft, PlanFile, PlanFileEntry, Request, RequestKind};
use headstart_model::{FilePath, Key};
use headstart_system::mounts::MountTable;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, count] = &arguments[..] else {
        return Err("sample DIRECTORY FILES".into());
    };
    let mut files = Vec::new();
    collect(Path::new(directory), count.parse()?, &mut files)?;
    let file = PlanFile::new(draft(&files)?.to_bytes()?);
    let plan = file.plan()?;
    for path in &files {
        std::fs::read(path)?;
    }
    let mut times: Vec<Duration> = (0..1000).map(|_| timed(&plan).0).collect();
    times.sort_unstable();
    println!(
        "{} files, {} requests; warm: median {:.0?}, 99 % within {:.0?}: {:?}",
        files.len(),
        plan.request_count(),
        times[500],
        times[990],
        timed(&plan).1
    );
    for _ in 0..10 {
        std::fs::write("/proc/sys/vm/drop_caches", "3")?;
        let (took, found) = timed(&plan);
        println!("cold: {took:.0?}: {found:?}");
    }
    Ok(())
}

fn timed(plan: &headstart_model::plan::Plan<'_>) -> (Duration, headstart_replay::Resident) {
    let before = Instant::now();
    let mounts = MountTable::read().unwrap_or_default();
    let found = headstart_replay::sample(plan, &headstart_replay::Costs::of(plan), &mounts, 40, 0).resident;
    (before.elapsed(), found)
}

fn collect(directory: &Path, count: usize, files: &mut Vec<PathBuf>) -> Result<(), Failure> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if files.len() == count {
            break;
        } else if kind.is_dir() {
            collect(&entry.path(), count, files)?;
        } else if kind.is_file() && entry.metadata()?.len() > 0 {
            files.push(entry.path());
        }
    }
    Ok(())
}

fn draft(files: &[PathBuf]) -> Result<PlanDraft, Failure> {
    let cost = Cost {
        class: DeviceClass::Disk,
        bandwidth: 1e8,
        latency: 1e-3,
        depth: 1,
    };
    let mut draft = PlanDraft {
        budget: 1 << 30,
        devices: vec![PlanDevice::new(FilePath::from("/"), cost)],
        ..PlanDraft::new(Key::new("sample")?, rustix::param::page_size() as u32)
    };
    for (index, path) in files.iter().enumerate() {
        let found = std::fs::symlink_metadata(path)?;
        let file = index as u32;
        draft.files.push(PlanFileEntry {
            path: path.as_path().into(),
            device: 0,
            inode: found.ino(),
            generation: 0,
            size: found.len(),
            mtime_ns: found.mtime() * 1_000_000_000 + found.mtime_nsec(),
        });
        let half = found.len() / 2;
        let halves = if half > 8192 {
            vec![(0, half), (half, half)]
        } else {
            vec![(0, found.len())]
        };
        for (offset, length) in halves {
            draft.requests.push(Request {
                offset,
                deadline_us: file,
                ..Request::new(RequestKind::Data, file, length)
            });
        }
        draft.requests.push(Request::new(RequestKind::Stat, file, 0));
    }
    draft.cut = draft.requests.len() as u32;
    Ok(draft)
}
