//! The parts of a replay on remote file systems, each by a process of its own.
//!
//! A server may never answer, and whoever has asked it waits in the kernel until it does, at some places deaf
//! to SIGKILL. So nobody waits for such a process: it is told to end by the end of a stream, tells by that
//! stream what it did, and is killed when it is late, or when the process that forked it ends.

use crate::options::{Devices, Options};
use crate::sample::is_warm;
use crate::{Replay, forked};
use headstart_model::outcome::{ReplayReport, Skipped};
use headstart_model::plan::PlanFile;
use headstart_system::launch::{background_of, send};
use headstart_system::mounts::{MountTable, may_wait_for_servers};
use headstart_system::thread;
use rustix::process::Signal;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// So many remote file systems are read of one plan, each by a process: a start uses one or two.
const MOST: usize = 4;
/// A server of which nothing has come for so long is asked for nothing more: what the start itself needs of it
/// would wait behind.
const GIVES_UP_AFTER: Duration = Duration::from_secs(2);
/// Who was told to end does so within this time, as a rule: a read that is under way comes to its end first.
pub const ENDS_WITHIN: Duration = Duration::from_secs(1);
/// Where somebody waits for that it is killed sooner: a server that has not answered for so long may be dead,
/// and a command is not to end much later for it.
const CLOSES_WITHIN: Duration = Duration::from_millis(300);
/// More than a report of as many requests as a plan can have takes, bytes.
const REPORT: u64 = 64 << 20;

/// A process that reads what a plan asks for on one remote file system.
pub struct Apart {
    /// Its own as long as this process lives, which does not wait for it.
    pid: u32,
    stream: UnixStream,
    mount_point: String,
    /// How many requests it has.
    requests: u64,
}

/// Forks the processes for the remote file systems of a plan, and leaves these out of `options`. Where none
/// can be forked all are left to the caller, to which they are not local.
pub fn fork(file: &Arc<PlanFile>, options: &mut Options) -> Vec<Apart> {
    let (true, Ok(plan)) = (options.forks, file.plan()) else {
        return Vec::new();
    };
    options.forks = false;
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
        let theirs = Options {
            devices: Devices::Only(number),
            finish_limit: GIVES_UP_AFTER,
            ..options.clone()
        };
        let parent = std::process::id();
        let forked = background_of(|| None, |stream| work(stream, parent, Arc::clone(file), theirs));
        let Ok((stream, pid)) = forked else { break };
        apart.push(Apart {
            pid,
            stream,
            mount_point: device.mount_point.to_string(),
            requests,
        });
        if let Devices::AllBut(others) = &mut options.devices {
            others.push(number);
        }
    }
    apart
}

/// What such a process does.
fn work(stream: UnixStream, parent: u32, plan: Arc<PlanFile>, options: Options) -> i32 {
    if !forked::dies_with(parent) {
        return 1;
    }
    may_wait_for_servers();
    if is_in_memory(&plan, &options) {
        return tell(&stream, &ReplayReport::default());
    }
    let Ok(replay) = Replay::start(plan, options) else {
        return 1;
    };
    let stopper = replay.stopper();
    let Ok(mut told) = stream.try_clone() else {
        return 1;
    };
    let listen = move || {
        // Nothing is ever said: it ends.
        let _ = told.read(&mut [0]);
        stopper.stop_requests();
    };
    let Ok(_listens) = thread::spawn("listen", Box::new(listen)) else {
        return 1;
    };
    tell(&stream, &replay.finish())
}

/// Whether all of it is in memory: then each file would be opened in vain, and each open is a request to the
/// server.
fn is_in_memory(file: &PlanFile, options: &Options) -> bool {
    let (Ok(plan), Devices::Only(device)) = (file.plan(), &options.devices) else {
        return false;
    };
    is_warm(&plan, *device, std::process::id().into())
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

    /// Waits a moment until it has closed what it has opened, until then at most, or kills it.
    pub fn wait_or_kill(&self, until: Instant) {
        if !forked::has_told(&self.stream, until.min(Instant::now() + CLOSES_WITHIN)) {
            self.kill();
        }
    }

    /// What it did, which is waited for until then; then it is told to end, and killed.
    pub fn finish(&self, until: Instant) -> ReplayReport {
        if !forked::has_told(&self.stream, until) {
            self.stop();
        }
        let report = self.report(until.max(Instant::now() + ENDS_WITHIN));
        self.kill();
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

    /// Ends it. One that waits for a server ends when that answers, and nobody waits for it.
    fn kill(&self) {
        send(self.pid, Signal::KILL.as_raw());
    }
}
