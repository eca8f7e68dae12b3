//! What a scout does: all calls that the process which the caller sees makes, for nothing. A filter that
//! kills the scout for one of them would kill that process (decision 21).

use crate::message::{Ended, Message, receive, send};
use crate::namespace;
use crate::supervised::Supervisor;
use crate::supervisor::{is_expected_as_this_process, why_no_child};
use anyhow::{Context, Result, bail};
use headstart_start::deadline::LastLimit;
use headstart_system::blocked::children_cpu;
use headstart_system::launch::{
    Child, Signals, background, forget_core, let_go_of_inherited, send as signal,
};
use rustix::event::poll;
use rustix::process::{WaitOptions, wait};
use rustix::time::Timespec;
use std::hash::RandomState;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

/// Whether threads can wait for one another. Where they cannot, the worker's would look without end, and the
/// C library complains on standard error.
fn can_wait_for_threads() -> bool {
    let nobody = AtomicU32::new(0);
    rustix::thread::futex::wake(&nobody, rustix::thread::futex::Flags::PRIVATE, 1).is_ok()
}

/// The processes of a rehearsal end by themselves when this one lets go of them, within this time or it is
/// not waited for them.
const REHEARSED_WITHIN: Duration = Duration::from_millis(500);

/// Calls all that [`start`](crate::start) calls in the process that the caller sees, for nothing: a
/// filter that kills this process for one of the calls would kill that one (decision 21). Leaves no process
/// behind, also if it fails: who has ended counts among the tasks of a control group until somebody has
/// waited for it, and the command may need the last of them.
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
    let _last = LastLimit::arm();
    let _ = (
        namespace::forks_elsewhere(),
        why_no_child(),
        is_expected_as_this_process(),
    );
    let signals = Signals::block().context("cannot read signals")?;
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
    supervisor.say(Message::Command(supervisor.pid()));
    supervisor.barrier().map_err(anyhow::Error::msg)?;
    // A signal that is none.
    signal(supervisor.pid(), 0);
    child.abandon().context("cannot tell a process to go on")?;
    let_go_of_inherited();
    let status = supervisor.wait()?;
    let cpu_ns = children_cpu().as_nanos() as u64;
    supervisor.say(Message::Ended(Ended { status, cpu_ns }));
    supervisor.wait_for_worker(None);
    match supervisor.failed() {
        true => bail!("the worker has not answered"),
        false => Ok(()),
    }
}
