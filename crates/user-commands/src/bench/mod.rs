//! Starts of a command on this machine, cold, cold with headstart, and warm, in turns: what `headstart bench`
//! measures.
//!
//! What is learned for it lies in a state directory of its own below /var/tmp, which is removed in the end.
//! headstart is called as a user calls it, and times are taken from outside. The daemon ignores all of it,
//! because `headstart` began it.

pub mod boots;
mod cold;
mod start;
mod tree;

pub use start::Interrupted;

use crate::floor::{KeptStart, Wanted, last_start, start_floor};
use crate::program::headstart_program;
use anyhow::{Context, Result, bail, ensure};
use cold::Cold;
use headstart_bench::report::{ColdBy, End, Report};
use headstart_bench::rule::{MOST_ROUNDS, difference, finding, is_enough};
use headstart_model::human::duration;
use headstart_start::machine::Costs;
use headstart_start::progress::Progress;
use headstart_start::{complain, keys};
use headstart_store::{Change, KeyDir, Store};
use start::{Ended, Starter};
use std::ffi::OsString;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Where its own state lies meanwhile: on a disk, as that of users does.
const PLACE: &str = "/var/tmp";

/// Starts that teach before the first round: one that is recorded, and one that is read ahead for and shows
/// what the first did not.
const LEARNING: usize = 2;

/// What to measure.
pub struct Bench<'a> {
    /// The command line.
    pub command: &'a [OsString],
    /// The state directory of this machine: what its devices cost is known there.
    pub store: &'a Store,
    /// So many rounds; `None`: until it is clear.
    pub rounds: Option<usize>,
    /// How starts are made cold.
    pub cold_by: ColdBy,
    /// Keep what is learned in the state directory of this machine.
    pub keep: bool,
}

/// The most starts that there can be.
pub fn most_starts(rounds: Option<usize>) -> usize {
    LEARNING + 3 * rounds.unwrap_or(MOST_ROUNDS)
}

/// Seconds of each kind of start, and how one ends.
#[derive(Default)]
struct Times {
    cold: Vec<f64>,
    with: Vec<f64>,
    warm: Vec<f64>,
    end: Option<End>,
    /// How many starts with headstart were bypassed.
    bypassed: usize,
}

/// A kind of start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Cold,
    WithHeadstart,
    Warm,
}

impl Kind {
    fn text(self) -> &'static str {
        match self {
            Kind::Cold => "cold start without headstart",
            Kind::WithHeadstart => "cold start with headstart",
            Kind::Warm => "warm start",
        }
    }
}

/// The order of the starts of a round: a warm one comes after another one, and neither cold one always first.
fn order(round: usize) -> [Kind; 3] {
    match round % 2 {
        0 => [Kind::Cold, Kind::Warm, Kind::WithHeadstart],
        _ => [Kind::WithHeadstart, Kind::Warm, Kind::Cold],
    }
}

/// Measures.
///
/// # Errors
/// The command cannot be started or does not succeed, nothing can be learned of it, its starts end in
/// different ways, or somebody has ended this by a signal ([`Interrupted`]).
pub fn bench(bench: &Bench<'_>, progress: &Progress) -> Result<Report> {
    let scratch = tempfile::Builder::new()
        .prefix(&format!("headstart-bench-{}-", std::process::id()))
        .tempdir_in(PLACE)
        .with_context(|| format!("cannot make a directory in {PLACE}"))?;
    let store = Store::new(scratch.path());
    bench.store.copy_device_costs(&store);
    let key = keys::named_or_of(None, bench.command, &store)?.key;
    let running = Running {
        bench,
        kept: store.key(&key),
        starter: Starter::new(scratch.path(), headstart_program()?)?,
        store,
        _scratch: scratch,
    };
    running.measure(progress)
}

struct Running<'a> {
    bench: &'a Bench<'a>,
    /// Its own state, and what is learned of the command there.
    store: Store,
    kept: KeyDir,
    starter: Starter,
    _scratch: TempDir,
}

impl Running<'_> {
    fn measure(&self, progress: &Progress) -> Result<Report> {
        let mut times = Times::default();
        for number in 0..LEARNING {
            progress.show(&format!(
                "learning what the command reads, start {} of {LEARNING}",
                number + 1
            ));
            if number > 0 {
                self.cold()?.drop_pages()?;
            }
            self.start(Kind::WithHeadstart, &mut times)?;
            self.learned()?;
        }
        times.bypassed = 0;
        let cold = self.cold()?;
        let begun = Instant::now();
        let mut round = 0;
        while !self.is_over(round, &times) {
            for kind in order(round) {
                progress.show(&self.doing(kind, round, begun.elapsed()));
                if kind != Kind::Warm {
                    cold.drop_pages()?;
                }
                let seconds = self.start(kind, &mut times)?;
                match kind {
                    Kind::Cold => times.cold.push(seconds),
                    Kind::WithHeadstart => times.with.push(seconds),
                    Kind::Warm => times.warm.push(seconds),
                }
            }
            round += 1;
        }
        progress.show("reckoning what the device could do at best");
        self.report(times, &cold)
    }

    fn is_over(&self, round: usize, times: &Times) -> bool {
        match self.bench.rounds {
            Some(rounds) => round >= rounds,
            None => is_enough(&times.cold, &times.with),
        }
    }

    /// What is done now, and how long all may take yet.
    fn doing(&self, kind: Kind, round: usize, elapsed: Duration) -> String {
        let most = self.bench.rounds.unwrap_or(MOST_ROUNDS);
        let left = elapsed.as_secs_f64() / round.max(1) as f64 * (most - round) as f64;
        let left = match (round, self.bench.rounds) {
            (0, _) => String::new(),
            (_, Some(_)) => format!(", {} left", duration((left * 1e9) as u64)),
            (_, None) => format!(", {} left at most", duration((left * 1e9) as u64)),
        };
        format!("round {} of {most}: {}{left}", round + 1, kind.text())
    }

    /// Starts the command once, and waits until it has ended and what was learned is kept.
    fn start(&self, kind: Kind, times: &mut Times) -> Result<f64> {
        let before = self.outcomes();
        let with = kind == Kind::WithHeadstart;
        let ended = match with {
            true => self.starter.start_with_headstart(self.bench.command)?,
            false => self.starter.start(self.bench.command)?,
        };
        if with {
            // What it learns is kept when it is gone.
            self.starter.wait_for_headstart()?;
            // Of a start for which it did nothing, nothing is kept.
            times.bypassed += usize::from(self.outcomes() == before);
        }
        self.starter.close_all()?;
        let (seconds, end) = match ended {
            Ended::Exit(seconds) => (seconds, End::Exit),
            Ended::Quiet(seconds) => (seconds, End::Quiet),
        };
        let first = *times.end.get_or_insert(end);
        ensure!(
            end == first,
            "this {} {}, unlike the starts before it: such starts cannot be compared. Give a command that ends, or one that stays",
            kind.text(),
            how(end)
        );
        Ok(seconds)
    }

    fn outcomes(&self) -> usize {
        self.kept.outcomes(drop).len()
    }

    /// Says why nothing was learned, if that is so.
    fn learned(&self) -> Result<()> {
        if self.kept.profile().or_tell(drop).is_some() {
            return Ok(());
        }
        let outcomes = self.kept.outcomes(drop);
        match outcomes.last().and_then(|outcome| outcome.not_learned.clone()) {
            Some(why) => bail!("nothing was learned of the command: {why}"),
            None => bail!(
                "nothing was learned of the command: `headstart doctor` says what this machine can record"
            ),
        }
    }

    fn cold(&self) -> Result<Cold> {
        let start = self.last_start(Wanted::Any)?;
        Cold::new(
            &start.trace,
            &self.kept,
            self.bench.cold_by,
            self.starter.headstart(),
        )
    }

    fn last_start(&self, wanted: Wanted) -> Result<KeptStart> {
        last_start(&self.kept, wanted, &mut |line| complain(&line))
            .context("no recording of the command is kept: what it reads is not known")
    }

    fn report(&self, times: Times, cold: &Cold) -> Result<Report> {
        let floor = self.last_start(Wanted::Replay).and_then(|start| {
            let costs = Costs::new(&self.store, None);
            start_floor(&start, Some(&self.kept), &costs, None, &mut |line| {
                complain(&line)
            })
        });
        let floor = floor
            .map_err(|error| complain(&format!("what the device can do at best is not known: {error:#}")))
            .ok();
        Ok(Report {
            command: lossy(self.bench.command),
            end: times.end.unwrap_or(End::Exit),
            finding: finding(&times.cold, &times.with),
            saved: difference(&times.cold, &times.with),
            bypassed: times.bypassed,
            cold: times.cold,
            with_headstart: times.with,
            warm: times.warm,
            cold_by: self.bench.cold_by,
            pages: cold.pages(),
            above: floor.as_ref().and_then(|floor| floor.above),
            floor: floor.map(|floor| floor.floor),
            kept: self.keep()?,
        })
    }

    /// Takes over what was learned where that is wanted and this machine knows nothing of the command.
    fn keep(&self) -> Result<Option<String>> {
        if !self.bench.keep {
            return Ok(None);
        }
        let key = self.kept.key();
        let lock = self.bench.store.key(key).lock()?;
        if lock.dir().profile().or_tell(|line| complain(&line)).is_some() {
            complain(&format!(
                "{key} is known already: what was learned now is dropped"
            ));
            return Ok(None);
        }
        let Some(profile) = self.kept.profile().or_tell(|line| complain(&line)) else {
            return Ok(None);
        };
        lock.save_profile(&profile)?;
        if let Ok(start) = self.last_start(Wanted::Any) {
            lock.add_trace(&start.trace)?;
        }
        lock.change(&Change {
            plan: self.kept.plan().or_tell(|line| complain(&line)).as_ref(),
            ..Change::default()
        })?;
        Ok(Some(key.to_string()))
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // Whoever was started goes before what it writes into, and who learns is waited for.
        let _ = self.starter.close_all();
        let _ = self.starter.wait_for_headstart();
    }
}

fn how(end: End) -> &'static str {
    match end {
        End::Exit => "ended by itself",
        End::Quiet => "was quiet and went on",
    }
}

fn lossy(command: &[OsString]) -> Vec<String> {
    command
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warm_start_follows_another_and_both_cold_ones_take_turns_at_being_first() {
        for round in 0..4 {
            let kinds = order(round);
            assert_eq!(kinds[1], Kind::Warm);
            assert_eq!(kinds[0] == Kind::Cold, round % 2 == 0);
            assert!(kinds.contains(&Kind::Cold) && kinds.contains(&Kind::WithHeadstart));
        }
        assert_eq!(most_starts(Some(4)), 14);
    }
}
