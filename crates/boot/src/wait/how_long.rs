//! How long a boot waits for its replay: everything at a barrier, from the first instant on, for as long as
//! the replay of a disk with one head gets on; and for how long it waits until the root is writable.

use crate::marks::monotonic_ns;
use crate::wait::who::Waiters;
use headstart_system::launch::ReadyPipe;
use headstart_system::priority::{nice, set_nice_of_all_threads};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// Nobody waits for a replay of which nothing has come for so long: the device hangs, or headstart does.
const STALLED: Duration = Duration::from_secs(8);
/// The longest that anybody waits where a device was measured as one head. A CD-ROM drive sweeps the 240 MB
/// that a desktop needs in two minutes, and whoever reads amid that takes longer. `headstart-init` and the
/// units have limits of their own above it.
pub const LONGEST_ON_ONE_HEAD: Duration = Duration::from_secs(180);
/// The longest anywhere else. A disk that nobody measured may be one by its own word only, as those of
/// virtual machines say: then no head jumps, reads amid a replay cost it little, and to wait saves little. A
/// program waits no longer for any replay ([`headstart_replay::Options::BARRIER_LIMIT`]).
pub const LONGEST_ELSEWHERE: Duration = headstart_replay::Options::BARRIER_LIMIT;
/// The longest that units wait anywhere: udev is among them, and systemd gives up a device that udev has not
/// told of in 90 s (`DefaultDeviceTimeoutSec=`).
const LONGEST_OF_UNITS: Duration = Duration::from_secs(60);
/// What headstart runs at when nobody waits for it any more.
const NICE: i32 = 5;
/// How often who waits is asked to wait on. Their own patience is 10 s (`headstart-init`) and 15 s (the
/// unit's).
const TELL_EVERY: Duration = Duration::from_secs(1);

/// The barrier, and everybody who waits at it.
pub struct Barrier {
    /// Who waits from the first instant, until they are released.
    first: Option<Waiters>,
    /// Who comes when the root has become writable.
    later: Option<Later>,
    patience: Patience,
    /// When somebody was released last, CLOCK_MONOTONIC.
    released_ns: Option<u64>,
}

impl Barrier {
    /// `first` alone wait.
    pub fn new(first: Waiters, now: Instant) -> Barrier {
        Barrier {
            first: Some(first),
            later: None,
            patience: Patience::new(now),
            released_ns: None,
        }
    }

    /// When whoever waited here was released, nanoseconds of CLOCK_MONOTONIC; `None` while somebody waits,
    /// and where nobody did.
    pub fn released_ns(&self) -> Option<u64> {
        self.released_ns
    }

    /// Whether process 1 waits there, so that nothing runs but this process ([`Waiters::process_1_waits`]).
    pub fn process_1_waits(&mut self, within: Duration) -> bool {
        self.first
            .as_mut()
            .is_some_and(|first| first.process_1_waits(within))
    }

    /// Whether somebody waits from the first instant on.
    pub fn is_closed(&self) -> bool {
        self.first.is_some()
    }

    /// A replay begins now, for which nobody waits longer than [`LONGEST_ELSEWHERE`], unless
    /// [`let_wait`](Barrier::let_wait) says so.
    pub fn replay_begins(&mut self, now: Instant) {
        self.patience = Patience::new(now);
    }

    /// Whether it is time to find out how long somebody may wait for this replay: not before half of what
    /// anybody may has gone by, for to find out reads the disk, and most replays are over by then.
    pub fn asks_how_long(&self, now: Instant) -> bool {
        !self.patience.is_known && now - self.patience.begun >= LONGEST_ELSEWHERE / 2
    }

    /// Nobody waits longer for this replay than `longest`.
    pub fn let_wait(&mut self, longest: Duration) {
        let longest = match self.first {
            Some(Waiters::Units) => longest.min(LONGEST_OF_UNITS),
            _ => longest,
        };
        (self.patience.longest, self.patience.is_known) = (longest, true);
    }

    /// Has those wait who come when the root has become writable, by a pipe in `run`; where none can be made,
    /// nobody.
    pub fn close_later(&mut self, run: &Path) {
        self.later = self.later.take().or_else(|| Later::make(run).ok());
    }

    /// Releases them, unless they would catch up with a replay of which `arrived` parts have been read and
    /// which gets on: then they are asked now and then to wait on. For one that is still to come, when the
    /// root is writable, only those wait who come after that: it is others that make it writable. Returns
    /// whether anybody goes on waiting, those not counted who wait for one to come.
    pub fn poll(&mut self, arrived: Option<u64>, replay_is_to_come: bool, now: Instant) -> bool {
        if arrived.is_some_and(|arrived| self.patience.is_left(arrived, now)) {
            if self.patience.is_to_tell(now) {
                self.first.iter_mut().for_each(Waiters::wait_on);
                self.later.iter_mut().for_each(|later| later.0.wait_on());
            }
            return self.first.is_some() || (self.later.is_some() && !replay_is_to_come);
        }
        if let Some(first) = self.first.take() {
            // Where the unit had headstart come first. Before process 1 nobody was there to come before.
            if nice().is_ok_and(|nice| nice < 0) {
                set_nice_of_all_threads(NICE);
            }
            first.release();
            self.released_ns = Some(monotonic_ns());
        }
        if !replay_is_to_come && self.later.take().is_some() {
            self.released_ns = Some(monotonic_ns());
        }
        false
    }
}

/// Whether a replay gets on.
#[derive(Debug)]
struct Patience {
    begun: Instant,
    longest: Duration,
    /// Whether `longest` is that of the replay's devices.
    is_known: bool,
    arrived: u64,
    got_on: Instant,
    told: Instant,
}

impl Patience {
    /// With a replay that begins now.
    fn new(now: Instant) -> Patience {
        Patience {
            begun: now,
            longest: LONGEST_ELSEWHERE,
            is_known: false,
            arrived: 0,
            got_on: now,
            told: now,
        }
    }

    /// Whether to wait on for it, with so many parts of its requests read. A part that could not be read is
    /// none: a replay that only fails does not get on.
    fn is_left(&mut self, arrived: u64, now: Instant) -> bool {
        if arrived != self.arrived {
            (self.arrived, self.got_on) = (arrived, now);
        }
        now - self.got_on < STALLED && now - self.begun < self.longest
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

/// The barrier for units that come when systemd has made the root writable: `headstart-barrier.service` waits
/// there for them, by a pipe in `run`, which says the same as the one that process 1 waits for. They go on
/// when this is dropped, or the process ends.
struct Later(ReadyPipe);

impl Later {
    /// Makes the pipe.
    fn make(run: &Path) -> io::Result<Later> {
        let path = run.join("barrier");
        match mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        // Also for reading: else to open it would wait for somebody who reads.
        let pipe = File::options().read(true).write(true).open(&path)?;
        ReadyPipe::new(pipe).map(Later)
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
        let mut patience = Patience {
            longest: LONGEST_ON_ONE_HEAD,
            ..Patience::new(begun)
        };
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
    fn read_pipe(pipe: &File) -> Option<Vec<u8>> {
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
            read_pipe(pipe).is_none()
        })
    }

    fn pipe() -> (File, ReadyPipe) {
        let flags = rustix::pipe::PipeFlags::NONBLOCK | rustix::pipe::PipeFlags::CLOEXEC;
        let (read, write) = rustix::pipe::pipe_with(flags).unwrap();
        (read.into(), ReadyPipe::new(write.into()).unwrap())
    }

    fn later(run: &Path) -> File {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::open(run.join("barrier"), flags, Mode::empty())
            .unwrap()
            .into()
    }

    #[test]
    fn who_waits_is_asked_to_wait_on_while_the_replay_gets_on_and_released_when_it_does_not() {
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let run = tempfile::tempdir().unwrap();
        let (process_1, ready) = pipe();
        let mut barrier = Barrier::new(Waiters::Process1(ready), begun);
        barrier.close_later(run.path());
        let later = later(run.path());
        assert!(barrier.is_closed());
        // A read is over every 100 ms, for 20 s: headstart-init alone would wait for ten.
        barrier.replay_begins(begun);
        for tick in 0..200 {
            // What the disk is read for comes late.
            assert_eq!(barrier.asks_how_long(at(tick * 100)), tick == 50, "{tick}");
            if tick == 50 {
                barrier.let_wait(LONGEST_ON_ONE_HEAD);
            }
            assert!(barrier.poll(Some(tick), false, at(tick * 100)));
        }
        for pipe in [&process_1, &later] {
            assert_eq!(read_pipe(pipe).unwrap(), vec![b'w'; 19]);
        }
        // No more comes.
        assert!(barrier.poll(Some(199), false, at(27_800)));
        assert!(!barrier.poll(Some(199), false, at(28_000)) && !barrier.is_closed());
        assert_ne!(read_pipe(&process_1), Some(Vec::new()), "it may go on");
        assert!(has_ended(&process_1));
        assert_eq!(read_pipe(&later), Some(b"w".to_vec()), "told at 27.8 s");
        assert!(has_ended(&later));
    }

    #[test]
    fn for_a_replay_that_is_to_come_only_those_wait_who_come_after_the_root_is_writable() {
        let now = Instant::now();
        let run = tempfile::tempdir().unwrap();
        let (process_1, ready) = pipe();
        let mut barrier = Barrier::new(Waiters::Process1(ready), now);
        barrier.close_later(run.path());
        let later = later(run.path());
        assert!(!barrier.poll(None, true, now), "others make it writable");
        assert_ne!(read_pipe(&process_1), Some(Vec::new()), "it may go on");
        assert_eq!(read_pipe(&later), Some(Vec::new()), "they wait");
        barrier.replay_begins(now);
        assert!(barrier.poll(Some(1), false, now));
        assert!(!barrier.poll(None, false, now));
        assert!(has_ended(&later), "they may go on");
    }

    #[test]
    fn three_minutes_are_for_one_head_only() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let (_process_1, ready) = pipe();
        let mut barrier = Barrier::new(Waiters::Process1(ready), begun);
        barrier.replay_begins(begun);
        assert!((0..10).all(|second| barrier.poll(Some(second), false, at(second))));
        assert!(
            !barrier.poll(Some(10), false, at(10)),
            "it gets on, but nobody waits"
        );
    }

    /// The text of a constant in the source of headstart-init, which is no crate of this workspace.
    fn of_init(constant: &str) -> u64 {
        let source = include_str!("../../init/wait.rs");
        let line = source
            .lines()
            .find_map(|line| line.split_once(constant))
            .unwrap()
            .1;
        let digits: String = line.chars().filter(char::is_ascii_digit).collect();
        digits.parse().unwrap()
    }

    #[test]
    fn process_1_has_more_patience_than_headstart_needs() {
        let patience = Duration::from_millis(of_init("PATIENCE_MS: i64 ="));
        assert!(patience > STALLED && patience > TELL_EVERY * 3);
        let longest = Duration::from_millis(of_init("LONGEST_MS: i64 ="));
        assert!(longest > LONGEST_ON_ONE_HEAD + STALLED, "its replay begins later");
    }
}
