//! The daemon: one thread answers each start that begins, another finishes those that have ended.
//!
//! ```text
//!  kernel ──a start has begun──▶ answer: whose is it? is its plan in memory? ──▶ replay (threads of its own)
//!     │                            │
//!     └──what it does, by ring──▶ Watch ──it has ended──▶ finish: review, learn, plan, keep; at low priority
//! ```
//!
//! The answering thread comes before all ordinary processes, and does nothing that waits for a device but
//! read the plan. What a plan reads of remote file systems is read by processes that another one forks
//! ([`Forker`]): no thread of the daemon asks a server for anything.

mod answer;
mod exact;
mod finish;
mod gains;
mod judge;
mod known_programs;
mod logins;
mod notify;
mod process;
mod realtime_priority;
mod remote;
mod retain;
mod running;
mod shares;
mod state;
mod users;

use crate::control;
use crate::service::Service;
use answer::Answering;
use anyhow::{Context as _, Result};
use finish::Finisher;
use headstart_record::{RecordError, Watch};
use headstart_replay::{Forker, Forks};
use headstart_start::notes::log;
use headstart_store::Store;
use headstart_system::limits::{bound_memory, give_back_memory};
use headstart_system::thread::{self, StartedThread};
use notify::Manager;
use realtime_priority::RealtimePriority;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use state::State;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Threads end within this time once they are told, whatever they are at; the process ends without those that
/// do not.
const ENDS_WITHIN: Duration = Duration::from_secs(60);

/// The lock of the process that serves a boot, which has it until the boot is learned (`only_one` of
/// crates/boot/src/run.rs).
const BOOT: &str = "/run/headstart/boot.lock";

/// What is said where there is no thread to be had.
const NO_THREAD: &str = "cannot start a thread";

/// The niceness of the thread that answers: before all ordinary processes, which a start waits with.
const NICE: i32 = -15;

/// All that the daemon may take, bytes, if whatever has a bound of its own took more than that: some 200 MiB
/// with all of them reached. An allocation beyond it ends the daemon, and the service manager starts it anew.
pub(crate) const MEMORY: u64 = 512 << 20;

/// What a start must wait for devices at least to be worth learning, as a rule, milliseconds: a replay costs
/// 30 ms of processors, and saves at best half of what is waited for (`SAVED` of learn's `verdict::waits`).
pub const LEAST_WAIT_MS: u64 = 50;

/// How the daemon works.
pub struct Options {
    /// Where everything is kept.
    pub store: Store,
    /// One cold start in so many goes without a replay, to compare with; with 0 all are replayed.
    pub control_every: u32,
    /// Whether they stay as frequent once a gain is shown.
    pub fixed_rate: bool,
    /// Whether some starts are recorded exactly ([`headstart_start::config::Programs::exact_pages`]).
    pub exact_pages: bool,
    /// A program whose start waited less than this for devices is not learned.
    pub least_wait: Duration,
    /// The directory that sums are told in, for who watches machines ([`crate::metrics`]).
    pub metrics: Option<PathBuf>,
    /// Where those who ask are listened to; `None` if nobody is.
    pub control: Option<UnixListener>,
    /// What else is done once at the beginning, by a thread of its own, with where everything is kept.
    pub at_begin: fn(&Store),
}

/// What wakes the thread that answers.
#[derive(Clone, Copy)]
#[repr(u64)]
enum Woken {
    Start = 1,
    Told = 2,
}

/// Attaches, and serves until it is told to end (SIGTERM, SIGINT).
///
/// Fails where starts cannot be noticed, and says why. Where a service manager asks, that is no failure: it
/// would try again.
pub fn run(mut options: Options) -> Result<()> {
    let manager = Manager::of_environment();
    // The first thread begins after that.
    let forks = match Forker::start() {
        Ok(forker) => Forks::By(Arc::new(forker)),
        Err(error) => {
            log(&format!(
                "nothing is read ahead from remote file systems: {error}"
            ));
            Forks::Nobody
        }
    };
    let watch = match Watch::start() {
        Ok(watch) => watch,
        Err(error) if manager.listens() && cannot_be_here(&error) => {
            log(&format!("starts cannot be noticed, and nothing is done: {error}"));
            manager.cannot(&error.to_string());
            options.control.iter().for_each(turn_away);
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    if let Err(error) = bound_memory(MEMORY) {
        log(&format!("the memory of this process is not bounded: {error}"));
    }
    let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let stop = Arc::new(AtomicBool::new(false));
    ctrlc::set_handler({
        let (stop, wake) = (Arc::clone(&stop), Arc::clone(&wake));
        move || {
            stop.store(true, Ordering::Relaxed);
            rouse(&wake);
        }
    })
    .context("cannot wait for signals")?;
    // A state directory that is full or cannot be written to keeps nothing, and nothing else fails for it.
    if let Err(error) = options.store.make() {
        log(&format!("nothing new is kept: {error}"));
    }
    let (at_begin, store) = (options.at_begin, options.store.clone());
    thread::spawn("at-begin", Box::new(move || at_begin(&store))).context(NO_THREAD)?;
    let state = Arc::new(State::new(options.store.clone(), Arc::clone(&wake), forks));
    let control = options.control.take();
    let control = control.map(|listener| Control::serve(listener, Arc::clone(&state) as Arc<dyn Service>));
    let control = control.transpose()?;
    let finisher = Finisher::start(&options, Arc::clone(&state))?;
    let mut answering = Answering::new(watch, options, state, finisher);
    let mut first = RealtimePriority::raise();
    // What it took to attach.
    give_back_memory();
    manager.ready();
    let result = answer_until(&mut answering, &mut first, &stop, &wake, &manager);
    manager.stopping();
    drop(control);
    answering.end();
    result
}

/// Whether it is the machine that has nothing to notice starts by.
fn cannot_be_here(error: &RecordError) -> bool {
    matches!(
        error,
        RecordError::Unsupported { .. } | RecordError::Capability { .. } | RecordError::Bpf { .. }
    )
}

/// As many connections as wait at a socket at most (net.core.somaxconn).
const WAITING: usize = 4096;

/// Closes the connections that wait at a socket: the service manager would start the daemon anew for them.
fn turn_away(listener: &UnixListener) {
    if listener.set_nonblocking(true).is_ok() {
        (0..WAITING)
            .take_while(|_| listener.accept().is_ok())
            .for_each(drop);
    }
}

/// The thread that answers those who ask by the socket, as long as this lives.
struct Control {
    stop: Option<OwnedFd>,
    thread: StartedThread,
}

impl Control {
    fn serve(listener: UnixListener, service: Arc<dyn Service>) -> Result<Control> {
        let (until, stop) = pipe_with(PipeFlags::CLOEXEC)?;
        let serve = move || {
            if let Err(error) = control::serve(listener, service, until) {
                log(&format!(
                    "nobody is answered any more who asks by the socket: {error}"
                ));
            }
        };
        Ok(Control {
            stop: Some(stop),
            thread: thread::spawn("control", Box::new(serve)).context(NO_THREAD)?,
        })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.stop = None;
        self.thread.wait(ENDS_WITHIN);
    }
}

/// Wakes the thread that answers.
fn rouse(wake: &OwnedFd) {
    // Only a counter that is at its end cannot be added to, and that has woken it.
    let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
}

fn answer_until(
    answering: &mut Answering,
    first: &mut RealtimePriority,
    stop: &AtomicBool,
    wake: &OwnedFd,
    manager: &Manager,
) -> Result<()> {
    let waiting = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let on = |woken: Woken| epoll::EventData::new_u64(woken as u64);
    // The ring is readable whenever it holds anything; only what was sent with a wake-up is to wake.
    let edge = epoll::EventFlags::IN | epoll::EventFlags::PRI | epoll::EventFlags::ET;
    epoll::add(&waiting, answering.wait_on(), on(Woken::Start), edge)?;
    epoll::add(&waiting, wake.as_fd(), on(Woken::Told), epoll::EventFlags::IN)?;
    let mut events = Vec::with_capacity(2);
    while !stop.load(Ordering::Relaxed) {
        manager.alive();
        let wait = [answering.wait_at_most(), manager.alive_every()];
        let wait: Option<Timespec> = wait
            .into_iter()
            .flatten()
            .min()
            .and_then(|wait: Duration| wait.try_into().ok());
        events.clear();
        let begun = Instant::now();
        match epoll::wait(
            &waiting,
            rustix::buffer::spare_capacity(&mut events),
            wait.as_ref(),
        ) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot wait for starts"),
        }
        first.note_wait(begun.elapsed());
        let mut counter = [0u8; 8];
        // Whoever woke it has left word in the state; the counter only says so.
        let _ = rustix::io::read(wake, &mut counter);
        answering.work()?;
    }
    Ok(())
}
