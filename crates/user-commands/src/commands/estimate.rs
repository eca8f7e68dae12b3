//! `headstart estimate`: what reading ahead could spare, without a start more.

use crate::floor::{Wanted, last_start, start_floor};
use anyhow::Result;
use headstart_inspect::estimate::{Estimate, ProgramEstimate, text};
use headstart_learn::verdict::start::{WARM, resident};
use headstart_model::Outcome;
use headstart_model::outcome::Mode;
use headstart_start::machine::{Costs, Measure};
use headstart_start::{OWN_NS, complain, now_unix_ns};
use headstart_start_commands::context::Output;
use headstart_store::{KeyDir, Store};
use std::time::Duration;

/// Say how long starts waited for disks of late, and how much of that reading ahead could spare.
///
/// It starts nothing. It takes the cold starts that were recorded and not read ahead: how long each waited
/// for devices, and how much less it could have taken at best (see `headstart floor`), less what headstart
/// itself costs a start. Programs come in the order of what could be spared.
///
/// The daemon records cold starts of programs that wait for disks. With `observe = true` in the table
/// `[programs]` of headstart.toml(5) it reads nothing ahead: after some days this says what it would bring.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Starts of the last so many days.
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..=3650))]
    days: u16,
    /// All programs, not the first five.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    output_form: Output,
}

pub fn run(args: Args, store: &Store) -> Result<()> {
    let day = Duration::from_secs(24 * 60 * 60);
    let span_ns = u64::try_from((u32::from(args.days) * day).as_nanos()).unwrap_or(u64::MAX);
    let since = now_unix_ns().saturating_sub(span_ns);
    let mut programs: Vec<ProgramEstimate> = store
        .keys()?
        .iter()
        .filter_map(|key| of_key(&store.key(key), store, since))
        .collect();
    programs.sort_by(|a, b| (b.spared_ns, &a.key).cmp(&(a.spared_ns, &b.key)));
    let estimate = Estimate {
        days: args.days,
        programs,
    };
    args.output_form.print(&estimate, || text(&estimate, args.all))
}

/// What could be spared of a key's starts; `None` if none counts.
fn of_key(kept: &KeyDir, store: &Store, since: u64) -> Option<ProgramEstimate> {
    let outcomes = kept.outcomes(|line| complain(&line));
    let counted: Vec<(u64, u64)> = outcomes
        .iter()
        .filter_map(|outcome| waited(outcome, since))
        .collect();
    if counted.is_empty() {
        return None;
    }
    let floor_ns = floor_ns(kept, store);
    let spared = |(waited_ns, elapsed_ns): &(u64, u64)| {
        floor_ns.map_or(0, |floor_ns| spared_ns(*waited_ns, *elapsed_ns, floor_ns))
    };
    Some(ProgramEstimate {
        key: kept.key().to_string(),
        starts: counted.len(),
        waited_ns: counted.iter().map(|(waited_ns, _)| waited_ns).sum(),
        spared_ns: counted.iter().map(spared).sum(),
        is_floor_known: floor_ns.is_some(),
    })
}

/// How long a start waited for devices, and how long it took, if it counts: a cold one since then without a
/// replay. Its threads may have waited for longer, added up, than it took.
fn waited(outcome: &Outcome, since: u64) -> Option<(u64, u64)> {
    let is_alone = matches!(outcome.mode, Mode::Record | Mode::Control);
    let is_warm = resident(outcome).is_some_and(|share| share >= WARM);
    let counts = is_alone && !is_warm && outcome.started_unix_ns >= since;
    let blocked_ns = outcome.blocked_ns.filter(|_| counts)?;
    Some((blocked_ns.min(outcome.elapsed_ns), outcome.elapsed_ns))
}

/// Of a start that waited so long and took so long, what reading ahead could spare at best.
fn spared_ns(waited_ns: u64, elapsed_ns: u64, floor_ns: u64) -> u64 {
    waited_ns
        .min(elapsed_ns.saturating_sub(floor_ns))
        .saturating_sub(OWN_NS as u64)
}

/// The least that the last start could have taken. No device is measured for it.
fn floor_ns(kept: &KeyDir, store: &Store) -> Option<u64> {
    let start = last_start(kept, Wanted::Any, &mut |line| complain(&line))?;
    let costs = Costs {
        store,
        class: None,
        measure: Measure::Nothing,
    };
    let floor = start_floor(&start, Some(kept), &costs, None, &mut |line| complain(&line));
    floor.ok().map(|floor| floor.floor.floor_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_model::Key;
    use headstart_model::outcome::Resident;

    const S: u64 = 1_000_000_000;

    #[test]
    fn cold_starts_without_a_replay_count_and_no_others() {
        let outcome = |mode| Outcome {
            started_unix_ns: 10,
            elapsed_ns: 5 * S,
            blocked_ns: Some(7 * S),
            ..Outcome::new(Key::new("/usr/bin/x").unwrap(), mode)
        };
        assert_eq!(waited(&outcome(Mode::Record), 10), Some((5 * S, 5 * S)));
        assert_eq!(waited(&outcome(Mode::Control), 0), Some((5 * S, 5 * S)));
        for other in [Mode::Replay, Mode::Bypass, Mode::Declined] {
            assert_eq!(waited(&outcome(other), 0), None);
        }
        assert_eq!(waited(&outcome(Mode::Control), 11), None, "too long ago");
        let warm = Outcome {
            resident_before: Some(Resident {
                sampled_pages: 100,
                resident_pages: 99,
            }),
            ..outcome(Mode::Control)
        };
        assert_eq!(waited(&warm, 0), None);
    }

    #[test]
    fn no_more_is_spared_than_was_waited_for_nor_than_the_floor_leaves() {
        assert_eq!(spared_ns(4 * S, 5 * S, S / 2), 4 * S - OWN_NS as u64);
        assert_eq!(spared_ns(4 * S, 5 * S, 3 * S), 2 * S - OWN_NS as u64);
        assert_eq!(spared_ns(S / 100, 5 * S, 0), 0, "headstart costs more");
        assert_eq!(spared_ns(4 * S, 5 * S, 6 * S), 0);
    }
}
