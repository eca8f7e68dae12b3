//! Starts as the engine runs them, with times drawn by chance: how often the verdict is wrong, and in
//! [`days`] what control runs cost.
//!
//! The first start is recorded; then each has a replay but one in so many, a control run, and in doubt one in
//! two. Where all is in memory nothing is done and nothing kept. After each start the history is asked
//! whether replays are slower. While it says so starts are bypassed and leave nothing, but for one in ten by
//! chance, later one in 20 and one in 40: that one has a replay.

// Each test has this module for itself and uses a part of it.
#![allow(dead_code)]

pub mod days;

use headstart_learn::verdict::controls::Rate;
use headstart_learn::verdict::start::Start;
use headstart_learn::verdict::{CONTROL_EVERY_IN_DOUBT, History};
use headstart_model::outcome::Mode;

/// How many starts a history has.
pub const STARTS: usize = 200;
/// One start in so many goes without a replay, as configured.
pub const EVERY: u32 = 10;
/// Looking again becomes at most so many times as seldom.
const MOST_SELDOM: u32 = 4;
/// Outcomes that are kept of a key.
const KEPT: usize = 200;
/// So many starts of a history make a day.
const STARTS_A_DAY: usize = 5;
/// Outliers take longer by an exponential variable of this mean, as a logarithm: a third more.
const OUTLIER: f64 = 0.3;
/// With this share in memory nothing is done for a start.
const ALL: f64 = 0.9;
/// A start with nothing in memory takes so many times as long as one with everything.
const COLD: f64 = 4.0;

/// What is in memory before the starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Memory {
    /// At most a tenth: boots, and starts after one.
    Cold,
    /// Any share, each start by itself.
    Mixed,
    /// Any share, which stays about the same for five starts on average.
    Runs,
    /// All of it, except for three starts in ten.
    SeldomCold,
}

/// What the times of a history are drawn from.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// By how much a replay lengthens a start that is not warm: 0.05 for 5 %.
    pub harm: f64,
    /// The standard deviation of a start's time, as a logarithm: 0.05 for 5 %.
    pub deviation: f64,
    /// What is in memory.
    pub memory: Memory,
    /// By how much times grow over all starts, as a logarithm.
    pub drift: f64,
    /// How strongly the noise of a start goes on in the next one: its correlation.
    pub lasting: f64,
    /// How often a start takes far longer for other reasons.
    pub outliers: f64,
    /// By how much times grow and shrink over a day, as a logarithm: the amplitude of a sine.
    pub load: f64,
}

impl Case {
    /// Cold starts, one in twenty of them an outlier.
    pub const fn new(harm: f64, deviation: f64) -> Case {
        Case {
            harm,
            deviation,
            memory: Memory::Cold,
            drift: 0.0,
            lasting: 0.0,
            outliers: 0.05,
            load: 0.0,
        }
    }
}

/// Histories in which a replay makes no start slower.
pub fn harmless() -> Vec<(&'static str, Case)> {
    let usual = Case::new(0.0, 0.05);
    vec![
        ("cold, 1 % noise", Case::new(0.0, 0.01)),
        ("cold, 5 % noise", usual),
        ("cold, 10 % noise", Case::new(0.0, 0.1)),
        (
            "noise lasts: correlation 0.5",
            Case {
                lasting: 0.5,
                ..usual
            },
        ),
        (
            "the machine slows down by 35 %",
            Case {
                drift: 0.3,
                deviation: 0.01,
                ..usual
            },
        ),
        (
            "the machine speeds up by 26 %",
            Case {
                drift: -0.3,
                deviation: 0.01,
                ..usual
            },
        ),
        (
            "cold, half-warm and warm",
            Case {
                memory: Memory::Mixed,
                ..usual
            },
        ),
        (
            "the same, in runs",
            Case {
                memory: Memory::Runs,
                ..usual
            },
        ),
        (
            "one in five an outlier",
            Case {
                outliers: 0.2,
                ..usual
            },
        ),
        ("replays gain 5 %", Case::new(-0.05, 0.05)),
        (
            "load changes over the day by a third",
            Case { load: 0.3, ..usual },
        ),
    ]
}

/// Gains, and a harm, of starts that vary by 20 %, on a machine whose load is always the same and on one
/// where it changes over the day: times grow by a third and shrink by a quarter.
pub fn planted() -> Vec<(&'static str, Case)> {
    let row = |(name, harm, load)| {
        let steady = Case::new(harm, 0.2);
        (name, Case { load, ..steady })
    };
    vec![
        ("5 % slower", 0.05, 0.0),
        ("5 % slower, load changes", 0.05, 0.3),
        ("no difference", 0.0, 0.0),
        ("no difference, load changes", 0.0, 0.3),
        ("2 % faster", -0.02, 0.0),
        ("2 % faster, load changes", -0.02, 0.3),
        ("10 % faster", -0.1, 0.0),
        ("10 % faster, load changes", -0.1, 0.3),
    ]
    .into_iter()
    .map(row)
    .collect()
}

/// Histories in which replays are clearly slower: by more than a cold start's time differs by itself.
pub fn harmful() -> Vec<(&'static str, Case)> {
    let case = Case::new;
    vec![
        ("5 %, 1 % noise", case(0.05, 0.01)),
        ("5 %, 3 % noise", case(0.05, 0.03)),
        ("5 %, 4 % noise", case(0.05, 0.04)),
        ("10 %, 5 % noise", case(0.1, 0.05)),
        ("20 %, 3 % noise", case(0.2, 0.03)),
        ("20 %, 10 % noise", case(0.2, 0.1)),
        (
            "10 %, the machine slows down",
            Case {
                drift: 0.3,
                ..case(0.1, 0.03)
            },
        ),
        (
            "10 %, cold, half-warm and warm",
            Case {
                memory: Memory::Mixed,
                ..case(0.1, 0.03)
            },
        ),
        (
            "20 %, the same, in runs",
            Case {
                memory: Memory::Runs,
                ..case(0.2, 0.05)
            },
        ),
        (
            "10 %, three in ten cold",
            Case {
                memory: Memory::SeldomCold,
                ..case(0.1, 0.03)
            },
        ),
    ]
}

/// Histories that 200 starts do not always decide.
pub fn hard() -> Vec<(&'static str, Case)> {
    let case = Case::new;
    vec![
        ("5 %, 5 % noise", case(0.05, 0.05)),
        ("5 %, 10 % noise", case(0.05, 0.1)),
        ("10 %, 10 % noise", case(0.1, 0.1)),
        ("20 %, 20 % noise", case(0.2, 0.2)),
        (
            "5 %, cold, half-warm and warm",
            Case {
                memory: Memory::Mixed,
                ..case(0.05, 0.03)
            },
        ),
    ]
}

/// What came of many histories of a case.
#[derive(Clone, Debug)]
pub struct Rates {
    /// The share of histories in which starts were ever bypassed.
    pub bypassed_ever: f64,
    /// The share of all starts that were.
    pub bypassed: f64,
    /// Of the histories in which starts were bypassed, after how many starts: the 10th, 50th and 90th
    /// percentile.
    pub after: Option<[usize; 3]>,
}

/// Runs so many histories.
pub fn simulate(case: &Case, histories: u64) -> Rates {
    let mut after = Vec::new();
    let mut bypassed = 0;
    for seed in 0..histories {
        let (first, starts) = history(case, seed);
        after.extend(first);
        bypassed += starts;
    }
    after.sort_unstable();
    let percentile = |share: f64| after[((after.len() - 1) as f64 * share) as usize];
    Rates {
        bypassed_ever: after.len() as f64 / histories as f64,
        bypassed: bypassed as f64 / (histories * STARTS as u64) as f64,
        after: (!after.is_empty()).then(|| [0.1, 0.5, 0.9].map(percentile)),
    }
}

/// A key, as the engine serves its starts.
pub struct Served {
    pub known: History,
    /// The starts whose outcomes are kept.
    kept: Vec<Start>,
    phase: u32,
    first: bool,
    rate: Rate,
    look_every: Option<u32>,
}

impl Served {
    pub fn new(phase: u32) -> Served {
        Served {
            known: History::default(),
            kept: Vec::new(),
            phase,
            first: true,
            rate: Rate::default(),
            look_every: None,
        }
    }

    /// Whether the next start is bypassed.
    pub fn is_bypassed(&self, chance: &mut Chance) -> bool {
        self.look_every
            .is_some_and(|every| chance.next() % u64::from(every) != 0)
    }

    /// What is done for the next start, which is not bypassed.
    pub fn mode(&self) -> Mode {
        let every = match self.known.in_doubt() {
            true => self.rate.every.min(CONTROL_EVERY_IN_DOUBT),
            false => self.rate.every,
        };
        if self.first {
            Mode::Record
        } else if self.look_every.is_none() && self.rate.replays_since_control + 1 >= every {
            Mode::Control
        } else {
            Mode::Replay
        }
    }

    /// The start is over; whether the next ones are bypassed.
    pub fn over(&mut self, start: Start) -> bool {
        self.first = false;
        self.known.add(start);
        self.kept.push(start);
        // Not at each start, for that takes the time of a hundred.
        if self.kept.len() >= KEPT + KEPT / 10 {
            self.kept.drain(..KEPT / 10);
            self.known = History::default();
            self.kept.iter().for_each(|start| self.known.add(*start));
        }
        match start.mode {
            Mode::Control => self.rate.replays_since_control = 0,
            Mode::Replay => self.rate.replays_since_control += 1,
            _ => {}
        }
        let was_control = start.mode == Mode::Control;
        self.rate = self.rate.after(&self.known, was_control, EVERY, self.phase);
        self.look_every = match (self.known.slower(), self.look_every) {
            (None, _) => None,
            (Some(_), None) => Some(EVERY),
            (Some(_), Some(every)) => Some((2 * every).min(MOST_SELDOM * EVERY)),
        };
        self.look_every.is_some()
    }

    /// The machine is another: another kernel runs, or the device costs something else.
    pub fn machine_changes(&mut self) {
        self.rate = self.rate.machine_changed(EVERY, self.phase);
    }
}

/// One history: after how many starts they were first bypassed, and how many were.
fn history(case: &Case, seed: u64) -> (Option<usize>, usize) {
    let mut chance = Chance::new(seed);
    let (mut first, mut bypassed) = (None, 0);
    let (mut noise, mut resident) = (chance.normal(), chance.uniform());
    let mut served = Served::new(chance.next() as u32);
    for number in 0..STARTS {
        resident = match case.memory {
            Memory::Cold => 0.1 * chance.uniform(),
            Memory::Mixed => chance.uniform(),
            Memory::Runs if chance.uniform() < 0.2 => chance.uniform(),
            Memory::Runs => resident,
            Memory::SeldomCold if chance.uniform() < 0.3 => 0.1 * chance.uniform(),
            Memory::SeldomCold => 1.0,
        };
        noise = case.lasting * noise + (1.0 - case.lasting.powi(2)).sqrt() * chance.normal();
        let outlier = chance.outlier(case.outliers);
        if served.is_bypassed(&mut chance) {
            bypassed += 1;
            continue;
        }
        if number > 0 && resident >= ALL {
            continue;
        }
        let mode = served.mode();
        let warm: f64 = 1.0 + (COLD - 1.0) * (1.0 - resident);
        let harm = if mode == Mode::Replay {
            1.0 + case.harm
        } else {
            1.0
        };
        let drift = case.drift * number as f64 / STARTS as f64;
        let load = case.load * (std::f64::consts::TAU * number as f64 / STARTS_A_DAY as f64).sin();
        let seconds = warm * harm * (case.deviation * noise + outlier + drift + load).exp();
        let is_over = served.over(Start {
            started_unix_ns: 0,
            mode,
            resident,
            elapsed_ns: (seconds * 1e9) as u64,
            updated: false,
        });
        if is_over && first.is_none() {
            first = Some(number + 1);
        }
    }
    (first, bypassed)
}

/// Steele, Lea and Flood's SplitMix64.
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        Chance(seed.wrapping_mul(0x2545_f491_4f6c_dd1d))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Between 0 and 1, neither of them.
    pub fn uniform(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// By Box and Muller's transform.
    pub fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// By how much a start takes longer for other reasons, as a logarithm; how often, is given.
    pub fn outlier(&mut self, how_often: f64) -> f64 {
        if self.uniform() < how_often {
            -OUTLIER * self.uniform().ln()
        } else {
            0.0
        }
    }
}
