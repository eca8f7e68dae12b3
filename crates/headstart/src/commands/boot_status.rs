//! `headstart boot status`: a dozen lines, or all of it as JSON.

use super::status;
use crate::context::Output;
use anyhow::Result;
use headstart_boot::last::{Last, Place};
use headstart_boot::{boot_id, install, key};
use headstart_model::Outcome;
use headstart_model::outcome::Mode;
use headstart_report::human::{bytes, duration, pages, percent, printable};
use headstart_report::outcome::{skipped, total};
use headstart_report::status::{KeyStatus, verdict};
use headstart_report::table::facts;
use headstart_store::{KeyDir, Store};
use rustix::fs::{Access, access};
use rustix::io::Errno;
use serde::Serialize;
use std::path::Path;

/// The document.
#[derive(Serialize)]
struct BootStatus {
    /// Whether the next boot is served.
    enabled: bool,
    /// Whether the next boot is read ahead.
    next_replayed: bool,
    /// Why it is not.
    next_not_replayed: Option<String>,
    /// Whether this boot is bypassed.
    bypassed: bool,
    /// This boot, or the last one that could keep anything.
    last: Option<Last>,
    /// What is known of boots, and the outcomes of the last ones.
    known: KeyStatus,
}

pub fn run(store: &Store, root: Option<&Path>, form: Output) -> Result<()> {
    let kept = store.key(&key()?);
    let known = status::of(&kept);
    let (enabled, last) = (install::is_enabled(root), Last::read(&kept));
    let next = if enabled {
        why_not_next(store, &kept, &known, last.as_ref())
    } else {
        Some("it is not enabled: `headstart boot enable`".into())
    };
    let of_this_boot = last.as_ref().is_some_and(|last| last.boot_id == boot_id());
    let status = BootStatus {
        enabled,
        next_replayed: next.is_none(),
        next_not_replayed: next,
        bypassed: root.is_none() && enabled && known.bypass.is_some() && !of_this_boot,
        last,
        known,
    };
    form.print(&status, || text(&status))
}

/// Why the next boot is not read ahead, as far as is known now.
fn why_not_next(store: &Store, kept: &KeyDir, known: &KeyStatus, last: Option<&Last>) -> Option<String> {
    let state = store.root();
    if let Err(Errno::ROFS) = access(state, Access::WRITE_OK) {
        return Some(format!(
            "the guard against failing boots is in {}, which is on a read-only file system",
            state.display()
        ));
    }
    if known.plan.is_none() {
        return Some("nothing is known yet of what a boot needs".into());
    }
    if let Some(bypass) = &known.bypass {
        return Some(format!("boots are bypassed: {}", bypass.text()));
    }
    if kept.is_armed() {
        return None;
    }
    let ended = last.is_some_and(|last| last.ended.is_some());
    Some(if ended {
        "the guard against failing boots is not set, see the notes; the next boot that comes to its end sets it".into()
    } else {
        "this boot, which was read ahead, has not come to its end yet".into()
    })
}

fn text(status: &BootStatus) -> String {
    let page_size = status
        .known
        .profile
        .as_ref()
        .map_or(4096, |profile| profile.page_size);
    let mut lines = vec![("enabled", if status.enabled { "yes" } else { "no" }.to_owned())];
    if status.bypassed {
        lines.push(("this boot", "is bypassed".into()));
    }
    if let Some(last) = &status.last {
        lines.extend(of_last(last));
    }
    if let Some(profile) = &status.known.profile {
        let known = format!(
            "{} in {} paths, from {} boots",
            pages(profile.pages, page_size),
            profile.paths,
            profile.runs
        );
        lines.push(("known", known));
    }
    let replay = |outcome: &&Outcome| outcome.mode == Mode::Replay;
    if let Some(outcome) = status.known.outcomes.iter().rfind(replay) {
        lines.extend(of_replay(outcome, page_size));
    }
    lines.push(("gained", verdict(&status.known.comparison)));
    let next = match &status.next_not_replayed {
        None => "is read ahead".into(),
        Some(why) => format!("is not read ahead: {why}"),
    };
    lines.push(("next boot", next));
    for note in status.last.iter().flat_map(|last| &last.notes) {
        lines.push(("note", printable(note)));
    }
    facts(lines)
}

fn of_last(last: &Last) -> Vec<(&'static str, String)> {
    let read = match &last.not_replayed {
        None => "read ahead".into(),
        Some(why) => format!("not read ahead: {}", printable(why)),
    };
    let recorded = match &last.recorder {
        Some(recorder) => format!("recorded ({recorder})"),
        None => "not recorded".into(),
    };
    let place = match last.from {
        Place::Initramfs => ", from the initramfs on",
        Place::Init => ", from before process 1 on",
        Place::Unit => ", from the first unit on",
    };
    let writable = if last.made_writable {
        ", with the root made writable for it"
    } else {
        ""
    };
    let mut lines = vec![("last boot", format!("{read}; {recorded}{place}{writable}"))];
    let stage = |(name, at): &(String, u64)| format!("{} {}", printable(name), duration(*at));
    let stages = last.stages.iter().map(stage).collect::<Vec<_>>().join(", ");
    let took = last.took_ns.map_or("not known".into(), duration);
    lines.push(("took", format!("{took} ({stages})")));
    lines.push(match (&last.ended, &last.not_learned) {
        (None, _) => ("ended", "not yet".into()),
        (Some(how), None) => ("ended", format!("{how}; learned")),
        (Some(how), Some(why)) => ("ended", format!("{how}; taught nothing: {}", printable(why))),
    });
    lines
}

fn of_replay(outcome: &Outcome, page_size: u32) -> Vec<(&'static str, String)> {
    let all = total(outcome);
    let size = |count| pages(count, page_size);
    let left_out = match outcome.skipped.total() {
        0 => String::new(),
        _ => format!("; skipped: {}", skipped(&outcome.skipped)),
    };
    let metadata = bytes(all.metadata_pages.saturating_mul(u64::from(page_size)));
    vec![
        (
            "prefetched",
            format!(
                "{} in {} requests, {metadata} of metadata in {}, in {}{left_out}",
                size(all.issued_pages.saturating_sub(all.resident_pages)),
                all.data_requests,
                all.metadata_requests,
                duration(outcome.replay_ns)
            ),
        ),
        (
            "used",
            format!("{} in time, {} late", size(all.used_pages), size(all.late_pages)),
        ),
        (
            "wasted",
            format!(
                "{} ({}), {} bridged",
                size(all.wasted_pages),
                percent(all.wasted_pages, all.issued_pages),
                size(all.bridged_pages)
            ),
        ),
        ("missed", size(all.missed_pages)),
    ]
}
