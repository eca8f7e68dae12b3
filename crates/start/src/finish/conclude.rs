//! What a finished start decides for those that follow, and the state of its key that is kept.

use super::next_control::{next_control, reads_remote_files};
use super::{Conclusion, Finished, KeyStateBefore};
use crate::bypass;
use crate::config;
use crate::decide::next_turns;
use crate::machine;
use crate::notes::Notes;
use anyhow::Result;
use headstart_learn::much_is_unplanned;
use headstart_learn::verdict::History;
use headstart_model::Key;
use headstart_model::outcome::{Mode, Outcome, StageOutcome};
use headstart_model::profile::Policy;
use headstart_store::{Change, KeyDir, KeyLock, Limits, Store, Turns};
use headstart_system::open_cost;
use headstart_system::own_program;
use std::path::PathBuf;
use std::time::SystemTime;

impl Finished<'_> {
    /// Decides whether the starts that follow are bypassed, or more of them control runs. Writes the state,
    /// and keeps it within its bounds.
    pub(super) fn conclude(
        &self,
        lock: &KeyLock,
        before: &KeyStateBefore,
        conclusion: Conclusion<'_>,
        notes: &mut Notes,
    ) -> Result<()> {
        let Conclusion {
            new,
            taught,
            outcomes,
            due,
            witness,
        } = conclusion;
        let (store, rules) = (self.store, &self.rules);
        let plan = new.or(before.plan.as_ref()).and_then(|file| file.plan().ok());
        // A boot is read ahead before a scanner runs.
        let dear = open_cost::dear().filter(|_| rules.policy != Policy::Boot);
        let bypass = bypass::dear_opens(dear, rules.control_every)
            .or_else(|| bypass::decide(rules.alone.as_ref(), plan.as_ref(), outcomes, rules.control_every));
        let bypass = bypass.or_else(|| match (rules.policy, &plan) {
            (Policy::Boot, None) => bypass::untaught(outcomes, rules.control_every),
            (Policy::Boot, Some(_)) => None,
            (_, plan) => {
                let remote = plan.as_ref().is_some_and(reads_remote_files);
                bypass::hardly_waits(outcomes, remote, rules.control_every)
            }
        });
        let bypass =
            bypass.map(|found| bypass::confirmed(found, before.state.bypass.as_ref(), rules.control_every));
        let turns = before.state.turns;
        // Somebody measures them, whatever comes of it.
        let bypass = bypass.filter(|_| turns.alternate <= 1);
        let (history, _) = History::of(outcomes);
        let next = Turns {
            in_doubt: history.in_doubt(),
            exact_due: due.exact.unwrap_or(turns.exact_due),
            record_in: due.record_in,
            bridges_nothing: due.bridges_nothing,
            control_is_recorded: due.control,
            waited_ms: longest_wait_ms(outcomes),
            // Where there is no plan, what was read ahead was others' starts'.
            ignores_imports: plan.is_none()
                && (turns.ignores_imports || outcomes.last().is_some_and(was_in_vain)),
            unplanned: match taught.map(|trace| much_is_unplanned(trace, plan.as_ref())) {
                Some(false) => 0,
                Some(true) => turns.unplanned.saturating_add(1),
                None => turns.unplanned,
            },
            // A start that had all in memory says nothing of what a replay gains, and is nobody's turn.
            ..match self.over.warm {
                true => turns,
                false => next_turns(turns, self.over.mode),
            }
        };
        let before_plan = before.plan.as_ref().and_then(|file| file.plan().ok());
        let next = next_control(
            (turns, before_plan.as_ref()),
            (next, plan.as_ref()),
            self.over.mode,
            &history,
            self.key,
            rules.control_every,
        );
        let changed = lock.change(&Change {
            plan: new,
            turns: Some(next),
            bypass: Some(bypass.as_ref()),
            enabled: None,
        });
        note_way(store, lock.dir());
        let (limits, now) = (Limits::default(), SystemTime::now());
        lock.trim(&limits, now, witness.as_deref());
        if rules.tidies {
            if let Err(error) = store.tidy(&limits, now) {
                notes.add(error.to_string());
            }
        }
        Ok(changed?)
    }
}

/// Whether most of what was read ahead for a start was not used.
fn was_in_vain(outcome: &Outcome) -> bool {
    let stages = outcome.stages.iter();
    let sum = |pages: fn(&StageOutcome) -> u64| stages.clone().map(pages).fold(0, u64::saturating_add);
    let read = sum(|stage| stage.issued_pages)
        .saturating_sub(sum(|stage| stage.bridged_pages))
        .saturating_sub(sum(|stage| stage.resident_pages));
    outcome.mode == Mode::Replay && sum(|stage| stage.wasted_pages) > read / 2
}

/// The longest that a start without a replay waited for devices, milliseconds.
fn longest_wait_ms(outcomes: &[Outcome]) -> u32 {
    let alone = outcomes.iter().filter(|outcome| outcome.mode != Mode::Replay);
    let longest_ns = alone.filter_map(|outcome| outcome.blocked_ns).max();
    u32::try_from(longest_ns.unwrap_or(0) / 1_000_000).unwrap_or(u32::MAX)
}

/// Notes at the program's file what leads to what starts need first, and a boot, which begins with nothing in
/// memory.
fn note_way(store: &Store, key: &KeyDir) {
    let boot = Key::new(headstart_model::key::BOOTS)
        .map(|key| store.key(&key))
        .ok();
    let of_boot = boot.map_or([None, None], |boot| [boot.start_path(), boot.guard_path()]);
    let paths = of_boot
        .into_iter()
        .chain([key.start_path(), Some(PathBuf::from(config::FILE))]);
    let paths: Vec<PathBuf> = paths.flatten().collect();
    own_program::note_way(
        &paths.iter().map(PathBuf::as_path).collect::<Vec<_>>(),
        &|device| machine::stored(store, device),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mostly_wasted_was_read_in_vain() {
        let outcome = |mode, wasted_pages| Outcome {
            stages: vec![StageOutcome {
                issued_pages: 100,
                bridged_pages: 10,
                resident_pages: 10,
                wasted_pages,
                ..StageOutcome::default()
            }],
            ..Outcome::new(Key::new("k").unwrap(), mode)
        };
        assert!(was_in_vain(&outcome(Mode::Replay, 41)) && !was_in_vain(&outcome(Mode::Replay, 40)));
        assert!(
            !was_in_vain(&outcome(Mode::Control, 90)),
            "nothing was read ahead"
        );
        let unrecorded = Outcome::new(Key::new("k").unwrap(), Mode::Replay);
        assert!(!was_in_vain(&unrecorded), "nobody can tell");
    }
}
