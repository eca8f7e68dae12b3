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
    /// The first byte that is read: the request's, moved if it is meant from the end of a file that has
    /// another size now.
    pub start: u64,
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
            start: 0,
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

/// The bytes of a file that a request for data asks for now that it has `size` bytes instead of `planned`:
/// never more than it asks for as planned. `None` if there are none.
pub fn bytes_now(request: &Request, planned: u64, size: u64, page: u64) -> Option<(u64, u64)> {
    let moved = match request.from_end {
        true => i128::from(size.div_ceil(page)) - i128::from(planned.div_ceil(page)),
        false => 0,
    };
    let at = |byte: u64| -> u64 {
        let moved = i128::from(byte) + moved * i128::from(page);
        u64::try_from(moved.max(0)).unwrap_or(u64::MAX)
    };
    let (start, end) = (
        at(request.offset),
        at(request.offset.saturating_add(request.length)),
    );
    let end = end.min(size);
    (start < end).then_some((start, end))
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
    fn what_is_meant_from_the_end_moves_with_it_and_never_grows() {
        let request = |offset, length, from_end| Request {
            offset,
            from_end,
            ..Request::new(headstart_model::plan::RequestKind::Data, 0, length)
        };
        let tail = request(8 * 4096, 2 * 4096, true);
        let now = |size| bytes_now(&tail, 10 * 4096, size, 4096);
        assert_eq!(now(10 * 4096), Some((8 * 4096, 10 * 4096)));
        assert_eq!(
            now(10 * 4096 - 1),
            Some((8 * 4096, 10 * 4096 - 1)),
            "the same page"
        );
        assert_eq!(now(12 * 4096 + 1), Some((11 * 4096, 12 * 4096 + 1)));
        assert_eq!(now(4096), Some((0, 4096)));
        assert_eq!(now(0), None);
        let largest = i64::MAX as u64;
        let (start, end) = now(largest).unwrap();
        assert!(end == largest && end - start <= 2 * 4096, "a sparse file");
        let head = request(8 * 4096, 2 * 4096, false);
        assert_eq!(
            bytes_now(&head, 10 * 4096, 99 * 4096, 4096),
            Some((8 * 4096, 10 * 4096))
        );
        assert_eq!(bytes_now(&head, 10 * 4096, 8 * 4096, 4096), None);
        // Whatever a plan says.
        let odd = request(largest - 10, 10, true);
        assert_eq!(bytes_now(&odd, 0, largest, 4096), None);
    }

    #[test]
    fn each_reason_has_its_counter() {
        let reasons = [
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
        for (n, reason) in reasons.into_iter().enumerate() {
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
