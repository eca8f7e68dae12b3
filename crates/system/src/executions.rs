//! Being asked by the kernel before somebody executes a file (fanotify(7), `FAN_OPEN_EXEC_PERM`): whoever
//! executes it waits for the answer. And a switch that ends the process that is to answer and does not: with
//! it ends whatever waits for it.

use crate::ask_within::ask_within;
use crate::fanotify::Group;
use crate::process::ProcessStat;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// Files that are asked about before they are executed. When it is closed, also by the end of its process,
/// whatever waits goes on.
pub struct Executions(Group);

/// Somebody who waits to be allowed to execute a file.
pub struct Execution {
    /// Its process; 0 if that is in no pid namespace that can be seen from here.
    pub pid: u32,
    file: OwnedFd,
}

/// Whether the kernel marks itself as tainted when files are asked about, and says in its log that this may
/// lead to a deadlock: Debian's do (fanotify-taint-on-use-of-fanotify_access_permissions.patch). Not where it
/// is marked so already.
pub fn taint() -> bool {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    taints(&read("/proc/version"), &read("/proc/sys/kernel/tainted"))
}

fn taints(version: &str, tainted: &str) -> bool {
    /// `TAINT_AUX`, linux/panic.h.
    const AUX: u64 = 1 << 16;
    // Its packages are built with their version in the text: "#1 SMP PREEMPT_DYNAMIC Debian 6.12.57-1
    // (2025-11-05)".
    let debian = version
        .rsplit_once('#')
        .is_some_and(|(_, build)| build.contains(" Debian "));
    debian
        && tainted
            .trim()
            .parse::<u64>()
            .is_ok_and(|tainted| tainted & AUX == 0)
}

impl Executions {
    /// Needs CAP_SYS_ADMIN.
    ///
    /// An execution of what cannot be opened here is denied by the kernel. So opening waits: for a lease
    /// (fcntl(2)) 45 s, and whoever has a file may lease it.
    pub fn new() -> io::Result<Executions> {
        Ok(Executions(Group::new(libc::FAN_CLASS_CONTENT)?))
    }

    /// From now on whoever executes this inode waits for an answer. A kernel without permission events says
    /// `EINVAL`, a security module `EACCES` or `EPERM`.
    pub fn ask_about(&self, file: BorrowedFd<'_>) -> io::Result<()> {
        self.0
            .mark(libc::FAN_MARK_ADD, libc::FAN_OPEN_EXEC_PERM, Some(file))
    }

    /// The next one that waits; `None` if there is none now.
    pub fn next(&self) -> io::Result<Option<Execution>> {
        // Without a file it tells that more came than are kept: those went on without being asked about.
        while let Some(event) = self.0.next()? {
            if let Some(file) = event.file {
                return Ok(Some(Execution { pid: event.pid, file }));
            }
        }
        Ok(None)
    }

    /// Lets it go on.
    pub fn allow(&self, execution: Execution) {
        let response = libc::fanotify_response {
            fd: execution.file.as_raw_fd(),
            response: libc::FAN_ALLOW,
        };
        // SAFETY: reads the structure. It fails only for what does not wait any more, as who was killed.
        unsafe {
            libc::write(
                self.0.as_fd().as_raw_fd(),
                (&raw const response).cast(),
                size_of_val(&response),
            )
        };
    }
}

impl AsFd for Executions {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Ends this process (SIGKILL) when it was not [set](DeadMansSwitch::set) again in time: a timer in the
/// kernel, so also if the process is stopped or frozen (by a cgroup of version 2).
pub struct DeadMansSwitch(libc::c_int);

/// The number of a switch without a timer of its own: the alarm of the process. A forked child does not have
/// it either, and it counts for nothing against a limit (`RLIMIT_SIGPENDING`).
const ALARM: libc::c_int = -1;

impl DeadMansSwitch {
    /// Not set yet. A forked child does not have it.
    pub fn new() -> io::Result<DeadMansSwitch> {
        // SAFETY: a structure of numbers.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_SIGNAL;
        event.sigev_signo = libc::SIGKILL;
        let mut timer: libc::c_int = 0;
        // SAFETY: reads the event and writes the timer's number, which has this size in the kernel.
        let made = unsafe {
            libc::syscall(
                libc::SYS_timer_create,
                libc::CLOCK_MONOTONIC,
                &raw const event,
                &raw mut timer,
            )
        };
        match made {
            0 => Ok(DeadMansSwitch(timer)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The same; where there is no timer to be had, by the alarm of the process (SIGALRM, which nothing here
    /// handles).
    pub fn or_alarm() -> io::Result<DeadMansSwitch> {
        DeadMansSwitch::new().or_else(|error| match crate::launch::ends_by(libc::SIGALRM) {
            Ok(()) => Ok(DeadMansSwitch(ALARM)),
            Err(_) => Err(error),
        })
    }

    /// In so long it ends the process, unless it is set anew before; with `None` never.
    pub fn set(&self, after: Option<Duration>) -> io::Result<()> {
        if self.0 == ALARM {
            // An alarm knows whole seconds, and 0 is none.
            let seconds = after.map_or(0, |after| after.as_secs().max(1));
            // SAFETY: a number.
            unsafe { libc::alarm(u32::try_from(seconds).unwrap_or(u32::MAX)) };
            return Ok(());
        }
        let zero = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // A time of 0 would unset it.
        let value = after.map_or(zero, |after| libc::timespec {
            tv_sec: after.as_secs() as libc::time_t,
            tv_nsec: (after.subsec_nanos() as libc::c_long).max(1),
        });
        let spec = libc::itimerspec {
            it_interval: zero,
            it_value: value,
        };
        let none: *mut libc::itimerspec = std::ptr::null_mut();
        // SAFETY: reads the times.
        let set = unsafe { libc::syscall(libc::SYS_timer_settime, self.0, 0, &raw const spec, none) };
        match set {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// A process's memory is read within this time, or not at all.
const READ_WITHIN: Duration = Duration::from_millis(50);

/// What a process of this user's was executed with, as it has it now: with a NUL behind each argument, `most`
/// bytes at most. `None` where that cannot be read within [`READ_WITHIN`], or is not in memory: nobody waits
/// for the memory of others, and `/proc/PID/cmdline` would wait for a file system of the process's own, if
/// that has mapped one there.
pub fn executed_with(pid: u32, user: u32, most: usize) -> Option<Vec<u8>> {
    ask_within(user, READ_WITHIN, Box::new(move || read_executed(pid, most)))
}

fn read_executed(pid: u32, most: usize) -> Option<Vec<u8>> {
    let stat = ProcessStat::for_process(pid)?;
    let length = usize::try_from(stat.arguments_end.checked_sub(stat.arguments)?).ok()?;
    let mut bytes = vec![0; length.min(most)];
    Memory::open(pid)?.read_all(stat.arguments, &mut bytes)?;
    Some(bytes)
}

/// Another process's memory, as far as it is in memory.
struct Memory {
    bytes: File,
    /// A number of 64 bits for each page, the highest of which tells whether it is there
    /// (proc_pid_pagemap(5)).
    present: File,
}

impl Memory {
    fn open(pid: u32) -> Option<Memory> {
        Some(Memory {
            bytes: File::open(format!("/proc/{pid}/mem")).ok()?,
            present: File::open(format!("/proc/{pid}/pagemap")).ok()?,
        })
    }

    /// Reads what may lie in several pages.
    fn read_all(&self, mut address: u64, mut bytes: &mut [u8]) -> Option<()> {
        let page = rustix::param::page_size() as u64;
        while !bytes.is_empty() {
            let part = (page - address % page).min(bytes.len() as u64);
            let (now, later) = bytes.split_at_mut(part as usize);
            self.read(address, now)?;
            address = address.checked_add(part)?;
            bytes = later;
        }
        Some(())
    }

    /// Reads what lies within one page.
    fn read(&self, address: u64, bytes: &mut [u8]) -> Option<()> {
        let page = rustix::param::page_size() as u64;
        let mut entry = [0; 8];
        self.present
            .read_exact_at(&mut entry, (address / page).checked_mul(8)?)
            .ok()?;
        if u64::from_ne_bytes(entry) >> 63 == 0 {
            return None;
        }
        self.bytes.read_exact_at(bytes, address).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, Write as _};
    use std::path::Path;
    use std::process::{Child, Command, Stdio};
    use std::time::Instant;

    #[test]
    fn kernels_that_are_tainted_by_holding_are_told_by_their_version() {
        let debian = "Linux version 6.12.57+deb13-amd64 (debian-kernel@lists.debian.org) (gcc 14.2.0) #1 SMP PREEMPT_DYNAMIC Debian 6.12.57-1 (2025-11-05)";
        assert!(taints(debian, "0\n") && taints(debian, "4096\n"));
        assert!(!taints(debian, "65536\n"), "it is already");
        let others = "Linux version 6.18.4 (builder@debian) (gcc (Debian 12.2.0-14) 12.2.0) #2 SMP PREEMPT_DYNAMIC Mon Nov 2 10:00:00 UTC 2026";
        assert!(!taints(others, "0\n") && !taints("", ""));
    }

    const FILE: &str = "HEADSTART_TEST_EXECUTIONS";
    const SWITCH: &str = "HEADSTART_TEST_SWITCH";

    /// Waits, with memory where its arguments were that has not been there yet.
    #[test]
    #[ignore = "run by another test in a process of its own"]
    fn without_arguments() {
        let stat = ProcessStat::own().unwrap();
        let page = rustix::param::page_size();
        let from = stat.arguments as usize / page * page;
        let length = page.max(stat.arguments_end as usize - from);
        eprintln!("has them");
        let mut line = String::new();
        io::stdin().read_line(&mut line).unwrap();
        // SAFETY: replaces the page of its arguments, and with it perhaps of the first frames of `main`, to
        // which nobody returns.
        let mapped = unsafe {
            libc::mmap(
                from as *mut libc::c_void,
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(mapped, libc::MAP_FAILED);
        eprintln!("has none");
        io::stdin().read_line(&mut line).unwrap();
        // SAFETY: ends at once.
        unsafe { libc::_exit(0) }
    }

    #[test]
    fn arguments_are_told_if_they_are_in_memory() {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "executions::tests::without_arguments",
                "--ignored",
                "--nocapture",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut to, from) = (child.stdin.take().unwrap(), child.stderr.take().unwrap());
        let mut lines = io::BufReader::new(from).lines();
        assert!(lines.any(|line| line.unwrap() == "has them"));
        let whole = std::fs::read(format!("/proc/{}/cmdline", child.id())).unwrap();
        assert_eq!(executed_with(child.id(), 0, 5000).as_ref(), Some(&whole));
        assert_eq!(executed_with(child.id(), 0, 10).as_deref(), Some(&whole[..10]));
        to.write_all(b"\n").unwrap();
        assert!(lines.any(|line| line.unwrap() == "has none"));
        assert_eq!(executed_with(child.id(), 0, 5000), None);
        drop(to);
        assert!(child.wait().unwrap().success());
        assert_eq!(executed_with(child.id(), 0, 5000), None);
    }

    /// Asks about a file, and stops before anybody is answered.
    #[test]
    #[ignore = "run by other tests in a process of its own"]
    fn in_a_child() {
        let file = File::open(std::env::var_os(FILE).unwrap()).unwrap();
        let executions = Executions::new().unwrap();
        executions.ask_about(file.as_fd()).unwrap();
        let switch = DeadMansSwitch::new().unwrap();
        if std::env::var_os(SWITCH).is_some() {
            switch.set(Some(Duration::from_millis(500))).unwrap();
        }
        eprintln!("asks");
        std::thread::sleep(Duration::from_secs(600));
        drop(executions);
    }

    fn asking(file: &Path, switch: bool) -> Child {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args([
            "--exact",
            "executions::tests::in_a_child",
            "--ignored",
            "--nocapture",
        ]);
        child.env(FILE, file).stdout(Stdio::null()).stderr(Stdio::piped());
        if switch {
            child.env(SWITCH, "1");
        }
        let mut child = child.spawn().unwrap();
        let mut lines = io::BufReader::new(child.stderr.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "asks"));
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        child
    }

    fn program(dir: &Path, name: &str) -> std::path::PathBuf {
        let path = dir.join(name);
        // By a process of its own: what this one writes, one that another test has just forked has open for
        // writing, too, and nobody can execute it until then.
        let copied = Command::new("cp").arg("/bin/true").arg(&path).status().unwrap();
        assert!(copied.success());
        path
    }

    #[track_caller]
    fn eventually(mut holds: impl FnMut() -> bool) {
        let until = Instant::now() + Duration::from_secs(60);
        while !holds() {
            assert!(Instant::now() < until, "it waits for ever");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn who_asks_and_is_stopped_delays_nobody_for_ever_by_its_switch_alone() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let [with, without] = ["with", "without"].map(|name| program(dir.path(), name));
        let mut askers = [asking(&with, true), asking(&without, false)];
        let [with, without] = [with, without]
            .map(|path| std::thread::spawn(move || Command::new(path).status().unwrap().success()));
        eventually(|| with.is_finished());
        assert!(with.join().unwrap());
        assert!(!without.is_finished(), "it was not asked about at all");
        for asker in &mut askers {
            // The one with a switch is gone.
            let _ = asker.kill();
            asker.wait().unwrap();
        }
        assert!(without.join().unwrap());
    }

    #[test]
    fn who_executes_what_is_asked_about_waits_until_it_is_allowed() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = program(dir.path(), "program");
        let file = File::open(&path).unwrap();
        let executions = Executions::new().unwrap();
        executions.ask_about(file.as_fd()).unwrap();
        let mut command = Command::new(&path);
        let begun = std::thread::spawn(move || command.status().unwrap().success());
        let mut next = None;
        eventually(|| {
            next = executions.next().unwrap();
            next.is_some()
        });
        assert!(!begun.is_finished());
        executions.allow(next.unwrap());
        assert!(begun.join().unwrap());
        assert!(executions.next().unwrap().is_none());
    }
}
