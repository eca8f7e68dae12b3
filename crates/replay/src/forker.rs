//! A process of one thread that forks for a process of several: the daemon, which cannot fork by itself.
//!
//! It is forked before the first thread begins, holds nothing, and waits for jobs. A job is a plan, a device
//! of it, and one end of a stream; for each it forks a process that works as those of `headstart run` do
//! ([`crate::apart`]). Nobody waits for any of them: a job that cannot be handed over at once is refused.

use crate::options::{Devices, Fork, Options};
use crate::{apart, forked};
use headstart_model::plan::PlanFile;
use headstart_system::launch::background_with;
use headstart_system::limits::{MEMORY, bound_memory, goes_first, without_core};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::process::{Pid, WaitOptions, waitpid};
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// So many of its processes live at a time, those included that wait for servers that do not answer. Each has
/// some 40 threads, and the daemon's service has a limit of tasks.
const MOST: usize = 8;
/// And so many that read one mount: those that wait for a dead server are not all there may be.
const MOST_OF_A_MOUNT: usize = 2;
/// What is said where there are too many, and those of the mount itself answer.
const TOO_MANY: &str = "too much was read ahead from remote file systems at the time";
/// Time between its end, if it was killed, and the next.
const FORKED_ANEW_AFTER: Duration = Duration::from_millis(500);
/// More than a job takes, bytes: numbers, and the path of a mount point.
const JOB: usize = 8 << 10;
/// More than a plan takes, bytes.
const PLAN: u64 = 256 << 20;

/// The way to a process that forks for this one. It ends when this is dropped, or this process ends.
#[derive(Debug)]
pub struct Forker(OwnedFd);

/// What a process is to do, as a message has it: the mount point, the number of the device in the plan, the
/// start's first instant by the monotonic clock, nanoseconds, and of the options depth, `beside`,
/// `stop_below`, `share`, `starter`, `stop_pressure`, `reader` and `io_uring`.
type Job = (
    String,
    u16,
    u64,
    Option<u32>,
    bool,
    Memory,
    f64,
    Option<u32>,
    bool,
);

/// Of the options `stop_below`, `share` and `starter`.
type Memory = (u64, f64, Option<u32>);

impl Forker {
    /// Forks it. Fails in a process of several threads.
    pub fn start() -> io::Result<Forker> {
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let parent = std::process::id();
        background_with([theirs], || None, |[socket]| keep_serving(&socket, parent))?;
        Ok(Forker(ours))
    }
}

impl Fork for Forker {
    /// Where there are too many processes already the stream tells so, or has ended where they wait for the
    /// same server.
    fn fork(&self, plan: &PlanFile, mount_point: &str, options: &Options) -> io::Result<UnixStream> {
        let Devices::Only(device) = options.devices else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let job: Job = (
            mount_point.into(),
            device,
            monotonic_ns().saturating_sub(options.origin.elapsed().as_nanos() as u64),
            options.depth,
            options.beside,
            (options.stop_below, options.share, options.starter),
            options.stop_pressure,
            options.reader,
            options.io_uring,
        );
        let mut copy = File::from(memfd_create("plan", MemfdFlags::CLOEXEC)?);
        copy.write_all(plan.bytes())?;
        let (ours, theirs) = UnixStream::pair()?;
        let given = [copy.as_fd(), theirs.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut with = SendAncillaryBuffer::new(&mut space);
        with.push(SendAncillaryMessage::ScmRights(&given));
        let text = serde_json::to_vec(&job)?;
        // Who answers starts waits for nobody.
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendmsg(&self.0, &[IoSlice::new(&text)], &mut with, flags)?;
        Ok(ours)
    }
}

/// Forks the process that forks, and forks it anew when it is killed, as where memory runs out: no other
/// process could. Ends with it when nobody has a job for it any more; the status.
fn keep_serving(socket: &OwnedFd, parent: u32) -> i32 {
    if !forked::dies_with(parent) {
        return 1;
    }
    let own = std::process::id();
    loop {
        let Ok(given) = socket.try_clone() else { return 1 };
        let forked = background_with([given], || None, |[socket]| serve(&socket, own));
        let pid = forked
            .ok()
            .and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        let ended = pid.and_then(|pid| waitpid(Some(pid), WaitOptions::empty()).ok()?);
        if ended.is_some_and(|(_, status)| status.exit_status() == Some(0)) {
            return 0;
        }
        // What has it killed at once does not have it forked without end.
        std::thread::sleep(FORKED_ANEW_AFTER);
    }
}

/// What the process does that forks; its status. It ends when nobody has a job for it any more.
fn serve(socket: &OwnedFd, parent: u32) -> i32 {
    if !forked::dies_with(parent) {
        return 1;
    }
    without_core();
    let mut alive: Vec<(Pid, String)> = Vec::new();
    let mut text = vec![0; JOB];
    loop {
        let (job, given) = match receive(socket, &mut text) {
            Ok(Some(received)) => received,
            Ok(None) => return 0,
            Err(Errno::INTR) => continue,
            Err(_) => return 1,
        };
        alive.retain(|(pid, _)| matches!(waitpid(Some(*pid), WaitOptions::NOHANG), Ok(None)));
        let of_mount = alive.iter().filter(|(_, mount)| *mount == job.0).count();
        if alive.len() >= MOST || of_mount >= MOST_OF_A_MOUNT {
            if of_mount < MOST_OF_A_MOUNT {
                let [_, stream] = given;
                apart::refuse(&stream.into(), TOO_MANY);
            }
            continue;
        }
        let (own, mount) = (std::process::id(), job.0.clone());
        let pid = background_with(
            given,
            || None,
            |[plan, stream]| work(plan, stream.into(), own, &job),
        );
        let pid = pid.ok().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        alive.extend(pid.map(|pid| (pid, mount)));
    }
}

/// The next job with its plan and its stream; `None` at the end. What is no job is skipped.
fn receive(socket: &OwnedFd, text: &mut [u8]) -> rustix::io::Result<Option<(Job, [OwnedFd; 2])>> {
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut with = RecvAncillaryBuffer::new(&mut space);
        let into = &mut [IoSliceMut::new(text)];
        let length = recvmsg(socket, into, &mut with, RecvFlags::CMSG_CLOEXEC)?.bytes;
        if length == 0 {
            return Ok(None);
        }
        let given = with.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(given) => given.collect::<Vec<_>>().try_into().ok(),
            _ => None,
        });
        let job = text.get(..length).map(serde_json::from_slice);
        if let (Some(Ok(job)), Some(given)) = (job, given) {
            return Ok(Some((job, given)));
        }
    }
}

/// What a process does that was forked for a job; its status.
fn work(plan: OwnedFd, stream: UnixStream, parent: u32, job: &Job) -> i32 {
    // Where it cannot be said memory runs out for all alike, and without a bound for all.
    let _ = (goes_first(), bound_memory(MEMORY));
    let (_, device, origin_ns, depth, beside, memory, stop_pressure, reader, io_uring) = *job;
    let (stop_below, share, starter) = memory;
    let (mut plan, mut bytes) = (File::from(plan), Vec::new());
    if plan
        .rewind()
        .and_then(|()| plan.take(PLAN).read_to_end(&mut bytes))
        .is_err()
    {
        return 1;
    }
    let ago = Duration::from_nanos(monotonic_ns().saturating_sub(origin_ns));
    let options = Options {
        depth,
        beside,
        stop_below,
        share,
        starter,
        stop_pressure,
        reader,
        io_uring,
        ..Options::new(Instant::now().checked_sub(ago).unwrap_or_else(Instant::now))
    };
    let options = apart::options_for(device, &options);
    apart::work(stream, parent, Arc::new(PlanFile::new(bytes)), options)
}

fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
