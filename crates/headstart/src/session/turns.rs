//! Which start of a key goes without a replay, to compare with.

use headstart_model::outcome::Mode;
use headstart_store::Turns;

/// Where the key stands after a start of this mode.
pub fn next(turns: Turns, mode: Mode) -> Turns {
    match mode {
        Mode::Record => turns,
        Mode::Control => Turns::default(),
        Mode::Replay => Turns {
            replays_since_control: turns.replays_since_control.saturating_add(1),
        },
    }
}

/// Whether it is the next start's turn, of which one in so many goes without; 0 for none.
pub fn is_control(turns: Turns, every: u32) -> bool {
    every > 0 && turns.replays_since_control.saturating_add(1) >= every
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_start_in_so_many_goes_without() {
        let turns = |replays_since_control| Turns {
            replays_since_control,
        };
        assert_eq!(next(turns(2), Mode::Replay), turns(3));
        assert_eq!(next(turns(2), Mode::Record), turns(2));
        assert_eq!(next(turns(2), Mode::Control), turns(0));
        assert!(is_control(turns(9), 10) && !is_control(turns(8), 10));
        assert!(is_control(turns(0), 1) && !is_control(turns(u32::MAX), 0));
    }
}
