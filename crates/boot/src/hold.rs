//! Who waits for headstart: from the first instant, for as long as a replay of a disk with one head gets on, and when the root
//! has become writable.

use super::early::Waiting;
use headstart_system::launch::ReadyPipe;
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

/// Everybody who is held.
pub struct Held {
    /// Who waits from the first instant, until they are let go.
    waiting: Option<Waiting>,
    /// Who comes when the root has become writable.
    later: Option<Hold>,
    patience: Patience,
}

impl Held {
    /// `waiting` alone.
    pub fn new(waiting: Waiting, now: Instant) -> Held {
        Held {
            waiting: Some(waiting),
            later: None,
            patience: Patience::new(now),
        }
    }

    /// Whether nothing runs but this process, for process 1 waits.
    pub fn holds_process_1(&self) -> bool {
        matches!(self.waiting, Some(Waiting::Init(_)))
    }

    /// Whether somebody waits from the first instant on.
    pub fn holds_from_the_first(&self) -> bool {
        self.waiting.is_some()
    }

    /// A replay begins now.
    pub fn replay_begins(&mut self, now: Instant) {
        self.patience = Patience::new(now);
    }

    /// Holds who comes when the root has become writable, by a pipe in `run`; where none can be made, nobody.
    pub fn hold_later(&mut self, run: &Path) {
        self.later = self.later.take().or_else(|| Hold::take(run).ok());
    }

    /// Lets them go, unless they would catch up with a replay of which `over` parts are over and which gets on: then they are told
    /// now and then to wait on. One that is still to come, when the root is writable, holds only who comes after that: it is others
    /// that make it writable. Returns whether anybody goes on waiting, those not counted who wait for one to come.
    pub fn look(&mut self, over: Option<u64>, replay_is_to_come: bool, now: Instant) -> bool {
        if over.is_some_and(|over| self.patience.is_left(over, now)) {
            if self.patience.is_to_tell(now) {
                self.waiting.iter_mut().for_each(Waiting::still);
                self.later.iter_mut().for_each(|hold| hold.0.wait_on());
            }
            return self.waiting.is_some() || (self.later.is_some() && !replay_is_to_come);
        }
        if let Some(waiting) = self.waiting.take() {
            waiting.let_go();
        }
        if !replay_is_to_come {
            self.later = None;
        }
        false
    }
}

/// Whether a replay gets on.
#[derive(Debug)]
struct Patience {
    begun: Instant,
    over: u64,
    got_on: Instant,
    told: Instant,
}

impl Patience {
    /// With a replay that begins now.
    fn new(now: Instant) -> Patience {
        Patience {
            begun: now,
            over: 0,
            got_on: now,
            told: now,
        }
    }

    /// Whether to wait on for it, with so many parts of its requests over.
    fn is_left(&mut self, over: u64, now: Instant) -> bool {
        if over != self.over {
            (self.over, self.got_on) = (over, now);
        }
        now - self.got_on < STALLED && now - self.begun < MOST
    }

    /// Whether it is time to tell those who wait.
    fn is_to_tell(&mut self, now: Instant) -> bool {
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
struct Hold(ReadyPipe);

impl Hold {
    /// Makes the pipe.
    fn take(run: &Path) -> io::Result<Hold> {
        let path = run.join("hold");
        match mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        // Also for reading: else to open it would wait for somebody who reads.
        let pipe = File::options().read(true).write(true).open(&path)?;
        ReadyPipe::of(pipe).map(Hold)
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

    /// What has come through a pipe since, `None` when nobody can tell any more.
    fn said(pipe: &File) -> Option<Vec<u8>> {
        let mut room = [0; 64];
        match rustix::io::read(pipe, &mut room) {
            Ok(0) => None,
            Ok(length) => Some(room[..length].to_vec()),
            Err(error) => {
                assert_eq!(error, Errno::AGAIN);
                Some(Vec::new())
            }
        }
    }

    /// Whether nobody can tell any more; a child of another test may hold a pipe until it has begun.
    fn has_ended(pipe: &File) -> bool {
        (0..100).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            said(pipe).is_none()
        })
    }

    fn pipe() -> (File, ReadyPipe) {
        let flags = rustix::pipe::PipeFlags::NONBLOCK | rustix::pipe::PipeFlags::CLOEXEC;
        let (read, write) = rustix::pipe::pipe_with(flags).unwrap();
        (read.into(), ReadyPipe::of(write.into()).unwrap())
    }

    fn later(run: &Path) -> File {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::open(run.join("hold"), flags, Mode::empty())
            .unwrap()
            .into()
    }

    #[test]
    fn who_is_held_is_told_while_the_replay_gets_on_and_let_go_when_it_does_not() {
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let run = tempfile::tempdir().unwrap();
        let (process_1, tell) = pipe();
        let mut held = Held::new(Waiting::Init(tell), begun);
        held.hold_later(run.path());
        let later = later(run.path());
        assert!(held.holds_process_1() && held.holds_from_the_first());
        // A read is over every 100 ms, for 20 s: headstart-init alone would wait for ten.
        held.replay_begins(begun);
        for tick in 0..200 {
            assert!(held.look(Some(tick), false, at(tick * 100)));
        }
        for pipe in [&process_1, &later] {
            assert_eq!(said(pipe).unwrap(), vec![b'w'; 19]);
        }
        // No more comes.
        assert!(held.look(Some(199), false, at(27_800)));
        assert!(!held.look(Some(199), false, at(28_000)) && !held.holds_from_the_first());
        assert_ne!(said(&process_1), Some(Vec::new()), "it may go on");
        assert!(has_ended(&process_1));
        assert_eq!(said(&later), Some(b"w".to_vec()), "told at 27.8 s");
        assert!(has_ended(&later));
    }

    #[test]
    fn a_replay_that_is_to_come_holds_only_who_comes_after_the_root_is_writable() {
        let now = Instant::now();
        let run = tempfile::tempdir().unwrap();
        let (process_1, tell) = pipe();
        let mut held = Held::new(Waiting::Init(tell), now);
        held.hold_later(run.path());
        let later = later(run.path());
        assert!(!held.look(None, true, now), "others make it writable");
        assert_ne!(said(&process_1), Some(Vec::new()), "it may go on");
        assert_eq!(said(&later), Some(Vec::new()), "they wait");
        held.replay_begins(now);
        assert!(held.look(Some(1), false, now));
        assert!(!held.look(None, false, now));
        assert!(has_ended(&later), "they may go on");
    }
}
