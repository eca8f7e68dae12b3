//! Processes: whether one still runs; ending a group of them, a control group, or the children of a dead one;
//! who holds a device.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, Signal};

/// The start time of a process that has not ended.
pub fn start_time(pid: i32) -> Option<u64> {
    let (state, flags, start) = stat(pid)?;
    let ended = state == "Z" || flags & PF_EXITING != 0 || killed(pid);
    (!ended).then_some(start)
}

/// The start time of a process, though it may be about to end.
pub(super) fn began(pid: i32) -> Option<u64> {
    stat(pid).map(|(_, _, start)| start)
}

/// State, flags, and start time in clock ticks since boot: fields 3, 9 and 22 of proc_pid_stat(5).
fn stat(pid: i32) -> Option<(String, u64, u64)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command name may hold spaces and parentheses; the fields after the last one are plain.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse().ok();
    Some(((*fields.first()?).to_owned(), number(6)?, number(19)?))
}

/// Flag of a task on its way out (`include/linux/sched.h`).
const PF_EXITING: u64 = 4;

/// Whether SIGKILL is pending. A lab killed while a thread of it waits for its own FUSE server cannot end
/// before the connection is aborted: it counts as ended, or nobody would abort it.
fn killed(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let pending = status
        .lines()
        .filter_map(|line| line.strip_prefix("SigPnd:").or(line.strip_prefix("ShdPnd:")));
    let mut masks = pending.filter_map(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // Signal 9 is bit 8.
    masks.any(|mask| mask & 0x100 != 0)
}

/// Ends a process group whose leader still is the one that was started.
pub(super) fn end_group(pid: i32, start: u64) -> Result<()> {
    let Some(group) = Pid::from_raw(pid) else {
        return Ok(());
    };
    let alive = || start_time(pid) == Some(start);
    if !alive() {
        return Ok(());
    }
    let patience = Instant::now() + Duration::from_secs(2);
    // An error means that it has just ended.
    let _ = rustix::process::kill_process_group(group, Signal::TERM);
    while alive() && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(20));
    }
    if alive() {
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
    }
    Ok(())
}

/// Ends everything in the control group at `path` and below, and removes the groups; nothing there is
/// success.
pub(super) fn remove_cgroup(path: &Path) -> Result<()> {
    let patience = Instant::now() + Duration::from_secs(10);
    loop {
        match remove_cgroup_once(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if Instant::now() > patience => {
                return Err(error).with_context(|| format!("removing the control group {}", path.display()));
            }
            // Killed processes leave the group as they end.
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

fn remove_cgroup_once(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_cgroup_once(&entry.path())?;
        }
    }
    for line in fs::read_to_string(path.join("cgroup.procs"))?.lines() {
        // 0 stands for a process outside this one's PID namespace.
        if let Some(pid) = line.parse().ok().and_then(Pid::from_raw) {
            // An error means that it has just ended.
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }
    fs::remove_dir(path)
}

/// How long children of a dead lab may take to end.
const ENDING: Duration = Duration::from_secs(10);

/// A file without contents whose name tells the lab process.
pub(super) fn badge(pid: i32, start: u64, flags: MemfdFlags) -> Result<OwnedFd> {
    memfd_create(format!("headstart-lab-{pid}-{start}"), flags).context("making a file in memory")
}

/// This process's badge.
static WORN: OnceLock<OwnedFd> = OnceLock::new();

/// Has this process wear its badge to its end, open in every child too, however it is started: by this
/// `clean` finds those that outlive a killed lab. There is one however often that is asked for: a child has
/// few numbers below 10, and Debian's shell knows no others.
pub(super) fn wear_badge(pid: i32, start: u64) -> Result<()> {
    if WORN.get().is_none() {
        // Another thread's may have come first, then this one is closed.
        let _ = WORN.set(badge(pid, start, MemfdFlags::empty())?);
    }
    Ok(())
}

/// Ends what a dead lab had started and what has inherited its badge: a `losetup` or `mount` under way when
/// the lab was killed would else come after the cleaning.
pub(super) fn end_children(pid: i32, start: u64) -> Result<()> {
    let badge = PathBuf::from(format!("/memfd:headstart-lab-{pid}-{start} (deleted)"));
    let wears = |process: &fs::DirEntry| {
        let open = fs::read_dir(process.path().join("fd"))
            .into_iter()
            .flatten()
            .flatten();
        open.map(|entry| fs::read_link(entry.path()))
            .any(|link| link.is_ok_and(|link| link == badge))
    };
    let patience = Instant::now() + ENDING;
    loop {
        let mut left = Vec::new();
        for process in fs::read_dir("/proc").context("reading /proc")?.flatten() {
            let number = process.file_name().to_str().and_then(|name| name.parse().ok());
            let child = number.filter(|number| *number != pid).and_then(Pid::from_raw);
            if let Some(child) = child.filter(|_| wears(&process)) {
                // An error means that it has just ended.
                let _ = rustix::process::kill_process(child, Signal::KILL);
                left.push(child.as_raw_nonzero());
            }
        }
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() > patience {
            bail!(
                "processes {left:?} of a dead lab do not end within {} s of SIGKILL",
                ENDING.as_secs()
            );
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Processes that keep the device with the number `device` (`8:1`) busy: what they run in, work in or have
/// open lies on it, or it is mounted in a mount namespace of theirs that is not this process's.
pub(super) fn holders(device: &str) -> Vec<String> {
    let own = fs::read_link("/proc/self/ns/mnt").ok();
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let mut holding = Vec::new();
    for process in processes.flatten() {
        let name = process.file_name().to_string_lossy().into_owned();
        if !name.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let path = process.path();
        let mounts = || fs::read_to_string(path.join("mountinfo")).unwrap_or_default();
        let elsewhere = fs::read_link(path.join("ns/mnt")).ok() != own
            && mounts()
                .lines()
                .any(|line| line.split(' ').nth(2) == Some(device));
        let links = ["cwd", "root", "exe"].map(|link| path.join(link));
        let open = fs::read_dir(path.join("fd")).into_iter().flatten().flatten();
        let mut links = links.into_iter().chain(open.map(|entry| entry.path()));
        let mut on_it = || links.any(|link| fs::metadata(link).is_ok_and(|m| on(&m, device)));
        let why = match elsewhere {
            true => "a copy of the mount",
            false if on_it() => "a file",
            false => continue,
        };
        let command = fs::read_to_string(path.join("comm")).unwrap_or_default();
        holding.push(format!("{} ({name}) has {why}", command.trim_end()));
    }
    holding
}

/// Whether a file lies on the device, or is its device node.
fn on(file: &fs::Metadata, device: &str) -> bool {
    let number = |dev: u64| format!("{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev));
    number(file.dev()) == device || (file.mode() & 0o170_000 == 0o060_000 && number(file.rdev()) == device)
}
