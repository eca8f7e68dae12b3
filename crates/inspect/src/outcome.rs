//! An outcome as text. Its JSON document is [`Outcome`] itself.

use crate::human::{bytes, date, duration, percent, status};
use crate::table::{Table, facts, section};
use headstart_model::Outcome;
use headstart_model::outcome::{Decisions, Mode, Resident, Skipped, StageOutcome};
use serde::Serialize;

/// What headstart did for a start, for people.
pub fn mode(outcome: &Outcome) -> &'static str {
    match outcome.mode {
        Mode::Record => "recorded",
        Mode::Replay if outcome.unrecorded => "replayed",
        Mode::Replay => "replayed and recorded",
        Mode::Control => "control run without replay",
        Mode::Bypass => "bypassed",
        Mode::Declined => "declined, and recorded",
    }
}

/// The sum over the stages.
pub fn total(outcome: &Outcome) -> StageOutcome {
    outcome.stages.iter().fold(
        StageOutcome {
            stage: "all".into(),
            ..StageOutcome::default()
        },
        |sum, stage| StageOutcome {
            stage: sum.stage,
            metadata_requests: sum.metadata_requests.saturating_add(stage.metadata_requests),
            metadata_pages: sum.metadata_pages.saturating_add(stage.metadata_pages),
            opens: sum.opens.saturating_add(stage.opens),
            data_requests: sum.data_requests.saturating_add(stage.data_requests),
            issued_pages: sum.issued_pages.saturating_add(stage.issued_pages),
            bridged_pages: sum.bridged_pages.saturating_add(stage.bridged_pages),
            resident_pages: sum.resident_pages.saturating_add(stage.resident_pages),
            arrived_pages: sum.arrived_pages.saturating_add(stage.arrived_pages),
            used_pages: sum.used_pages.saturating_add(stage.used_pages),
            late_pages: sum.late_pages.saturating_add(stage.late_pages),
            wasted_pages: sum.wasted_pages.saturating_add(stage.wasted_pages),
            missed_pages: sum.missed_pages.saturating_add(stage.missed_pages),
        },
    )
}

/// The outcome for people.
pub fn text(outcome: &Outcome) -> String {
    let mut out = facts([
        ("outcome of", outcome.key.to_string()),
        ("started", date(outcome.started_unix_ns)),
        ("headstart", mode(outcome).to_string()),
        (
            "took",
            format!(
                "{}; {}",
                duration(outcome.elapsed_ns),
                outcome
                    .status
                    .map_or("still running when the recording ended".into(), status)
            ),
        ),
        ("in memory before", in_memory(outcome.resident_before)),
        (
            "blocked on disks",
            outcome.blocked_ns.map_or("not known".into(), duration),
        ),
        (
            "learned",
            outcome
                .not_learned
                .as_ref()
                .map_or("yes".into(), |why| format!("no: {why}")),
        ),
    ]);
    if outcome.mode == Mode::Replay {
        out += &replay_text(outcome);
    }
    out
}

/// What the replay asked for, and what of it was used.
fn replay_text(outcome: &Outcome) -> String {
    let mut out = facts([
        ("replay took", duration(outcome.replay_ns)),
        ("memory available", bytes(outcome.memory_available)),
        (
            "memory pressure",
            outcome
                .memory_pressure
                .map_or("not known".into(), |p| format!("{p:.1} %")),
        ),
        (
            "memory needed",
            outcome.memory_needed.map_or("not known".into(), bytes),
        ),
        ("governor", decisions(&outcome.decisions)),
        ("skipped", skipped(&outcome.skipped)),
    ]);
    let heads = [
        ">metadata",
        ">opens",
        ">requests",
        ">pages",
        ">resident",
        ">bridged",
        ">arrived",
        "stage",
    ];
    let mut asked = Table::new(&heads);
    let mut used = Table::new(&[">used", ">late", ">wasted", ">missed", "stage"]);
    let sum = total(outcome);
    let total = (outcome.stages.len() > 1).then_some(&sum);
    for stage in outcome.stages.iter().chain(total) {
        let numbers = [
            stage.metadata_requests,
            stage.opens,
            stage.data_requests,
            stage.issued_pages,
            stage.resident_pages,
            stage.bridged_pages,
            stage.arrived_pages,
        ];
        let name = || std::iter::once(stage.stage.clone());
        asked.row(numbers.iter().map(u64::to_string).chain(name()));
        let numbers = [
            stage.used_pages,
            stage.late_pages,
            stage.wasted_pages,
            stage.missed_pages,
        ];
        used.row(numbers.iter().map(u64::to_string).chain(name()));
    }
    out += &section("Requests by stage, and the pages they ask for", &asked);
    out += &section("Pages by stage", &used);
    let needed = sum
        .used_pages
        .saturating_add(sum.late_pages)
        .saturating_add(sum.missed_pages);
    out += &format!(
        "\nIn time: {} of the pages used. Not used: {} of the pages asked for.\n",
        percent(sum.used_pages, needed),
        percent(sum.wasted_pages, sum.issued_pages)
    );
    if let Some(over_read) = OverRead::from_outcome(outcome) {
        out += &format!("Over-read: {}.\n", over_read.share());
    }
    out
}

/// What a replay read beyond what its start needed, holes that are bridged on purpose apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct OverRead {
    /// When the start began, nanoseconds since 1970.
    pub started_unix_ns: u64,
    /// Pages that the start surely read or touched.
    pub needed_pages: u64,
    /// Pages that it surely did not.
    pub wasted_pages: u64,
    /// Pages that were mapped around a touched one, of which nobody can tell.
    pub uncertain_pages: u64,
}

impl OverRead {
    /// The over-read of an outcome; `None` without a replay, and where it is not known.
    pub fn from_outcome(outcome: &Outcome) -> Option<OverRead> {
        let precision = outcome.precision?;
        Some(OverRead {
            started_unix_ns: outcome.started_unix_ns,
            needed_pages: precision.needed_pages,
            wasted_pages: total(outcome).wasted_pages,
            uncertain_pages: precision.uncertain_pages,
        })
    }

    /// Whether so little is uncertain that the rest tells how exactly was planned.
    pub fn is_exact(&self) -> bool {
        self.uncertain_pages.saturating_mul(20) <= self.needed_pages
    }

    /// For people.
    pub fn share(&self) -> String {
        let share = |pages| percent(pages, self.needed_pages);
        let surely = share(self.wasted_pages);
        let most = match self.uncertain_pages {
            0 => String::new(),
            uncertain => format!(", at most {}", share(self.wasted_pages.saturating_add(uncertain))),
        };
        format!("{surely} of what it needs{most}, bridged holes apart")
    }
}

/// What a governor decides, by kind, and how many times it did.
fn kinds(decisions: &Decisions) -> [(u32, &'static str); 7] {
    let Decisions {
        looks: _,
        short,
        pressed,
        reclaimed,
        evicted,
        metadata_only,
        without_room,
        gave_way,
    } = *decisions;
    [
        (short, "stopped: too little memory was available"),
        (pressed, "stopped: tasks waited for memory"),
        (reclaimed, "stopped: the kernel began to reclaim memory"),
        (evicted, "stopped: what had been read did not stay in memory"),
        (metadata_only, "read metadata only"),
        (without_room, "left requests out for want of memory"),
        (gave_way, "gave way to others at a device"),
    ]
}

/// What a replay's governor decided.
pub fn decisions(decisions: &Decisions) -> String {
    let made = kinds(decisions).into_iter().filter(|(times, _)| *times > 0);
    let made: Vec<String> = made
        .map(|(times, what)| match times {
            1 => what.into(),
            times => format!("{what} ({times} times)"),
        })
        .collect();
    match (made.is_empty(), decisions.looks) {
        (false, _) => made.join("; "),
        (true, 0) => "not known".into(),
        (true, looks) => format!("went on after {looks} looks"),
    }
}

/// What the governors of several replays decided: how many of them each kind; `None` if they only went on.
pub fn decisions_of_all<'a>(replays: impl Iterator<Item = &'a Decisions>) -> Option<String> {
    let (mut all, mut counts) = (0, [0usize; 7]);
    for decisions in replays {
        all += 1;
        for (count, (times, _)) in counts.iter_mut().zip(kinds(decisions)) {
            *count += usize::from(times > 0);
        }
    }
    let named = counts.iter().zip(kinds(&Decisions::default()));
    let made = named.filter(|(count, _)| **count > 0);
    let made: Vec<String> = made.map(|(count, (_, what))| format!("{count} {what}")).collect();
    (!made.is_empty()).then(|| format!("of {all} replays {}", made.join("; ")))
}

/// How much of what the start was expected to need was in memory before it.
pub fn in_memory(before: Option<Resident>) -> String {
    match before {
        None => "not looked at".into(),
        Some(it) => format!(
            "{} of what it needs ({} of {} pages looked at)",
            percent(it.resident_pages, it.sampled_pages),
            it.resident_pages,
            it.sampled_pages
        ),
    }
}

/// What was not issued, by reason.
pub fn skipped(skipped: &Skipped) -> String {
    let Skipped {
        missing,
        changed,
        special,
        not_local,
        denied,
        over_budget,
        stopped,
        failed,
    } = *skipped;
    let parts: Vec<String> = [
        (missing, "not there"),
        (changed, "changed since"),
        (special, "no file or directory"),
        (not_local, "not on a local file system"),
        (denied, "not permitted"),
        (over_budget, "beyond the memory budget"),
        (stopped, "stopped"),
        (failed, "read errors"),
    ]
    .into_iter()
    .filter(|(number, _)| *number > 0)
    .map(|(number, reason)| format!("{number} {reason}"))
    .collect();
    match parts.is_empty() {
        true => "nothing".into(),
        false => parts.join(", "),
    }
}
