//! A trace as text. Its JSON document is [`Trace`] itself.

use crate::ROWS;
use crate::human::{bytes, date, duration, pages, percent, printable, ranges, status};
use crate::table::{Table, Written, facts, section};
use headstart_model::trace::{EndReason, UseKind};
use headstart_model::{Activity, PageSet, Trace};
use std::fmt;

/// The trace, of a file of so many bytes, for people.
pub fn text(trace: &Trace, file_bytes: usize, list_pages: bool) -> impl fmt::Display {
    let sets = trace.used_pages();
    let mut out = facts_text(trace, file_bytes, &sets);
    out += &section("By kind of use", &kinds(trace));
    out += &section("Processes", &processes(trace));
    out += &section("Files by pages used", &files(trace, &sets));
    let mut stages = Table::new(&[">at", "stage"]);
    for mark in &trace.marks {
        stages.row([duration(mark.time_ns), mark.stage.clone()]);
    }
    out += &section("Stages", &stages);
    Written(move |f: &mut fmt::Formatter<'_>| {
        f.write_str(&out)?;
        if !list_pages {
            return Ok(());
        }
        writeln!(f, "\nPages")?;
        for (file, set) in trace.files.iter().zip(&sets) {
            writeln!(
                f,
                "{}  {}",
                printable(&file.path.to_string()),
                ranges(set.ranges())
            )?;
        }
        Ok(())
    })
}

/// The facts of a trace whose files have the used pages `sets`.
fn facts_text(trace: &Trace, file_bytes: usize, sets: &[PageSet]) -> String {
    let page = trace.meta.page_size;
    let total: u64 = sets.iter().map(PageSet::pages).sum();
    let end = match trace.end.reason {
        EndReason::Exit(code) => format!("the command ended, {}", status(code)),
        EndReason::Quiet => "it fell quiet".into(),
        EndReason::Limit => "the time limit".into(),
        EndReason::Interrupted => "interrupted".into(),
    };
    facts(
        [
            ("trace of", command(&trace.meta.command)),
            (
                "taken",
                format!(
                    "{} on Linux {}",
                    date(trace.meta.started_unix_ns),
                    trace.meta.kernel
                ),
            ),
            (
                "by",
                format!(
                    "{:?} back-end, evidence {:?}, scope {:?}, {}{}",
                    trace.meta.backend,
                    trace.meta.evidence,
                    trace.meta.scope,
                    trace.meta.recorder,
                    if trace.meta.replayed {
                        ", beside a replay"
                    } else {
                        ""
                    }
                ),
            ),
            (
                "lasted",
                format!("{}; ended by: {end}", duration(trace.end.elapsed_ns)),
            ),
            (
                "blocked on disks",
                trace.end.blocked_ns.map_or("not known".into(), duration),
            ),
            (
                "lost",
                format!(
                    "{} events, {} paths; {} uses, look-ups and metadata misses left out{}",
                    trace.lost.events,
                    trace.lost.paths,
                    trace.lost.dropped,
                    if trace.lost.late { "; it began late" } else { "" }
                ),
            ),
            (
                "used",
                format!(
                    "{} in {} files, {} first uses",
                    pages(total, page),
                    trace.files.len(),
                    trace.all_uses().count()
                ),
            ),
            ("looked up", lookups(trace)),
            ("metadata", metadata(trace)),
        ]
        .into_iter()
        .chain(
            trace
                .activity
                .iter()
                .map(|recorded| ("activity", activity(recorded))),
        )
        .chain([
            ("file", size(trace, file_bytes)),
            (
                "teaches",
                trace
                    .unfit()
                    .map_or("yes".into(), |reason| format!("nothing: {reason}")),
            ),
        ]),
    )
}

fn size(trace: &Trace, file_bytes: usize) -> String {
    let each = |rows: usize| file_bytes as f64 / rows.max(1) as f64;
    format!(
        "{}: {:.2} bytes for each of {} events received, {:.2} for each of {} entries kept",
        bytes(file_bytes as u64),
        each(usize::try_from(trace.end.events).unwrap_or(usize::MAX)),
        trace.end.events,
        each(trace.kept()),
        trace.kept()
    )
}

fn command(words: &[String]) -> String {
    match words.is_empty() {
        true => "a boot".into(),
        false => words.join(" "),
    }
}

fn lookups(trace: &Trace) -> String {
    let missing = trace.lookups.iter().filter(|lookup| !lookup.found).count();
    format!("{} paths, {missing} of them not there", trace.lookups.len())
}

fn metadata(trace: &Trace) -> String {
    let total: u64 = trace.metadata.iter().map(|miss| u64::from(miss.pages)).sum();
    format!(
        "{} read in {} places",
        pages(total, trace.meta.page_size),
        trace.metadata.len()
    )
}

fn activity(activity: &Activity) -> String {
    format!(
        "{} block requests, {} slices of threads, {} samples{}",
        activity.requests.len(),
        activity.slices.len(),
        activity.processors.len() + activity.memory.len(),
        match activity.lost {
            0 => String::new(),
            lost => format!("; {lost} lost"),
        }
    )
}

fn kinds(trace: &Trace) -> Table {
    let mut table = Table::new(&["kind", ">uses", ">pages"]);
    for (kind, name) in [
        (UseKind::Read, "read"),
        (UseKind::Map, "mapped around a fault"),
        (UseKind::Fault, "fault"),
        (UseKind::Around, "mapped around a known fault"),
        (UseKind::Add, "entered the cache"),
    ] {
        let of_kind = || trace.all_uses().filter(|used| used.kind == kind);
        if of_kind().next().is_some() {
            let sum: u64 = of_kind().map(|used| u64::from(used.pages)).sum();
            table.row([
                name.to_string(),
                of_kind().count().to_string(),
                pages(sum, trace.meta.page_size),
            ]);
        }
    }
    table
}

fn processes(trace: &Trace) -> Table {
    let mut sums = vec![0u64; trace.processes.len()];
    for used in trace.all_uses() {
        if let Some(sum) = sums.get_mut(used.process as usize) {
            *sum += u64::from(used.pages);
        }
    }
    let mut order: Vec<usize> = (0..sums.len()).collect();
    order.sort_unstable_by_key(|i| (std::cmp::Reverse(sums[*i]), *i));
    let mut table = Table::new(&[">pid", ">began", ">first uses", "executable"]);
    for index in order.into_iter().take(ROWS) {
        let process = &trace.processes[index];
        table.row([
            process.pid.to_string(),
            duration(process.start_ns),
            pages(sums[index], trace.meta.page_size),
            process.executable.to_string(),
        ]);
    }
    table
}

fn files(trace: &Trace, sets: &[PageSet]) -> Table {
    let mut order: Vec<usize> = (0..sets.len()).collect();
    order.sort_unstable_by_key(|i| (std::cmp::Reverse(sets[*i].pages()), *i));
    let mut table = Table::new(&[">used", ">of file", ">size", ">ranges", "file"]);
    for index in order.into_iter().take(ROWS) {
        let (file, set) = (&trace.files[index], &sets[index]);
        let used = set.pages().saturating_mul(u64::from(trace.meta.page_size));
        table.row([
            bytes(used),
            percent(used.min(file.size), file.size),
            bytes(file.size),
            set.ranges().len().to_string(),
            file.path.to_string(),
        ]);
    }
    table
}
