//! Days of use of several programs: what control runs cost, and how late a planted change is found.

use super::{Chance, Served};
use headstart_learn::verdict::start::Start;
use headstart_model::outcome::Mode;

/// How often a start takes far longer for other reasons.
const OUTLIERS: f64 = 0.05;

/// By how much times grow and shrink over a day, as a logarithm.
const LOAD: f64 = 0.2;

/// A program that is started cold so often.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// What it is.
    pub name: &'static str,
    /// Cold starts a day.
    pub starts_a_day: usize,
    /// Seconds without a replay.
    pub cold_s: f64,
    /// The share that a replay saves.
    pub gain: f64,
    /// The standard deviation of its time, as a logarithm.
    pub deviation: f64,
}

/// A day's programs. Gains are those measured on the models of a 7200 rpm disk, a network block device and an
/// SD card (docs/measurements.md); the last two gain little and nothing.
pub fn programs() -> [Program; 7] {
    let program = |name, starts_a_day, cold_s, gain, deviation| Program {
        name,
        starts_a_day,
        cold_s,
        gain,
        deviation,
    };
    [
        program("boot", 2, 12.0, 0.6, 0.05),
        program("browser", 4, 17.8, 0.7, 0.1),
        program("office", 3, 10.9, 0.73, 0.1),
        program("editor", 6, 3.0, 0.4, 0.2),
        program("build tool", 8, 2.0, 0.3, 0.2),
        program("network tool", 3, 1.5, 0.1, 0.2),
        program("database", 1, 1.0, 0.0, 0.1),
    ]
}

/// What was saved, and what control runs would have saved, seconds; expected, without what chance added.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bill {
    pub saved_s: f64,
    pub cost_s: f64,
    pub starts: usize,
    pub controls: usize,
}

impl Bill {
    pub fn share(&self) -> f64 {
        self.cost_s / self.saved_s
    }

    pub fn add(&mut self, other: &Bill) {
        self.saved_s += other.saved_s;
        self.cost_s += other.cost_s;
        self.starts += other.starts;
        self.controls += other.controls;
    }
}

/// The bill of a program for each month of so many. It is updated each week, and each month there is another
/// kernel.
pub fn months(program: &Program, months: usize, seed: u64) -> Vec<Bill> {
    const DAYS: usize = 30;
    let mut chance = Chance::new(seed);
    let mut served = Served::new(chance.next() as u32);
    let mut bills = vec![Bill::default(); months];
    for day in 0..months * DAYS {
        if day % DAYS == DAYS / 2 {
            served.machine_changes();
        }
        for turn in 0..program.starts_a_day {
            let load = LOAD * (std::f64::consts::TAU * turn as f64 / program.starts_a_day as f64).sin();
            let expected_s = program.cold_s * load.exp();
            let bill = &mut bills[day / DAYS];
            bill.starts += 1;
            if served.is_bypassed(&mut chance) {
                continue;
            }
            let mode = served.mode();
            let share = match mode {
                Mode::Replay => 1.0 - program.gain,
                _ => 1.0,
            };
            match mode {
                Mode::Replay => bill.saved_s += program.gain * expected_s,
                Mode::Control => {
                    bill.cost_s += program.gain * expected_s;
                    bill.controls += 1;
                }
                _ => {}
            }
            let noise = program.deviation * chance.normal() + chance.outlier(OUTLIERS);
            served.over(Start {
                started_unix_ns: 0,
                mode,
                resident: 0.05 * chance.uniform(),
                elapsed_ns: (expected_s * share * noise.exp() * 1e9) as u64,
                updated: mode == Mode::Replay && day % 7 == 3 && turn == 0,
            });
        }
    }
    bills
}

/// A change of everything after which replays cost time.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// What happens.
    pub name: &'static str,
    /// The share that a replay saved before.
    pub gain: f64,
    /// How long a start without a replay takes then, as a multiple of before.
    pub cold: f64,
    /// The share that a replay costs from then on.
    pub harm: f64,
    /// Whether headstart sees another device, or other files.
    pub seen: bool,
    /// The standard deviation of the times, as a logarithm.
    pub deviation: f64,
}

/// After how many starts from the change on starts are bypassed, in so many histories that had 150 starts
/// before it; 400 where they are not by then. Sorted.
pub fn found_after(change: &Change, histories: u64) -> Vec<usize> {
    const BEFORE: usize = 150;
    const AFTER: usize = 400;
    let history = |seed| {
        let mut chance = Chance::new(seed);
        let mut served = Served::new(chance.next() as u32);
        for number in 0..BEFORE + AFTER {
            let changed = number >= BEFORE;
            if number == BEFORE && change.seen {
                served.machine_changes();
            }
            if served.is_bypassed(&mut chance) {
                continue;
            }
            let mode = served.mode();
            let cold_s = if changed { 5.0 * change.cold } else { 5.0 };
            let share = match (mode, changed) {
                (Mode::Replay, true) => 1.0 + change.harm,
                (Mode::Replay, false) => 1.0 - change.gain,
                _ => 1.0,
            };
            let noise = change.deviation * chance.normal() + chance.outlier(OUTLIERS);
            let is_bypassed = served.over(Start {
                started_unix_ns: 0,
                mode,
                resident: 0.05 * chance.uniform(),
                elapsed_ns: (cold_s * share * noise.exp() * 1e9) as u64,
                updated: false,
            });
            if changed && is_bypassed {
                return number + 1 - BEFORE;
            }
        }
        AFTER
    };
    let mut found: Vec<usize> = (0..histories).map(history).collect();
    found.sort_unstable();
    found
}

/// The changes that are planted.
pub fn changes() -> [Change; 5] {
    let fast_disk = Change {
        name: "a fast disk: starts take a third, replays gained 60 % and cost 10 %",
        gain: 0.6,
        cold: 0.33,
        harm: 0.1,
        seen: true,
        deviation: 0.05,
    };
    let update = Change {
        name: "an update: replays gained 40 % and cost 10 %",
        gain: 0.4,
        cold: 1.0,
        harm: 0.1,
        seen: false,
        deviation: 0.05,
    };
    [
        fast_disk,
        Change {
            name: "the same disk, 10 % noise",
            deviation: 0.1,
            ..fast_disk
        },
        update,
        Change {
            name: "the same update, 10 % noise",
            deviation: 0.1,
            ..update
        },
        Change {
            name: "replays gained 10 % and cost 5 %",
            gain: 0.1,
            harm: 0.05,
            ..update
        },
    ]
}
