//! One start, timed from outside.

use super::tree::{Activity, activity, any_executes, descendants};
use anyhow::{Context, Result, bail};
use headstart_record::LITTLE_CPU;
use headstart_start_commands::options::QUIET_SECONDS;
use headstart_system::launch::{Signals, reap_others};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal, set_child_subreaper};
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A start that takes longer is none that anybody waits for.
const LONGEST: Duration = Duration::from_secs(600);

/// How often it is looked what the processes of a start do.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Whoever is asked to close is gone within this time, or is killed.
const CLOSES_WITHIN: Duration = Duration::from_secs(10);

/// headstart has learned of a start within this time after its end.
const LEARNS_WITHIN: Duration = Duration::from_secs(60);

/// So much of what a command that failed said at last.
const LAST_WORDS: u64 = 400;

/// How a start ended, and how long it took, seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ended {
    /// The command ended.
    Exit(f64),
    /// It was quiet from then on, and went on.
    Quiet(f64),
}

/// Somebody ended the benchmark by this signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted(pub i32);

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ended by signal {}", self.0)
    }
}

impl std::error::Error for Interrupted {}

/// Starts commands, and ends what they leave behind.
pub struct Starter {
    signals: Signals,
    headstart: PathBuf,
    state: PathBuf,
}

impl Starter {
    /// One that begins starts with headstart by this program and state directory. From now on this process
    /// is the parent of all orphans of what it starts, and reads its signals.
    pub fn new(state: &Path, headstart: PathBuf) -> Result<Starter> {
        set_child_subreaper(Some(rustix::process::getpid()))
            .context("cannot become a reaper of processes")?;
        Ok(Starter {
            signals: Signals::block().context("cannot read signals")?,
            headstart,
            state: state.to_path_buf(),
        })
    }

    /// The program by which starts with headstart begin.
    pub fn headstart(&self) -> &Path {
        &self.headstart
    }

    /// Starts the command as it is.
    pub fn start(&self, command: &[OsString]) -> Result<Ended> {
        let (program, arguments) = command.split_first().context("no command is given")?;
        let mut start = Command::new(program);
        start.args(arguments);
        self.time(start, command)
    }

    /// Starts it by `headstart run`.
    pub fn start_with_headstart(&self, command: &[OsString]) -> Result<Ended> {
        let mut start = Command::new(&self.headstart);
        start.arg("--state").arg(&self.state);
        start.args(["run", "--control-every", "0", "--"]).args(command);
        self.time(start, command)
    }

    fn time(&self, mut start: Command, command: &[OsString]) -> Result<Ended> {
        let words = tempfile::tempfile().context("cannot make a temporary file")?;
        let own = words.try_clone().context("cannot duplicate a descriptor")?;
        // A group of its own: what is typed at the terminal is for this process.
        start
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(words)
            .process_group(0);
        let name = command[0].to_string_lossy();
        let began = Instant::now();
        let mut child = start.spawn().with_context(|| format!("cannot start {name}"))?;
        let pidfd = pidfd_open(pid(child.id()), PidfdFlags::empty()).context("pidfd_open")?;
        let mut quiet = Quiet::new(began);
        loop {
            if self.wait(&pidfd, LOOK_EVERY)? {
                let seconds = began.elapsed().as_secs_f64();
                let status = child.wait().context("waiting for the command")?;
                ensure_success(status, &name, own)?;
                return Ok(Ended::Exit(seconds));
            }
            if began.elapsed() > LONGEST {
                bail!(
                    "{name} is not done after {} s: give a command that starts sooner",
                    LONGEST.as_secs()
                );
            }
            let processes = descendants(&self.headstart);
            let seconds = match processes.is_empty() {
                // headstart has it wait until enough is read: it has not begun.
                true => quiet.not_begun(Instant::now()),
                false => quiet.since(Instant::now(), activity(&processes)),
            };
            if let Some(seconds) = seconds {
                self.close(&mut child)?;
                return Ok(Ended::Quiet(seconds));
            }
        }
    }

    /// Whether this process ended, within this time.
    fn wait(&self, pidfd: &OwnedFd, within: Duration) -> Result<bool> {
        let mut fds = [
            PollFd::new(pidfd, PollFlags::IN),
            PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN),
        ];
        poll(&mut fds, Timespec::try_from(within).ok().as_ref()).context("poll")?;
        let ended = !fds[0].revents().is_empty();
        self.interrupted()?;
        Ok(ended)
    }

    fn interrupted(&self) -> Result<()> {
        while let Some(received) = self.signals.next().context("reading a signal")? {
            if [
                libc_signal(Signal::INT),
                libc_signal(Signal::TERM),
                libc_signal(Signal::HUP),
                libc_signal(Signal::QUIT),
            ]
            .contains(&received.signal)
            {
                bail!(Interrupted(received.signal));
            }
        }
        Ok(())
    }

    /// Waits until headstart has learned of the starts that it began, and is gone.
    pub fn wait_for_headstart(&self) -> Result<()> {
        let until = Instant::now() + LEARNS_WITHIN;
        loop {
            reap_others(std::process::id());
            if !any_executes(&self.headstart) {
                return Ok(());
            }
            if Instant::now() > until {
                bail!(
                    "what was learned of a start was not kept within {} s",
                    LEARNS_WITHIN.as_secs()
                );
            }
            self.interrupted()?;
            let pause = Timespec::try_from(Duration::from_millis(10)).unwrap_or_default();
            let _ = poll(&mut [], Some(&pause));
        }
    }

    /// Asks the command to close, and what it started, as somebody closes a window; kills who does not.
    fn close(&self, child: &mut Child) -> Result<()> {
        signal_all(&self.headstart, Signal::TERM);
        let pidfd = pidfd_open(pid(child.id()), PidfdFlags::empty()).context("pidfd_open")?;
        if !self.wait(&pidfd, CLOSES_WITHIN)? {
            signal_all(&self.headstart, Signal::KILL);
        }
        child.wait().context("waiting for the command")?;
        Ok(())
    }

    /// Ends what a command has left running: the next start would find it.
    pub fn close_all(&self) -> Result<()> {
        let until = Instant::now() + CLOSES_WITHIN;
        let mut asked = false;
        loop {
            // None of them is this process's own number, which no child has.
            reap_others(std::process::id());
            if descendants(&self.headstart).is_empty() {
                return Ok(());
            }
            let signal = if Instant::now() > until {
                Signal::KILL
            } else {
                Signal::TERM
            };
            if !asked || signal == Signal::KILL {
                signal_all(&self.headstart, signal);
            }
            asked = true;
            if Instant::now() > until + CLOSES_WITHIN {
                bail!("what the command started cannot be ended");
            }
            let pause = Timespec::try_from(Duration::from_millis(10)).unwrap_or_default();
            let _ = poll(&mut [], Some(&pause));
        }
    }
}

fn libc_signal(signal: Signal) -> i32 {
    signal.as_raw()
}

fn pid(number: u32) -> Pid {
    Pid::from_raw(number as i32).unwrap_or(Pid::INIT)
}

/// Sends a signal to all descendants but headstart's own. One that is held by a descriptor is still the same
/// when it is found to be a descendant.
fn signal_all(headstart: &Path, signal: Signal) {
    let held = descendants(headstart).into_iter().filter_map(|process| {
        let pidfd = pidfd_open(pid(process), PidfdFlags::empty()).ok()?;
        Some((process, pidfd))
    });
    let held: Vec<(u32, OwnedFd)> = held.collect();
    let still = descendants(headstart);
    for (process, pidfd) in held {
        if still.contains(&process) {
            let _ = pidfd_send_signal(pidfd, signal);
        }
    }
}

fn ensure_success(status: ExitStatus, name: &str, mut words: File) -> Result<()> {
    if status.success() {
        return Ok(());
    }
    let length = words.metadata().map_or(0, |file| file.len());
    let mut last = Vec::new();
    if words
        .seek(SeekFrom::Start(length.saturating_sub(LAST_WORDS)))
        .is_ok()
    {
        let _ = words.take(LAST_WORDS).read_to_end(&mut last);
    }
    let last = headstart_model::human::printable(String::from_utf8_lossy(&last).trim());
    bail!("{name} ended with {status}: give a command that succeeds. It said at last: {last}")
}

/// Whether a start has fallen quiet.
struct Quiet {
    began: Instant,
    busy: Instant,
    looked: Instant,
    before: Activity,
}

impl Quiet {
    fn new(began: Instant) -> Quiet {
        Quiet {
            began,
            busy: began,
            looked: began,
            before: Activity::default(),
        }
    }

    /// Who has not begun is not quiet.
    fn not_begun(&mut self, now: Instant) -> Option<f64> {
        (self.busy, self.looked) = (now, now);
        None
    }

    /// After how many seconds it has fallen quiet, if it has been since.
    fn since(&mut self, now: Instant, activity: Activity) -> Option<f64> {
        let ticks = activity.ticks.saturating_sub(self.before.ticks) as f64;
        let rate = rustix::param::clock_ticks_per_second() as f64;
        let share = ticks / rate / now.duration_since(self.looked).as_secs_f64().max(1e-3);
        // /proc counts in ticks: one alone is no share of so short a time.
        let computes = ticks > 1.0 && share > LITTLE_CPU;
        if computes || activity.is_blocked || activity.read_bytes > self.before.read_bytes {
            self.busy = now;
        }
        (self.looked, self.before) = (now, activity);
        let is_quiet = now.duration_since(self.busy) >= Duration::from_secs(QUIET_SECONDS);
        is_quiet.then(|| self.busy.duration_since(self.began).as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_quiet_when_it_neither_computes_nor_reads_nor_waits() {
        let began = Instant::now();
        let at = |ms: u64| began + Duration::from_millis(ms);
        let mut quiet = Quiet::new(began);
        let mut activity = Activity::default();
        for ms in (100..=1000).step_by(100) {
            activity.ticks += 10;
            assert_eq!(quiet.since(at(ms), activity), None);
        }
        activity.read_bytes = 4096;
        assert_eq!(quiet.since(at(1100), activity), None);
        activity.is_blocked = true;
        assert_eq!(quiet.since(at(4000), activity), None, "it waits for a device");
        activity.is_blocked = false;
        assert_eq!(quiet.not_begun(at(4000)), None);
        assert_eq!(quiet.since(at(5900), activity), None);
        activity.ticks += 1;
        assert_eq!(quiet.since(at(6000), activity), Some(4.0));
    }
}
