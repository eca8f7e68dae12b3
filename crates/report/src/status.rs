//! What is known of keys, and whether prefetching pays: starts with a replay against control runs without.

use crate::human::{ago, bytes, duration, pages, printable};
use crate::outcome::mode;
use crate::table::{Table, facts, section};
use headstart_learn::verdict::start::{LeftOut, resident};
use headstart_learn::verdict::{Comparison, ENOUGH_WITH, ENOUGH_WITHOUT, Group, Verdict};
use headstart_model::Outcome;
use serde::Serialize;

/// What is known of a key.
#[derive(Debug, Serialize)]
pub struct KeyStatus {
    /// The key.
    pub key: String,
    /// Its profile.
    pub profile: Option<ProfileStatus>,
    /// Its plan.
    pub plan: Option<PlanStatus>,
    /// Traces kept.
    pub traces: usize,
    /// Whether prefetching pays.
    pub comparison: Comparison,
    /// Why starts are bypassed; `None` if they are not.
    pub bypass: Option<Bypass>,
    /// The outcomes kept, oldest first.
    pub outcomes: Vec<Outcome>,
}

/// A profile, summed up.
#[derive(Debug, Serialize)]
pub struct ProfileStatus {
    /// Runs learned from.
    pub runs: u32,
    /// When it last learned, nanoseconds since 1970.
    pub updated_unix_ns: u64,
    /// Bytes of a page.
    pub page_size: u32,
    /// Pages that are prefetched.
    pub pages: u64,
    /// Paths known.
    pub paths: usize,
}

/// A plan, summed up.
#[derive(Debug, Serialize)]
pub struct PlanStatus {
    /// When it was made, nanoseconds since 1970.
    pub created_unix_ns: u64,
    /// Requests that are issued.
    pub requests: usize,
    /// Data bytes they read.
    pub data_bytes: u64,
    /// Metadata bytes they read.
    pub metadata_bytes: u64,
}

/// Why starts are bypassed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Bypass {
    /// Why.
    pub why: String,
    /// One start in so many re-evaluates that.
    pub every: u32,
}

impl Bypass {
    /// For people.
    pub fn text(&self) -> String {
        let Bypass { why, every } = self;
        format!("{}; one in {every} re-evaluates that", printable(why))
    }
}

/// The verdict in words. A start is called cold that was compared: less than three quarters of what it needs was in memory.
pub fn verdict(comparison: &Comparison) -> String {
    let Comparison { with, without, .. } = comparison;
    match comparison.verdict {
        Verdict::TooFew if without.starts < ENOUGH_WITHOUT => format!(
            "not enough cold starts without a replay yet: {} of {ENOUGH_WITHOUT}",
            without.starts
        ),
        Verdict::TooFew => format!(
            "not enough cold starts with a replay yet: {} of {ENOUGH_WITH}",
            with.starts
        ),
        Verdict::NoDifference => {
            "no difference is shown between cold starts with a replay and without".into()
        }
        Verdict::Faster => format!("cold starts are faster {}", difference(comparison)),
        Verdict::Slower => format!("cold starts are slower {}", difference(comparison)),
    }
}

/// By how much they differ, and how surely.
fn difference(comparison: &Comparison) -> String {
    let gain = comparison.gain_ns.unwrap_or(0).unsigned_abs();
    let share = match comparison.without.median_ns {
        Some(base) if base > 0 => format!(" ({:.0} %)", 100.0 * gain as f64 / base as f64),
        _ => String::new(),
    };
    let chance = match comparison.p {
        Some(p) if p > 0.0 => format!("; by chance alone in at most one of {:.0} cases", 1.0 / p),
        _ => String::new(),
    };
    format!("by {}{share}{chance}", duration(gain))
}

fn group(group: &Group) -> String {
    match group.median_ns {
        Some(median) => format!("{} (median of {} cold starts)", duration(median), group.starts),
        None if group.starts > 0 => format!("{} cold starts, none of which can be compared", group.starts),
        None => "no cold start yet".into(),
    }
}

/// What was not compared; `None` if all was.
fn left_out(left_out: &LeftOut) -> Option<String> {
    let parts: Vec<String> = [
        (left_out.warm, "with nearly all in memory"),
        (left_out.unknown, "where it is not known what was in memory"),
        (
            left_out.unusual,
            "that ended otherwise than most or taught nothing",
        ),
    ]
    .into_iter()
    .filter(|(starts, _)| *starts > 0)
    .map(|(starts, why)| format!("{starts} {why}"))
    .collect();
    (!parts.is_empty()).then(|| format!("starts: {}", parts.join(", ")))
}

/// One key for people.
pub fn text(status: &KeyStatus, now_unix_ns: u64) -> String {
    let profile = status.profile.as_ref().map_or("none".into(), |p| {
        format!(
            "{} in {} paths, from {} runs, last {}",
            pages(p.pages, p.page_size),
            p.paths,
            p.runs,
            ago(p.updated_unix_ns, now_unix_ns)
        )
    });
    let plan = status.plan.as_ref().map_or("none".into(), |p| {
        format!(
            "{} requests: {} of data, {} of metadata; made {}",
            p.requests,
            bytes(p.data_bytes),
            bytes(p.metadata_bytes),
            ago(p.created_unix_ns, now_unix_ns)
        )
    });
    let mut lines = vec![
        ("key", status.key.clone()),
        ("profile", profile),
        ("plan", plan),
        ("traces kept", status.traces.to_string()),
        ("with replay", group(&status.comparison.with)),
        ("without", group(&status.comparison.without)),
        ("verdict", verdict(&status.comparison)),
    ];
    lines.extend(left_out(&status.comparison.left_out).map(|starts| ("not compared", starts)));
    lines.extend(status.bypass.iter().map(|bypass| ("bypassed", bypass.text())));
    let mut out = facts(lines);
    let mut table = Table::new(&["started", "headstart", ">in memory", ">took", "learned"]);
    for outcome in status.outcomes.iter().rev().take(10) {
        table.row([
            ago(outcome.started_unix_ns, now_unix_ns),
            mode(outcome.mode).into(),
            resident(outcome).map_or("-".into(), |share| format!("{:.0} %", 100.0 * share)),
            duration(outcome.elapsed_ns),
            outcome
                .not_learned
                .as_ref()
                .map_or("yes".into(), |why| format!("no: {why}")),
        ]);
    }
    out += &section("Last starts", &table);
    out
}

/// All keys for people.
pub fn list(all: &[KeyStatus], now_unix_ns: u64) -> String {
    if all.is_empty() {
        return "Nothing is known yet: `headstart run -- CMD` begins.\n".into();
    }
    let mut table = Table::new(&["key", ">runs", ">prefetched", "last", "verdict"]);
    for status in all {
        let profile = status.profile.as_ref();
        table.row([
            status.key.clone(),
            profile.map_or(0, |p| p.runs).to_string(),
            profile.map_or("-".into(), |p| pages(p.pages, p.page_size)),
            ago(
                status.outcomes.last().map_or(0, |o| o.started_unix_ns),
                now_unix_ns,
            ),
            match &status.bypass {
                None => verdict(&status.comparison),
                Some(bypass) => format!("bypassed: {}", printable(&bypass.why)),
            },
        ]);
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(with: (usize, u64), without: (usize, u64), p: Option<f64>, verdict: Verdict) -> Comparison {
        let group = |(starts, ms): (usize, u64)| Group {
            starts,
            median_ns: Some(ms * 1_000_000),
        };
        let gain_ms = without.1 as i64 - with.1 as i64;
        Comparison {
            with: group(with),
            without: group(without),
            left_out: LeftOut::default(),
            gain_ns: Some(gain_ms * 1_000_000),
            p,
            verdict,
        }
    }

    #[test]
    fn what_is_missing_for_a_verdict_is_told() {
        let it = compared((20, 1), (1, 1000), None, Verdict::TooFew);
        assert_eq!(
            verdict(&it),
            "not enough cold starts without a replay yet: 1 of 2"
        );
        let it = compared((1, 1), (3, 9), None, Verdict::TooFew);
        assert_eq!(verdict(&it), "not enough cold starts with a replay yet: 1 of 5");
    }

    #[test]
    fn a_difference_is_told_with_its_size_and_its_chance() {
        let it = compared((7, 102), (3, 1000), Some(0.01), Verdict::Faster);
        assert_eq!(
            verdict(&it),
            "cold starts are faster by 898 ms (90 %); by chance alone in at most one of 100 cases"
        );
        let it = compared((7, 1000), (3, 800), Some(0.04), Verdict::Slower);
        assert_eq!(
            verdict(&it),
            "cold starts are slower by 200 ms (25 %); by chance alone in at most one of 25 cases"
        );
        let it = compared((7, 100), (3, 101), Some(0.5), Verdict::NoDifference);
        assert!(verdict(&it).starts_with("no difference is shown"));
    }

    #[test]
    fn what_was_compared_and_what_not_is_told() {
        let it = compared((38, 3500), (4, 10_900), Some(0.02), Verdict::Faster);
        assert_eq!(group(&it.with), "3.50 s (median of 38 cold starts)");
        assert_eq!(group(&Group::default()), "no cold start yet");
        assert_eq!(left_out(&LeftOut::default()), None);
        let some = LeftOut {
            warm: 12,
            unknown: 0,
            unusual: 1,
        };
        assert_eq!(
            left_out(&some).as_deref(),
            Some("starts: 12 with nearly all in memory, 1 that ended otherwise than most or taught nothing")
        );
    }
}
