//! Signals as something to read: blocked, and taken from a descriptor with their origin.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

/// The signals that this process had blocked when [`Signals::block`] was called; a child gets them back.
static ORIGINAL_MASK: OnceLock<libc::sigset_t> = OnceLock::new();
/// Whether SIGCHLD was ignored then: children of such a process cannot be waited for.
static CHILD_IGNORED: OnceLock<bool> = OnceLock::new();

/// All signals sent to this process, to be read.
pub struct Signals {
    fd: OwnedFd,
}

/// A signal that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its number.
    pub signal: i32,
    /// Whether the kernel sent it, as it does for a terminal to all of a process group.
    pub by_kernel: bool,
    /// Whether this process brought it on itself, as by a write that nobody reads (SIGPIPE) or that is beyond
    /// the largest file (SIGXFSZ): the kernel names the writer as the sender.
    pub by_self: bool,
}

/// A signal set from a function that fills it.
fn set(fill: impl FnOnce(&mut libc::sigset_t)) -> libc::sigset_t {
    // SAFETY: zeros are a valid value of this plain structure, and sigemptyset initialises it in any case.
    let mut set = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        set
    };
    fill(&mut set);
    set
}

/// Every signal that can be waited for and is not a fault of this process's own.
fn all() -> libc::sigset_t {
    let own = [
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGILL,
        libc::SIGTRAP,
        libc::SIGSYS,
    ];
    set(|set| {
        // SAFETY: `set` is initialised, and the numbers are those of signals.
        unsafe {
            libc::sigfillset(set);
            for signal in own {
                libc::sigdelset(set, signal);
            }
        }
    })
}

fn set_mask(how: i32, set: &libc::sigset_t) -> io::Result<libc::sigset_t> {
    let mut old = self::set(|_| {});
    // SAFETY: both point to initialised sets that live through the call.
    match unsafe { libc::pthread_sigmask(how, set, &mut old) } {
        0 => Ok(old),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Sets what becomes of a signal and says whether it was ignored before.
fn set_action(signal: i32, action: libc::sighandler_t) -> io::Result<bool> {
    // SAFETY: the action is SIG_DFL or SIG_IGN, no function; zeros are valid for the rest of the structure.
    unsafe {
        let mut new: libc::sigaction = std::mem::zeroed();
        let mut old: libc::sigaction = std::mem::zeroed();
        new.sa_sigaction = action;
        match libc::sigaction(signal, &new, &mut old) {
            0 => Ok(old.sa_sigaction == libc::SIG_IGN),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Signals {
    /// Blocks all signals in this thread, and in those it starts from now on, and makes them readable.
    pub fn block() -> io::Result<Signals> {
        let signals = all();
        let original = set_mask(libc::SIG_BLOCK, &signals)?;
        ORIGINAL_MASK.get_or_init(|| original);
        let ignored = set_action(libc::SIGCHLD, libc::SIG_DFL)?;
        CHILD_IGNORED.get_or_init(|| ignored);
        // SAFETY: the set is initialised; the descriptor returned is new and owned by nobody else.
        let fd = unsafe {
            match libc::signalfd(-1, &signals, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
                -1 => return Err(io::Error::last_os_error()),
                fd => OwnedFd::from_raw_fd(fd),
            }
        };
        Ok(Signals { fd })
    }

    /// Blocks no longer what was not blocked before: a signal does again what it does to any process.
    pub fn give_back(&self) {
        if let Some(mask) = ORIGINAL_MASK.get() {
            let _ = set_mask(libc::SIG_SETMASK, mask);
        }
    }

    /// The next signal that came; `None` if none waits.
    pub fn next(&self) -> io::Result<Option<Received>> {
        // SAFETY: zeros are a valid value of this plain structure.
        let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: `info` has room for the `size` bytes asked for.
        let read = unsafe { libc::read(self.fd.as_raw_fd(), (&raw mut info).cast(), size) };
        match read {
            -1 => {
                let error = io::Error::last_os_error();
                match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                    _ => Err(error),
                }
            }
            _ => Ok(Some(Received {
                signal: info.ssi_signo as i32,
                by_kernel: info.ssi_code == libc::SI_KERNEL,
                by_self: info.ssi_code == libc::SI_USER && info.ssi_pid == std::process::id(),
            })),
        }
    }
}

/// From now on this signal ends the process, whatever whoever began it has made of it.
pub fn ends_by(signal: i32) -> io::Result<()> {
    set_action(signal, libc::SIG_DFL)?;
    let only = set(|set| {
        // SAFETY: `set` is initialised; a number.
        unsafe { libc::sigaddset(set, signal) };
    });
    set_mask(libc::SIG_UNBLOCK, &only).map(|_| ())
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Whether SIGXFSZ was ignored before [`survive_file_limit`].
static FILE_LIMIT_IGNORED: OnceLock<bool> = OnceLock::new();

/// From now on a write beyond the largest file (RLIMIT_FSIZE) fails and does not kill this process. A child
/// and a command find the signal as it was.
pub fn survive_file_limit() {
    // A failure leaves the signal as it is for any process.
    if let Ok(ignored) = set_action(libc::SIGXFSZ, libc::SIG_IGN) {
        FILE_LIMIT_IGNORED.get_or_init(|| ignored);
    }
}

/// Gives a forked child the signals as this process found them. Calls nothing but system calls.
pub(super) fn restore() {
    // Nothing can be done about a failure, and none of these calls can fail with arguments that worked
    // before.
    if CHILD_IGNORED.get() == Some(&true) {
        let _ = set_action(libc::SIGCHLD, libc::SIG_IGN);
    }
    if FILE_LIMIT_IGNORED.get() == Some(&false) {
        let _ = set_action(libc::SIGXFSZ, libc::SIG_DFL);
    }
    if !super::inherited::pipe_ignored() {
        let _ = set_action(libc::SIGPIPE, libc::SIG_DFL);
    }
    if let Some(mask) = ORIGINAL_MASK.get() {
        let _ = set_mask(libc::SIG_SETMASK, mask);
    }
}

/// Gives a forked helper the signals of any new process: none blocked.
pub(super) fn unblock_all() {
    let _ = set_mask(libc::SIG_SETMASK, &set(|_| {}));
}

/// While it lives this thread, and what it forks, hears no signal that can be blocked.
pub(super) struct Deaf(libc::sigset_t);

impl Deaf {
    pub(super) fn start() -> io::Result<Deaf> {
        set_mask(libc::SIG_BLOCK, &all()).map(Deaf)
    }
}

impl Drop for Deaf {
    fn drop(&mut self) {
        let _ = set_mask(libc::SIG_SETMASK, &self.0);
    }
}

/// Whether a signal has come that is blocked, and nobody has read.
fn is_pending(signal: i32) -> bool {
    let pending = set(|set| {
        // SAFETY: fills the set, which is initialised.
        unsafe { libc::sigpending(set) };
    });
    // SAFETY: looks for a number in it.
    unsafe { libc::sigismember(&pending, signal) == 1 }
}

/// Stops this process by a signal that is blocked, unless who is followed has `moved_on`, or is about to: a
/// SIGCONT that nobody has read yet would be taken away by the stop. While the stop waits, a SIGCONT takes it
/// away, and who is followed is asked only then. A SIGSTOP cannot wait.
pub(super) fn stop_oneself(signal: i32, moved_on: impl Fn() -> bool) {
    if is_pending(libc::SIGCONT) {
        return;
    }
    if signal == libc::SIGSTOP {
        if !moved_on() {
            take_oneself(signal);
        }
        return;
    }
    let only = set(|set| {
        // SAFETY: `set` is initialised; a number.
        unsafe { libc::sigaddset(set, signal) };
    });
    let _ = set_action(signal, libc::SIG_DFL);
    // SAFETY: raise takes any number.
    unsafe { libc::raise(signal) };
    if moved_on() {
        let at_once = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the set and the time are initialised; nobody wants to know more of the signal.
        unsafe { libc::sigtimedwait(&only, std::ptr::null_mut(), &at_once) };
        return;
    }
    if let Ok(before) = set_mask(libc::SIG_UNBLOCK, &only) {
        let _ = set_mask(libc::SIG_SETMASK, &before);
    }
}

/// Sends a signal to this process with its default action and unblocked, and blocks it again if the process
/// lives on.
pub(super) fn take_oneself(signal: i32) {
    let only = set(|set| {
        // SAFETY: `set` is initialised; a number that is no signal's is refused.
        unsafe { libc::sigaddset(set, signal) };
    });
    let _ = set_action(signal, libc::SIG_DFL);
    // SAFETY: raise takes any number.
    unsafe { libc::raise(signal) };
    if let Ok(before) = set_mask(libc::SIG_UNBLOCK, &only) {
        let _ = set_mask(libc::SIG_SETMASK, &before);
    }
}
