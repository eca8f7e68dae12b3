//! The forks: a command's process that waits before its exec, and a process for background work.

use super::{inherited, signals};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// What the parent writes: go on, or end.
const GO: u8 = b'g';
const END: u8 = b'e';

/// A command's process that waits at the barrier, before its exec. It goes on when it is released, and also
/// when whoever would release it is gone.
pub struct Child {
    pid: u32,
    /// Closed when it was told, or cannot be.
    tell: Option<File>,
    failed: File,
}

/// Whether this process has one thread. Where that cannot be found out (no /proc) it is believed: callers
/// fork first.
fn single_threaded() -> io::Result<()> {
    match std::fs::read_dir("/proc/self/task").map(|tasks| tasks.count()) {
        Ok(threads) if threads > 1 => Err(io::Error::other(format!(
            "a fork in a process of {threads} threads; please report this"
        ))),
        _ => Ok(()),
    }
}

fn fork() -> io::Result<libc::pid_t> {
    single_threaded()?;
    // SAFETY: the process has one thread, so that the child finds no lock held and may go on as any process.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(pid),
    }
}

/// Ends this process at once, whatever its other threads wait for; nothing of it is run any more.
pub fn exit_now(status: i32) -> ! {
    // SAFETY: ends the process without running anything of it.
    unsafe { libc::_exit(status) }
}

impl Child {
    /// Forks a process that will become `command`, looked for in PATH. It has the standard descriptors, the
    /// working directory, the environment, the process group and terminal of this one, and the signals as
    /// this process found them before [`Signals::block`](super::Signals::block).
    pub fn fork(command: &[CString]) -> io::Result<Child> {
        if command.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no command"));
        }
        let words = pointers(command);
        let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
        let ((told, tell), (failed, fail)) = (pipe()?, pipe()?);
        let [told, tell, failed, fail] = [told, tell, failed, fail].map(File::from);
        let at_end = DeathSignal::of_this_process();
        let pid = fork()?;
        if pid == 0 {
            drop((tell, failed));
            at_end.take_over();
            become_command(told, fail, &words);
        }
        Ok(Child {
            pid: pid as u32,
            tell: Some(tell),
            failed,
        })
    }

    /// Its process id, which the command keeps.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Lets it go on.
    pub fn release(&mut self) {
        // A process that is gone, killed while it waited, is told nothing: waiting for it says why. Where a
        // filter of system calls refuses write(2) it goes on because the pipe is closed.
        let _ = self.tell.take().map(|mut tell| tell.write_all(&[GO]));
    }

    /// After the process ended: why it could not become the command; `None` if it could.
    pub fn failure(mut self) -> Option<io::Error> {
        drop(self.tell.take());
        let mut error = [0; 4];
        // Without the four bytes it was closed by the exec.
        self.failed.read_exact(&mut error).ok()?;
        Some(io::Error::from_raw_os_error(i32::from_ne_bytes(error)))
    }

    /// Ends it without running the command. An error if it could not be told to, and was killed.
    pub fn abandon(mut self) -> io::Result<()> {
        let told = self.tell.as_mut().map_or(Ok(()), |tell| tell.write_all(&[END]));
        if told.is_err() {
            // SAFETY: sends a signal; nobody has waited for the process, so that the number is its own.
            unsafe { libc::kill(self.pid as i32, libc::SIGKILL) };
        }
        told
    }
}

/// The signal that a process has asked for when its parent ends (PR_SET_PDEATHSIG of prctl(2)). A fork does
/// not inherit it.
struct DeathSignal {
    signal: i32,
    of: u32,
}

impl DeathSignal {
    fn of_this_process() -> DeathSignal {
        let mut signal = 0;
        // SAFETY: writes one number to where it points.
        unsafe { libc::prctl(libc::PR_GET_PDEATHSIG, &mut signal) };
        DeathSignal {
            signal,
            of: std::process::id(),
        }
    }

    /// In the process that was forked: it is asked for here, too. If the parent has ended already, it is
    /// sent.
    fn take_over(&self) {
        if self.signal == 0 {
            return;
        }
        // SAFETY: takes numbers alone; a signal to this process.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, self.signal);
            if libc::getppid() != self.of as i32 {
                libc::kill(libc::getpid(), self.signal);
            }
        }
    }
}

/// Whether this process holds a lock of fcntl(2) or lockf(3): a child would not have it, and whoever closes
/// the file gives it back.
pub fn holds_record_locks() -> bool {
    let entries = std::fs::read_dir("/proc/self/fdinfo")
        .into_iter()
        .flatten()
        .flatten();
    let mut given = entries.filter(|entry| {
        let number = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<i32>().ok());
        // What was opened here is closed when something is executed.
        // SAFETY: reads flags of a number that may be closed.
        number.is_some_and(|fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } == 0)
    });
    given.any(|entry| {
        let says = std::fs::read_to_string(entry.path()).unwrap_or_default();
        says.lines()
            .any(|line| line.starts_with("lock:") && line.contains(" POSIX "))
    })
}

/// Lets go of what this process was given and only the command has a use for: who reads what the command
/// writes waits for the last one that holds it. Standard input and output lead nowhere from now on; standard
/// error stays. What was opened here is closed when something is executed, what was given is not: so they are
/// told apart.
pub fn let_go_of_inherited() {
    let Ok(nowhere) = File::options().read(true).write(true).open("/dev/null") else {
        return;
    };
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers: Vec<i32> = entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    for fd in numbers {
        // SAFETY: reads flags of a number that may be closed, duplicates an open descriptor, and closes what
        // nothing in this process owns.
        unsafe {
            match fd {
                0 | 1 => lead_nowhere(nowhere.as_raw_fd(), fd),
                2 => {}
                _ if libc::fcntl(fd, libc::F_GETFD) == 0 => drop(libc::close(fd)),
                _ => {}
            }
        }
    }
}

/// Has a standard descriptor lead to `nowhere`. Where a filter refuses to duplicate that, another is opened:
/// who opens is given the lowest number.
///
/// # Safety
/// Nothing in this process owns `standard`, and `nowhere` is open.
unsafe fn lead_nowhere(nowhere: i32, standard: i32) {
    // SAFETY: as the caller says; the path is a string.
    unsafe {
        if libc::dup2(nowhere, standard) != standard && libc::close(standard) == 0 {
            libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        }
    }
}

/// In the child: waits, then becomes the command.
fn become_command(mut told: File, mut fail: File, words: &[*const libc::c_char]) -> ! {
    signals::restore();
    let mut byte = [0];
    let told = loop {
        match told.read(&mut byte) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => break other,
        }
    };
    if matches!(told, Ok(1)) && byte[0] == END {
        exit_now(0);
    }
    let error = execute(words).raw_os_error().unwrap_or(libc::ENOEXEC);
    let _ = fail.write_all(&error.to_ne_bytes());
    exit_now(127);
}

/// The words as execvp(3) wants them: pointers that live as long as the words, and a null pointer at the end.
fn pointers(command: &[CString]) -> Vec<*const libc::c_char> {
    let words = command.iter().map(|word| word.as_ptr());
    words.chain(std::iter::once(std::ptr::null())).collect()
}

/// Becomes the command of [`pointers`]; returns only with the reason why it cannot. What the runtime opened
/// in the place of standard descriptors that were closed stays out of the command.
fn execute(words: &[*const libc::c_char]) -> io::Error {
    for fd in inherited::closed() {
        // A closed descriptor is what the command would have found. Not closed here, for an exec that fails
        // is told of there, unless a filter refuses the flag.
        // SAFETY: sets a flag of the runtime's `/dev/null`, or closes that.
        unsafe {
            if libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) != 0 {
                libc::close(fd);
            }
        }
    }
    match words.first() {
        // SAFETY: `words` are pointers to strings that outlive this call, and end with a null pointer.
        Some(first) if !first.is_null() => unsafe { libc::execvp(*first, words.as_ptr()) },
        _ => return io::Error::new(io::ErrorKind::InvalidInput, "no command"),
    };
    io::Error::last_os_error()
}

/// Makes this process the command, looked for in PATH, with the signals and standard descriptors as this
/// process found them. Returns only with the reason why it cannot.
pub fn exec(command: &[CString]) -> io::Error {
    signals::restore();
    execute(&pointers(command))
}

/// Forks a process for background work, in a session of its own, with no descriptor of this one but its end
/// of the stream that is returned; standard input and output lead nowhere, standard error to the log that it
/// opens, if it does. The process ends with what `work` returns.
///
/// Nothing that owns a descriptor may be alive in the caller but what the caller never drops there: all
/// descriptors from 3 on are closed in the new process.
pub fn background(
    log: impl FnOnce() -> Option<File>,
    work: impl FnOnce(UnixStream) -> i32,
) -> io::Result<UnixStream> {
    Ok(background_of(log, work)?.0)
}

/// The same, with the number of the new process, which is a child of this one.
pub fn background_of(
    log: impl FnOnce() -> Option<File>,
    work: impl FnOnce(UnixStream) -> i32,
) -> io::Result<(UnixStream, u32)> {
    let (ours, theirs) = UnixStream::pair()?;
    let pid = background_with([theirs.into()], log, |[stream]| work(stream.into()))?;
    Ok((ours, pid))
}

/// The same, with these descriptors instead of a stream; the caller has them no more. Returns the number of
/// the new process.
pub fn background_with<const N: usize>(
    keep: [OwnedFd; N],
    log: impl FnOnce() -> Option<File>,
    work: impl FnOnce([OwnedFd; N]) -> i32,
) -> io::Result<u32> {
    let nowhere = File::options().read(true).write(true).open("/dev/null");
    let nowhere =
        nowhere.map_err(|error| io::Error::new(error.kind(), format!("cannot open /dev/null: {error}")))?;
    let pid = fork()?;
    if pid != 0 {
        return Ok(pid as u32);
    }
    // SAFETY: setsid has no arguments; it cannot fail in a process just forked. The path is a string. The
    // descriptors duplicated are open.
    unsafe {
        libc::setsid();
        // Whoever called may unmount what it was in.
        libc::chdir(c"/".as_ptr());
        for standard in 0..3 {
            lead_nowhere(nowhere.as_raw_fd(), standard);
        }
    }
    let mut kept: Vec<i32> = keep.iter().map(AsRawFd::as_raw_fd).collect();
    kept.push(nowhere.as_raw_fd());
    kept.sort_unstable();
    close_between(3, &kept);
    signals::unblock_all();
    // It may wait for a file system, and whatever goes wrong with it is not the command's to tell.
    log().into_iter().for_each(log_to);
    let status = work(keep);
    std::process::exit(status)
}

/// Makes a file this process's standard error.
pub fn log_to(log: File) {
    // SAFETY: both are open.
    unsafe { libc::dup2(log.as_raw_fd(), 2) };
}

/// What is asked of a forked process is a look at a file or two.
const ANSWERS_WITHIN: std::time::Duration = std::time::Duration::from_secs(5);

/// Whether a forked process that does this says so; `None` if it was killed, does not answer, or there is
/// none.
pub fn run_apart(work: impl FnOnce() -> bool) -> Option<bool> {
    let pid = fork().ok()?;
    if pid == 0 {
        crate::limits::without_core();
        exit_now(i32::from(!work()));
    }
    match super::wait::wait_for(pid as u32, ANSWERS_WITHIN) {
        Some(0) => Some(true),
        Some(status) if status == 1 << 8 => Some(false),
        _ => None,
    }
}

/// Forks a process that makes system calls, with these descriptors and no other, in a session of its own and
/// deaf to signals, and ends. Also from a process of several threads: another may hold any lock in the moment
/// of the fork, so `work` may not allocate memory, print or panic.
pub(crate) fn fork_for_system_calls<const N: usize>(
    mut keep: [i32; N],
    work: impl FnOnce(),
) -> io::Result<rustix::process::Pid> {
    keep.sort_unstable();
    // Before the fork: there is no moment in which the new process hears one.
    let deaf = signals::Deaf::start()?;
    // SAFETY: the child calls only what may be called after a fork in a process of several threads
    // (signal-safety(7)).
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            std::mem::forget(deaf);
            // It has no hurry.
            let _ = crate::priority::leave_realtime();
            // SAFETY: setsid has no arguments; it cannot fail in a process just forked.
            unsafe { libc::setsid() };
            close_between(0, &keep);
            work();
            exit_now(0)
        }
        pid => {
            rustix::process::Pid::from_raw(pid).ok_or_else(|| io::Error::other("no process has the number 0"))
        }
    }
}

/// Closes every descriptor from the first on but these, in order of their numbers.
fn close_between(first: i32, keep: &[i32]) {
    let mut from = first;
    for kept in keep {
        close_range(from, kept - 1);
        from = kept + 1;
    }
    close_range(from, i32::MAX);
}

/// Closes the descriptors from the first to the last.
fn close_range(first: i32, last: i32) {
    if first > last {
        return;
    }
    // SAFETY: nothing in this process uses these descriptors any more: it was just forked.
    let refused = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } != 0;
    if refused {
        // Before Linux 5.9, or forbidden: one by one, as far as the usual limits go.
        for fd in first..=last.min(65_535) {
            // SAFETY: as above.
            unsafe { libc::close(fd) };
        }
    }
}
