//! The supervisor, which is the process that the caller sees: it waits for the command and behaves as the command does.

use crate::asked::{Apart, Ask, Asked, apart};
use crate::deadline::{FINISH, LastLimit};
use crate::document::Written;
use crate::finish::without_trace;
use crate::message::{Decided, Ended, Message, receive, send};
use crate::namespace;
use crate::notes::complain;
use crate::{Purpose, once, worker};
use anyhow::{Context, Result, bail};
use headstart_model::Outcome;
use headstart_model::outcome::{Mode, Resident};
use headstart_store::Store;
use headstart_system::blocked::Children;
use headstart_system::launch::{
    Change, Child, Signals, background, change, end_like, exec, forget_core, let_go_of_inherited,
    reap_others, send as signal, stop_like,
};
use headstart_system::own_program::{Role, role};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{WaitOptions, wait};
use rustix::time::Timespec;
use std::ffi::{CString, OsStr, OsString};
use std::hash::RandomState;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

/// The longest a command waits at the barrier: what a replay may ask for, and a recorder on a slow machine on top.
const BARRIER_LIMIT: Duration = Duration::from_secs(12);

/// When headstart ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With the command; the worker goes on by itself. As the first process of a container headstart waits all the same,
    /// for the worker would be ended with it.
    WithCommand,
    /// When the worker is done too.
    WhenDone,
}

/// Statuses of shells, env(1) and others for a command that is not there, or cannot be executed.
const NOT_FOUND: i32 = 127;
const NOT_EXECUTABLE: i32 = 126;

/// Makes this process the command, as if headstart had not been there.
pub fn become_command(command: &[OsString]) -> ! {
    match words(command) {
        Ok(words) => cannot_run(command, &exec(&words)),
        Err(error) => {
            complain(&format!("{error:#}"));
            std::process::exit(NOT_EXECUTABLE)
        }
    }
}

/// Says why the command cannot be started, and ends as shells do then.
fn cannot_run(command: &[OsString], error: &io::Error) -> ! {
    complain(&format!(
        "cannot run {:?}: {error}",
        command.first().map_or(OsStr::new(""), OsString::as_os_str)
    ));
    std::process::exit(match error.kind() {
        io::ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    })
}

fn words(command: &[OsString]) -> Result<Vec<CString>> {
    let words = command.iter().map(|word| CString::new(word.as_bytes()));
    words
        .collect::<Result<_, _>>()
        .context("the command has a NUL character")
}

/// By which word of the environment systemd has told that it knows a service by this process's number: as who may tell that it is ready (sd_notify(3)),
/// gets its sockets (sd_listen_fds(3)), or keeps its watchdog (sd_watchdog_enabled(3)). The command would have another.
fn is_expected_as_this_process() -> Option<&'static str> {
    let own = std::process::id().to_string();
    let is_own = |name: &&str| std::env::var_os(name).is_some_and(|value| value == own.as_str());
    let told = ["LISTEN_PID", "WATCHDOG_PID"]
        .into_iter()
        .find(|name| is_own(name));
    let notifies = || std::env::var_os("NOTIFY_SOCKET").is_some() && is_own(&"SYSTEMD_EXEC_PID");
    told.or_else(|| notifies().then_some("NOTIFY_SOCKET"))
}

/// Whether threads can wait for one another. Where they cannot, the worker's would look without end, and the C library complains on standard error.
fn can_wait_for_threads() -> bool {
    let nobody = AtomicU32::new(0);
    rustix::thread::futex::wake(&nobody, rustix::thread::futex::Flags::PRIVATE, 1).is_ok()
}

/// The processes of a rehearsal end by themselves when this one lets go of them, within this time or it is not waited for them.
const REHEARSED_WITHIN: Duration = Duration::from_millis(500);

/// Calls all that [`start`] calls in the process that the caller sees, for nothing: a filter that kills this process for one of the calls
/// would kill that one (decision 21). Leaves no process behind, also if it fails: who has ended counts among the tasks of a control group until
/// somebody has waited for it, and the command may need the last of them.
pub fn rehearse() -> Result<()> {
    let rehearsed = rehearse_all();
    let until = Instant::now() + REHEARSED_WITHIN;
    while matches!(wait(WaitOptions::NOHANG), Ok(children) if children.is_some() || Instant::now() < until) {
        let moment = Timespec {
            tv_sec: 0,
            tv_nsec: 1_000_000,
        };
        let _ = poll(&mut [], Some(&moment));
    }
    rehearsed
}

fn rehearse_all() -> Result<()> {
    forget_core();
    // The command waits for this process.
    let _last = LastLimit::begin();
    let _ = (namespace::forks_elsewhere(), is_expected_as_this_process());
    let signals = Signals::take().context("cannot read signals")?;
    let stream = background(
        || None,
        |stream| {
            // What tables are made with: where no random numbers are to be had it ends this process.
            let _random = RandomState::new();
            if !can_wait_for_threads() || send(&stream, Message::Ready(String::new())).is_err() {
                return 1;
            }
            while !matches!(receive(&stream), Ok(Message::Ended(_)) | Err(_)) {}
            let _ = send(&stream, Message::Done(String::new()));
            0
        },
    )?;
    let child = Child::fork(&[c"true".into()]).context("cannot fork")?;
    let mut supervisor = Supervisor::new(signals, child.pid(), Some(stream), &|| None);
    supervisor.say(Message::Command(supervisor.pid));
    supervisor.barrier().map_err(anyhow::Error::msg)?;
    // A signal that is none.
    signal(supervisor.pid, 0);
    child.abandon().context("cannot tell a process to go on")?;
    let_go_of_inherited();
    let status = supervisor.wait()?;
    let cpu_ns = Children::read().map_or(0, |all| all.cpu.as_nanos() as u64);
    supervisor.say(Message::Ended(Ended { status, cpu_ns }));
    supervisor.wait_for_worker(None);
    match supervisor.failed {
        true => bail!("the worker has not answered"),
        false => Ok(()),
    }
}

/// Starts the command and ends this process as the command ends; what was done goes to `written`. Returns only if
/// nothing was started.
pub fn start(
    command: &[OsString],
    (origin, origin_unix_ns): (Instant, u64),
    ask: &Ask<'_>,
    ending: Ending,
    written: Option<Written>,
) -> Result<()> {
    let must = ask.must;
    if namespace::forks_elsewhere() {
        let why = "processes that are started here are in a pid namespace that has none yet: use unshare --pid --fork";
        if must {
            bail!("cannot record: {why}");
        }
        once::tell(ask.store, &format!("neither replaying nor recording: {why}"));
        become_command(command);
    }
    if let Some(word) = is_expected_as_this_process().filter(|_| !must) {
        let why = format!(
            "neither replaying nor recording: systemd knows the command by the number of this process ({word}); a service is read ahead by the daemon"
        );
        once::tell(ask.store, &why);
        become_command(command);
    }
    let ending = match namespace::is_first() {
        true => Ending::WhenDone,
        false => ending,
    };
    let job = || {
        let mut job = (ask.job)()?;
        // Who waited for the command alone may unmount what it has used.
        if ending == Ending::WithCommand {
            job.record.patience = headstart_record::Options::PATIENCE;
        }
        Ok(job)
    };
    let ask = &Ask { job: &job, ..*ask };
    let (decided, asked, stream) = if role() == Role::Careful && !must {
        match apart(ask, BARRIER_LIMIT)? {
            Apart::Decided(decided, stream) => {
                let stream = decided.bypass.is_none().then_some(stream);
                (decided, None, stream)
            }
            Apart::Gone => {
                once::tell(ask.store, GONE);
                become_command(command);
            }
            Apart::Late => {
                once::tell(ask.store, LATE);
                (Decided::default(), None, None)
            }
        }
    } else {
        let asked = Asked::of((ask.job)()?);
        (asked.decided.clone(), Some(asked), None)
    };
    if decided.is_for_nothing(written.is_some()) {
        // Nobody has to be told anything, and nothing is done beside it. A signal that the line raises must not wait for the command.
        if let Some(line) = &decided.unusable {
            once::tell(ask.store, line);
        }
        become_command(command);
    }
    let Decided {
        bypass: bypassed,
        unusable,
        key,
        resident,
        ..
    } = decided;
    let resident_before = resident.map(|(sampled_pages, resident_pages)| Resident {
        sampled_pages,
        resident_pages,
    });
    let words = words(command)?;
    let signals = Signals::take().context("cannot read signals")?;
    let worker = match (asked, stream) {
        (_, Some(stream)) => Some(Ok(stream)),
        (Some(asked), None) if bypassed.is_none() => {
            let log = match &asked.job.purpose {
                Purpose::Loop { store, .. } => Some(store.log()),
                Purpose::Trace { .. } => None,
            };
            // Opened by the worker, for that may wait for a file system. Without a log its lines are lost, and nothing else.
            let open = move || log.and_then(|log| log.open().ok());
            Some(background(open, |stream| {
                worker::work(stream, asked.job, asked.start, &LastLimit::begin())
            }))
        }
        _ => None,
    };
    let mut child = Child::fork(&words).context("cannot fork")?;
    let mut supervisor = Supervisor::new(signals, child.pid(), None, ask.store);
    supervisor.always = must || written.is_some();
    if let Some(line) = unusable {
        supervisor.tell(&line);
    }
    match worker {
        None => {}
        Some(Ok(stream)) => supervisor.worker = Some(stream),
        Some(Err(error)) if must => {
            let _killed = child.abandon();
            bail!("cannot start the recorder's process: {error}");
        }
        Some(Err(error)) => {
            supervisor.tell(&format!("neither replaying nor recording: cannot fork: {error}"));
        }
    }
    supervisor.say(Message::Command(supervisor.pid));
    match supervisor.barrier() {
        Ok(()) => child.release(),
        Err(why) if must => {
            let _killed = child.abandon();
            bail!("{why}");
        }
        Err(why) => {
            // Before it is released: so the worker knows before anything else can be true.
            supervisor.say(Message::Ahead);
            supervisor.tell(&why);
            child.release();
        }
    }
    let_go_of_inherited();
    // The command runs: whoever called must not start it again.
    let status = supervisor.wait().unwrap_or_else(|error| {
        complain(&format!("the command's status is not known: {error:#}"));
        std::process::exit(1)
    });
    let failure = child.failure();
    match &failure {
        Some(_) => supervisor.say(Message::NotStarted),
        None => {
            // The command is the only child that was waited for.
            let cpu_ns = Children::read().map_or(0, |all| all.cpu.as_nanos() as u64);
            supervisor.say(Message::Ended(Ended { status, cpu_ns }));
            if ending == Ending::WithCommand {
                supervisor.wait_until_let_go();
            }
        }
    }
    match (bypassed, key) {
        (Some(why), Some(key)) if failure.is_none() => {
            let why = format!("bypassed: {why}");
            let ended = Some((Some(status), origin.elapsed()));
            let outcome = Outcome {
                resident_before,
                ..without_trace(&key, Mode::Bypass, None, ended, origin_unix_ns, why)
            };
            let written = written.map(|written| written.write(&serde_json::to_string(&outcome)?));
            if let Some(Err(error)) = written {
                supervisor.tell(&format!("{error:#}"));
            }
        }
        _ if ending == Ending::WhenDone => supervisor.wait_for_worker(written),
        _ => {}
    }
    if let Some(error) = failure {
        cannot_run(command, &error);
    }
    // A trace that was asked for and is not there: the command's own failure says more, where it failed.
    if must && supervisor.failed && status == 0 {
        std::process::exit(1);
    }
    end_like(status)
}

/// What is told of a worker that was killed before the command began, and of one that does not answer.
const GONE: &str = "the worker process ended early: the command starts without";
const LATE: &str = "the recorder is not ready in time: the command starts without";

/// Whether the other side of a stream is gone.
fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}

/// What the waiting process holds.
struct Supervisor<'a> {
    /// Where to remember what was told.
    store: &'a dyn Fn() -> Option<Store>,
    /// Whether all is told, and not only what is new.
    always: bool,
    signals: Signals,
    pid: u32,
    /// `None` where there is none, and once it is gone.
    worker: Option<UnixStream>,
    /// Whether a line was printed: there is one at most.
    told: bool,
    /// Whether the worker could not do what it was for.
    failed: bool,
    stopped: bool,
    /// The command's status, once it has ended: its number is free then.
    ended: Option<i32>,
}

impl<'a> Supervisor<'a> {
    fn new(
        signals: Signals,
        pid: u32,
        worker: Option<UnixStream>,
        store: &'a dyn Fn() -> Option<Store>,
    ) -> Supervisor<'a> {
        Supervisor {
            store,
            always: false,
            signals,
            pid,
            worker,
            told: false,
            failed: false,
            stopped: false,
            ended: None,
        }
    }

    /// Tells what the worker says, which has looked whether it is news.
    fn repeat(&mut self, line: &str) {
        if !line.is_empty() && !std::mem::replace(&mut self.told, true) {
            complain(line);
        }
    }

    /// Tells a line of this process's own, if it is news.
    fn tell(&mut self, line: &str) {
        if self.always {
            self.repeat(line);
        } else if !std::mem::replace(&mut self.told, true) {
            once::tell(self.store, line);
        }
    }

    /// A worker that is done or gone does not listen: what it said before, or that it said nothing, is read later.
    fn say(&mut self, message: Message) {
        let sent = self
            .worker
            .as_ref()
            .map_or(Ok(()), |stream| send(stream, message));
        // Of a worker that is gone whoever waits for it hears. Another error is a filter's, and nothing is to be had of a worker that cannot be told anything.
        if sent.is_err_and(|error| !is_gone(&error)) {
            self.worker = None;
            self.failed = true;
        }
    }

    /// Notes that the worker has ended before it was done.
    fn worker_is_gone(&mut self) {
        self.worker = None;
        self.failed = true;
        self.tell("the worker process ended early: nothing was learned");
    }

    /// Waits until something can be read from the signals or the worker; whether it is the worker.
    fn look(&self, worker: bool, limit: Option<Duration>) -> Result<bool> {
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
        if let (true, Some(stream)) = (worker, &self.worker) {
            fds.push(PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN));
        }
        let timeout = limit.map(|limit| Timespec {
            tv_sec: limit.as_secs() as i64,
            tv_nsec: i64::from(limit.subsec_nanos()),
        });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => Ok(fds.get(1).is_some_and(|fd| !fd.revents().is_empty())),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error).context("cannot wait for signals"),
        }
    }

    /// Waits until the worker says that the command may go on, or nobody has to wait because it was ended while it waited;
    /// why it will not be helped otherwise.
    fn barrier(&mut self) -> Result<(), String> {
        let mut until = Instant::now() + BARRIER_LIMIT;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(LATE.into());
            }
            if self.worker.is_none() {
                return Ok(());
            }
            let worker = self
                .look(true, Some(left))
                .map_err(|error| format!("{error:#}"))?;
            self.pass_signals();
            let before = Instant::now();
            self.follow().map_err(|error| format!("{error:#}"))?;
            if self.ended.is_some() {
                return Ok(());
            }
            // This process was stopped with it: nobody waited.
            until += before.elapsed();
            let Some(stream) = self.worker.as_ref().filter(|_| worker) else {
                continue;
            };
            match receive(stream) {
                Ok(Message::Ready(line)) => {
                    self.repeat(&line);
                    return Ok(());
                }
                Ok(Message::Refused(why)) => return Err(why),
                Ok(_) => {}
                Err(_) => {
                    self.worker = None;
                    self.failed = true;
                    return Err(GONE.into());
                }
            }
        }
    }

    /// Does as the command did since it was last asked: stops with it, or notes its end.
    fn follow(&mut self) -> Result<()> {
        if namespace::is_first() {
            reap_others(self.pid);
        }
        while self.ended.is_none() {
            match change(self.pid).context("cannot wait for the command")? {
                Some(Change::Ended(status)) => self.ended = Some(status),
                Some(Change::Stopped(signal)) => {
                    self.stopped = true;
                    stop_like(signal);
                }
                Some(Change::Continued) => self.stopped = false,
                None => break,
            }
        }
        Ok(())
    }

    /// Waits until the command has ended, and gives its status.
    fn wait(&mut self) -> Result<i32> {
        loop {
            self.follow()?;
            if let Some(status) = self.ended {
                return Ok(status);
            }
            self.look(false, None)?;
            self.pass_signals();
        }
    }

    /// Passes on what was sent to headstart alone.
    fn pass_signals(&mut self) {
        while let Ok(Some(received)) = self.signals.next() {
            let sent = received.signal;
            match sent {
                number::SIGCHLD => {}
                // What this process did itself, such as a write to a pipe that nobody reads, or beyond the largest file.
                _ if received.by_self => {}
                // Of a terminal, which sent it to the command as well; but that it is gone, to who leads the session alone. An alarm is this process's
                // only: it was set before headstart took the place of what it was set for.
                number::SIGHUP if received.by_kernel && leads_session() => {
                    signal(self.pid, sent);
                    if self.stopped {
                        signal(self.pid, number::SIGCONT);
                    }
                }
                _ if received.by_kernel && sent != number::SIGALRM => {}
                // The shell continues all of a job; who was continued already must not be told twice.
                number::SIGCONT if !self.stopped => {}
                _ => signal(self.pid, sent),
            }
            if sent == number::SIGCONT {
                self.stopped = false;
            }
        }
    }

    /// Waits until the worker has closed what it has read ahead, for some milliseconds: who waited for the command may unmount what it has used. Signals do to
    /// this process what they do to any.
    fn wait_until_let_go(&mut self) {
        let until = Instant::now() + worker::LETS_GO_WITHIN;
        while let Some(stream) = &self.worker {
            let left = until.saturating_duration_since(Instant::now());
            let left = Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: left.subsec_nanos().into(),
            };
            let told = poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&left));
            match told {
                Ok(1..) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Ok(0) | Err(_) => return,
            }
            match receive(stream) {
                Ok(Message::LetGo) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }

    /// Waits until the worker is done, and writes what it says was done. Signals do to this process what they do to any:
    /// nothing is left to pass them to. The worker finishes by itself if one ends the wait.
    fn wait_for_worker(&mut self, mut written: Option<Written>) {
        // What came before the command's end was for the command.
        while let Ok(Some(_)) = self.signals.next() {}
        self.signals.give_back();
        // Its own deadline comes before.
        let until = Instant::now() + FINISH + FINISH / 10;
        while let Some(stream) = &self.worker {
            let left = until.saturating_duration_since(Instant::now());
            let _ = stream.set_read_timeout(Some(left.max(Duration::from_millis(1))));
            match receive(stream) {
                Ok(Message::Document(text)) => {
                    if let Some(Err(error)) = written.take().map(|written| written.write(&text)) {
                        self.tell(&format!("{error:#}"));
                    }
                }
                Ok(Message::Done(line)) => {
                    self.repeat(&line);
                    return;
                }
                Ok(Message::Failed(line)) => {
                    self.failed = true;
                    self.repeat(&line);
                    return;
                }
                Ok(_) => {}
                Err(_) => self.worker_is_gone(),
            }
        }
    }
}

/// Whether this process leads its session, as one that a terminal was made for.
fn leads_session() -> bool {
    rustix::process::getsid(None).is_ok_and(|session| session == rustix::process::getpid())
}

/// The numbers of the signals that are treated otherwise than others.
mod number {
    pub const SIGALRM: i32 = rustix::process::Signal::ALARM.as_raw();
    pub const SIGCHLD: i32 = rustix::process::Signal::CHILD.as_raw();
    pub const SIGHUP: i32 = rustix::process::Signal::HUP.as_raw();
    pub const SIGCONT: i32 = rustix::process::Signal::CONT.as_raw();
}
