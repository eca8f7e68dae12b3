//! The daemon: one thread answers each start that begins, another finishes those that have ended.
//!
//! ```text
//!  kernel ──a start has begun──▶ answer: whose is it? is its plan in memory? ──▶ replay (threads of its own)
//!     │                            │
//!     └──what it does, by ring──▶  Watch ──it has ended──▶ finish: review, learn, plan, keep; at low priority
//! ```
//!
//! The answering thread comes before all ordinary processes, and does nothing that waits for a device but read the plan.

mod answer;
mod finish;
mod hold;
mod notify;
mod process;
mod retain;
mod running;
mod state;

use crate::control;
use crate::service::Service;
use answer::Answering;
use anyhow::{Context as _, Result};
use finish::Finisher;
use headstart_record::Watch;
use headstart_session::notes::log;
use headstart_store::Store;
use headstart_system::limits::{bound_memory, give_back_memory};
use headstart_system::priority::set_nice;
use hold::Guard;
use notify::Manager;
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
use std::thread::JoinHandle;
use std::time::Duration;

/// The niceness of the thread that answers: before all ordinary processes, which a start waits with.
const NICE: i32 = -15;

/// All that the daemon may take, bytes, if whatever has a bound of its own took more than that: some 200 MiB with all of them
/// reached. An allocation beyond it ends the daemon, and the service manager starts it anew.
pub(crate) const MEMORY: u64 = 512 << 20;

/// It begins to serve after this time at the latest, whatever is still to be found out of programs that are to be held.
const ASKED_ABOUT_WITHIN: Duration = Duration::from_secs(2);

/// What a start must wait for devices at least to be worth learning, as a rule, milliseconds: a replay costs 30 ms of processors, and
/// saves at best half of what is waited for (`SAVED` of session's bypass).
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
    /// Whether a cold start waits, on a disk with one head, until its replay is ahead of it.
    pub hold: bool,
    /// Where those who ask are listened to; `None` if nobody is.
    pub control: Option<UnixListener>,
}

/// What wakes the thread that answers.
#[derive(Clone, Copy)]
#[repr(u64)]
enum Woken {
    Start = 1,
    Told = 2,
    Asked = 3,
}

/// Attaches, and serves until it is told to end (SIGTERM, SIGINT).
///
/// Fails where starts cannot be noticed, and says why.
pub fn run(mut options: Options) -> Result<()> {
    // Before this process has a second thread.
    let guard = options.hold.then(Guard::start);
    let mut guard = guard.transpose().unwrap_or_else(|error| {
        log(&format!("starts on disks with one head are not held: {error}"));
        None
    });
    let watch = Watch::start()?;
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
    options.hold = guard.is_some();
    if let Some(guard) = &mut guard {
        for file in hold::of_all(&options.store, ASKED_ABOUT_WITHIN) {
            guard.ask_about(file);
        }
    }
    let state = Arc::new(State::new(options.store.clone(), Arc::clone(&wake)));
    let finisher = Finisher::start(&options, Arc::clone(&state))?;
    let control = options.control.take();
    let control = control.map(|listener| Control::serve(listener, Arc::clone(&state) as Arc<dyn Service>));
    let control = control.transpose()?;
    let mut answering = Answering::new(watch, guard, options, Arc::clone(&state), finisher);
    if let Err(error) = set_nice(NICE) {
        log(&format!("starts are answered no sooner than others run: {error}"));
    }
    let manager = Manager::of_environment();
    // What it took to attach.
    give_back_memory();
    manager.ready();
    let result = answer_until(&mut answering, &stop, &wake, &manager);
    manager.stopping();
    drop(control);
    answering.end();
    result
}

/// The thread that answers those who ask by the socket, as long as this lives.
struct Control {
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    fn serve(listener: UnixListener, service: Arc<dyn Service>) -> Result<Control> {
        let (until, stop) = pipe_with(PipeFlags::CLOEXEC)?;
        let thread = std::thread::Builder::new().name("control".into()).spawn(move || {
            if let Err(error) = control::serve(listener, service, until) {
                log(&format!(
                    "nobody is answered any more who asks by the socket: {error}"
                ));
            }
        });
        Ok(Control {
            stop: Some(stop),
            thread: Some(thread.context("cannot start a thread")?),
        })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // What it panicked of it has said.
            let _ = thread.join();
        }
    }
}

/// Wakes the thread that answers.
fn rouse(wake: &OwnedFd) {
    // Only a counter that is at its end cannot be added to, and that has woken it.
    let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
}

fn answer_until(
    answering: &mut Answering,
    stop: &AtomicBool,
    wake: &OwnedFd,
    manager: &Manager,
) -> Result<()> {
    let waiting = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let on = |woken: Woken| epoll::EventData::new_u64(woken as u64);
    // The ring is readable whenever it holds anything; only what was sent with a wake-up is to wake.
    let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(&waiting, answering.watch.wait_on(), on(Woken::Start), edge)?;
    epoll::add(&waiting, wake.as_fd(), on(Woken::Told), epoll::EventFlags::IN)?;
    if let Some(guard) = answering.guard() {
        // Once it is gone its end is closed, and nothing wakes by it any more.
        epoll::add(&waiting, guard.wait_on(), on(Woken::Asked), epoll::EventFlags::IN)?;
    }
    let mut events = Vec::with_capacity(3);
    while !stop.load(Ordering::Relaxed) {
        manager.alive();
        let wait = [answering.wait_at_most(), manager.alive_every()];
        let wait: Option<Timespec> = wait
            .into_iter()
            .flatten()
            .min()
            .and_then(|wait: Duration| wait.try_into().ok());
        events.clear();
        match epoll::wait(
            &waiting,
            rustix::buffer::spare_capacity(&mut events),
            wait.as_ref(),
        ) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot wait for starts"),
        }
        let mut counter = [0u8; 8];
        // Whoever woke it has left word in the state; the counter only says so.
        let _ = rustix::io::read(wake, &mut counter);
        answering.work()?;
    }
    Ok(())
}
