//! The daemon: one thread answers each start that begins, another finishes those that have ended.
//!
//! ```text
//!  kernel ──a start has begun──▶ answer: whose is it? is its plan in memory? ──▶ replay (threads of its own)
//!     │                            │
//!     └──what it does, by ring──▶  Watch ──it has ended──▶ finish: review, learn, plan, keep; at low priority
//! ```
//!
//! Where BPF is not, fanotify(7) tells what is executed, and what is known of it is read ahead; nothing is
//! recorded ([`by_fanotify`]).
//!
//! The answering thread comes before all ordinary processes, and does nothing that waits for a device but
//! read the plan.

mod answer;
mod by_fanotify;
mod exact;
mod finish;
mod gains;
mod judge;
mod known_programs;
mod notify;
mod process;
mod realtime_priority;
mod retain;
mod running;
mod shares;
mod state;
mod users;

use crate::control;
use crate::service::Service;
use answer::Answering;
use anyhow::{Context as _, Result};
use by_fanotify::ByFanotify;
use finish::Finisher;
use headstart_record::Watch;
use headstart_start::finish::at_low_priority;
use headstart_start::notes::log;
use headstart_store::Store;
use headstart_system::limits::{bound_memory, give_back_memory};
use headstart_system::thread::{self, StartedThread};
use notify::Manager;
use realtime_priority::RealtimePriority;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use state::State;
use std::fmt::{self, Display, Formatter};
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Threads end within this time once they are told, whatever they are at; the process ends without those that
/// do not.
const ENDS_WITHIN: Duration = Duration::from_secs(60);

/// What is said where there is no thread to be had.
const NO_THREAD: &str = "cannot start a thread";

/// The niceness of the thread that answers: before all ordinary processes, which a start waits with.
const NICE: i32 = -15;

/// All that the daemon may take, bytes, if whatever has a bound of its own took more than that: some 200 MiB
/// with all of them reached. An allocation beyond it ends the daemon, and the service manager starts it anew.
pub(crate) const MEMORY: u64 = 512 << 20;

/// What a start must wait for devices at least to be worth learning, as a rule, milliseconds: a replay costs
/// 30 ms of processors, and saves at best half of what is waited for (`SAVED` of start's bypass).
pub const LEAST_WAIT_MS: u64 = 50;

/// How the daemon works.
pub struct Options {
    /// Where everything is kept.
    pub store: Store,
    /// One cold start in so many goes without a replay, to compare with; with 0 all are replayed.
    pub control_every: u32,
    /// A program whose start waited less than this for devices is not learned.
    pub least_wait: Duration,
    /// The directory that sums are told in, for who watches machines ([`crate::metrics`]).
    pub metrics: Option<PathBuf>,
    /// What tells of starts.
    pub notice: Notice,
    /// Where those who ask are listened to; `None` if nobody is.
    pub control: Option<UnixListener>,
    /// What else is done once at the beginning, by a thread of its own, with where everything is kept.
    pub at_begin: fn(&Store),
}

/// What tells of starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Notice {
    /// BPF, or fanotify(7) where that cannot.
    #[default]
    Any,
    /// BPF alone: starts are recorded, too.
    Bpf,
    /// fanotify(7): nothing is recorded.
    Fanotify,
}

impl Display for Notice {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Notice::Any => "any",
            Notice::Bpf => "bpf",
            Notice::Fanotify => "fanotify",
        })
    }
}

impl FromStr for Notice {
    type Err = String;

    fn from_str(text: &str) -> Result<Notice, String> {
        let notices = [Notice::Any, Notice::Bpf, Notice::Fanotify];
        let is_it = |one: &Notice| one.to_string() == text;
        notices
            .into_iter()
            .find(is_it)
            .ok_or_else(|| "it is any, bpf or fanotify".into())
    }
}

/// What the thread that answers does, whoever tells of starts.
trait Noticing {
    /// What becomes readable, edge by edge, when there is something to do.
    fn wait_on(&self) -> Vec<BorrowedFd<'_>>;

    /// How soon there is something to do even if nothing happens.
    fn wait_at_most(&self) -> Option<Duration>;

    /// Answers what has begun, and has finished what has ended.
    fn work(&mut self) -> Result<()>;

    /// Nothing is recorded any more, nor finished but what is being finished.
    fn end(self: Box<Self>);
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
/// Fails where starts cannot be noticed, and says why.
pub fn run(mut options: Options) -> Result<()> {
    let watch = match options.notice {
        Notice::Fanotify => Err("as it was asked for".into()),
        Notice::Any | Notice::Bpf => match Watch::start() {
            Ok(watch) => Ok(watch),
            Err(error) if options.notice == Notice::Any => Err(error.to_string()),
            Err(error) => return Err(error.into()),
        },
    };
    // Where nothing tells of starts, nothing else is said.
    let watch = match watch {
        Ok(watch) => Ok(watch),
        Err(why) => match by_fanotify::listen() {
            Ok(executed) => Err((why, executed)),
            Err(error) => {
                return Err(error.context(format!("starts cannot be noticed; not by BPF: {why}")));
            }
        },
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
    let state = Arc::new(State::new(options.store.clone(), Arc::clone(&wake)));
    let control = options.control.take();
    let control = control.map(|listener| Control::serve(listener, Arc::clone(&state) as Arc<dyn Service>));
    let control = control.transpose()?;
    let mut noticing: Box<dyn Noticing> = match watch {
        Ok(watch) => {
            let finisher = Finisher::start(&options, Arc::clone(&state))?;
            Box::new(Answering::new(watch, options, state, finisher))
        }
        Err((why, executed)) => {
            let store = options.store.clone();
            let tell = move || {
                at_low_priority();
                std::thread::sleep(finish::QUIET);
                Manager::of_environment().notify_known(known_programs::programs(&store, || false).len());
            };
            thread::spawn("known", Box::new(tell)).context(NO_THREAD)?;
            let noticing = ByFanotify::start(executed, options, state)?;
            log(&format!(
                "starts are noticed by fanotify(7), and only what `headstart run` has learned is read ahead: {why}"
            ));
            Box::new(noticing)
        }
    };
    let mut first = RealtimePriority::raise();
    let manager = Manager::of_environment();
    // What it took to attach.
    give_back_memory();
    manager.ready();
    let result = answer_until(noticing.as_mut(), &mut first, &stop, &wake, &manager);
    manager.stopping();
    drop(control);
    noticing.end();
    result
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
    noticing: &mut dyn Noticing,
    first: &mut RealtimePriority,
    stop: &AtomicBool,
    wake: &OwnedFd,
    manager: &Manager,
) -> Result<()> {
    let waiting = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let on = |woken: Woken| epoll::EventData::new_u64(woken as u64);
    // The ring is readable whenever it holds anything; only what was sent with a wake-up is to wake.
    let edge = epoll::EventFlags::IN | epoll::EventFlags::PRI | epoll::EventFlags::ET;
    for file in noticing.wait_on() {
        epoll::add(&waiting, file, on(Woken::Start), edge)?;
    }
    epoll::add(&waiting, wake.as_fd(), on(Woken::Told), epoll::EventFlags::IN)?;
    let mut events = Vec::with_capacity(2);
    while !stop.load(Ordering::Relaxed) {
        manager.alive();
        let wait = [noticing.wait_at_most(), manager.alive_every()];
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
        noticing.work()?;
    }
    Ok(())
}
