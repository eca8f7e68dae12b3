//! What a back-end is.

use crate::error::RecordError;
use crate::kernel::event::Event;
use headstart_model::trace::{Backend as BackendName, Evidence};
use std::ops::{Add, Sub};
use std::time::Duration;

/// Something that sees what processes use. It lives on the draining thread from its making to its end.
pub(crate) trait Backend {
    /// Which it is.
    fn name(&self) -> BackendName;

    /// What its page events mean.
    fn evidence(&self) -> Evidence;

    /// How long after the last [drain](Backend::drain) it wants the next.
    fn drain_every(&self) -> Duration;

    /// Records this process and its descendants from now on (scope tree). `pid` is what this process's pid
    /// namespace calls it; what events will call it is returned. The process is stopped before its exec.
    /// Children it has already are not looked for.
    fn add_root(&mut self, pid: u32) -> Result<u32, RecordError>;

    /// Hands over what was seen since the last call, in order of time as far as the kernel gives it, and what
    /// comes meanwhile only in part: it ends however fast events come.
    fn drain(&mut self, sink: &mut dyn FnMut(Event)) -> Result<(), RecordError>;

    /// Sees nothing more from now on; what was seen before still waits to be drained.
    fn stop(&mut self) -> Result<(), RecordError>;

    /// Why it does not tell what threads and block devices do, although that was asked for; `None` if it
    /// does, or was not asked.
    fn no_activity(&self) -> Option<&str>;

    /// How long its processes waited for block devices so far, their threads added up, nanoseconds; `None`
    /// where it does not see that.
    fn blocked_ns(&mut self) -> Result<Option<u64>, RecordError>;

    /// What was dropped so far because a buffer was full.
    fn missed(&mut self) -> Result<Missed, RecordError>;
}

/// What a back-end could not hand over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Missed {
    /// Events of pages, files and processes.
    pub events: u64,
    /// Uses of pages that no program saw, for it was put aside amid another.
    pub unseen_uses: u64,
    /// Look-ups.
    pub lookups: u64,
    /// What threads and block devices did.
    pub activity: u64,
}

impl Add for Missed {
    type Output = Missed;

    fn add(self, other: Missed) -> Missed {
        Missed {
            events: self.events + other.events,
            unseen_uses: self.unseen_uses + other.unseen_uses,
            lookups: self.lookups + other.lookups,
            activity: self.activity + other.activity,
        }
    }
}

impl Sub for Missed {
    type Output = Missed;

    /// What was missed since `before`.
    fn sub(self, before: Missed) -> Missed {
        Missed {
            events: self.events - before.events,
            unseen_uses: self.unseen_uses - before.unseen_uses,
            lookups: self.lookups - before.lookups,
            activity: self.activity - before.activity,
        }
    }
}
