//! What is known of keys, and whether prefetching pays: starts with a replay against control runs without.

use crate::human::{ago, bytes, duration, pages, printable};
use crate::outcome::{OverRead, decisions_of_all, mode};
use crate::table::{Table, Tint, section};
use headstart_learn::verdict::controls::Cost;
use headstart_learn::verdict::start::{LeftOut, Start, resident};
use headstart_learn::verdict::{Comparison, ENOUGH_WITH, ENOUGH_WITHOUT, Group, Verdict, present, saved_ns};
use headstart_model::Outcome;
use headstart_model::floor::{Above, Floor};
use headstart_model::outcome::Mode;
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
    /// What was imported of others' starts; the profile and the plan are its own where the key has none.
    pub imported: Option<Imported>,
    /// Traces kept.
    pub traces: usize,
    /// The floor of its last start with a replay whose trace is kept, where that was asked for.
    pub floor: Option<FloorStatus>,
    /// Whether prefetching pays.
    pub comparison: Comparison,
    /// What control runs have cost; `None` before a difference is shown.
    pub controls: Option<Cost>,
    /// One cold start in so many is a control run now; `None` where that is as configured.
    pub control_every: Option<u32>,
    /// Whether anything is done for its starts: a user may have said otherwise.
    pub enabled: bool,
    /// Why starts are bypassed; `None` if they are not.
    pub bypass: Option<Bypass>,
    /// The outcomes kept, oldest first.
    pub outcomes: Vec<Outcome>,
}

/// What was imported of others' starts of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Imported {
    /// The file that it came from.
    pub from: String,
    /// Whether a package brought that file.
    pub is_packaged: bool,
    /// Whether starts are read ahead by it: those here have taught nothing yet.
    pub is_used: bool,
}

impl Imported {
    /// For people.
    pub fn text(&self) -> String {
        let by = match self.is_packaged {
            true => "a package brought",
            false => "somebody imported",
        };
        let used = match self.is_used {
            true => "it is used until a start here has taught",
            false => "it is not used, because starts here say more",
        };
        format!("{by} {}; {used}", printable(&self.from))
    }
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
        (left_out.recorded, "that were recorded, which takes time"),
        (
            left_out.before_change,
            "from before all took clearly more or less time",
        ),
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
    let starts = present(&status.outcomes).0.into_iter();
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

/// What control runs cost, and how many there are; `None` where nothing is to be told.
fn controls(status: &KeyStatus) -> Option<String> {
    let cost = status.controls.filter(|cost| cost.controls > 0).map(|cost| {
        let time = duration(cost.cost_ns.unsigned_abs());
        let took = match (cost.cost_ns < 0, cost.share_of_saved) {
            (true, _) => format!("took {time} less than replays"),
            (false, Some(share)) => format!("cost {time}, {:.1} % of what was saved", 100.0 * share),
            (false, None) => format!("cost {time}"),
        };
        format!("{} {took}", cost.controls)
    });
    let every = status
        .control_every
        .map(|every| format!("one cold start in {every} is one now"));
    let parts: Vec<String> = cost.into_iter().chain(every).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
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
    let mut lines = vec![("key", status.key.clone()), ("profile", profile), ("plan", plan)];
    lines.extend(status.imported.iter().map(|it| ("imported", it.text())));
    lines.extend([
        ("traces kept", status.traces.to_string()),
        ("with replay", group(&status.comparison.with)),
        ("without", group(&status.comparison.without)),
        ("verdict", verdict(&status.comparison)),
    ]);
    lines.extend(gained(status).map(|gained| ("gains", gained)));
    lines.extend(controls(status).map(|controls| ("controls", controls)));
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
    let replays = status.outcomes.iter().filter(|it| it.mode == Mode::Replay);
    let decided = decisions_of_all(replays.map(|it| &it.decisions));
    lines.extend(decided.map(|decided| ("governor", decided)));
    lines.extend(unreachable(status).map(|share| ("out of reach", share)));
    lines.extend(status.floor.map(|floor| ("floor", floor.text(now_unix_ns))));
    lines.extend(left_out(&status.comparison.left_out).map(|starts| ("not compared", starts)));
    lines.extend((!status.enabled).then(|| ("disabled", DISABLED.to_string())));
    lines.extend(status.bypass.iter().map(|bypass| ("bypassed", bypass.text())));
    let mut facts = Table::new(&["", ""]).coloured(coloured);
    for (name, value) in lines {
        facts.row([name, &value]);
        if let ("verdict", Some(tint)) = (name, tint(status.comparison.verdict)) {
            facts.tint(tint);
        }
    }
    let mut out = facts.to_string();
    let mut table = Table::new(&["started", "headstart", ">in memory", ">took", "learned"]);
    for outcome in status.outcomes.iter().rev().take(10) {
        table.row([
            ago(outcome.started_unix_ns, now_unix_ns),
            mode(outcome).into(),
            resident(outcome).map_or("-".into(), |share| format!("{:.0} %", 100.0 * share)),
            duration(outcome.elapsed_ns),
            match &outcome.not_learned {
                None => "yes".into(),
                Some(_) if outcome.unrecorded => "no: not its turn".into(),
                Some(why) => format!("no: {why}"),
            },
        ]);
    }
    out += &section("Last starts", &table);
    out
}

/// All keys for people, in colours if they are wanted: each with what is known of it below its name.
pub fn list(statuses: &[KeyStatus], now_unix_ns: u64, coloured: bool) -> String {
    let mut out = String::new();
    for status in statuses {
        let mut name = Table::new(&[""]);
        name.row([&status.key]);
        let (runs, prefetched) = match &status.profile {
            None => (0, "nothing".into()),
            Some(profile) => (profile.runs, pages(profile.pages, profile.page_size)),
        };
        let last = ago(
            status.outcomes.last().map_or(0, |o| o.started_unix_ns),
            now_unix_ns,
        );
        let runs = if runs == 1 {
            "1 run".into()
        } else {
            format!("{runs} runs")
        };
        let known = match status.imported.as_ref().filter(|it| it.is_used) {
            Some(_) => format!("imported, {prefetched} read ahead"),
            None => format!("{runs}, {prefetched} read ahead, last {last}"),
        };
        let verdict = match &status.bypass {
            _ if !status.enabled => format!("disabled: {DISABLED}"),
            None => verdict(&status.comparison),
            Some(bypass) => format!("bypassed: {}", bypass.why),
        };
        let mut lines = Table::new(&["", ""]).coloured(coloured);
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
mod tests;
