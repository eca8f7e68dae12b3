//! One start, from what is decided for it to what it left. It alone holds what was decided, the plan, the
//! replay, what was in memory before, and whether it was recorded exactly:
//!
//! ```text
//!  Start::decide ──▶ begin (the replay, if that was decided) ──▶ end ──▶ Over, which `finish` learns from
//! ```
//!
//! `headstart run`, boots and the daemon bring the rest: when it began, who waits for the replay, when it has
//! ended, by which rules it is learned.

use crate::Arguments;
use crate::bypass;
use crate::decide::{Decision, PriorState, decide, is_recorded};
use crate::next_start::{machine_of, plan_of_state};
use crate::warm_start::sample_warmth;
use headstart_model::outcome::{Mode, ReplayReport, Resident};
use headstart_model::plan::PlanFile;
use headstart_model::{Key, NamedFiles};
use headstart_replay::{Options, Replay, ReplayError, Sample};
use headstart_store::Store;
use headstart_system::fault_around;
use headstart_system::mounts::MountTable;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::sync::Arc;

/// A start that somebody asks for.
#[derive(Clone)]
pub struct StartRequest {
    /// Where everything is kept.
    pub store: Store,
    /// Whose start it is.
    pub key: Key,
    /// What it is given.
    pub arguments: Arguments,
    /// Every how many starts one is a control run without replay; 0 for never.
    pub control_every: u32,
    /// See [`PriorState::fixed_rate`].
    pub fixed_rate: bool,
}

/// What reads a plan ahead: a [`Replay`], or the parts of a boot's.
pub trait Reads {
    /// The plan.
    fn plan(&self) -> Arc<PlanFile>;
    /// Nothing more is read.
    fn stop(&self);
    /// What it did, once it has come to its end.
    fn finish(self) -> ReplayReport;
}

impl Reads for Replay {
    fn plan(&self) -> Arc<PlanFile> {
        Arc::clone(Replay::plan(self))
    }

    fn stop(&self) {
        Replay::stop(self);
    }

    fn finish(self) -> ReplayReport {
        Replay::finish(self)
    }
}

/// A start for which was decided what is done, and what reads ahead for it.
pub struct Start<R = Replay> {
    decision: Decision,
    /// The plan of a replay that was decided and has not begun.
    plan: Option<PlanFile>,
    replay: Option<R>,
    resident: Option<Resident>,
    warm: bool,
    in_memory: Option<Sample>,
    depends: bool,
    exact: bool,
    recorded: bool,
    /// What there is to tell of it, for the log.
    pub lines: Vec<String>,
}

/// A start that is over, and its replay with it.
pub struct Over {
    /// What headstart did for it.
    pub mode: Mode,
    /// What of its plan was in memory before it; `None` where nobody looked.
    pub resident_before: Option<Resident>,
    /// Whether it was warm: all that its plan reads was in memory.
    pub warm: bool,
    /// Whether the kernel mapped nothing around a fault for a part of it.
    pub exact: bool,
    /// Its replay.
    pub replayed: Option<Replayed>,
}

/// A replay that has ended.
pub struct Replayed {
    /// What it did.
    pub report: ReplayReport,
    /// The plan it followed.
    pub plan: Arc<PlanFile>,
}

impl<R: Reads> Start<R> {
    /// One of which nothing is known but this.
    pub fn new(decision: Decision) -> Start<R> {
        Start::with_plan(decision, None, false)
    }

    /// A start with this decision. A replay reads `plan`; its recording is exact where that is due.
    pub fn with_plan(decision: Decision, plan: Option<PlanFile>, exact_due: bool) -> Start<R> {
        let replays = decision == Decision::Replay;
        Start {
            decision,
            plan: plan.filter(|_| replays),
            replay: None,
            resident: None,
            warm: false,
            in_memory: None,
            depends: false,
            exact: exact_due && replays,
            recorded: true,
            lines: Vec::new(),
        }
    }

    /// What was decided.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// What is done for it: as decided, but declined as long as the replay that was decided has not begun.
    pub fn mode(&self) -> Mode {
        match (&self.decision, &self.replay) {
            (Decision::Replay, None) => Mode::Declined,
            (decision, _) => decision.mode(),
        }
    }

    /// Why nothing is done for it, where that was decided.
    pub fn bypass(&self) -> Option<&str> {
        match &self.decision {
            Decision::Bypass(why) => Some(why),
            _ => None,
        }
    }

    /// Nothing is done for it after all.
    pub fn leave(&mut self, why: String) {
        *self = Start {
            resident: self.resident,
            lines: std::mem::take(&mut self.lines),
            ..Start::new(Decision::Bypass(why))
        };
    }

    /// What of the plan was in memory; `None` where nobody looked.
    pub fn resident(&self) -> Option<Resident> {
        self.resident
    }

    /// Of a start that is bypassed because what it reads is in memory: what was looked at, by which that can
    /// be told of the next one, too.
    pub fn in_memory(&mut self) -> Option<Sample> {
        self.in_memory.take()
    }

    /// Whether it is warm, and the next may not be, for its plan is another where its arguments name other
    /// files.
    pub fn is_warm_as_given(&self) -> bool {
        self.warm && self.depends
    }

    /// Whether it is to be recorded while the kernel maps nothing around a fault. What was mapped by now with
    /// others stays unknown.
    pub fn is_to_be_exact(&self) -> bool {
        self.exact && (self.is_read_ahead() || self.decision == Decision::Control)
    }

    /// Whether it is its turn to be recorded. Who records all starts anyway need not ask.
    pub fn is_to_be_recorded(&self) -> bool {
        self.recorded
    }

    /// Begins the replay by `begin`, if that was decided; whether it has begun now. A start whose replay
    /// cannot begin stays declined.
    pub fn begin_by<E>(&mut self, begin: impl FnOnce(PlanFile) -> Result<R, E>) -> Result<bool, E> {
        let Some(plan) = self.plan.take() else {
            return Ok(false);
        };
        self.replay = Some(begin(plan)?);
        Ok(true)
    }

    /// The replay that was decided never begins.
    pub fn decline(&mut self) {
        self.plan = None;
    }

    /// Whether a replay was decided and has not begun.
    pub fn is_to_begin(&self) -> bool {
        self.plan.is_some()
    }

    /// Whether a replay has begun, or is to begin.
    pub fn is_read_ahead(&self) -> bool {
        self.replay.is_some() || self.is_to_begin()
    }

    /// The replay, once it has begun.
    pub fn replay(&self) -> Option<&R> {
        self.replay.as_ref()
    }

    /// The same, to tell it something.
    pub fn replay_mut(&mut self) -> Option<&mut R> {
        self.replay.as_mut()
    }

    /// Ends it: where nobody waits for what is read ahead any more (`stops`) the replay is stopped, else it
    /// comes to its end. `exact` says whether it was recorded while the kernel mapped nothing around a fault.
    pub fn end(self, stops: bool, exact: bool) -> Over {
        let mode = self.mode();
        let replayed = self.replay.map(|replay| {
            if stops {
                replay.stop();
            }
            let plan = replay.plan();
            Replayed {
                report: replay.finish(),
                plan,
            }
        });
        Over {
            mode,
            resident_before: self.resident,
            warm: self.warm,
            exact,
            replayed,
        }
    }
}

impl Start {
    /// Begins the replay, if that was decided. A start whose replay cannot begin stays declined.
    pub fn start_replay(&mut self, options: Options) -> Result<(), ReplayError> {
        self.begin_by(|plan| Replay::start(plan, options)).map(|_| ())
    }

    /// Looks what is known of the start and decides. `mounts` tells what is mounted now, if it comes to that.
    pub fn decide(asked: &StartRequest, mounts: &mut dyn FnMut() -> io::Result<MountTable>) -> Start {
        let StartRequest {
            store,
            key,
            arguments,
            control_every,
            fixed_rate,
        } = asked;
        let mut state = store.key(key).state();
        let (machine, bypass) = (machine_of(&state), state.bypass.take());
        let known = PriorState {
            enabled: state.is_served,
            bypass: bypass.as_ref(),
            kernel: &bypass::kernel(),
            machine: &machine,
            turns: state.turns,
            control_every: *control_every,
            fixed_rate: *fixed_rate,
            has_plan: true,
            warmth: None,
            draw: RandomState::new().build_hasher().finish(),
        };
        // A start that is bypassed reads no plan.
        if known.bypass.is_some() || !known.enabled {
            let decision = decide(&known);
            if matches!(decision, Decision::Bypass(_)) {
                return Start::new(decision);
            }
        }
        let mut lines = Vec::new();
        match fault_around::mend() {
            Ok(None) => {}
            Ok(Some(bytes)) => lines.push(format!(
                "the kernel maps {bytes} bytes around a fault again, which a headstart that was killed had changed"
            )),
            Err(error) => lines.push(format!(
                "the kernel still maps one page around a fault, as a headstart that was killed left it (fault_around_bytes in debugfs): {error}"
            )),
        }
        let plan = plan_of_state(&mut state, &mut |line| lines.push(line));
        let depends = plan.as_ref().is_some_and(depends_on_arguments);
        let plan = plan.and_then(|plan| of_start(plan, arguments, mounts));
        let looked = plan
            .as_ref()
            .and_then(|plan| sample_warmth(store, plan, known.turns, &mounts().ok()?, known.draw));
        let (sample, resident, warmth) = match looked {
            Some((sample, resident, warmth)) => (Some(sample), resident, warmth),
            None => (None, None, None),
        };
        let exact_due = known.turns.exact_due;
        let known = PriorState {
            has_plan: plan.is_some(),
            warmth: warmth.filter(|_| *control_every != 0 || std::env::var_os(EVEN_WARM).is_none()),
            ..known
        };
        let decision = decide(&known);
        let warm = warmth.is_some_and(|warmth| warmth.is_warm());
        let recorded = is_recorded(&known, &decision, warm);
        // Where much is used that is not planned, only a recording tells of the next.
        let is_left =
            warm && known.turns.unplanned == 0 && !depends && matches!(decision, Decision::Bypass(_));
        Start {
            depends,
            // A start to compare others with is as all starts are.
            exact: exact_due && (decision == Decision::Replay || warm && decision == Decision::Control),
            resident,
            warm,
            recorded,
            in_memory: sample.filter(|_| is_left),
            lines,
            ..Start::with_plan(decision, plan, false)
        }
    }
}

/// The variable of the environment with which starts that find all in memory are replayed, too, where all
/// starts are: for tests and measurements, which need no cold disk then.
const EVEN_WARM: &str = "HEADSTART_EVEN_WARM";

fn depends_on_arguments(file: &PlanFile) -> bool {
    file.plan().is_ok_and(|plan| plan.has_named())
}

/// A plan without what is only for starts that name other files than this one; nothing where that leaves
/// nothing to read.
fn of_start(
    file: PlanFile,
    arguments: &Arguments,
    mounts: &mut dyn FnMut() -> io::Result<MountTable>,
) -> Option<PlanFile> {
    if !depends_on_arguments(&file) {
        return Some(file);
    }
    let named = mounts().map_or_else(|_| NamedFiles::default(), |mounts| arguments.named(&mounts));
    let file = file.of_start(&named).ok()?.unwrap_or(file);
    let reads = file.plan().is_ok_and(|plan| plan.cut() > 0);
    reads.then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_model::plan::PlanDraft;

    /// A replay that reads nothing.
    struct Nothing(Arc<PlanFile>);

    impl Reads for Nothing {
        fn plan(&self) -> Arc<PlanFile> {
            Arc::clone(&self.0)
        }

        fn stop(&self) {}

        fn finish(self) -> ReplayReport {
            ReplayReport::default()
        }
    }

    fn decided(decision: Decision) -> Start<Nothing> {
        let plan = PlanDraft::new(Key::new("k").unwrap(), 4096).to_file().unwrap();
        Start::with_plan(decision, Some(plan), true)
    }

    fn begin(start: &mut Start<Nothing>) -> bool {
        let begun = start.begin_by(|plan| Ok::<_, ()>(Nothing(Arc::new(plan))));
        begun.unwrap()
    }

    #[test]
    fn a_replay_that_was_decided_and_has_not_begun_is_declined() {
        let mut start = decided(Decision::Replay);
        assert!(start.mode() == Mode::Declined && start.is_read_ahead() && start.is_to_be_exact());
        assert!(begin(&mut start) && !begin(&mut start), "once");
        assert_eq!(start.mode(), Mode::Replay);
        let over = start.end(true, true);
        assert!(over.mode == Mode::Replay && over.replayed.is_some() && over.exact);

        let mut fails = decided(Decision::Replay);
        assert_eq!(
            fails.begin_by(|_| Err::<Nothing, _>("no thread")),
            Err("no thread")
        );
        assert!(fails.mode() == Mode::Declined && !fails.is_read_ahead() && !fails.is_to_be_exact());
        assert!(!begin(&mut fails), "its plan is gone");
    }

    #[test]
    fn what_is_left_or_declined_never_begins() {
        let mut left = decided(Decision::Replay);
        left.leave("too little memory".into());
        assert!(!begin(&mut left) && left.mode() == Mode::Bypass && !left.is_to_be_exact());
        assert_eq!(left.bypass(), Some("too little memory"));
        let mut declined = decided(Decision::Replay);
        declined.decline();
        assert!(!begin(&mut declined) && declined.mode() == Mode::Declined);
        for decision in [Decision::Record, Decision::Control] {
            let (mode, mut start) = (decision.mode(), decided(decision));
            assert!(!begin(&mut start) && start.mode() == mode && start.end(true, false).replayed.is_none());
        }
    }
}
