//! Standing back: the I/O and CPU priority of the calling thread.

use rustix::process::Pid;
use std::io;

/// How the calling thread's reads are ranked against others'. I/O schedulers that know no priorities ignore it.
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

/// The I/O priority of the calling thread as (class, level): class 0 none set, 1 real time, 2 best effort, 3 idle.
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
