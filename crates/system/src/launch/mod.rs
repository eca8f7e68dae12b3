//! Running a command in such a way that it cannot tell: a child that waits at the barrier before its exec
//! ([`Child`]), signals passed on ([`Signals`]), the end of the child made one's own ([`end_like`]);
//! background work beside it that cannot touch it ([`background`]); and a parent that waits for a word
//! ([`ReadyPipe`]).
//!
//! The calls that fork need a process of one thread, and refuse to work in another: call them first, start
//! threads later.

mod fork;
mod inherited;
mod ready;
mod signals;
mod wait;

pub(crate) use fork::fork_for_system_calls;
pub use fork::{
    Child, background, background_of, background_with, exec, exit_now, holds_record_locks,
    let_go_of_inherited, log_to, run_apart,
};
pub use ready::ReadyPipe;
pub(crate) use signals::ends_by;
pub use signals::{Received, Signals, survive_file_limit};
pub use wait::{Change, change, end_like, forget_core, reap_others, send, stop_like, wait_for};
