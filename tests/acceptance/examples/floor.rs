//! The least time any schedule of reads could take beside a start on a disk with one head, as the files lie.
//!
//! A start that has come to some point has had to read all it used before, at best in one pass in address
//! order (`t_io` of the lab), and what is left of it takes as long as it takes warm. The largest sum over all
//! points is a time that no order of reads, no hold and no pass can beat without moving files or changing the
//! program. Metadata is not counted, nor the start of headstart itself.
//!
//! `cargo run --release -p headstart-acceptance --example floor -- libreoffice seek5ms 8.1`
//! The last number is the time of a cold start, seconds (`headstart-lab bench`), to tell what share could be
//! recovered.

use anyhow::{Context, Result};
use headstart_acceptance::Case;
use headstart_lab::image::Fs;
use headstart_lab::model::{Extent, Model, t_io};
use headstart_model::Trace;
use headstart_system::extents::extents;
use std::collections::BTreeMap;

/// Warm starts, timed and recorded in turn.
const STARTS: usize = 5;

/// Bytes that the warm start used first at some time, seconds since the first use.
struct Used {
    at: f64,
    process: u32,
    extent: Extent,
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let workload = arguments
        .next()
        .context("which workload? libreoffice, python, …")?;
    let model = Model::load(
        &arguments
            .next()
            .context("on which disk model? seek5ms, disk, …")?,
    )?;
    let cold: Option<f64> = arguments.next().map(|s| s.parse()).transpose()?;

    let mut case = Case::new(&workload, Fs::Ext4)?;
    let program = case.machine.program();
    let (_, mounted) = case.cold(&program)?;
    // Of several starts the fastest: what other work on the machine adds is not the start's.
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("trace");
    let mut record = case.headstart(&["record", "-o"])?;
    record.extend([file.to_string_lossy().into_owned(), "--".into()]);
    record.extend(program.iter().cloned());
    let (mut warm, mut fastest) = (f64::MAX, None);
    for _ in 0..STARTS {
        forget(&case)?;
        warm = warm.min(case.machine.stage("start", &program)?.seconds);
        forget(&case)?;
        case.machine.stage("start", &record)?;
        let trace = Trace::from_bytes(&std::fs::read(&file)?)?;
        let longer = |best: &Trace| best.end.elapsed_ns > trace.end.elapsed_ns;
        if fastest.as_ref().is_none_or(longer) {
            fastest = Some(trace);
        }
    }
    let trace = fastest.context("nothing was recorded")?;
    let used = used(&case, &trace)?;
    let size = case.machine.size();
    drop(mounted);

    let elapsed = trace.end.elapsed_ns as f64 * 1e-9;
    println!(
        "{workload} on {}: warm {warm:.2} s, {elapsed:.2} s while recorded\n",
        model.name
    );
    println!("process           MB first used   first s    last s");
    for (process, (bytes, first, last)) in by_process(&used) {
        let path = &trace.processes[process as usize].executable;
        let name = path.to_string().rsplit('/').next().unwrap_or_default().to_owned();
        println!("{name:<16} {:>14.1} {first:>9.3} {last:>9.3}", bytes as f64 / 1e6);
    }
    println!("\nup to s        MB   to read s   then s     sum");
    let steps = 200;
    let mut floor = (0.0, 0.0);
    for step in 0..=steps {
        let point = elapsed * f64::from(step) / f64::from(steps);
        let before: Vec<Extent> = used.iter().filter(|u| u.at <= point).map(|u| u.extent).collect();
        let read = t_io(&before, &model, size).as_secs_f64();
        let sum = read + elapsed - point;
        if step % 10 == 0 || sum > floor.0 {
            let bytes: u64 = before.iter().map(|e| e.length).sum();
            println!(
                "{point:>7.3} {:>9.1} {read:>11.2} {:>8.2} {sum:>7.2}",
                bytes as f64 / 1e6,
                elapsed - point
            );
        }
        if sum > floor.0 {
            floor = (sum, point);
        }
    }
    println!(
        "\nfloor: {:.2} s, for what is used in the first {:.3} s",
        floor.0, floor.1
    );
    if let Some(cold) = cold {
        let share = |with: f64| (cold - with) / (cold - warm) * 100.0;
        println!(
            "R at the floor: {:.1} %; R = 85 % would be {:.2} s",
            share(floor.0),
            0.15 * cold + 0.85 * warm
        );
    }
    Ok(())
}

/// Removes what a start left behind, so that the next is a first one too.
fn forget(case: &Case) -> Result<()> {
    let tmp = case.machine.root().join("tmp");
    for entry in std::fs::read_dir(&tmp)? {
        let path = entry?.path();
        match path.is_dir() {
            true => std::fs::remove_dir_all(path)?,
            false => std::fs::remove_file(path)?,
        }
    }
    Ok(std::fs::create_dir(tmp.join("home"))?)
}

/// Every page once, when it was first used, and where it lies.
fn used(case: &Case, trace: &Trace) -> Result<Vec<Used>> {
    let root = case.machine.root();
    let begun = trace.uses.iter().map(|u| u.time_ns).min().unwrap_or(0);
    let page = u64::from(trace.meta.page_size);
    let mut first: BTreeMap<(u32, u64), (u64, u32)> = BTreeMap::new();
    for u in &trace.uses {
        for number in u.start..u.start + u64::from(u.pages) {
            let known = first.entry((u.file, number)).or_insert((u.time_ns, u.process));
            *known = (*known).min((u.time_ns, u.process));
        }
    }
    let mut places = BTreeMap::new();
    let mut used = Vec::new();
    for ((file, number), (time_ns, process)) in first {
        let path = trace.files[file as usize].path.as_path();
        if !path.starts_with(&root) {
            continue;
        }
        // What the start made and removed again lies on a tmpfs.
        let places = places.entry(file).or_insert_with(|| {
            std::fs::File::open(path)
                .ok()
                .and_then(|f| extents(f).ok())
                .unwrap_or_default()
        });
        let at = number * page;
        let place = places
            .iter()
            .find(|e| e.logical <= at && at < e.logical + e.length);
        if let Some(place) = place {
            used.push(Used {
                at: (time_ns - begun) as f64 * 1e-9,
                process,
                extent: Extent {
                    offset: place.physical + at - place.logical,
                    length: page,
                },
            });
        }
    }
    Ok(used)
}

/// Bytes first used by each process, and when the first and the last of them were.
fn by_process(used: &[Used]) -> BTreeMap<u32, (u64, f64, f64)> {
    let mut processes = BTreeMap::new();
    for u in used {
        let (bytes, first, last) = processes.entry(u.process).or_insert((0, f64::MAX, 0.0f64));
        *bytes += u.extent.length;
        *first = f64::min(*first, u.at);
        *last = f64::max(*last, u.at);
    }
    processes
}
