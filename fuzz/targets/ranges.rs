//! No bytes make the reader of range lists crash; what it accepts it writes and reads again, and the touches
//! of any list lie in its ranges, each chunk once.
#![no_main]

use headstart_model::range_list::RangeList;
use headstart_model::range_list::touches::{MOST_TOUCHES, Touch, touches};
use libfuzzer_sys::fuzz_target;
use std::collections::HashSet;

fuzz_target!(|bytes: &[u8]| {
    let Ok(list) = RangeList::parse(bytes) else { return };
    assert_eq!(RangeList::parse(list.to_string().as_bytes()), Ok(list.clone()));
    let mut room = vec![Touch::default(); MOST_TOUCHES];
    let count = touches(&list.ranges, &mut room);
    let mut chunks = HashSet::new();
    for touch in &room[..count] {
        let is_within = |range: &headstart_model::range_list::text::Span| {
            (range.start..range.start + range.length).contains(&touch.offset)
        };
        assert!(list.ranges.iter().any(is_within), "{touch:?}");
        assert!(chunks.insert(touch.offset >> 16), "{touch:?}");
    }
});
