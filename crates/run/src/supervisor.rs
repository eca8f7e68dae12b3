//! `headstart run` in the process that the caller sees, the supervisor: what is decided before the command
//! begins, whom it makes, and how it ends.

use crate::document::Written;
use crate::message::{Decided, Message};
use crate::namespace;
use crate::prepared::{Apart, Ask, Prepared, prepare_apart};
use crate::supervised::{BARRIER_LIMIT, Ending, GONE, LATE, Supervisor};
use crate::{Origin, Purpose, complain_once, worker};
use anyhow::{Context, Result, bail};
use headstart_model::Outcome;
use headstart_model::outcome::{Mode, Resident};
use headstart_start::deadline::LastLimit;
use headstart_start::finish::without_trace;
use headstart_start::notes::complain;
use headstart_system::launch::{
    Child, Signals, background, end_like, exec, holds_record_locks, let_go_of_inherited,
};
use headstart_system::own_program::{Role, role};
use headstart_system::priority;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;

/// Statuses of shells, env(1) and others for a command that is not there, or cannot be executed.
const NOT_FOUND: i32 = 127;
const NOT_EXECUTABLE: i32 = 126;

/// Makes this process the command, as if headstart had not been there.
pub fn become_command(command: &[OsString]) -> ! {
    match c_strings(command) {
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

fn c_strings(command: &[OsString]) -> Result<Vec<CString>> {
    let words = command.iter().map(|word| CString::new(word.as_bytes()));
    words
        .collect::<Result<_, _>>()
        .context("the command has a NUL character")
}

/// By which word of the environment systemd has told that it knows a service by this process's number: as who
/// may tell that it is ready (sd_notify(3)), gets its sockets (sd_listen_fds(3)), or keeps its watchdog
/// (sd_watchdog_enabled(3)). The command would have another.
pub(crate) fn is_expected_as_this_process() -> Option<&'static str> {
    let own = std::process::id().to_string();
    let is_own = |name: &&str| std::env::var_os(name).is_some_and(|value| value == own.as_str());
    let told = ["LISTEN_PID", "WATCHDOG_PID"]
        .into_iter()
        .find(|name| is_own(name));
    let notifies = || std::env::var_os("NOTIFY_SOCKET").is_some() && is_own(&"SYSTEMD_EXEC_PID");
    told.or_else(|| notifies().then_some("NOTIFY_SOCKET"))
}

/// Starts the command and ends this process as the command ends; what was done goes to `written`. Returns
/// only if nothing was started.
pub fn start(
    command: &[OsString],
    origin: Origin,
    ask: &Ask<'_>,
    ending: Ending,
    written: Option<Written>,
) -> Result<()> {
    if let Some(why) = why_not(ask.must) {
        if ask.must {
            bail!("cannot record: {why}");
        }
        complain_once::complain_once(ask.store, &format!("neither replaying nor recording: {why}"));
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
    let (decided, helper) = decide(command, ask)?;
    if decided.is_for_nothing(written.is_some()) {
        // Nobody has to be told anything, and nothing is done beside it. A signal that the line raises must
        // not wait for the command.
        if let Some(line) = &decided.unusable {
            complain_once::complain_once(ask.store, line);
        }
        become_command(command);
    }
    let (mut supervisor, child) = launch(command, ask, &decided, helper, written.is_some())?;
    let_go_of_inherited();
    // The command runs: whoever called must not start it again.
    let status = supervisor.wait().unwrap_or_else(|error| {
        complain(&format!("the command's status is not known: {error:#}"));
        std::process::exit(1)
    });
    let failure = child.failure();
    supervisor.say_how_it_ended(status, failure.is_none(), ending);
    match outcome_of_bypass(decided, origin, status).filter(|_| failure.is_none()) {
        Some(outcome) => {
            let written = written.map(|written| written.write(&serde_json::to_string(&outcome)?));
            if let Some(Err(error)) = written {
                supervisor.complain_once(&format!("{error:#}"));
            }
        }
        None if ending == Ending::WhenDone => supervisor.wait_for_worker(written),
        None => {}
    }
    if let Some(error) = failure {
        cannot_run(command, &error);
    }
    // A trace that was asked for and is not there: the command's own failure says more, where it failed.
    if ask.must && supervisor.failed() && status == 0 {
        std::process::exit(1);
    }
    end_like(status)
}

/// Why nothing can be done beside a command that is started here, or for one that need not be recorded
/// (`must`) nothing is.
fn why_not(must: bool) -> Option<String> {
    if namespace::forks_elsewhere() {
        return Some(
            "processes that are started here are in a pid namespace that has none yet: use unshare --pid --fork".into(),
        );
    }
    if let Some(why) = why_no_child() {
        return Some(why.into());
    }
    let word = is_expected_as_this_process().filter(|_| !must)?;
    Some(format!(
        "systemd knows the command by the number of this process ({word}); a service is read ahead by the daemon"
    ))
}

/// What a command would lose that is started as a child of this process.
pub(crate) fn why_no_child() -> Option<&'static str> {
    if priority::is_reset_by_fork() {
        return Some(
            "a child would not have the scheduling that this process was given (SCHED_RESET_ON_FORK)",
        );
    }
    holds_record_locks().then_some("this process holds a lock of fcntl(2), which a child would not have")
}

/// Who is to do what was decided.
enum Helper {
    /// Nobody.
    Nobody,
    /// A worker that is still to be made.
    Prepared(Box<Prepared>),
    /// A worker that has decided.
    Worker(UnixStream),
}

/// Decides what is done, here or, where a filter may end whoever looks, in a process apart.
fn decide(command: &[OsString], ask: &Ask<'_>) -> Result<(Decided, Helper)> {
    if role() != Role::Careful || ask.must {
        let prepared = Prepared::decide((ask.job)()?);
        let decided = prepared.decided.clone();
        let helper = match decided.bypass {
            None => Helper::Prepared(Box::new(prepared)),
            Some(_) => Helper::Nobody,
        };
        return Ok((decided, helper));
    }
    match prepare_apart(ask, BARRIER_LIMIT)? {
        Apart::Decided(decided, stream) => {
            let helper = match decided.bypass {
                None => Helper::Worker(stream),
                Some(_) => Helper::Nobody,
            };
            Ok((decided, helper))
        }
        Apart::Gone => {
            complain_once::complain_once(ask.store, GONE);
            become_command(command);
        }
        Apart::Late => {
            complain_once::complain_once(ask.store, LATE);
            Ok((Decided::default(), Helper::Nobody))
        }
    }
}

/// Makes the worker and the command's process, and lets that go once the worker is ready, or too slow, or
/// gone.
fn launch<'a>(
    command: &[OsString],
    ask: &Ask<'a>,
    decided: &Decided,
    helper: Helper,
    is_written: bool,
) -> Result<(Supervisor<'a>, Child)> {
    let words = c_strings(command)?;
    let signals = Signals::block().context("cannot read signals")?;
    let worker = match helper {
        Helper::Nobody => None,
        Helper::Worker(stream) => Some(Ok(stream)),
        Helper::Prepared(prepared) => {
            let log = match &prepared.job.purpose {
                Purpose::Loop(asked) => Some(asked.store.log()),
                Purpose::Trace { .. } => None,
            };
            // Opened by the worker, for that may wait for a file system. Without a log its lines are lost,
            // and nothing else.
            let open = move || log.and_then(|log| log.open().ok());
            Some(background(open, |stream| {
                worker::work(stream, prepared.job, prepared.start, &LastLimit::arm())
            }))
        }
    };
    let mut child = Child::fork(&words).context("cannot fork")?;
    let mut supervisor = Supervisor::new(signals, child.pid(), None, ask.store);
    if ask.must || is_written {
        supervisor.tells_all();
    }
    if let Some(line) = &decided.unusable {
        supervisor.complain_once(line);
    }
    match worker {
        None => {}
        Some(Ok(stream)) => supervisor.has_worker(stream),
        Some(Err(error)) if ask.must => {
            let _killed = child.abandon();
            bail!("cannot start the recorder's process: {error}");
        }
        Some(Err(error)) => {
            supervisor.complain_once(&format!("neither replaying nor recording: cannot fork: {error}"));
        }
    }
    supervisor.say(Message::Command(supervisor.pid()));
    match supervisor.barrier() {
        Ok(()) => child.release(),
        Err(why) if ask.must => {
            let _killed = child.abandon();
            bail!("{why}");
        }
        Err(why) => {
            // Before it is released: so the worker knows before anything else can be true.
            supervisor.say(Message::Ahead);
            supervisor.complain_once(&why);
            child.release();
        }
    }
    Ok((supervisor, child))
}

/// What is known of a start that was bypassed and has a key.
fn outcome_of_bypass(decided: Decided, origin: Origin, status: i32) -> Option<Outcome> {
    let (why, key) = decided.bypass.zip(decided.key)?;
    let why = format!("bypassed: {why}");
    let ended = Some((Some(status), origin.instant.elapsed()));
    let resident = decided.resident.map(|(sampled_pages, resident_pages)| Resident {
        sampled_pages,
        resident_pages,
    });
    Some(Outcome {
        resident_before: resident,
        ..without_trace(&key, Mode::Bypass, None, ended, origin.unix_ns, why)
    })
}
