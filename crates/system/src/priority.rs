//! Standing back: the I/O and CPU priority of the calling thread.

use rustix::process::Pid;
use std::io;

/// How the calling thread's reads are ranked against others'. I/O schedulers that know no priorities ignore
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Only when nobody else reads.
    Idle,
    /// The lowest of the ordinary ones. Real time would starve what the boot itself waits for.
    BestEffortLow,
    /// As everybody's, level 4.
    Normal,
}

/// Sets the I/O priority of the calling thread (ioprio_set(2)).
pub fn set_io(priority: Priority) -> io::Result<()> {
    let (class, level) = match priority {
        Priority::Idle => (3, 7),
        Priority::BestEffortLow => (2, 7),
        Priority::Normal => (2, 4),
    };
    crate::sys::ioprio_set(class, level)
}

/// The I/O priority of the calling thread as (class, level): class 0 none set, 1 real time, 2 best effort, 3
/// idle.
pub fn io_priority() -> io::Result<(i32, i32)> {
    crate::sys::ioprio_get()
}

/// Sets the nice value of the calling thread (on Linux a thread's own), 19 the most modest.
pub fn set_nice(nice: i32) -> io::Result<()> {
    Ok(rustix::process::setpriority_process(None, nice)?)
}

/// The nice value of the calling thread.
pub fn nice() -> io::Result<i32> {
    Ok(rustix::process::getpriority_process(None)?)
}

/// The calling thread, and the threads and processes that it makes, come before all that are as others
/// (SCHED_RR of sched(7), at the lowest of its priorities): as soon as there is something to do for them,
/// whoever computes. Needs CAP_SYS_NICE or RLIMIT_RTPRIO.
///
/// Of a nice value a thread has its share, but no turn at once: the kernel lets another go on until the next
/// tick, up to 10 ms.
pub fn before_others() -> io::Result<()> {
    crate::sys::sched_setscheduler(libc::SCHED_RR, 1)
}

/// The calling thread is as others again, with its nice value.
pub fn leave_realtime() -> io::Result<()> {
    crate::sys::sched_setscheduler(libc::SCHED_OTHER, 0)
}

/// Whether the processes that the calling thread forks have neither its policy of scheduling nor its nice
/// value (SCHED_RESET_ON_FORK of sched(7)).
pub fn is_reset_by_fork() -> bool {
    let policy = crate::sys::sched_getscheduler();
    policy >= 0 && policy & libc::SCHED_RESET_ON_FORK != 0
}

/// The calling thread comes after others from now on, to devices and to processors. What is refused changes
/// nothing: the thread's work is done all the same.
pub fn stand_back(io: Priority, nice: i32) {
    let _ = set_io(io);
    let _ = leave_realtime();
    let _ = set_nice(nice);
}

/// Sets the nice value of this process's session as a whole, where the kernel shares processors out among
/// sessions first (sched_autogroup of sched(7)): there a nice value counts within its session only. The
/// process begins a session of its own if it can; one of others stays as it is.
pub fn set_nice_of_session(nice: i32) -> io::Result<()> {
    let _ = rustix::process::setsid();
    match rustix::process::getsid(None)? == rustix::process::getpid() {
        true => std::fs::write("/proc/self/autogroup", nice.to_string()),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

/// Sets the nice value of all threads that this process has; what cannot be set stays.
pub fn set_nice_of_all_threads(nice: i32) {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else {
        return;
    };
    for thread in threads.flatten() {
        let id = thread.file_name().to_str().and_then(|id| id.parse().ok());
        if let Some(id) = id.and_then(Pid::from_raw) {
            let _ = rustix::process::setpriority_process(Some(id), nice);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_calling_thread_stands_back() {
        let before = io_priority().unwrap();
        std::thread::spawn(|| {
            set_io(Priority::Idle).unwrap();
            assert_eq!(io_priority().unwrap().0, 3);
            set_io(Priority::BestEffortLow).unwrap();
            assert_eq!(io_priority().unwrap(), (2, 7));
            set_nice(19).unwrap();
            assert_eq!(rustix::process::getpriority_process(None).unwrap(), 19);
        })
        .join()
        .unwrap();
        assert_eq!(io_priority().unwrap(), before);
        assert_ne!(rustix::process::getpriority_process(None).unwrap(), 19);
    }

    #[test]
    fn a_thread_comes_before_others_and_is_as_they_are_again() {
        // Its policy, the 41st field of proc_pid_stat(5): 0 is that of others, 2 SCHED_RR.
        let policy = || {
            let line = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            let fields = line.rsplit_once(')').unwrap().1;
            fields.split_ascii_whitespace().nth(41 - 3).unwrap().to_owned()
        };
        let seen = std::thread::spawn(move || {
            before_others()?;
            let (before, inherits) = (policy(), std::thread::spawn(policy).join().unwrap());
            leave_realtime()?;
            Ok::<_, io::Error>((before, inherits, policy()))
        });
        match seen.join().unwrap() {
            Ok((before, inherits, after)) => assert_eq!([&*before, &*inherits, &*after], ["2", "2", "0"]),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EPERM), "{error}"),
        }
    }

    #[test]
    fn a_session_of_its_own_stands_back_and_no_others() {
        use std::os::unix::process::CommandExt;
        // Whoever leads its process group cannot begin a session.
        let nice_of_session = |leads: bool| {
            let mut command = std::process::Command::new("cat");
            command.arg("/proc/self/autogroup");
            if leads {
                command.process_group(0);
            }
            // SAFETY: it writes to a file, and no other thread of this test holds what that takes.
            let command = unsafe { command.pre_exec(|| set_nice_of_session(7).or(Ok(()))) };
            String::from_utf8(command.output().unwrap().stdout).unwrap()
        };
        // Without CONFIG_SCHED_AUTOGROUP there is no such file, and nothing to stand back by.
        if std::path::Path::new("/proc/self/autogroup").exists() {
            assert!(
                nice_of_session(false).ends_with(" nice 7\n"),
                "{}",
                nice_of_session(false)
            );
            assert!(!nice_of_session(true).ends_with(" nice 7\n"));
        }
    }

    #[test]
    fn all_threads_stand_back_together() {
        let nice_of_thread = std::thread::spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(200));
            rustix::process::getpriority_process(None).unwrap()
        });
        set_nice_of_all_threads(3);
        assert_eq!(nice_of_thread.join().unwrap(), 3);
        assert_eq!(rustix::process::getpriority_process(None).unwrap(), 3);
    }
}
