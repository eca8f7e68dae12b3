//! How long a replay of a disk with one head holds others, and how those are held who come when the root has become
//! writable.

use headstart_system::launch::Tell;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// Nobody waits for a replay of which nothing has come for so long: the device hangs, or headstart does.
const STALLED: Duration = Duration::from_secs(8);
/// The longest that anybody is held. A CD-ROM drive sweeps the 240 MB that a desktop needs in two minutes.
const MOST: Duration = Duration::from_secs(180);
/// How often who waits is told that it goes on. Their own patience is 10 s (`headstart-init`) and 15 s (the unit's).
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Whether a replay gets on.
#[derive(Debug)]
pub struct Patience {
    begun: Instant,
    over: u64,
    got_on: Instant,
    told: Instant,
}

impl Patience {
    /// With a replay that begins now.
    pub fn new(now: Instant) -> Patience {
        Patience {
            begun: now,
            over: 0,
            got_on: now,
            told: now,
        }
    }

    /// Whether to wait on for it, with so many parts of its requests over.
    pub fn is_left(&mut self, over: u64, now: Instant) -> bool {
        if over != self.over {
            (self.over, self.got_on) = (over, now);
        }
        now - self.got_on < STALLED && now - self.begun < MOST
    }

    /// Whether it is time to tell those who wait.
    pub fn is_to_tell(&mut self, now: Instant) -> bool {
        let is = now - self.told >= TELL_EVERY;
        if is {
            self.told = now;
        }
        is
    }
}

/// For whom a replay that begins only when systemd has made the root writable holds the units that come then:
/// `headstart-hold.service`, by a pipe in `run`, which says the same as the one that process 1 waits for. They go on when
/// this is dropped, or the process ends.
pub struct Hold(Tell);

impl Hold {
    /// Makes the pipe.
    pub fn take(run: &Path) -> io::Result<Hold> {
        let path = run.join("hold");
        match mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        // Also for reading: else to open it would wait for somebody who reads.
        let pipe = File::options().read(true).write(true).open(&path)?;
        Tell::by(pipe).map(Hold)
    }

    /// Has them wait on.
    pub fn still(&mut self) {
        self.0.still();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::OFlags;

    #[test]
    fn a_replay_is_waited_for_while_it_gets_on_and_not_for_ever() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut patience = Patience::new(begun);
        assert!(
            patience.is_left(0, at(7)) && !patience.is_left(0, at(8)),
            "nothing came"
        );
        assert!(patience.is_left(1, at(9)) && patience.is_left(1, at(16)));
        assert!(!patience.is_left(1, at(17)), "nothing more came");
        assert!((18..180).all(|second| patience.is_left(second, at(second))));
        assert!(!patience.is_left(180, at(180)));
    }

    #[test]
    fn the_pipe_tells_who_waits_and_ends_with_the_hold() {
        let run = tempfile::tempdir().unwrap();
        let mut hold = Hold::take(run.path()).unwrap();
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let pipe = rustix::fs::open(run.path().join("hold"), flags, Mode::empty()).unwrap();
        let read = || rustix::io::read(&pipe, &mut [0; 8]);
        assert_eq!(read(), Err(Errno::AGAIN), "nothing yet");
        hold.still();
        assert_eq!((read(), read()), (Ok(1), Err(Errno::AGAIN)));
        drop(hold);
        assert_eq!(read(), Ok(0), "nobody can tell any more");
    }

    #[test]
    fn who_waits_is_told_now_and_then() {
        let begun = Instant::now();
        let mut patience = Patience::new(begun);
        let told = (0..=300).filter(|tick| patience.is_to_tell(begun + Duration::from_millis(10 * tick)));
        assert_eq!(told.count(), 3);
    }
}
