//! For a while the kernel maps nothing around a fault, so that every touch of a mapped page is a fault that
//! can be seen.
//!
//! How much it maps is a number of debugfs that is one for the whole machine. So it is changed by one at a
//! time, on the machine itself and not from a container, for a bounded time, and put back whatever happens:
//! by whoever changed it; by a process of its own, the *keeper*, when that one is gone or does not come back
//! in time; and if both were killed, by the next start of headstart, for the number that was there is kept in
//! `/run` meanwhile. Another boot begins with the kernel's own number.

use crate::container::is_initial_pid_namespace;
use crate::launch::fork_for_system_calls;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, flock, fstatfs, open, openat, statat, unlink};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::ffi::CStr;
use std::fs::DirBuilder;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::time::{Duration, Instant};

/// Where debugfs is mounted, if it is, and what it has there.
const MOUNTED: &CStr = c"/sys/kernel/debug";
const NAME: &CStr = c"fault_around_bytes";
const KNOB_FLAGS: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC);
/// DEBUGFS_MAGIC, linux/magic.h.
const DEBUGFS: i64 = 0x6462_6720;

/// What is kept meanwhile, for the next start of headstart.
const RUN: &str = "/run/headstart";
const KEPT: &CStr = c"/run/headstart/fault-around";

/// More is refused by the kernel on every architecture: 512 pages of 64 KiB.
const MOST: u64 = 32 << 20;

/// How long the keeper may take to end once it is told.
const PATIENCE: Duration = Duration::from_secs(1);

/// While it lives the kernel maps nothing around a fault.
#[derive(Debug)]
pub struct NoFaultAround {
    knob: Knob,
    before: u64,
    /// The keeper, and what tells it by being closed; taken when it is over.
    keeper: Option<(Pid, OwnedFd)>,
}

impl NoFaultAround {
    /// From now on, for `at_most`. Fails where that is not possible: without root's rights, in a container,
    /// where debugfs is forbidden (lockdown), while another does it.
    pub fn start(at_most: Duration) -> io::Result<NoFaultAround> {
        let knob = open_alone()?;
        let before = knob.read()?;
        if before <= knob.page {
            // It is so already, by somebody's wish.
            return Ok(NoFaultAround {
                knob,
                before,
                keeper: None,
            });
        }
        DirBuilder::new().recursive(true).mode(0o700).create(RUN)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let kept = openat(CWD, KEPT, flags, Mode::RUSR | Mode::WUSR)?;
        write(&kept, &Text::from_number(before))?;
        let restricted = match keep(&knob, &Text::from_number(before), KEPT, at_most) {
            Ok(keeper) => NoFaultAround {
                knob,
                before,
                keeper: Some(keeper),
            },
            Err(error) => {
                let _ = unlink(KEPT);
                return Err(error);
            }
        };
        // Should it fail, `it` is dropped, and all is as before.
        write(&restricted.knob.file, &Text::from_number(restricted.knob.page))?;
        Ok(restricted)
    }
}

impl Drop for NoFaultAround {
    /// Puts the number back.
    fn drop(&mut self) {
        let Some((keeper, told)) = self.keeper.take() else {
            return;
        };
        // The keeper does the same: should this fail, it tries once more, and what is kept stays for the next
        // start.
        put_back(&self.knob, &Text::from_number(self.before), KEPT);
        drop(told);
        let since = Instant::now();
        while matches!(
            waitpid(Some(keeper), WaitOptions::NOHANG),
            Ok(None) | Err(Errno::INTR)
        ) {
            if since.elapsed() > PATIENCE {
                // Somebody has stopped it. It has nothing more to do.
                let _ = kill_process(keeper, Signal::KILL);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Whether this process may do so at all, though another may be at it just now.
pub fn is_possible() -> bool {
    open_of_machine().is_ok()
}

/// Puts back what a killed headstart has left, if there is any; returns the number that was put back. Costs
/// one look at `/run` otherwise.
pub fn mend() -> io::Result<Option<u64>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let kept = match openat(CWD, KEPT, flags, Mode::empty()) {
        Ok(kept) => kept,
        Err(_) => return Ok(None),
    };
    let knob = match open_alone() {
        Ok(knob) => knob,
        // It is not over yet.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
        Err(error) => return Err(error),
    };
    // Until it was alone, its owner may have put it back.
    if statat(CWD, KEPT, AtFlags::SYMLINK_NOFOLLOW).is_err() {
        return Ok(None);
    }
    // Whatever else is there somebody has set since; and where the number is not whole, nothing was changed
    // yet.
    let before = number(&kept).filter(|_| knob.number() == Some(knob.page));
    if let Some(before) = before {
        write(&knob.file, &Text::from_number(before))?;
    }
    unlink(KEPT)?;
    Ok(before)
}

/// The number's file, and where it is.
#[derive(Debug)]
struct Knob {
    debugfs: OwnedFd,
    file: OwnedFd,
    /// The machine's page size, which is the least it can be.
    page: u64,
}

impl Knob {
    /// Opens the knob of a debugfs.
    fn open(debugfs: OwnedFd) -> rustix::io::Result<Knob> {
        Ok(Knob {
            file: openat(&debugfs, NAME, KNOB_FLAGS | OFlags::RDWR, Mode::empty())?,
            debugfs,
            page: rustix::param::page_size() as u64,
        })
    }

    /// What it is now: system calls only. The kernel's file is read once for each time that it is opened.
    fn number(&self) -> Option<u64> {
        let again = openat(&self.debugfs, NAME, KNOB_FLAGS | OFlags::RDONLY, Mode::empty());
        number(&again.ok()?)
    }

    fn read(&self) -> io::Result<u64> {
        self.number()
            .ok_or_else(|| io::Error::other("fault_around_bytes is no power of two"))
    }
}

/// The number's file, locked: debugfs is one for all mounts of it, and so is the lock.
fn open_alone() -> io::Result<Knob> {
    let knob = open_of_machine()?;
    flock(&knob.file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(knob)
}

/// The number's file, from the machine itself.
fn open_of_machine() -> io::Result<Knob> {
    if !is_initial_pid_namespace()? {
        return Err(io::Error::other(
            "in a container the machine's knobs are left alone",
        ));
    }
    open_knob()
}

fn open_knob() -> io::Result<Knob> {
    let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mounted = open(MOUNTED, directory, Mode::empty()).and_then(Knob::open);
    let knob = match mounted {
        // Where it is not mounted, it is for this process alone, and nowhere.
        Err(Errno::NOENT) => {
            let context = fsopen(c"debugfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
            fsconfig_create(context.as_fd())?;
            Knob::open(fsmount(
                context.as_fd(),
                FsMountFlags::FSMOUNT_CLOEXEC,
                MountAttrFlags::empty(),
            )?)?
        }
        opened => opened?,
    };
    match fstatfs(&knob.file)?.f_type {
        DEBUGFS => Ok(knob),
        _ => Err(io::Error::other("/sys/kernel/debug is not debugfs")),
    }
}

/// A number, as the kernel reads it, in no memory but its own.
struct Text {
    bytes: [u8; 20],
    from: usize,
}

impl Text {
    fn from_number(mut number: u64) -> Text {
        let mut text = Text {
            bytes: [b'0'; 20],
            from: 19,
        };
        text.bytes[19] = b'0' + (number % 10) as u8;
        while number > 9 {
            number /= 10;
            text.from -= 1;
            text.bytes[text.from] = b'0' + (number % 10) as u8;
        }
        text
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[self.from..]
    }
}

/// What a file says, from where it was read last; `None` where that is no such number.
fn number(file: &OwnedFd) -> Option<u64> {
    let mut bytes = [0; 32];
    let length = rustix::io::read(file, &mut bytes).ok()?;
    let text = std::str::from_utf8(bytes.get(..length)?).ok()?;
    let number = text.trim().parse::<u64>().ok()?;
    (number.is_power_of_two() && number <= MOST).then_some(number)
}

fn write(file: &OwnedFd, text: &Text) -> io::Result<()> {
    match rustix::io::write(file, text.bytes())? {
        written if written == text.bytes().len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// What the keeper does, too: system calls only. A number that somebody else has set since is left.
fn put_back(knob: &Knob, before: &Text, kept: &CStr) {
    let is_anothers = knob.number().is_some_and(|now| now != knob.page);
    if is_anothers || write(&knob.file, before).is_ok() {
        let _ = unlink(kept);
    }
}

/// Forks the keeper. It lives until what is returned is closed, by its owner's end at the latest, or the time
/// is over, and then puts the number back.
fn keep(knob: &Knob, before: &Text, kept: &CStr, at_most: Duration) -> io::Result<(Pid, OwnedFd)> {
    let (told, tell) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let timeout = Timespec {
        tv_sec: at_most.as_secs() as i64,
        tv_nsec: 0,
    };
    let its = [&told, &knob.file, &knob.debugfs].map(AsRawFd::as_raw_fd);
    let pid = fork_for_system_calls(its, || {
        let _ = poll(&mut [PollFd::new(&told, PollFlags::IN)], Some(&timeout));
        put_back(knob, before, kept);
    })?;
    Ok((pid, tell))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::io::{Seek, Write};
    use std::path::Path;

    #[test]
    fn numbers_are_written_as_the_kernel_reads_them() {
        for number in [0, 7, 10, 4096, 65536, 1 << 25, u64::MAX] {
            assert_eq!(Text::from_number(number).bytes(), number.to_string().as_bytes());
        }
    }

    #[test]
    fn what_is_no_power_of_two_is_not_believed() {
        let said = |text: &str| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(text.as_bytes()).unwrap();
            file.rewind().unwrap();
            number(&file.into())
        };
        assert_eq!(said("65536\n"), Some(65536));
        for bad in [
            "",
            "\n",
            "x",
            "-1",
            "0",
            "65535",
            "67108864",
            "99999999999999999999999",
        ] {
            assert_eq!(said(bad), None, "{bad:?}");
        }
    }

    /// A file in the knob's place, a note of what was there, and their keeper.
    fn kept(dir: &Path, at_most: Duration) -> (Pid, OwnedFd) {
        let note = dir.join("kept");
        std::fs::write(
            dir.join("fault_around_bytes"),
            format!("{}\n", rustix::param::page_size()),
        )
        .unwrap();
        std::fs::write(&note, "65536").unwrap();
        let note = CString::new(note.to_str().unwrap()).unwrap();
        let knob = Knob::open(std::fs::File::open(dir).unwrap().into()).unwrap();
        keep(&knob, &Text::from_number(65536), &note, at_most).unwrap()
    }

    fn is_put_back(dir: &Path) -> bool {
        let knob = std::fs::read_to_string(dir.join("fault_around_bytes")).unwrap();
        knob.starts_with("65536") && !dir.join("kept").exists()
    }

    #[test]
    fn the_keeper_puts_it_back_when_its_owner_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let (keeper, tell) = kept(dir.path(), Duration::from_secs(600));
        assert!(!is_put_back(dir.path()));
        drop(tell);
        waitpid(Some(keeper), WaitOptions::empty()).unwrap();
        assert!(is_put_back(dir.path()));
    }

    #[test]
    fn a_number_that_somebody_else_has_set_since_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let (keeper, tell) = kept(dir.path(), Duration::from_secs(600));
        let knob = dir.path().join("fault_around_bytes");
        std::fs::write(&knob, "32768\n").unwrap();
        drop(tell);
        waitpid(Some(keeper), WaitOptions::empty()).unwrap();
        assert_eq!(std::fs::read_to_string(&knob).unwrap(), "32768\n");
        assert!(!dir.path().join("kept").exists(), "it is over");
    }

    #[test]
    fn the_keeper_puts_it_back_when_the_time_is_over_whatever_signals_come() {
        let dir = tempfile::tempdir().unwrap();
        let (keeper, _tell) = kept(dir.path(), Duration::from_secs(1));
        for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
            kill_process(keeper, signal).unwrap();
        }
        let status = waitpid(Some(keeper), WaitOptions::empty()).unwrap().unwrap().1;
        assert_eq!(status.exit_status(), Some(0));
        assert!(is_put_back(dir.path()));
    }

    #[test]
    fn the_keeper_has_nothing_of_its_owners() {
        let dir = tempfile::tempdir().unwrap();
        let others = rustix::pipe::pipe().unwrap();
        let (keeper, tell) = kept(dir.path(), Duration::from_secs(600));
        // It has closed all else when it has a session of its own, and is asleep.
        let descriptors = || std::fs::read_dir(format!("/proc/{keeper}/fd")).unwrap().count();
        let since = Instant::now();
        while descriptors() > 3 && since.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(descriptors(), 3);
        drop((tell, others));
        waitpid(Some(keeper), WaitOptions::empty()).unwrap();
    }
}
