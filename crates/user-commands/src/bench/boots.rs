//! The next boots, read ahead and not in turns.
//!
//! How many are still to come is in the state of boots ([`headstart_store::Turns::alternate`]). When it began
//! is in a file beside it, by which the boots that count are told from earlier ones.

use anyhow::{Result, ensure};
use headstart_bench::report::Boots;
use headstart_bench::rule::{difference, finding};
use headstart_boot::install::is_enabled;
use headstart_boot::key;
use headstart_model::Outcome;
use headstart_model::outcome::Mode;
use headstart_start::{complain, now_unix_ns};
use headstart_store::{Change, KeyDir, Store, Turns, read_bounded, write_whole};
use std::path::PathBuf;

/// The file that says since when boots are measured, nanoseconds since 1970.
const SINCE: &str = "measured-since";

/// So many boots of either kind where nobody says how many.
const ROUNDS: u8 = 5;

/// Begins to measure boots, if none are measured, and reports what those have shown that were.
///
/// # Errors
/// Boots are not enabled, or the state of boots cannot be written.
pub fn measure(store: &Store, rounds: Option<u8>) -> Result<Boots> {
    let kept = store.key(&key()?);
    let began = began(&kept);
    let left = kept.turns().alternate;
    let since = match began {
        // Whoever asks for more rounds after the last has a new measurement.
        Some(since) if left > 0 || rounds.is_none() => since,
        _ => begin(&kept, rounds.unwrap_or(ROUNDS))?,
    };
    let outcomes = kept.outcomes(|line| complain(&line));
    let seconds = |mode: Mode| seconds(&outcomes, since, mode);
    let (without, with) = (seconds(Mode::Control), seconds(Mode::Replay));
    Ok(Boots {
        since_unix_ns: since,
        left: kept.turns().alternate,
        finding: finding(&without, &with),
        saved: difference(&without, &with),
        not_read_ahead: without,
        read_ahead: with,
        is_known: kept.plan().or_tell(|line| complain(&line)).is_some(),
    })
}

/// How long the boots of this kind took that began since then and can be compared.
fn seconds(outcomes: &[Outcome], since: u64, mode: Mode) -> Vec<f64> {
    let counts = |outcome: &&Outcome| {
        let taught = outcome.not_learned.is_none() || outcome.unrecorded;
        outcome.mode == mode && outcome.started_unix_ns >= since && taught
    };
    let counted = outcomes.iter().filter(counts);
    counted.map(|outcome| outcome.elapsed_ns as f64 / 1e9).collect()
}

fn file(kept: &KeyDir) -> PathBuf {
    kept.path().join(SINCE)
}

fn began(kept: &KeyDir) -> Option<u64> {
    let bytes = read_bounded(&file(kept), 64).ok()??;
    std::str::from_utf8(&bytes).ok()?.trim().parse().ok()
}

fn begin(kept: &KeyDir, rounds: u8) -> Result<u64> {
    ensure!(
        is_enabled(None),
        "boots are not enabled: `headstart boot enable` does that, and then this measures them"
    );
    let lock = kept.lock()?;
    let now = now_unix_ns();
    write_whole(&file(kept), now.to_string().as_bytes())?;
    // A bypass would keep boots from being read ahead; it is found again if it is true.
    lock.change(&Change {
        turns: Some(Turns {
            alternate: rounds.saturating_mul(2),
            ..kept.turns()
        }),
        bypass: Some(None),
        ..Change::default()
    })?;
    Ok(now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_model::Key;

    #[test]
    fn boots_count_that_began_since_and_taught() {
        let boot = |started_unix_ns, mode, not_learned: Option<&str>| Outcome {
            started_unix_ns,
            elapsed_ns: started_unix_ns * 1_000_000_000,
            not_learned: not_learned.map(str::to_owned),
            ..Outcome::new(Key::new("boot").unwrap(), mode)
        };
        let mut unrecorded = boot(8, Mode::Replay, Some("not its turn"));
        unrecorded.unrecorded = true;
        let outcomes = [
            boot(3, Mode::Replay, None),
            boot(5, Mode::Replay, None),
            boot(6, Mode::Control, None),
            boot(7, Mode::Replay, Some("the machine went to a rescue shell")),
            unrecorded,
        ];
        assert_eq!(seconds(&outcomes, 5, Mode::Replay), [5.0, 8.0]);
        assert_eq!(seconds(&outcomes, 5, Mode::Control), [6.0]);
    }
}
