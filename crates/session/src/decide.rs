//! What is done for a start, decided from what is known before anything is done for it. Pure.

use headstart_learn::verdict::CONTROL_EVERY_IN_DOUBT;
use headstart_model::outcome::Mode;
use headstart_store::{Bypass, Turns};

/// What is done for a start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is recorded: there is no plan yet that reads anything.
    Record,
    /// Its plan is replayed, and it is recorded.
    Replay,
    /// It has a plan and is recorded without a replay, to compare with.
    Control,
    /// Nothing is done, and why.
    Bypass(String),
}

impl Decision {
    /// What headstart does for the start, as its outcome calls it.
    pub fn mode(&self) -> Mode {
        match self {
            Decision::Record => Mode::Record,
            Decision::Replay => Mode::Replay,
            Decision::Control | Decision::Bypass(_) => Mode::Control,
        }
    }
}

/// What is known of a start before it.
#[derive(Clone, Debug)]
pub struct Known<'a> {
    /// Whether anything is done for starts of the key: a user may have said otherwise.
    pub enabled: bool,
    /// Why starts of the key are bypassed, where they are.
    pub bypass: Option<&'a Bypass>,
    /// The running kernel, as uname(2) calls its release.
    pub kernel: &'a str,
    /// This machine, as [`crate::bypass::machine`] names it.
    pub machine: &'a str,
    /// Where the key stands between control runs.
    pub turns: Turns,
    /// One start in so many is a control run, or re-evaluates a bypass; with 0 all are replayed.
    pub control_every: u32,
    /// Whether there is a plan that reads anything.
    pub has_plan: bool,
    /// What of the plan is in memory already; `None` where nobody looked.
    pub warmth: Option<Warmth>,
    /// A number by chance, all of whose bits are alike likely.
    pub draw: u64,
}

/// What of a plan is in memory before the start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Warmth {
    /// The part of the plan's requests, or of its paths where that is more, that is not in memory, 0 to 1, by a sample.
    pub cold: f64,
    /// How long the devices would take to read all of the plan as a start by itself reads it, nanoseconds.
    pub alone_ns: u64,
}

/// A start of which a larger part is not in memory is not warm, whatever its device costs: one sampled page in so many stands for more
/// than it says.
const MOST_COLD: f64 = 0.1;

/// What a replay and a recorder cost a start that gains nothing by them: two forks, attaching, reading what they are. Measured on
/// Linux 6.18 as 31 to 50 ms; reading ahead what takes a device less time than this is a loss.
const OWN_NS: f64 = 30e6;

impl Warmth {
    /// Whether reading the rest ahead would gain less than it costs.
    pub fn is_warm(&self) -> bool {
        self.cold <= MOST_COLD && self.cold * self.alone_ns as f64 <= OWN_NS
    }
}

/// Decides about a start.
pub fn decide(known: &Known<'_>) -> Decision {
    let without_plan = || {
        if known.has_plan {
            Decision::Replay
        } else {
            Decision::Record
        }
    };
    let Known {
        control_every, draw, ..
    } = *known;
    if !known.enabled {
        return Decision::Bypass("it is disabled, until `headstart apps enable`".into());
    }
    if control_every == 0 {
        return without_plan();
    }
    let one_in = |every: u32, draw: u64| draw % u64::from(every.max(1)) == 0;
    // With another kernel than it was found on, or on another machine, a bypass says nothing.
    let holds = |bypass: &&Bypass| bypass.kernel == known.kernel && bypass.machine == known.machine;
    if let Some(bypass) = known.bypass.filter(holds) {
        if !one_in(bypass.every, draw) {
            return Decision::Bypass(bypass.why.clone());
        }
        if !bypass.replay && known.has_plan {
            return Decision::Control;
        }
        return without_plan();
    }
    if !known.has_plan {
        return Decision::Record;
    }
    if known.warmth.is_some_and(|warmth| warmth.is_warm()) {
        // Its uses are recorded now and then: what a program reads changes while it is warm, too.
        return match one_in(control_every, draw >> 32) {
            true => Decision::Control,
            false => Decision::Bypass("what it reads is in memory".into()),
        };
    }
    match is_control(known.turns, control_every) {
        true => Decision::Control,
        false => Decision::Replay,
    }
}

/// Whether it is the next cold start's turn to be a control run, of which there is one in `every`, and in doubt more.
fn is_control(turns: Turns, every: u32) -> bool {
    let every = match turns.in_doubt {
        true => every.min(CONTROL_EVERY_IN_DOUBT),
        false => every,
    };
    turns.replays_since_control.saturating_add(1) >= every
}

/// Where the key stands after a start of this mode.
pub fn next_turns(turns: Turns, mode: Mode) -> Turns {
    match mode {
        Mode::Record => turns,
        Mode::Control => Turns {
            replays_since_control: 0,
            ..turns
        },
        Mode::Replay => Turns {
            replays_since_control: turns.replays_since_control.saturating_add(1),
            ..turns
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Known<'static> {
        Known {
            enabled: true,
            bypass: None,
            kernel: "6.18",
            machine: "4ed0",
            turns: Turns::default(),
            control_every: 10,
            has_plan: true,
            warmth: None,
            draw: u64::MAX,
        }
    }

    fn turns(replays_since_control: u32) -> Turns {
        Turns {
            replays_since_control,
            ..Turns::default()
        }
    }

    #[test]
    fn an_unknown_start_is_recorded_and_a_known_one_replayed() {
        let unknown = Known {
            has_plan: false,
            ..known()
        };
        assert_eq!(decide(&unknown), Decision::Record);
        assert_eq!(decide(&known()), Decision::Replay);
    }

    #[test]
    fn one_start_in_so_many_is_a_control_run() {
        let after = |replays, control_every| {
            decide(&Known {
                turns: turns(replays),
                control_every,
                ..known()
            })
        };
        assert_eq!(after(8, 10), Decision::Replay);
        assert_eq!(after(9, 10), Decision::Control);
        assert_eq!(after(0, 1), Decision::Control);
        assert_eq!(after(u32::MAX, 0), Decision::Replay);
        assert_eq!(next_turns(turns(2), Mode::Replay), turns(3));
        assert_eq!(next_turns(turns(2), Mode::Record), turns(2));
        assert_eq!(next_turns(turns(2), Mode::Control), turns(0));
    }

    #[test]
    fn nothing_is_done_for_a_disabled_key() {
        for control_every in [0, 1, 10] {
            let disabled = Known {
                enabled: false,
                control_every,
                ..known()
            };
            let Decision::Bypass(why) = decide(&disabled) else {
                panic!("one in {control_every}")
            };
            assert!(why.contains("apps enable"), "{why}");
        }
    }

    #[test]
    fn in_doubt_every_other_start_is_a_control_run() {
        let doubtful = |replays_since_control| Turns {
            replays_since_control,
            in_doubt: true,
            ..Turns::default()
        };
        let after = |replays, control_every| {
            decide(&Known {
                turns: doubtful(replays),
                control_every,
                ..known()
            })
        };
        assert_eq!(after(0, 10), Decision::Replay);
        assert_eq!(after(1, 10), Decision::Control);
        assert_eq!(after(0, 1), Decision::Control);
        assert_eq!(after(u32::MAX, 0), Decision::Replay);
        assert_eq!(next_turns(doubtful(1), Mode::Control), doubtful(0));
    }

    #[test]
    fn a_bypass_holds_for_its_kernel_and_is_re_evaluated_by_chance() {
        let bypass = |replay| Bypass {
            every: 10,
            kernel: "6.18".into(),
            machine: "4ed0".into(),
            replay,
            why: "no gain".into(),
        };
        let (record, replay) = (bypass(false), bypass(true));
        let of = |bypass, kernel, draw| {
            decide(&Known {
                bypass: Some(bypass),
                kernel,
                draw,
                ..known()
            })
        };
        assert_eq!(of(&record, "6.18", 7), Decision::Bypass("no gain".into()));
        assert_eq!(of(&record, "6.18", 20), Decision::Control);
        assert_eq!(of(&replay, "6.18", 20), Decision::Replay);
        let unknown = Known {
            bypass: Some(&record),
            draw: 20,
            has_plan: false,
            ..known()
        };
        assert_eq!(
            decide(&unknown),
            Decision::Record,
            "there is nothing to compare with"
        );
        assert_eq!(of(&record, "7.2", 7), Decision::Replay, "another kernel");
        let elsewhere = Known {
            bypass: Some(&record),
            machine: "",
            draw: 7,
            ..known()
        };
        assert_eq!(decide(&elsewhere), Decision::Replay, "another machine");
        let all = Known {
            bypass: Some(&record),
            control_every: 0,
            ..known()
        };
        assert_eq!(decide(&all), Decision::Replay, "all starts are to be replayed");
    }

    #[test]
    fn a_warm_start_is_bypassed_and_recorded_one_time_in_so_many() {
        let at = |cold, device_ms: u64, draw| {
            let warmth = Some(Warmth {
                cold,
                alone_ns: device_ms * 1_000_000,
            });
            decide(&Known {
                warmth,
                draw,
                ..known()
            })
        };
        let warm = Decision::Bypass("what it reads is in memory".into());
        assert_eq!(at(0.0, 60_000, 1 << 32), warm);
        assert_eq!(at(0.0, 60_000, 20 << 32), Decision::Control);
        assert_eq!(at(0.02, 1000, 1 << 32), warm, "20 ms of reading");
        assert_eq!(at(0.02, 10_000, 1 << 32), Decision::Replay, "200 ms of reading");
        assert_eq!(at(0.5, 10, 1 << 32), Decision::Replay, "half of it is cold");
        let taken = (0..1000)
            .filter(|draw| at(0.0, 1000, draw << 32) == Decision::Control)
            .count();
        assert_eq!(taken, 100);
    }
}
