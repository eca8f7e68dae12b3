//! What a replay did for a start.

use crate::Key;
use serde::{Deserialize, Serialize};

/// What a replay did for a start, or how a start without one went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Whose start.
    pub key: Key,
    /// Wall clock at the start, nanoseconds since 1970.
    pub started_unix_ns: u64,
    /// What headstart did.
    pub mode: Mode,
    /// From the start to the program's end, or to the end of the recording if that came first; 0 where
    /// neither was seen. What a command waited for headstart counts where it had a replay, for whoever has
    /// none waits for nothing; and what it waited for its recorder alone by the share of starts that are
    /// recorded.
    pub elapsed_ns: u64,
    /// The command's status as wait(2) gives it; `None` if it still ran.
    pub status: Option<i32>,
    /// Time that its threads, added up, waited for block devices; `None` where it was not recorded.
    pub blocked_ns: Option<u64>,
    /// What was in memory before the start of what it was expected to need; `None` where too little could be
    /// looked at in time, or nothing was, as with the first start of a key and with boots, which begin with
    /// nothing in memory.
    pub resident_before: Option<Resident>,
    /// Time the replay took; 0 without one.
    pub replay_ns: u64,
    /// Per stage.
    pub stages: Vec<StageOutcome>,
    /// Requests that were not issued.
    pub skipped: Skipped,
    /// Memory available when it began, bytes.
    pub memory_available: u64,
    /// Share of time in which some task waited for memory during the replay, percent; `None` where unknown.
    pub memory_pressure: Option<f32>,
    /// Why this start taught nothing; `None` if it did.
    pub not_learned: Option<String>,
    /// From the start's first instant until the replay issued its first request; `None` without a replay, and
    /// in files that were written before this was told. With what follows the last values of a file:
    /// [`Outcome::from_bytes`].
    pub first_request_ns: Option<u64>,
    /// How sure it is what the start needed; `None` without a replay, and in files that were written before
    /// this was told.
    pub precision: Option<Precision>,
    /// How long the replay took on the device that it read from for longest, as a multiple of what the cost
    /// model says of it: of one head in the same order, elsewhere in the best. `None` where little was read,
    /// and in files that were written before this was told.
    pub pace: Option<f32>,
    /// Whether it taught nothing for no other reason than that it was not its turn to be recorded: it went as
    /// one that is. Not in files that were written before this was told.
    pub unrecorded: bool,
    /// How much it used, and how much of that can be read ahead by nobody; `None` where it was not recorded,
    /// and in files that were written before this was told.
    pub used: Option<Used>,
    /// What the governor decided during the replay; all 0 without a replay, and in files that were written
    /// before this was told.
    pub decisions: Decisions,
    /// How much less memory was available at some time of the replay, or at the start's end, than before it,
    /// bytes: what the start needed for itself, and whoever needed more meanwhile. `None` without a replay,
    /// and in files that were written before this was told.
    pub memory_needed: Option<u64>,
}

/// What a replay's governor decided, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decisions {
    /// Looks at memory.
    pub looks: u32,
    /// The replay stopped, or did not begin, because too little memory was available.
    pub short: u32,
    /// It stopped because tasks waited for memory.
    pub pressed: u32,
    /// It stopped because the kernel began to reclaim memory.
    pub reclaimed: u32,
    /// It stopped because pages that it had read were out of memory again.
    pub evicted: u32,
    /// It read metadata only, because more might not fit.
    pub metadata_only: u32,
    /// Requests that were not issued because memory had no room for them; they are among
    /// [`Skipped::over_budget`] too.
    pub without_room: u32,
    /// Devices that it asked for less at once, because others waited for them.
    pub gave_way: u32,
}

impl Decisions {
    /// Adds those of another replay.
    pub fn add(&mut self, other: &Decisions) {
        let Decisions {
            looks,
            short,
            pressed,
            reclaimed,
            evicted,
            metadata_only,
            without_room,
            gave_way,
        } = *other;
        let add = |sum: &mut u32, number| *sum = sum.saturating_add(number);
        add(&mut self.looks, looks);
        add(&mut self.short, short);
        add(&mut self.pressed, pressed);
        add(&mut self.reclaimed, reclaimed);
        add(&mut self.evicted, evicted);
        add(&mut self.metadata_only, metadata_only);
        add(&mut self.without_room, without_room);
        add(&mut self.gave_way, gave_way);
    }
}

/// How much a start used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    /// Pages that it read or touched, each once, but for those of files in memory.
    pub pages: u64,
    /// Of these, those of files that no path leads headstart to: on file systems that it does not see, as one
    /// that was mounted in a namespace of the start's own, or that it does not ask, as of a network.
    pub unreachable_pages: u64,
}

/// What a start surely needed, and what nobody can tell of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Precision {
    /// Pages that it read or touched, each once, of the files that a plan may ask for.
    pub needed_pages: u64,
    /// Pages that were asked for, not to bridge, and only mapped around a touched one: they may be needed,
    /// and are not counted as wasted.
    pub uncertain_pages: u64,
}

impl Outcome {
    /// That of a start of which no more is known yet: nothing was replayed, and it taught.
    pub fn new(key: Key, mode: Mode) -> Outcome {
        Outcome {
            key,
            started_unix_ns: 0,
            mode,
            elapsed_ns: 0,
            status: None,
            blocked_ns: None,
            resident_before: None,
            replay_ns: 0,
            stages: Vec::new(),
            skipped: Skipped::default(),
            memory_available: 0,
            memory_pressure: None,
            not_learned: None,
            first_request_ns: None,
            precision: None,
            pace: None,
            unrecorded: false,
            used: None,
            decisions: Decisions::default(),
            memory_needed: None,
        }
    }

    /// Adds what a replay did, but for its stages.
    pub fn replayed(&mut self, report: &ReplayReport) {
        self.replay_ns = report.replay_ns;
        self.first_request_ns = report.issued.iter().map(|issued| issued.issued_ns).min();
        self.skipped = report.skipped;
        self.memory_available = report.memory_available;
        self.memory_pressure = report.memory_pressure;
        self.decisions = report.decisions;
        self.memory_needed = report.memory_needed;
    }
}

/// What a sample of a plan's data pages had in memory before the first request, in starts with a replay and
/// without alike: starts are only compared with starts that began as cold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resident {
    /// Pages looked at.
    pub sampled_pages: u64,
    /// Of these, those in memory.
    pub resident_pages: u64,
}

impl Resident {
    /// The share in memory, 0 to 1; `None` if no page was looked at.
    pub fn share(&self) -> Option<f64> {
        let share = self.resident_pages as f64 / self.sampled_pages as f64;
        (self.sampled_pages > 0).then(|| share.min(1.0))
    }
}

/// What headstart did for a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Recorded only: there was no profile yet, or none that could be used.
    Record,
    /// Replayed and recorded.
    Replay,
    /// Had a plan and was not replayed, to have something to compare with.
    Control,
    /// Nothing was done for it.
    Bypass,
    /// Recorded only: it was to be replayed and could not be, as where many other starts were being read
    /// ahead for. The devices were as busy as few starts find them, so it is compared with none.
    Declined,
}

/// What a replay did in one stage. Pages are the plan's; a page that two requests ask for counts with each.
///
/// A use is a page read, touched, or mapped around a touched one: of the latter nobody can tell whether it
/// was touched too, so what is not used may be more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageOutcome {
    /// The stage's name.
    pub stage: String,
    /// Metadata requests issued.
    pub metadata_requests: u64,
    /// Metadata pages asked for.
    pub metadata_pages: u64,
    /// Files and directories opened or looked up.
    pub opens: u64,
    /// Data requests issued.
    pub data_requests: u64,
    /// Data pages asked for, holes bridged included.
    pub issued_pages: u64,
    /// Of these, holes bridged on purpose.
    pub bridged_pages: u64,
    /// Of the issued, those that were in memory before.
    pub resident_pages: u64,
    /// Of the issued, those in memory when the replay had ended.
    pub arrived_pages: u64,
    /// Of the issued, those the program first used when their request had been issued, resident ones among
    /// them. The request need not have been done: a use of a page that is on its way waits only for the rest
    /// of the way.
    pub used_pages: u64,
    /// Of the issued, those the program first used before their request was issued: the program read them
    /// itself, and waited for them as without a replay.
    pub late_pages: u64,
    /// Of the issued that were neither bridged nor resident before their request, those it did not use at any
    /// time.
    pub wasted_pages: u64,
    /// Pages the program used that no request asked for, of all stages, counted in the first. Only pages that
    /// are learned: not those of files that are not local, deleted, replaced or excluded, for which no plan
    /// asks.
    pub missed_pages: u64,
}

/// Requests that were not issued, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Nothing was at the path.
    pub missing: u64,
    /// Another file, or another version of it, was at the path.
    pub changed: u64,
    /// Not a regular file or directory.
    pub special: u64,
    /// On a network, memory or pseudo file system.
    pub not_local: u64,
    /// Not permitted.
    pub denied: u64,
    /// Beyond the memory budget.
    pub over_budget: u64,
    /// Not issued because memory was under pressure or the replay was stopped.
    pub stopped: u64,
    /// A read error.
    pub failed: u64,
}

impl Skipped {
    /// Adds what another replay did not issue.
    pub fn add(&mut self, other: &Skipped) {
        let Skipped {
            missing,
            changed,
            special,
            not_local,
            denied,
            over_budget,
            stopped,
            failed,
        } = *other;
        self.missing += missing;
        self.changed += changed;
        self.special += special;
        self.not_local += not_local;
        self.denied += denied;
        self.over_budget += over_budget;
        self.stopped += stopped;
        self.failed += failed;
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        let Skipped {
            missing,
            changed,
            special,
            not_local,
            denied,
            over_budget,
            stopped,
            failed,
        } = *self;
        missing + changed + special + not_local + denied + over_budget + stopped + failed
    }
}

/// What a replay did, request by request: the input of the review.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReplayReport {
    /// From the origin (the start's first instant) to the end of the last pass.
    pub replay_ns: u64,
    /// What was issued, in issue order.
    pub issued: Vec<Issued>,
    /// What was not.
    pub skipped: Skipped,
    /// Memory available when it began, bytes.
    pub memory_available: u64,
    /// Share of time in which some task waited for memory during the replay, percent; `None` where unknown.
    pub memory_pressure: Option<f32>,
    /// How much less memory was available later than when it began, bytes; `None` where that is not known.
    pub memory_needed: Option<u64>,
    /// What its governor decided.
    pub decisions: Decisions,
    /// Why it stopped before its end, if it did.
    pub stopped: Option<String>,
    /// Granules of lazily filled volumes that were there at its end because it had asked for them.
    pub fetched: u64,
    /// Requests over bridged holes of which some pages could not be read, or did not come: what nobody needs
    /// may lie on a bad sector.
    pub broken_bridges: u64,
    /// Mount points of remote file systems that did not answer in time: of what was asked for there nothing
    /// is known.
    pub unanswered: Vec<String>,
}

impl ReplayReport {
    /// Adds what another part of the same replay did, by the plan's own numbers of requests.
    pub fn add(&mut self, part: ReplayReport) {
        let ReplayReport {
            replay_ns,
            issued,
            skipped,
            memory_available,
            memory_pressure,
            memory_needed,
            decisions,
            stopped,
            fetched,
            broken_bridges,
            unanswered,
        } = part;
        self.decisions.add(&decisions);
        self.memory_needed = self.memory_needed.max(memory_needed);
        self.fetched += fetched;
        self.broken_bridges += broken_bridges;
        self.replay_ns = self.replay_ns.max(replay_ns);
        self.issued.extend(issued);
        self.skipped.add(&skipped);
        // That of the first part is what there was before anything was read.
        if self.memory_available == 0 {
            self.memory_available = memory_available;
        }
        self.memory_pressure = match (self.memory_pressure, memory_pressure) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        };
        self.stopped = self.stopped.take().or(stopped);
        self.unanswered.extend(unanswered);
    }
}

/// A request that was issued.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Issued {
    /// Index of the request in the plan.
    pub request: u32,
    /// The pages that were asked for: as planned, but cut at the end of the file or device as it was then,
    /// and moved with the end of the file where they were meant from there. Empty for look-ups.
    pub pages: crate::PageRange,
    /// When it was issued, since the origin.
    pub issued_ns: u64,
    /// When its pages had arrived, since the origin.
    pub done_ns: u64,
    /// Pages of the request that were in memory before.
    pub resident: Vec<crate::PageRange>,
    /// How many of its pages were in memory at the end of the replay.
    pub arrived_pages: u64,
}
