//! What this process was given at its start and the Rust runtime changes before `main`: a child must find it
//! as it was.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// Whether SIGPIPE was ignored; the runtime ignores it always.
static PIPE_IGNORED: AtomicBool = AtomicBool::new(false);
/// Bits of the standard descriptors that were closed; the runtime opens `/dev/null` for them.
static CLOSED: AtomicU8 = AtomicU8::new(0);

extern "C" fn capture() {
    // SAFETY: sigaction with a null new action only fills `old`, a plain structure for which zeros are a
    // valid value; poll(2) without time only looks, as the runtime does itself, so that no filter refuses it.
    // Neither needs anything of the runtime, which has not begun yet.
    unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGPIPE, std::ptr::null(), &mut old) == 0 {
            PIPE_IGNORED.store(old.sa_sigaction == libc::SIG_IGN, Ordering::Relaxed);
        }
        let mut three = [0, 1, 2].map(|fd| libc::pollfd {
            fd,
            events: 0,
            revents: 0,
        });
        libc::poll(three.as_mut_ptr(), 3, 0);
        let is_closed = |one: &&libc::pollfd| one.revents & libc::POLLNVAL != 0;
        let closed = three
            .iter()
            .filter(is_closed)
            .fold(0, |bits, inherited| bits | 1 << inherited.fd);
        CLOSED.store(closed, Ordering::Relaxed);
    }
}

// SAFETY: functions in this section are called once by the C library before `main`, with arguments that
// `capture` need not take.
#[used]
#[unsafe(link_section = ".init_array")]
static CAPTURE: extern "C" fn() = capture;

/// Whether SIGPIPE was ignored when this process began.
pub(super) fn pipe_ignored() -> bool {
    PIPE_IGNORED.load(Ordering::Relaxed)
}

/// The standard descriptors that were closed when this process began.
pub(super) fn closed() -> impl Iterator<Item = i32> {
    let bits = CLOSED.load(Ordering::Relaxed);
    (0..3).filter(move |fd| bits >> fd & 1 == 1)
}
