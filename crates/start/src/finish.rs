//! The end of a start: review what the replay was worth, learn, plan anew, keep it all.

mod conclude;
mod next_control;

use crate::bypass::Alone;
use crate::decide::next_record_in;
use crate::machine::{self, Costs, Measure};
use crate::notes::Notes;
use crate::now_unix_ns;
use crate::remote_cost;
use crate::replan;
use crate::secret_names::forget_secret_names;
use crate::start::{Over, Replayed};
use crate::unmounted_files;
use anyhow::Result;
use headstart_learn::{
    DEFAULT_EXCLUDE, LearnOptions, Reviewed, ahead, exact_is_due, learn, memory_needed_of_late, pace_of_late,
    review,
};
use headstart_model::machine::Machine;
use headstart_model::outcome::{Mode, Outcome};
use headstart_model::plan::PlanFile;
use headstart_model::profile::Policy;
use headstart_model::sort::Sort;
use headstart_model::trace::EndReason;
use headstart_model::{FilePath, Key, NamedFiles, Profile, Trace};
use headstart_plan::{PlanOptions, RecordedMetadata, pace, plan, recorded_metadata};
use headstart_record::RecordError;
use headstart_store::{KeyLock, State, Store, Turns};
use headstart_system::fault_around;
use headstart_system::mounts::MountTable;
use headstart_system::priority::{self, Priority};
use headstart_system::secrets::Secrets;
use std::path::PathBuf;
use std::time::Duration;

/// What a start left.
pub struct Finished<'a> {
    /// Where everything is kept.
    pub store: &'a Store,
    /// Whose start it was.
    pub key: &'a Key,
    /// When it began, nanoseconds since 1970.
    pub origin_unix_ns: u64,
    /// What was done for it.
    pub over: Over,
    /// Its trace, or why there is none; `None` if it was not its turn to be recorded.
    pub recorded: Option<Result<Trace, RecordError>>,
    /// How it ended.
    pub reason: EndReason,
    /// The command's status, if it has one, and how long it took, if it has ended.
    pub ended: Option<(Option<i32>, Duration)>,
    /// How it is learned from.
    pub rules: Rules,
}

/// How a start is learned from.
pub struct Rules {
    /// How a key that is new is learned.
    pub policy: Policy,
    /// Nothing at or below these paths is learned.
    pub exclude: Vec<FilePath>,
    /// What its arguments name.
    pub named: NamedFiles,
    /// Why the start teaches nothing, where something else than its trace tells.
    pub unfit: Option<String>,
    /// Memory that the next replay may fill, bytes; `None` for a share of what is available now, less what
    /// starts of the key need.
    pub budget: Option<u64>,
    /// How it goes without a replay, where that is known.
    pub alone: Option<Alone>,
    /// One in so many goes without a replay, or re-evaluates where starts are bypassed; with 0 all are
    /// replayed.
    pub control_every: u32,
    /// One known start with a replay in so many is recorded.
    pub record_every: u32,
    /// Whether some of its next starts may be recorded exactly ([`crate::config::Programs::exact_pages`]).
    pub exact_pages: bool,
    /// Whether all keys are looked at, for what is too old or too much. Who finishes many starts does that
    /// for them together.
    pub tidies: bool,
}

impl Rules {
    /// Those of programs: how many are controls, and whether some are recorded exactly.
    pub fn of_programs(control_every: u32, exact_pages: bool) -> Rules {
        Rules {
            policy: Policy::Decay,
            exclude: DEFAULT_EXCLUDE.iter().map(|path| (*path).into()).collect(),
            named: NamedFiles::default(),
            unfit: None,
            budget: None,
            alone: None,
            control_every,
            record_every: 1,
            exact_pages,
            tidies: true,
        }
    }
}

/// Why a start taught nothing that was not recorded, where nothing has failed.
const NOT_ITS_TURN: &str = "it was not its turn to be recorded";

/// What was kept before is looked at for so long after a start.
const FORGETS_WITHIN: Duration = Duration::from_secs(2);

/// Others come first: the program that may still run, and whoever waited for it.
pub const NICE: i32 = 10;

/// The calling thread comes after others from now on, as all does that follows a start.
pub fn at_low_priority() {
    priority::stand_back(Priority::Idle, NICE);
}

/// Does all of it and gives what it came to. An error is of what had to be kept; smaller losses are notes.
pub fn work(mut finished: Finished<'_>, notes: &mut Notes) -> Result<Outcome> {
    at_low_priority();
    let lock = finished.store.key(finished.key).lock()?;
    if let Some(why) = lock.dir().newer() {
        notes.add(why.clone());
        return Ok(finished.without_trace(why));
    }
    let mut state = lock.dir().state();
    let before = KeyStateBefore {
        plan: state.plan().or_tell(|line| notes.add(line)),
        state,
    };
    let has_trace = matches!(finished.recorded, Some(Ok(_)));
    let outcome = match finished.recorded.take().transpose() {
        Ok(Some(trace)) => finished.recorded(&lock, &before, trace, notes)?,
        Ok(None) => {
            let unrecorded = finished.rules.unfit.is_none();
            finished.not_recorded(&lock, &before, NOT_ITS_TURN.into(), unrecorded, notes)?
        }
        Err(error) => {
            finished.not_recorded(&lock, &before, format!("not recorded: {error}"), false, notes)?
        }
    };
    drop(lock);
    // A boot is not over yet, and the daemon has looked at its beginning.
    if has_trace && finished.rules.tidies && finished.rules.policy != Policy::Boot {
        if let Err(error) = forget_secret_names(finished.store, FORGETS_WITHIN, false) {
            notes.add(error.to_string());
        }
    }
    Ok(outcome)
}

/// The state of its key before a start is finished.
struct KeyStateBefore {
    state: State,
    plan: Option<PlanFile>,
}

/// What a start leaves for those that follow.
struct Conclusion<'a> {
    /// The new plan, if there is one.
    new: Option<&'a PlanFile>,
    /// The trace that the plan was made anew from.
    taught: Option<&'a Trace>,
    /// All outcomes of the key, with this start's.
    outcomes: &'a [Outcome],
    /// When a start is recorded next.
    due: NextRecording,
    /// The trace that stays beyond its turn, for it saw most metadata.
    witness: Option<PathBuf>,
}

/// When a start is recorded next.
#[derive(Clone, Copy, Default)]
struct NextRecording {
    /// Whether the next one is to be recorded while the kernel maps nothing around a fault; `None` if that
    /// stays as it is.
    exact: Option<bool>,
    /// See [`Turns::record_in`].
    record_in: u8,
    /// See [`Turns::bridges_nothing`].
    bridges_nothing: bool,
    /// See [`Turns::control_is_recorded`].
    control: bool,
}

impl Finished<'_> {
    /// What is known of a start that was not recorded.
    fn without_trace(&self, why: String) -> Outcome {
        let replayed = self.over.replayed.as_ref();
        Outcome {
            resident_before: self.over.resident_before,
            ..without_trace(
                self.key,
                self.over.mode,
                replayed,
                self.ended,
                self.origin_unix_ns,
                why,
            )
        }
    }

    /// How many requests of its replay were issued.
    fn requests(&self) -> usize {
        let replayed = self.over.replayed.as_ref();
        replayed.map_or(0, |replayed| replayed.report.issued.len())
    }

    /// Whether plans are to bridge nothing, for what was bridged could not be read once.
    fn bridges_nothing(&self, before: &KeyStateBefore) -> bool {
        let replayed = self.over.replayed.as_ref();
        replayed.is_some_and(|replayed| replayed.report.broken_bridges > 0)
            || before.state.turns.bridges_nothing
    }

    /// Keeps what is known of a start without a trace.
    fn not_recorded(
        &self,
        lock: &KeyLock,
        before: &KeyStateBefore,
        why: String,
        unrecorded: bool,
        notes: &mut Notes,
    ) -> Result<Outcome> {
        let outcome = Outcome {
            unrecorded,
            ..self.without_trace(self.rules.unfit.clone().unwrap_or(why))
        };
        let due = NextRecording {
            record_in: next_record_in(before.state.turns, &outcome, self.requests(), 0, 1),
            bridges_nothing: self.bridges_nothing(before),
            exact: None,
            control: match self.over.mode {
                Mode::Control => unrecorded,
                _ => before.state.turns.control_is_recorded,
            },
        };
        lock.add_outcome(&outcome)?;
        let outcomes = lock.dir().outcomes(|line| notes.add(line));
        // It has added no trace, and the oldest may be the one that saw most metadata.
        let oldest = lock.dir().traces().into_iter().next();
        let conclusion = Conclusion {
            new: None,
            taught: None,
            outcomes: &outcomes,
            due,
            witness: oldest,
        };
        self.conclude(lock, before, conclusion, notes)?;
        Ok(outcome)
    }

    /// Reviews a start that was recorded, learns from it and plans the next.
    fn recorded(
        &self,
        lock: &KeyLock,
        before: &KeyStateBefore,
        mut trace: Trace,
        notes: &mut Notes,
    ) -> Result<Outcome> {
        let previous = lock.dir().profile().or_tell(|line| notes.add(line));
        let unfit = (self.rules.unfit.clone()).or_else(|| unfit(self.reason, previous.is_some()));
        let learned = match unfit {
            Some(why) => Err(why),
            None => learn_from(self.key, previous.clone(), &trace, &self.rules),
        };
        let mut outcome = self.review(&mut trace, previous.as_ref(), learned.as_ref().err().cloned());
        let (metadata, witness) = metadata(lock, &trace, notes);
        self.keep_remote_cost(notes);
        let learned = learned.map(|mut profile| {
            let facts = self.facts(before, &mut profile, &trace, notes);
            (profile, facts)
        });
        if let (Some(it), Ok((_, Ok(facts)))) = (&self.over.replayed, &learned) {
            outcome.pace = (it.plan.plan().ok()).and_then(|plan| pace(&plan, &it.report, facts));
        }
        // First what it is learned from: a profile whose trace and outcome cannot be kept (a full disk) could
        // not be explained.
        lock.add_trace(&trace)?;
        let name = lock.add_outcome(&outcome)?;
        let outcomes = lock.dir().outcomes(|line| notes.add(line));
        let mut due = NextRecording {
            bridges_nothing: self.bridges_nothing(before),
            control: self.over.mode != Mode::Control && before.state.turns.control_is_recorded,
            ..NextRecording::default()
        };
        let planned = match learned {
            Ok((mut profile, facts)) => {
                if self.over.exact {
                    // Also where it did not tell all: the next try has its time.
                    profile.exact_at = profile.runs;
                }
                // Where it cannot be, no start is recorded for it.
                let is_due = self.rules.exact_pages && exact_is_due(&profile, &trace);
                due.exact = Some(is_due && fault_around::is_possible());
                due.record_in = next_record_in(
                    Turns::default(),
                    &outcome,
                    self.requests(),
                    profile.runs,
                    self.rules.record_every,
                );
                let planned = self.plan(before, &profile, facts, &metadata, &outcomes, notes);
                if let Err(error) = lock.save_profile(&profile) {
                    outcome.not_learned = Some(format!("what it teaches cannot be kept: {error}"));
                    lock.correct_outcome(&name, &outcome)?;
                    return Err(error.into());
                }
                planned.map(|new| (true, new))
            }
            Err(why) => {
                notes.add(format!("{}: nothing is learned: {why}", self.key));
                Ok((false, None))
            }
        };
        // Whose turn it is counts also where no plan could be made.
        let (taught, new) = planned.as_ref().map_or((None, None), |(taught, new)| {
            (taught.then_some(&trace), new.as_ref())
        });
        let conclusion = Conclusion {
            new,
            taught,
            outcomes: &outcomes,
            due,
            witness,
        };
        let concluded = self.conclude(lock, before, conclusion, notes);
        planned?;
        concluded.map(|()| outcome)
    }

    /// Keeps what remote file systems have cost its replay.
    fn keep_remote_cost(&self, notes: &mut Notes) {
        let Some(replayed) = &self.over.replayed else {
            return;
        };
        let Ok(plan) = replayed.plan.plan() else { return };
        if let Err(error) = remote_cost::keep(self.store, &plan, &replayed.report) {
            notes.add(format!("what remote file systems cost is not kept: {error}"));
        }
    }

    /// What its replay was worth.
    fn review(&self, trace: &mut Trace, previous: Option<&Profile>, not_learned: Option<String>) -> Outcome {
        let replayed = self.over.replayed.as_ref();
        let opened = replayed.and_then(|replayed| Some((replayed.plan.plan().ok()?, &replayed.report)));
        // Both clocks run alike between the two instants, unless somebody sets the wall clock just then.
        let trace_began_ns = trace.meta.started_unix_ns.wrapping_sub(self.origin_unix_ns) as i64;
        if let Some((plan, report)) = &opened {
            trace.ahead = ahead(trace, plan, report, trace_began_ns);
        }
        let mut outcome = review(&Reviewed {
            key: self.key.clone(),
            mode: self.over.mode,
            trace,
            replay: opened.as_ref().map(|(plan, report)| (plan, *report)),
            profile: previous,
            trace_began_ns,
            not_learned,
        });
        outcome.resident_before = self.over.resident_before;
        // The trace begins when the recorder is attached; the caller waited from the first instant.
        if let Some((status, took)) = self.ended {
            outcome.elapsed_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
            outcome.status = status;
        }
        outcome
    }

    /// What the profile's paths are on this machine, without names that are encrypted.
    fn facts(
        &self,
        before: &KeyStateBefore,
        profile: &mut Profile,
        trace: &Trace,
        notes: &mut Notes,
    ) -> Result<Machine> {
        // What was learned before its directory was encrypted, or before that counted.
        let (mut secrets, mounts) = (Secrets::new(), || MountTable::read().unwrap_or_default());
        let mut is_secret = |path: &FilePath| secrets.is_secret(Some(&mounts), path.as_bytes());
        profile.entries.retain(|entry| !is_secret(&entry.path));
        let costs = Costs {
            store: self.store,
            class: None,
            // It re-evaluates whether starts are to be bypassed.
            measure: match before.state.bypass {
                Some(_) => Measure::All,
                None => Measure::Unknown,
            },
        };
        let mut facts = machine::snapshot(profile, &costs, &mut |line| notes.add(line))?;
        unmounted_files::add(&mut facts, trace);
        Ok(facts)
    }

    /// The plan that the profile makes, as it is kept; `None` where the one before stays.
    fn plan(
        &self,
        before: &KeyStateBefore,
        profile: &Profile,
        facts: Result<Machine>,
        metadata: &[RecordedMetadata],
        outcomes: &[Outcome],
        notes: &mut Notes,
    ) -> Result<Option<PlanFile>> {
        let options = PlanOptions {
            budget: self.rules.budget,
            needed: memory_needed_of_late(outcomes),
            pace: pace_of_late(outcomes),
            bridges: !self.bridges_nothing(before),
            ..PlanOptions::new(now_unix_ns())
        };
        let planned = plan(profile, &facts?, metadata, &options);
        replan::replacing(before.plan.as_ref(), profile, &planned, notes)
    }
}

/// The signals by which a program is asked to end: SIGHUP, SIGINT and SIGTERM. Others tell of a failure.
const ASKED_TO_END: [i32; 3] = [1, 2, 15];

/// SIGPIPE: whoever read what the program writes has read enough, as `head` does, and will do so the next
/// time.
const CLOSED_PIPE: i32 = 13;

/// Why a start teaches nothing that the trace alone does not tell. A signal may have come at any moment of
/// it, and what was not read for that is no less needed; but where nothing is `known` the beginning of a
/// start is more than nothing: a browser that is closed half a minute after it was called, on a slow disk,
/// may never be seen to its end.
fn unfit(reason: EndReason, known: bool) -> Option<String> {
    let EndReason::Exit(status) = reason else {
        return None;
    };
    let signal = status & 0x7f;
    let teaches = [0, CLOSED_PIPE].contains(&signal) || (!known && ASKED_TO_END.contains(&signal));
    (!teaches).then(|| format!("the command was killed by signal {signal} before its start had ended"))
}

/// A profile of a kernel with other pages, as some machines can be started with, is begun anew.
fn learn_from(key: &Key, previous: Option<Profile>, trace: &Trace, rules: &Rules) -> Result<Profile, String> {
    let previous = previous.filter(|profile| profile.page_size == trace.meta.page_size);
    let options = LearnOptions {
        key: key.clone(),
        policy: previous.as_ref().map_or(rules.policy, |profile| profile.policy),
        now_unix_ns: now_unix_ns(),
        exclude: rules.exclude.clone(),
        named: rules.named.clone(),
    };
    learn(previous, std::slice::from_ref(trace), &options).map_err(|refused| refused.to_string())
}

/// The metadata that this and earlier starts saw read, and the earlier trace that saw most: a start with a
/// replay sees none, so that one must outlive the last few.
fn metadata(lock: &KeyLock, trace: &Trace, notes: &mut Notes) -> (Vec<RecordedMetadata>, Option<PathBuf>) {
    let mut misses = recorded_metadata(trace);
    let mut most = misses.len();
    let mut witness = None;
    for path in lock.dir().traces() {
        let Some(earlier) = lock.dir().trace(&path).or_tell(|line| notes.add(line)) else {
            continue;
        };
        let seen = recorded_metadata(&earlier);
        if seen.len() > most {
            most = seen.len();
            witness = Some(path);
        }
        misses.extend(seen);
    }
    misses.sort_small_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
    misses.dedup();
    (misses, witness)
}

/// What is known of a start that was not recorded.
pub fn without_trace(
    key: &Key,
    mode: Mode,
    replayed: Option<&Replayed>,
    ended: Option<(Option<i32>, Duration)>,
    started_unix_ns: u64,
    why: String,
) -> Outcome {
    let mut outcome = Outcome {
        started_unix_ns,
        elapsed_ns: ended.map_or(0, |(_, took)| u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)),
        status: ended.and_then(|(status, _)| status),
        not_learned: Some(why),
        ..Outcome::new(key.clone(), mode)
    };
    if let Some(replayed) = replayed {
        outcome.replayed(&replayed.report);
    }
    outcome
}
