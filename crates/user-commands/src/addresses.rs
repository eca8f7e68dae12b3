//! Where files are on a device.

use headstart_model::machine::Extent;
use std::ops::Range;

/// File systems on which addresses are those of the device. Btrfs has addresses of its own, SquashFS and
/// EROFS those of compressed data.
pub const KNOWN: [&str; 4] = ["ext2", "ext3", "ext4", "xfs"];

/// Gives the places of a file's bytes, as far as they have some.
pub fn on_device(bytes: &Range<u64>, extents: &[Extent], mut give: impl FnMut(Range<u64>)) {
    let first = extents.partition_point(|extent| extent.logical + extent.length <= bytes.start);
    for extent in &extents[first..] {
        let begin = extent.logical.max(bytes.start);
        let end = (extent.logical + extent.length).min(bytes.end);
        if begin >= end {
            break;
        }
        let at = extent.physical + (begin - extent.logical);
        give(at..at + (end - begin));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_where_the_extents_say() {
        let extent = |logical, physical, length| Extent {
            logical,
            physical,
            length,
        };
        let extents = [
            extent(0, 1000, 100),
            extent(200, 5000, 100),
            extent(300, 7000, 50),
        ];
        let mut ranges = Vec::new();
        on_device(&(50..310), &extents, |range| ranges.push(range));
        assert_eq!(ranges, [1050..1100, 5000..5100, 7000..7010]);
    }
}
