//! The process that runs a machine, and the control group that it is in with everything it starts.

use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::cgroup::Cgroup;
use crate::print;

/// How often it is looked whether a machine has shut down.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// How often it is told to.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// How a machine ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// By its own shutdown: what it wrote is on the disk.
    Orderly,
    /// At once: its writes are forgotten anyway.
    Kill,
}

/// Ends all of it when dropped.
pub(super) struct Running {
    child: Child,
    group: Option<Cgroup>,
}

impl Running {
    /// `child` was started in `group`.
    pub(super) fn new(child: Child, group: Cgroup) -> Running {
        Running {
            child,
            group: Some(group),
        }
    }

    /// The process.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the machine has shut down, and tells it to by `tell`, again and again: one that has only
    /// just booted may not have heard it.
    pub(super) fn shut_down(&mut self, limit: Duration, tell: &mut dyn FnMut()) -> Result<()> {
        let begun = Instant::now();
        let mut told: Option<Instant> = None;
        while self
            .child
            .try_wait()
            .context("waiting for the machine")?
            .is_none()
        {
            if begun.elapsed() > limit {
                bail!("the machine did not shut down within {} s", limit.as_secs());
            }
            if told.is_none_or(|at| at.elapsed() > TELL_EVERY) {
                tell();
                told = Some(Instant::now());
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Ends it at once.
    pub(super) fn end(&mut self) -> Result<()> {
        let Some(group) = self.group.take() else {
            return Ok(());
        };
        // A group cannot go while it holds a process that nobody has waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
        group.end()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            print::note(format_args!("headstart-lab: {error:#}"));
        }
    }
}
