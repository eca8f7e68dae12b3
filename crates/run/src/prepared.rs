//! What is asked for, with what was decided for it: by the process that the caller sees, or by one that may
//! be killed for it (decision 21).

use crate::message::{Decided, Message, receive, send};
use crate::{Job, Purpose, worker};
use anyhow::{Context, Result, bail};
use headstart_start::Start;
use headstart_start::deadline::LastLimit;
use headstart_start::decide::Decision;
use headstart_store::Store;
use headstart_system::launch::{background_of, log_to, wait_for};
use headstart_system::limits;
use headstart_system::mounts::MountTable;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A start that is asked for, before anything is looked at.
pub struct Ask<'a> {
    /// Whether the command is not to run without.
    pub must: bool,
    /// Whether the caller wants to know what was done, as a JSON document.
    pub document: bool,
    /// The state directory, where there is one.
    pub store: &'a dyn Fn() -> Option<Store>,
    /// Makes the job of it.
    pub job: &'a dyn Fn() -> Result<Job>,
}

/// A job for which was decided what is done.
pub(crate) struct Prepared {
    pub job: Job,
    pub start: Start,
    pub decided: Decided,
}

impl Prepared {
    /// Reads what is known of the start, and decides.
    pub fn decide(job: Job) -> Prepared {
        let mut start = match (&job.bypass, &job.purpose) {
            (Some(why), _) => Start::new(Decision::Bypass(why.clone())),
            (None, Purpose::Loop(asked)) => Start::decide(asked, &mut MountTable::read),
            (None, Purpose::Trace { .. }) => Start::new(Decision::Record),
        };
        let mut decided = Decided::default();
        if let Purpose::Loop(asked) = &job.purpose {
            if let Some(why) = start.bypass().is_none().then(limits::lacking).flatten() {
                start.leave(why);
            }
            decided.key = Some(asked.key.clone());
            // What is known already is read ahead all the same.
            if start.bypass().is_none() {
                decided.unusable = (asked.store)
                    .make()
                    .err()
                    .map(|error| format!("nothing is learned: {error}"));
            }
        }
        decided.resident = start
            .resident()
            .map(|found| (found.sampled_pages, found.resident_pages));
        decided.bypass = start.bypass().map(str::to_owned);
        decided.in_vain = decided.unusable.is_some() && *start.decision() == Decision::Record;
        Prepared { job, start, decided }
    }
}

/// What came of asking a process of its own.
pub(crate) enum Apart {
    /// This was decided; the process goes on if there is anything to do.
    Decided(Decided, UnixStream),
    /// It has ended without a word. It was waited for.
    Gone,
    /// It has not answered in time.
    Late,
}

/// Has another process make the job of what is asked for, look what is known and decide, and go on as the
/// worker. Why there is no job.
pub(crate) fn prepare_apart(ask: &Ask<'_>, limit: Duration) -> Result<Apart> {
    let (stream, pid) = background_of(
        || None,
        |stream| {
            limits::without_core();
            let last = LastLimit::arm();
            let prepared = match (ask.job)() {
                Ok(job) => Prepared::decide(job),
                Err(error) => {
                    let _ = send(&stream, Message::Refused(format!("{error:#}")));
                    return 1;
                }
            };
            let told = send(&stream, Message::Decided(prepared.decided.clone()));
            let decided = &prepared.decided;
            if told.is_err() || decided.bypass.is_some() || decided.is_for_nothing(ask.document) {
                return 0;
            }
            if let Purpose::Loop(asked) = &prepared.job.purpose {
                if let Ok(log) = asked.store.log().open() {
                    log_to(log);
                }
            }
            worker::work(stream, prepared.job, prepared.start, &last)
        },
    )
    .context("cannot fork")?;
    let timeout = Timespec {
        tv_sec: limit.as_secs() as i64,
        tv_nsec: i64::from(limit.subsec_nanos()),
    };
    let mut fds = [PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN)];
    if !matches!(poll(&mut fds, Some(&timeout)), Ok(1..)) {
        return Ok(Apart::Late);
    }
    match receive(&stream) {
        Ok(Message::Decided(decided)) => {
            if decided.bypass.is_some() || decided.is_for_nothing(ask.document) {
                // It has ended, or ends: what becomes the command has no child.
                wait_for(pid, limit);
            }
            Ok(Apart::Decided(decided, stream))
        }
        Ok(Message::Refused(why)) => {
            wait_for(pid, limit);
            bail!("{why}")
        }
        _ => {
            wait_for(pid, limit);
            Ok(Apart::Gone)
        }
    }
}
