//! Which start of a key goes without a replay: decided after a start, for the next.

use headstart_model::Outcome;
use headstart_model::outcome::Mode;
use headstart_report::status::better_without;
use headstart_store::Turns;

/// The turns of a key whose next start goes without a replay because replays made it slower: more than any number of
/// replays after which a control run is due. It is decided after a start, when nobody waits for fifty outcomes to be
/// read.
pub const WITHOUT: Turns = Turns {
    replays_since_control: u32::MAX,
};

/// Where the key stands after a start of this mode; its outcome is the last one.
pub fn next(turns: Turns, mode: Mode, outcomes: &[Outcome]) -> Turns {
    let so_far = match turns {
        WITHOUT => 0,
        turns => turns.replays_since_control,
    };
    match mode {
        _ if better_without(outcomes) => WITHOUT,
        Mode::Record => Turns {
            replays_since_control: so_far,
        },
        Mode::Control => Turns::default(),
        Mode::Replay => Turns {
            replays_since_control: so_far + 1,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_start_it_is_known_how_the_next_one_goes() {
        let turns = |replays_since_control| Turns {
            replays_since_control,
        };
        assert_eq!(next(turns(2), Mode::Replay, &[]), turns(3));
        assert_eq!(next(turns(2), Mode::Record, &[]), turns(2));
        assert_eq!(next(turns(2), Mode::Control, &[]), turns(0));
        assert_eq!(
            next(WITHOUT, Mode::Replay, &[]),
            turns(1),
            "it is not slower any more"
        );
        assert_eq!(next(WITHOUT, Mode::Record, &[]), turns(0));
    }
}
