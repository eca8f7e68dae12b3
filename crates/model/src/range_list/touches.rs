//! Where a volume is touched so that it is filled. It needs no memory of its own, as `text` does not.

use super::text::{MOST_IN_ALL, MOST_RANGES, Span};

/// What is read first of each: the chunk that cloud volumes are known to be filled by, bytes.
const COARSE: u64 = 512 << 10;
/// What is read then, of volumes with smaller chunks.
const FINE: u64 = 64 << 10;
/// Touches of a list at most: one for each fine chunk, and two more for the ends of each range.
pub const MOST_TOUCHES: usize = (MOST_IN_ALL / FINE) as usize + 2 * MOST_RANGES;

/// A block that is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Touch {
    /// Where it begins on the device.
    pub offset: u64,
    /// The lap: 0 for the first touch of a coarse chunk, else 1.
    pub lap: u32,
    /// How many fine chunks come before it in the list.
    order: u32,
}

/// The touches of the ranges, each chunk once: those of the first lap, then those of the second, each in the
/// order of the ranges. Returns how many there are.
pub fn touches(ranges: &[Span], touches: &mut [Touch]) -> usize {
    let mut count = 0;
    for range in ranges {
        let mut offset = range.start;
        let end = range.start.saturating_add(range.length);
        while offset < end {
            let Some(touch) = touches.get_mut(count) else {
                break;
            };
            *touch = Touch {
                offset,
                lap: 1,
                order: count as u32,
            };
            count += 1;
            offset = (offset / FINE + 1) * FINE;
        }
    }
    count = first_of_each(touches.get_mut(..count).unwrap_or_default(), FINE);
    let touches = touches.get_mut(..count).unwrap_or_default();
    touches.sort_unstable_by_key(|touch| (touch.offset / COARSE, touch.order));
    let mut last = None;
    for touch in touches.iter_mut() {
        let chunk = touch.offset / COARSE;
        if last != Some(chunk) {
            touch.lap = 0;
            last = Some(chunk);
        }
    }
    touches.sort_unstable_by_key(|touch| (touch.lap, touch.order));
    count
}

/// Puts the first touch of each chunk to the front; how many there are.
fn first_of_each(touches: &mut [Touch], chunk: u64) -> usize {
    touches.sort_unstable_by_key(|touch| (touch.offset / chunk, touch.order));
    let (mut kept, mut last) = (0, None);
    for index in 0..touches.len() {
        let Some(touch) = touches.get(index).copied() else {
            break;
        };
        if last != Some(touch.offset / chunk) {
            last = Some(touch.offset / chunk);
            if let Some(place) = touches.get_mut(kept) {
                *place = touch;
            }
            kept += 1;
        }
    }
    kept
}
