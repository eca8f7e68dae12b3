//! The parts of a replay on remote file systems, each by a process of its own.
//!
//! A server may never answer, and whoever has asked it waits in the kernel until it does, at some places deaf
//! to SIGKILL. So nobody waits for such a process: it is told to stop by the end of a stream, tells by that
//! stream what it did, and ends at once when the stream is closed, or when the process that forked it ends.

use crate::options::{Devices, Forks, Options};
use crate::sample::is_warm;
use crate::{Replay, Stop, forked};
use headstart_model::outcome::{ReplayReport, Skipped};
use headstart_model::plan::PlanFile;
use headstart_system::launch::{background_of, exit_now};
use headstart_system::mounts::{MountTable, may_wait_for_servers};
use headstart_system::thread;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// So many remote file systems are read of one plan, each by a process: a start uses one or two.
const MOST: usize = 4;
/// A server of which nothing has come for so long is asked for nothing more: what the start itself needs of
/// it would wait behind.
const GIVES_UP_AFTER: Duration = Duration::from_secs(2);
/// Who was told to end does so within this time, as a rule: a read that is under way comes to its end first.
pub const ENDS_WITHIN: Duration = Duration::from_secs(1);
/// Where somebody waits for that it is ended sooner: a server that has not answered for so long may be dead,
/// and a command is not to end much later for it.
const CLOSES_WITHIN: Duration = Duration::from_millis(300);
/// More than a report of as many requests as a plan can have takes, bytes.
const REPORT: u64 = 64 << 20;

/// A process that reads what a plan asks for on one remote file system.
pub struct Apart {
    stream: UnixStream,
    mount_point: String,
    /// How many requests it has.
    requests: u64,
}

/// Forks the processes for the remote file systems of a plan, and leaves these out of `options`. Where none
/// can be forked all are left to the caller, to which they are not local.
pub fn fork(file: &Arc<PlanFile>, options: &mut Options) -> Vec<Apart> {
    let forks = std::mem::replace(&mut options.forks, Forks::Nobody);
    let (Forks::Caller | Forks::By(_), Ok(plan)) = (&forks, file.plan()) else {
        return Vec::new();
    };
    let mounts = MountTable::read().unwrap_or_default();
    let mut apart = Vec::new();
    for index in 0..plan.device_count() {
        let Some((device, number)) = plan.device(index).zip(u16::try_from(index).ok()) else {
            continue;
        };
        let mount = mounts.lookup(device.mount_point.as_bytes());
        let is_there = mount.is_some_and(|mount| mount.is_remote && mount.mount_point == device.mount_point);
        let requests = plan.requests().take(plan.cut());
        let requests = requests.filter(|request| request.device == number).count() as u64;
        if !is_there || requests == 0 || apart.len() >= MOST {
            continue;
        }
        let (theirs, parent) = (options_for(number, options), std::process::id());
        let mount_point = device.mount_point.to_string();
        let forked = match &forks {
            Forks::By(forker) => forker.fork(file, &mount_point, &theirs),
            _ => background_of(|| None, |stream| work(stream, parent, Arc::clone(file), theirs))
                .map(|(stream, _)| stream),
        };
        let Ok(stream) = forked else { break };
        apart.push(Apart {
            stream,
            mount_point,
            requests,
        });
        if let Devices::AllBut(others) = &mut options.devices {
            others.push(number);
        }
    }
    apart
}

/// The options of the process that reads one device.
pub fn options_for(device: u16, options: &Options) -> Options {
    Options {
        devices: Devices::Only(device),
        finish_limit: GIVES_UP_AFTER,
        ..options.clone()
    }
}

/// What such a process does; its status.
pub fn work(stream: UnixStream, parent: u32, plan: Arc<PlanFile>, options: Options) -> i32 {
    let Ok(told) = stream.try_clone() else { return 1 };
    if !forked::dies_with(parent) {
        return 1;
    }
    let listener = Arc::new(Listener::default());
    let listens = Arc::clone(&listener);
    // Before anything that may wait for the server.
    if thread::spawn("listen", Box::new(move || listens.listen(told))).is_err() {
        return 1;
    }
    may_wait_for_servers();
    if is_in_memory(&plan, &options) {
        return tell(&stream, &ReplayReport::default());
    }
    let Ok(replay) = Replay::start(plan, options) else {
        return 1;
    };
    listener.is_there(replay.stopper());
    tell(&stream, &replay.finish())
}

/// What a process is told: to stop, by the end of what is said to it, and to end.
#[derive(Default)]
struct Listener {
    stopper: OnceLock<Stop>,
    has_to_stop: AtomicBool,
}

impl Listener {
    /// Waits until it has to stop, and until nobody listens any more to what it tells. Then it ends, and the
    /// kernel with it whatever of its threads waits, once that can be interrupted.
    fn listen(&self, mut told: UnixStream) {
        // Nothing is ever said: it ends.
        let _ = told.read(&mut [0]);
        self.has_to_stop.store(true, Ordering::SeqCst);
        self.stop();
        forked::wait_for_hang_up(&told);
        exit_now(1);
    }

    /// The replay has begun.
    fn is_there(&self, stopper: Stop) {
        // Once.
        let _ = self.stopper.set(stopper);
        if self.has_to_stop.load(Ordering::SeqCst) {
            self.stop();
        }
    }

    fn stop(&self) {
        if let Some(stopper) = self.stopper.get() {
            stopper.stop_requests();
        }
    }
}

/// Whether all of it is in memory: then each file would be opened in vain, and each open is a request to the
/// server.
fn is_in_memory(file: &PlanFile, options: &Options) -> bool {
    let (Ok(plan), Devices::Only(device)) = (file.plan(), &options.devices) else {
        return false;
    };
    is_warm(&plan, *device, std::process::id().into())
}

/// Tells that nothing is done, and why.
pub fn refuse(stream: &UnixStream, why: &str) {
    let report = ReplayReport {
        stopped: Some(why.into()),
        ..ReplayReport::default()
    };
    // Who is gone cannot be told.
    tell(stream, &report);
}

/// Tells what was done; the status of this process.
fn tell(mut stream: &UnixStream, report: &ReplayReport) -> i32 {
    let told = serde_json::to_vec(report).map(|report| stream.write_all(&report));
    i32::from(!matches!(told, Ok(Ok(()))))
}

impl Apart {
    /// Tells it to end.
    pub fn stop(&self) {
        // Who is gone cannot be told.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Waits a moment until it has closed what it has opened, until then at most, or ends it.
    pub fn wait_or_end(&self, until: Instant) {
        if !forked::has_told(&self.stream, until.min(Instant::now() + CLOSES_WITHIN)) {
            self.end();
        }
    }

    /// Waits until it tells what it did, until then at most; then it is told to stop.
    pub fn wait_or_stop(&self, until: Instant) {
        if !forked::has_told(&self.stream, until) {
            self.stop();
        }
    }

    /// What it did, which is waited for until then; then it is ended.
    pub fn finish(&self, until: Instant) -> ReplayReport {
        let report = self.report(until);
        self.end();
        report.unwrap_or_else(|_| ReplayReport {
            skipped: Skipped {
                stopped: self.requests,
                ..Skipped::default()
            },
            unanswered: vec![self.mount_point.clone()],
            ..ReplayReport::default()
        })
    }

    fn report(&self, until: Instant) -> io::Result<ReplayReport> {
        let text = forked::read_to_end(&self.stream, REPORT, until)?;
        Ok(serde_json::from_slice(&text)?)
    }

    /// Ends it. One that waits for a server may end when that answers, and nobody waits for it.
    fn end(&self) {
        // Who is gone cannot be told.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}
