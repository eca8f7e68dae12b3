//! Requests of one device in their order, taken by threads one part after the other.
//!
//! A part is of one request. Parts that lie one behind the other on the device are taken at once, as many as
//! together keep what one call serves.

use crate::request::RequestState;
use headstart_system::read_ahead::MOST_RANGES;
use std::sync::{Mutex, PoisonError};

/// Requests in issue order and how far they were taken.
pub struct Queue {
    /// The requests.
    pub requests: Vec<RequestState>,
    cursor: Mutex<Cursor>,
}

#[derive(Clone, Copy, Default)]
struct Cursor {
    index: usize,
    /// Where the next part of that request begins; 0 for its beginning.
    offset: u64,
}

/// A part of a request: the request's index, and from which byte to which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub index: usize,
    pub start: u64,
    pub end: u64,
}

impl Queue {
    /// Of these requests none is taken.
    pub fn new(requests: Vec<RequestState>) -> Queue {
        Queue {
            requests,
            cursor: Mutex::default(),
        }
    }

    fn cursor(&self) -> std::sync::MutexGuard<'_, Cursor> {
        self.cursor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether all parts were taken.
    pub(crate) fn is_taken(&self) -> bool {
        self.cursor().index >= self.requests.len()
    }

    /// The next parts that lie one behind the other, together of at most `chunk` bytes; none at the end.
    pub(crate) fn take_parts(&self, chunk: u64, page: u64) -> Vec<Part> {
        let mut cursor = self.cursor();
        let mut parts = Vec::new();
        let mut left = chunk;
        while parts.len() < MOST_RANGES && left >= page {
            let follows = |state: &RequestState| state.request.follows && cursor.offset == 0;
            if !parts.is_empty() && !self.requests.get(cursor.index).is_some_and(follows) {
                break;
            }
            let Some(part) = self.take_one(&mut cursor, left, page) else {
                break;
            };
            left = left.saturating_sub((part.end - part.start).next_multiple_of(page));
            parts.push(part);
        }
        parts
    }

    /// The next part, of at most `chunk` bytes, ending at a multiple of `page` unless it is the last.
    fn take_one(&self, cursor: &mut Cursor, chunk: u64, page: u64) -> Option<Part> {
        let index = cursor.index;
        let request = &self.requests.get(index)?.request;
        let start = cursor.offset.max(request.offset);
        let last = request.offset.saturating_add(request.length);
        let end = (start.saturating_add(chunk) / page * page).min(last);
        *cursor = if end < last {
            Cursor { index, offset: end }
        } else {
            Cursor {
                index: index + 1,
                offset: 0,
            }
        };
        Some(Part { index, start, end })
    }

    /// Takes no further part of a request.
    pub(crate) fn leave(&self, index: usize) {
        let mut cursor = self.cursor();
        if cursor.index == index {
            *cursor = Cursor {
                index: index + 1,
                offset: 0,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_model::plan::{NO_FILE, Request, RequestKind};

    fn request(offset: u64, length: u64) -> RequestState {
        let request = Request {
            offset,
            ..Request::new(RequestKind::Metadata, NO_FILE, length)
        };
        RequestState::new(0, request)
    }

    /// All parts as they are taken, one list after the other; requests are left at parts of which that is
    /// said.
    fn taken(queue: &Queue, chunk: u64, leave: impl Fn(&Part) -> bool) -> Vec<Vec<(usize, u64, u64)>> {
        let take = || Some(queue.take_parts(chunk, 4096)).filter(|parts| !parts.is_empty());
        let lists = std::iter::from_fn(take).inspect(|parts| {
            parts
                .iter()
                .filter(|part| leave(part))
                .for_each(|part| queue.leave(part.index));
        });
        let list = |parts: Vec<Part>| {
            parts
                .iter()
                .map(|part| (part.index, part.start, part.end))
                .collect()
        };
        lists.map(list).collect()
    }

    #[test]
    fn requests_are_taken_in_order_and_in_parts() {
        let queue = Queue::new(vec![
            request(4096, 10_000),
            request(0, 0),
            request(100, 5),
            request(0, 9000),
        ]);
        let taken = taken(&queue, 8192, |part| part.index == 3);
        assert_eq!(
            taken,
            [
                [(0, 4096, 12288)],
                [(0, 12288, 14096)],
                [(1, 0, 0)],
                [(2, 100, 105)],
                [(3, 0, 8192)]
            ]
        );
    }

    #[test]
    fn what_follows_is_taken_along_up_to_what_one_call_serves() {
        let behind = |length| {
            let mut state = request(0, length);
            state.request.follows = true;
            state
        };
        // The first follows nothing, whatever a plan says.
        let lengths = [4096, 5000, 20_000, 4096];
        let queue = Queue::new(lengths.map(behind).into_iter().chain([request(0, 1)]).collect());
        assert_eq!(
            taken(&queue, 16384, |_| false),
            [
                vec![(0, 0, 4096), (1, 0, 5000), (2, 0, 4096)],
                vec![(2, 4096, 20_000)],
                vec![(3, 0, 4096)],
                vec![(4, 0, 1)]
            ]
        );
        let many = Queue::new((0..2 * MOST_RANGES).map(|_| behind(1)).collect());
        let sizes: Vec<usize> = taken(&many, 1 << 20, |_| false).iter().map(Vec::len).collect();
        assert_eq!(sizes, [MOST_RANGES, MOST_RANGES]);
    }

    #[test]
    fn a_request_is_left_only_while_it_is_current() {
        let queue = Queue::new(vec![request(0, 8192), request(0, 8192)]);
        queue.take_parts(8192, 4096);
        queue.leave(0);
        assert!(!queue.is_taken());
        assert_eq!(queue.take_parts(8192, 4096)[0].index, 1);
        assert!(queue.is_taken());
    }
}
