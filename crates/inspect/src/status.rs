//! What is known of keys, and whether prefetching pays: starts with a replay against control runs without.

use crate::human::{ago, bytes, duration, pages, printable};
use crate::outcome::{OverRead, mode};
use crate::table::{Table, Tint, section};
use headstart_learn::verdict::start::{LeftOut, Start, comparable, resident};
use headstart_learn::verdict::{Comparison, ENOUGH_WITH, ENOUGH_WITHOUT, Group, Verdict, saved_ns};
use headstart_model::Outcome;
use headstart_model::floor::{Above, Floor};
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
    /// The floor of its last start with a replay whose trace is kept, where that was asked for.
    pub floor: Option<FloorStatus>,
    /// Whether prefetching pays.
    pub comparison: Comparison,
    /// Whether anything is done for its starts: a user may have said otherwise.
    pub enabled: bool,
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

/// The floor of a start, beside the time that it took.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct FloorStatus {
    /// When the start began, nanoseconds since 1970.
    pub started_unix_ns: u64,
    /// How long it took, nanoseconds.
    pub took_ns: u64,
    /// Its floor, by the files and devices as they are now.
    pub floor: Floor,
    /// Where its time above that went; `None` for a start without a replay, or with most of what it needs in
    /// memory.
    pub above: Option<Above>,
}

impl FloorStatus {
    /// For people.
    fn text(&self, now_unix_ns: u64) -> String {
        let floor_ns = self.floor.floor_ns;
        let mut text = format!(
            "{}; the start {} took {}",
            duration(floor_ns),
            ago(self.started_unix_ns, now_unix_ns),
            duration(self.took_ns)
        );
        // One that found much in memory had a lower floor.
        if self.took_ns >= floor_ns {
            text += &format!(", {:.2} times that", self.took_ns as f64 / floor_ns.max(1) as f64);
        }
        let most = self
            .above
            .and_then(|above| above.parts().into_iter().max_by_key(|(_, ns)| *ns));
        if let Some((cause, ns)) = most.filter(|(_, ns)| *ns > 0) {
            text += &format!("; above it mostly {cause}, {}", duration(ns));
        }
        text
    }
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

/// The verdict in words. A start is called cold that was compared: less than three quarters of what it needs
/// was in memory.
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
        Some(median) => format!("{} (median; {} cold starts)", duration(median), group.starts),
        None if group.starts > 0 => format!("{} cold starts, none of which can be compared", group.starts),
        None => "no cold start yet".into(),
    }
}

/// What was not compared; `None` if all was.
fn left_out(left_out: &LeftOut) -> Option<String> {
    let parts: Vec<String> = [
        (left_out.warm, "with nearly all in memory"),
        (left_out.unknown, "where it is not known what was in memory"),
        (left_out.declined, "that could not be read ahead for"),
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

/// Of a key that somebody has disabled.
const DISABLED: &str = "nothing is done for its starts, until `headstart apps enable`";

/// Replays that are shown by their gain, at most.
const GAINS: usize = 16;

/// What the last replays of cold starts gained, oldest first: shares of the median of the control runs, below
/// 0 for losses. None before a difference is shown.
pub fn gains(status: &KeyStatus) -> Vec<f64> {
    let base = status.comparison.without.median_ns.unwrap_or(0);
    if base == 0 || !status.comparison.is_shown() {
        return Vec::new();
    }
    let starts = comparable(&status.outcomes).0.into_iter();
    let mut gains: Vec<f64> = starts
        .filter(Start::replayed)
        .rev()
        .take(GAINS)
        .map(|start| 1.0 - start.elapsed_ns as f64 / base as f64)
        .collect();
    gains.reverse();
    gains
}

/// Shares as bars: the lowest for nothing and less, the highest for everything.
pub fn sparkline(shares: &[f64]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let bar = |share: &f64| BARS[((share.clamp(0.0, 1.0) * 8.0) as usize).min(7)];
    shares.iter().map(bar).collect()
}

/// The gains in words; `None` if there are none.
fn gained(status: &KeyStatus) -> Option<String> {
    let gains = gains(status);
    let last = gains.last()?;
    let bars = sparkline(&gains);
    let saved = saved_ns(&status.outcomes, &status.comparison)?;
    let in_all = match saved < 0 {
        true => format!("lost {}", duration(saved.unsigned_abs())),
        false => format!("saved {}", duration(saved.unsigned_abs())),
    };
    Some(format!(
        "{bars} of cold starts with a replay, the last {:.0} %; {in_all} in all",
        100.0 * last
    ))
}

/// What boots gain, in sentences.
pub fn gained_by_boots(status: &KeyStatus) -> String {
    let verdict = verdict(&status.comparison);
    let gained = gained(status).map_or(String::new(), |gained| format!(" Saved: {gained}."));
    format!("Boots that are read ahead, against those that are not: {verdict}.{gained}")
}

/// How much of what the last recorded start used nobody can read ahead, and why; `None` if that is nothing.
fn unreachable(status: &KeyStatus) -> Option<String> {
    let used = status.outcomes.iter().rev().find_map(|outcome| outcome.used)?;
    let page_size = status.profile.as_ref().map_or(4096, |profile| profile.page_size);
    let size = |pages: u64| bytes(pages.saturating_mul(u64::from(page_size)));
    (used.unreachable_pages > 0).then(|| {
        format!(
            "{} of {} that the last recorded start used cannot be read ahead: they lie on file systems that headstart does not see, as what is \
             mounted in a namespace of the start's own, or that others answer for, as on a network",
            size(used.unreachable_pages),
            size(used.pages)
        )
    })
}

fn tint(verdict: Verdict) -> Option<Tint> {
    match verdict {
        Verdict::Faster => Some(Tint::Good),
        Verdict::Slower => Some(Tint::Bad),
        Verdict::TooFew | Verdict::NoDifference => None,
    }
}

/// One key for people, in colours if they are wanted.
pub fn text(status: &KeyStatus, now_unix_ns: u64, coloured: bool) -> String {
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
    lines.extend(gained(status).map(|gained| ("gains", gained)));
    let exact = status
        .outcomes
        .iter()
        .rev()
        .filter_map(OverRead::from_outcome)
        .find(OverRead::is_exact);
    lines.extend(exact.map(|shares| {
        let when = ago(shares.started_unix_ns, now_unix_ns);
        ("over-read", format!("{}, by the start {when}", shares.share()))
    }));
    lines.extend(unreachable(status).map(|share| ("out of reach", share)));
    lines.extend(status.floor.map(|floor| ("floor", floor.text(now_unix_ns))));
    lines.extend(left_out(&status.comparison.left_out).map(|starts| ("not compared", starts)));
    lines.extend((!status.enabled).then(|| ("disabled", DISABLED.to_string())));
    lines.extend(status.bypass.iter().map(|bypass| ("bypassed", bypass.text())));
    let mut facts = Table::new(&["", ""]).wrapped().coloured(coloured);
    for (name, value) in lines {
        facts.row([name, &value]);
        if let ("verdict", Some(tint)) = (name, tint(status.comparison.verdict)) {
            facts.tint(tint);
        }
    }
    let mut out = facts.to_string();
    let mut table = Table::new(&["started", "headstart", ">in memory", ">took", "learned"]).wrapped();
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

/// All keys for people, in colours if they are wanted: each with what is known of it below its name.
pub fn list(statuses: &[KeyStatus], now_unix_ns: u64, coloured: bool) -> String {
    if statuses.is_empty() {
        return "Nothing is known yet: `headstart run -- CMD` begins.\n".into();
    }
    let mut out = String::new();
    for status in statuses {
        let mut name = Table::new(&[""]).wrapped();
        name.row([&status.key]);
        let (runs, prefetched) = match &status.profile {
            None => (0, "nothing".into()),
            Some(profile) => (profile.runs, pages(profile.pages, profile.page_size)),
        };
        let last = ago(
            status.outcomes.last().map_or(0, |o| o.started_unix_ns),
            now_unix_ns,
        );
        let known = format!("{runs} runs, {prefetched} prefetched, last {last}");
        let verdict = match &status.bypass {
            _ if !status.enabled => format!("disabled: {DISABLED}"),
            None => verdict(&status.comparison),
            Some(bypass) => format!("bypassed: {}", bypass.why),
        };
        let mut lines = Table::new(&["", ""]).wrapped().coloured(coloured);
        lines.row(["", &known]);
        gained(status).iter().for_each(|gained| lines.row(["", gained]));
        lines.row(["", &verdict]);
        if let Some(tint) =
            tint(status.comparison.verdict).filter(|_| status.bypass.is_none() && status.enabled)
        {
            lines.tint(tint);
        }
        out += &format!("{name}{lines}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_model::outcome::Mode;

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
        let comparison = compared((20, 1), (1, 1000), None, Verdict::TooFew);
        assert_eq!(
            verdict(&comparison),
            "not enough cold starts without a replay yet: 1 of 2"
        );
        let comparison = compared((1, 1), (3, 9), None, Verdict::TooFew);
        assert_eq!(
            verdict(&comparison),
            "not enough cold starts with a replay yet: 1 of 5"
        );
    }

    #[test]
    fn a_difference_is_told_with_its_size_and_its_chance() {
        let comparison = compared((7, 102), (3, 1000), Some(0.01), Verdict::Faster);
        assert_eq!(
            verdict(&comparison),
            "cold starts are faster by 898 ms (90 %); by chance alone in at most one of 100 cases"
        );
        let comparison = compared((7, 1000), (3, 800), Some(0.04), Verdict::Slower);
        assert_eq!(
            verdict(&comparison),
            "cold starts are slower by 200 ms (25 %); by chance alone in at most one of 25 cases"
        );
        let comparison = compared((7, 100), (3, 101), Some(0.5), Verdict::NoDifference);
        assert!(verdict(&comparison).starts_with("no difference is shown"));
    }

    fn status() -> KeyStatus {
        let mut comparison = compared((5, 400), (4, 1000), Some(0.01), Verdict::Faster);
        comparison.without.median_ns = Some(1_000_000_000);
        let outcome = |ms: u64, mode, sampled| Outcome {
            elapsed_ns: ms * 1_000_000,
            mode,
            resident_before: Some(headstart_model::outcome::Resident {
                sampled_pages: 100,
                resident_pages: sampled,
            }),
            ..Outcome::new(headstart_model::testing::key("k"), mode)
        };
        KeyStatus {
            key: format!("/usr/bin/python3 {}", "/very/long/path".repeat(9)),
            profile: None,
            plan: None,
            traces: 1,
            floor: None,
            comparison,
            enabled: true,
            bypass: None,
            outcomes: vec![
                outcome(1200, Mode::Replay, 0),
                outcome(900, Mode::Control, 0),
                outcome(500, Mode::Replay, 0),
                outcome(10, Mode::Replay, 100),
                outcome(20, Mode::Replay, 10),
            ],
        }
    }

    #[test]
    fn gains_are_those_of_replays_of_cold_starts_once_a_difference_is_shown() {
        let mut status = status();
        status.comparison.verdict = Verdict::Faster;
        let shares =
            |it: &KeyStatus| -> Vec<String> { gains(it).iter().map(|gain| format!("{gain:.2}")).collect() };
        assert_eq!(shares(&status), ["-0.20", "0.50", "0.98"]);
        assert_eq!(sparkline(&gains(&status)), "▁▅█");
        assert_eq!(sparkline(&[0.0, 0.124, 0.126, 1.0, 7.0, f64::NAN]), "▁▁▂██▁");
        assert!(gained_by_boots(&status).contains(" Saved: ▁▅█ of cold starts"));
        assert!(gained(&status).is_some_and(|said| said.contains("; saved ")));
        for verdict in [Verdict::TooFew, Verdict::NoDifference] {
            status.comparison.verdict = verdict;
            assert_eq!((gains(&status), gained(&status)), (Vec::new(), None));
            assert!(!gained_by_boots(&status).contains("Saved"));
        }
        status.comparison.verdict = Verdict::Faster;
        status.comparison.without.median_ns = None;
        assert_eq!((gains(&status), gained(&status)), (Vec::new(), None));
    }

    #[test]
    fn it_fits_a_terminal_and_is_coloured_only_on_request() {
        let mut status = status();
        status.outcomes[0].not_learned = Some("a reason of many words ".repeat(9));
        let (plain, coloured) = (text(&status, 1, false), text(&status, 1, true));
        let statuses = [status];
        for text in [&plain, &list(&statuses, 1, false)] {
            assert!(
                text.lines()
                    .all(|line| line.chars().count() <= crate::table::COLUMNS),
                "{text}"
            );
            // The start that taught nothing is in no comparison.
            assert!(!text.contains('\u{1b}') && text.contains(" ▅█"), "{text}");
        }
        assert!(coloured.contains("\u{1b}[32mverdict"), "{coloured}");
        assert_eq!(coloured.replace("\u{1b}[32m", "").replace("\u{1b}[0m", ""), plain);
        assert!(list(&statuses, 1, true).contains("\u{1b}[32m"));
    }

    #[test]
    fn the_floor_stands_beside_the_time_that_a_start_took() {
        const MS: u64 = 1_000_000;
        let mut floor = FloorStatus {
            started_unix_ns: 0,
            took_ns: 1500 * MS,
            floor: Floor {
                floor_ns: 1000 * MS,
                ..Floor::default()
            },
            above: Some(Above {
                took_ns: 1500 * MS,
                own_ns: 100 * MS,
                order_ns: 400 * MS,
                ..Above::default()
            }),
        };
        let now = 3 * 60 * 1000 * MS;
        let told = floor.text(now);
        assert!(told.starts_with("1.00 s; the start "), "{told}");
        assert!(
            told.ends_with(" took 1.50 s, 1.50 times that; above it mostly order, 400 ms"),
            "{told}"
        );
        (floor.took_ns, floor.above) = (900 * MS, None);
        assert!(floor.text(now).ends_with(" took 900 ms"), "{}", floor.text(now));
        let status = KeyStatus {
            floor: Some(floor),
            ..status()
        };
        let text = text(&status, now, false);
        assert!(text.lines().any(|line| line.starts_with("floor ")), "{text}");
    }

    #[test]
    fn what_was_compared_and_what_not_is_told() {
        let comparison = compared((38, 3500), (4, 10_900), Some(0.02), Verdict::Faster);
        assert_eq!(group(&comparison.with), "3.50 s (median; 38 cold starts)");
        assert_eq!(group(&Group::default()), "no cold start yet");
        assert_eq!(left_out(&LeftOut::default()), None);
        let some = LeftOut {
            warm: 12,
            unknown: 0,
            unusual: 1,
            declined: 0,
        };
        assert_eq!(
            left_out(&some).as_deref(),
            Some("starts: 12 with nearly all in memory, 1 that ended otherwise than most or taught nothing")
        );
    }
}
