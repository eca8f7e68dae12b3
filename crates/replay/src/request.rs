//! A request on its way: what is known of it once it was looked at, and when it was issued and done.

use headstart_model::PageRange;
use headstart_model::outcome::Skipped;
use headstart_model::plan::Request;
use headstart_system::open::Skip;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Why a request was not issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Nothing was at the path.
    Missing,
    /// Another file or file system than planned.
    Changed,
    /// Not a regular file or directory.
    Special,
    /// Not on a local file system.
    NotLocal,
    /// Not permitted.
    Denied,
    /// More than memory allows.
    OverBudget,
    /// The replay had been stopped.
    Stopped,
    /// An error.
    Failed,
}

impl From<Skip> for Reason {
    fn from(skip: Skip) -> Reason {
        match skip {
            Skip::Missing => Reason::Missing,
            Skip::Symlink | Skip::Special => Reason::Special,
            Skip::NotLocal => Reason::NotLocal,
            Skip::Denied | Skip::NoAtime => Reason::Denied,
            Skip::Changed { .. } => Reason::Changed,
            Skip::Cold | Skip::Io(_) => Reason::Failed,
        }
    }
}

impl Reason {
    /// Adds a request to the counter of this reason.
    pub fn count(self, skipped: &mut Skipped) {
        let counter = match self {
            Reason::Missing => &mut skipped.missing,
            Reason::Changed => &mut skipped.changed,
            Reason::Special => &mut skipped.special,
            Reason::NotLocal => &mut skipped.not_local,
            Reason::Denied => &mut skipped.denied,
            Reason::OverBudget => &mut skipped.over_budget,
            Reason::Stopped => &mut skipped.stopped,
            Reason::Failed => &mut skipped.failed,
        };
        *counter += 1;
    }
}

/// A request that was found to be possible.
#[derive(Debug)]
pub struct Prepared {
    /// The byte after the last that is read: the request's end, cut at the end of the file or device.
    pub end: u64,
    /// Pages of it in memory before.
    pub resident: Vec<PageRange>,
    /// Pages of it not in memory before: what is asked for.
    pub absent: Vec<PageRange>,
    /// When it was looked at, nanoseconds since the origin.
    pub at_ns: u64,
}

impl Prepared {
    /// A look-up, which is done by looking.
    pub fn nothing(at_ns: u64) -> Prepared {
        Prepared {
            end: 0,
            resident: Vec::new(),
            absent: Vec::new(),
            at_ns,
        }
    }
}

/// A request of a queue.
#[derive(Debug)]
pub struct RequestState {
    /// Its index in the plan.
    pub index: u32,
    /// The request.
    pub request: Request,
    /// What was found; empty until a thread took it up.
    pub prepared: OnceLock<Result<Prepared, Reason>>,
    /// When its last part was in, nanoseconds since the origin.
    pub done_ns: AtomicU64,
    /// Whether a part could not be read.
    pub failed: AtomicBool,
}

impl RequestState {
    /// A request nobody has looked at.
    pub fn new(index: u32, request: Request) -> RequestState {
        RequestState {
            index,
            request,
            prepared: OnceLock::new(),
            done_ns: AtomicU64::new(0),
            failed: AtomicBool::new(false),
        }
    }

    /// A part was in, or could not be read, at `now_ns`.
    pub fn part_done(&self, now_ns: u64, ok: bool) {
        self.done_ns.fetch_max(now_ns, Ordering::Relaxed);
        if !ok {
            self.failed.store(true, Ordering::Relaxed);
        }
    }
}

/// The pages of `[offset, end)` that are in none of the ascending `resident` ranges.
pub fn absent(pages: PageRange, resident: &[PageRange]) -> Vec<PageRange> {
    let mut gaps = Vec::new();
    let mut from = pages.start;
    for range in resident {
        if from < range.start {
            gaps.push(PageRange {
                start: from,
                end: range.start.min(pages.end),
            });
        }
        from = from.max(range.end);
    }
    if from < pages.end {
        gaps.push(PageRange {
            start: from,
            end: pages.end,
        });
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_resident_is_absent() {
        let range = |start, end| PageRange { start, end };
        assert_eq!(absent(range(2, 9), &[]), [range(2, 9)]);
        assert_eq!(absent(range(2, 9), &[range(2, 9)]), []);
        assert_eq!(
            absent(range(2, 9), &[range(2, 3), range(5, 6)]),
            [range(3, 5), range(6, 9)]
        );
    }

    #[test]
    fn each_reason_has_its_counter() {
        let all = [
            Reason::Missing,
            Reason::Changed,
            Reason::Special,
            Reason::NotLocal,
            Reason::Denied,
            Reason::OverBudget,
            Reason::Stopped,
            Reason::Failed,
        ];
        let mut skipped = Skipped::default();
        for (n, reason) in all.into_iter().enumerate() {
            reason.count(&mut skipped);
            assert_eq!(skipped.total(), n as u64 + 1);
        }
        let one = Skipped {
            missing: 1,
            changed: 1,
            special: 1,
            not_local: 1,
            denied: 1,
            over_budget: 1,
            stopped: 1,
            failed: 1,
        };
        assert_eq!(skipped, one);
    }
}
