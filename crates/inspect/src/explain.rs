//! Why a path is prefetched for a key, or why not.

use crate::human::{bytes, duration, printable, ranges, weight};
use crate::plan::RequestView;
use crate::table::facts;
use headstart_model::plan::{Plan, RequestKind};
use headstart_model::profile::{Entry, Version};
use headstart_model::{FilePath, PageSet, Profile};
use serde::Serialize;

/// What is at the path now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Now {
    /// A regular file.
    File {
        /// Size in bytes.
        size: u64,
        /// Modification time, nanoseconds since 1970.
        mtime_ns: i64,
        /// Inode number.
        inode: u64,
        /// Inode generation, 0 where unknown.
        generation: u32,
    },
    /// A directory.
    Directory,
    /// Something that is never read: a device, a socket, a FIFO.
    Special,
    /// Nothing.
    Missing,
    /// Not to be found out, and why.
    Unknown(String),
}

/// Why a path is prefetched for a key, or why not.
#[derive(Debug, Serialize)]
pub struct Explanation {
    /// The key.
    pub key: String,
    /// The path asked about.
    pub path: FilePath,
    /// Whether the next start prefetches something of it.
    pub prefetched: bool,
    /// Why, or why not.
    pub because: String,
    /// What is at the path now.
    pub now: Now,
    /// Whether another version of the file is there than the one learned; null where there is nothing to
    /// compare.
    pub changed: Option<bool>,
    /// Whether it changed and is the same file still: it grew or was written, and is read ahead all the same.
    pub written: bool,
    /// Runs the profile was learned from.
    pub runs: u32,
    /// The weight that is enough.
    pub threshold: f32,
    /// The file that the profile was imported from; null where starts here have taught it.
    pub imported: Option<String>,
    /// What the profile knows of it.
    pub entry: Option<Entry>,
    /// The plan's requests for it, by their index.
    pub requests: Vec<(usize, RequestView)>,
    /// Requests before this index are issued.
    pub cut: usize,
}

/// What is known about a path under a key.
pub struct Known<'a> {
    /// The key.
    pub key: &'a str,
    /// Its profile.
    pub profile: Option<&'a Profile>,
    /// Its plan.
    pub plan: Option<&'a Plan<'a>>,
    /// What is at the path now.
    pub now: Now,
    /// The exclusion that the path falls under.
    pub excluded: Option<&'a str>,
    /// How many uses and look-ups the key's newest trace does not tell of.
    pub untold: u64,
}

/// Explains.
pub fn explain(path: &FilePath, known: Known<'_>) -> Explanation {
    let entry = known.profile.and_then(|profile| {
        let by_path = profile
            .entries
            .binary_search_by(|entry| entry.path.cmp(path))
            .ok();
        let by_overlay = || {
            profile
                .entries
                .iter()
                .position(|entry| entry.overlay.as_ref() == Some(path))
        };
        profile.entries.get(by_path.or_else(by_overlay)?).cloned()
    });
    let names: Vec<&FilePath> = match &entry {
        Some(entry) => std::iter::once(&entry.path)
            .chain(entry.overlay.as_ref())
            .collect(),
        None => vec![path],
    };
    let mut requests = Vec::new();
    let mut planned = None;
    if let Some(plan) = known.plan {
        for (index, request) in plan.requests().enumerate() {
            let of_file = request.kind != RequestKind::Metadata
                && plan
                    .path(request.file as usize)
                    .is_some_and(|p| names.iter().any(|n| n.as_bytes() == p));
            if of_file {
                requests.push((index, RequestView::from(&request)));
                planned = planned.or_else(|| plan.file(request.file as usize));
            }
        }
    }
    let learned = entry.as_ref().and_then(|entry| entry.version);
    let of_plan = planned.as_ref().map(|file| file.inode);
    let planned = planned.map(|f| Version {
        size: f.size,
        mtime_ns: f.mtime_ns,
        generation: f.generation,
    });
    let (changed, written) = change(&known.now, planned.or(learned), of_plan);
    let mut explanation = Explanation {
        key: known.key.into(),
        path: path.clone(),
        prefetched: false,
        because: String::new(),
        now: known.now,
        changed,
        written,
        runs: known.profile.map_or(0, |profile| profile.runs),
        threshold: known.profile.map_or(0.0, |profile| profile.policy.threshold()),
        imported: None,
        entry,
        requests,
        cut: known.plan.map_or(0, |plan| plan.cut()),
    };
    let what = (known.profile.is_some(), known.plan.is_some());
    let why_not = (known.excluded, known.untold);
    (explanation.prefetched, explanation.because) = reason(&explanation, what, why_not);
    explanation
}

/// Whether a path is not what it was when it was learned or planned, if that is known, and whether it is the
/// same file still, written in place. `planned_inode` is the inode that the plan has.
fn change(now: &Now, before: Option<Version>, planned_inode: Option<u64>) -> (Option<bool>, bool) {
    match (now, before) {
        (
            Now::File {
                size,
                mtime_ns,
                inode,
                generation,
            },
            Some(old),
        ) => {
            let now = Version {
                size: *size,
                mtime_ns: *mtime_ns,
                generation: *generation,
            };
            let changed = (*size, *mtime_ns) != (old.size, old.mtime_ns);
            let same = old.same_file(&now) && planned_inode.is_none_or(|planned| planned == *inode);
            (Some(changed), changed && same)
        }
        (Now::Missing, Some(_)) => (Some(true), false),
        _ => (None, false),
    }
}

/// The first reason that decides.
fn reason(
    explanation: &Explanation,
    (profile, plan): (bool, bool),
    (excluded, untold): (Option<&str>, u64),
) -> (bool, String) {
    let no = |why: String| (false, why);
    let Some(entry) = &explanation.entry else {
        let is_issued = |(index, _): &(usize, RequestView)| *index < explanation.cut;
        if explanation.requests.iter().any(is_issued) {
            let why = "it lies on the way to what is needed: the plan looks it up";
            return (true, why.into());
        }
        return no(match (excluded, profile) {
            (Some(excluded), _) => format!("{excluded} is excluded: nothing below it is learned"),
            (None, true) if untold > 0 => format!(
                "none of the {} runs that were learned from is known to have used it, and the newest trace does not \
                tell of {untold} uses and look-ups: there were more than it has room for, or they had no path",
                explanation.runs
            ),
            (None, true) => format!(
                "none of the {} runs that were learned from used it",
                explanation.runs
            ),
            (None, false) => "nothing was learned yet: it takes one whole start".into(),
        });
    };
    let best = entry
        .ranges
        .iter()
        .map(|range| range.weight)
        .fold(entry.weight, f32::max);
    if best < explanation.threshold {
        return no(format!(
            "too few runs used it: its weight is {}, {} is needed",
            weight(best),
            weight(explanation.threshold)
        ));
    }
    if !plan {
        return no("there is no plan yet: it is made after the next start".into());
    }
    if explanation.requests.is_empty() {
        return no(match explanation.now {
            Now::Missing => "nothing is there".into(),
            Now::Special => "it is no regular file or directory".into(),
            _ => "the plan needs no request for it: it was not there, not on a local file system, or its metadata is \
                  read with its neighbours'"
                .into(),
        });
    }
    let issued: Vec<&RequestView> = explanation
        .requests
        .iter()
        .filter(|(index, _)| *index < explanation.cut)
        .map(|(_, request)| request)
        .collect();
    if issued.is_empty() {
        return no("it lies beyond the memory budget of the plan".into());
    }
    if explanation.changed == Some(true) && !explanation.written {
        return no(
            "another file is there since the plan was made: its requests are skipped until the next start"
                .into(),
        );
    }
    let sum = issued
        .iter()
        .fold(0u64, |sum, request| sum.saturating_add(request.length));
    (
        true,
        format!("{} requests read {} of it", issued.len(), bytes(sum)),
    )
}

/// The most weights and the most requests that are told to people: a plan may have a hundred thousand for one
/// path.
const SHOWN: usize = 200;

/// The explanations for people in a line each.
pub fn lines(explanations: &[Explanation]) -> String {
    facts(explanations.iter().map(|explanation| {
        let prefetched = if explanation.prefetched { "yes" } else { "no" };
        let imported = explanation.imported.iter();
        let from: String = imported
            .map(|from| format!(", imported from {}", printable(from)))
            .collect();
        (
            prefetched,
            format!("{}: {}{from}", explanation.key, explanation.because),
        )
    }))
}

/// The whole explanation for people.
pub fn text(explanation: &Explanation) -> String {
    let now = match &explanation.now {
        Now::File { size, .. } => format!("a file of {}", bytes(*size)),
        Now::Directory => "a directory".into(),
        Now::Special => "neither file nor directory".into(),
        Now::Missing => "nothing".into(),
        Now::Unknown(why) => why.clone(),
    };
    let mut lines = vec![
        ("key", explanation.key.clone()),
        (
            "prefetched",
            format!(
                "{}: {}",
                if explanation.prefetched { "yes" } else { "no" },
                explanation.because
            ),
        ),
        ("now", now),
    ];
    let imported = explanation.imported.iter();
    lines.extend(imported.map(|from| {
        (
            "learned",
            format!("elsewhere, and imported from {}", printable(from)),
        )
    }));
    match explanation.changed {
        Some(true) if explanation.written => {
            let why = "yes, in place: it is the same file, and read all the same";
            lines.push(("changed", why.into()));
        }
        Some(true) => lines.push(("changed", "yes, since it was learned or planned".into())),
        Some(false) => lines.push(("changed", "no".into())),
        None => {}
    }
    if let Some(entry) = &explanation.entry {
        lines.extend(learned(entry, explanation));
    }
    for (index, request) in explanation.requests.iter().take(SHOWN) {
        let beyond = if *index < explanation.cut {
            ""
        } else {
            ", beyond the budget"
        };
        lines.push((
            "request",
            format!(
                "#{index} {} {} at {}{beyond}",
                request.kind,
                bytes(request.length),
                request.offset
            ),
        ));
    }
    if let Some(more @ 1..) = explanation.requests.len().checked_sub(SHOWN) {
        lines.push(("request", format!("and {more} more: --json has them all")));
    }
    facts(lines)
}

/// What is learned of the path.
fn learned(entry: &Entry, explanation: &Explanation) -> Vec<(&'static str, String)> {
    let mut lines = vec![
        (
            "weight",
            format!(
                "{} of {} runs; {} is enough",
                weight(entry.weight),
                explanation.runs,
                weight(explanation.threshold)
            ),
        ),
        ("needed for", format!("{:?}", entry.need).to_lowercase()),
        (
            "first used",
            format!("{} after the start", duration(entry.first_use_ns)),
        ),
    ];
    if let Some(overlay) = &entry.overlay {
        lines.push(("through", overlay.to_string()));
    }
    let by_weight = crate::profile::by_weight(entry);
    let more = by_weight.len().saturating_sub(SHOWN);
    for (bits, set) in by_weight.into_iter().take(SHOWN) {
        lines.push((
            "pages",
            format!(
                "{} with weight {}",
                ranges(set.ranges()),
                weight(f32::from_bits(bits))
            ),
        ));
    }
    if more > 0 {
        lines.push((
            "pages",
            format!("and {more} lighter weights: --json has them all"),
        ));
    }
    if let Some(touches) = &entry.touches {
        let voted = entry.voted(explanation.threshold);
        let voted_pages = |set: &PageSet| voted.intersection(set).pages();
        let (touched, unused) = (voted_pages(&touches.touched), voted_pages(&touches.unused));
        let rest = voted.pages().saturating_sub(touched + unused);
        lines.push((
            "touched",
            format!(
                "{touched} pages; {unused} that the kernel maps with them are not needed, and of {rest} nobody knows"
            ),
        ));
    }
    lines
}

#[cfg(test)]
mod tests;
