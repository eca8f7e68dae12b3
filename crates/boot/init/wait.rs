//! How long process 1 waits for a word: an amount of time, whatever comes meanwhile. Pure, and so tested by
//! the crate (`src/program.rs`).

/// Longer than headstart, which gives a word each second, goes without one, ms.
const PATIENCE_MS: i64 = 10_000;
/// The longest in all, ms: headstart lets nobody wait longer than three minutes from its first read on
/// (`src/wait/how_long.rs`), before which it is read itself. No word extends this.
const LONGEST_MS: i64 = 200_000;
/// The longest that a generator waits, ms: systemd ends those that take 90 s (`DEFAULT_TIMEOUT_USEC`), and
/// complains.
const LONGEST_OF_GENERATOR_MS: i64 = 60_000;

/// A wait that has begun.
pub struct Wait {
    until_ms: i64,
}

impl Wait {
    /// One that begins now, ms of any clock that only goes forward.
    pub fn new(now_ms: i64) -> Wait {
        Wait {
            until_ms: now_ms.saturating_add(LONGEST_MS),
        }
    }

    /// The same, of a generator of systemd.
    pub fn of_generator(now_ms: i64) -> Wait {
        Wait {
            until_ms: now_ms.saturating_add(LONGEST_OF_GENERATOR_MS),
        }
    }

    /// For how long to wait for the next word, ms; `None` when it is enough.
    pub fn patience_ms(&self, now_ms: i64) -> Option<i64> {
        let left = self.until_ms.saturating_sub(now_ms);
        let patience = if left < PATIENCE_MS { left } else { PATIENCE_MS };
        if patience > 0 { Some(patience) } else { None }
    }
}
