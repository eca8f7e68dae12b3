use super::text::*;
use super::touches::{MOST_TOUCHES, Touch, touches};
use super::*;

const VOLUME: Volume = Volume {
    uuid: *b"0123456789abcdef",
    size: 8 << 30,
    block: 4096,
};

fn span(start: u64, length: u64) -> Span {
    Span { start, length }
}

fn list() -> RangeList {
    RangeList {
        volume: VOLUME,
        checks: vec![Check {
            span: span(8192, 4096),
            crc: 0xDEAD_BEEF,
        }],
        ranges: vec![
            span(1 << 20, 8192),
            span(0, 4096),
            span(8 * (1 << 30) - 4096, 4096),
        ],
    }
}

#[test]
fn a_list_is_read_as_it_was_written() {
    let text = list().to_string();
    let begin = "headstart-ranges 1\nuuid 30313233-3435-3637-3839-616263646566\nsize 8589934592\nblock 4096\n\
                 check 8192 4096 deadbeef\nrange 1048576 8192\n";
    assert!(text.starts_with(begin), "{text}");
    assert_eq!(RangeList::parse(text.as_bytes()), Ok(list()));
    let commented = text.replace("range 0", "# first\n\nrange 0");
    assert_eq!(RangeList::parse(commented.as_bytes()), Ok(list()));
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    let text = list().to_string();
    let cases = [
        ("ranges 1", "ranges 2", "line 1: only version 1"),
        ("headstart-ranges 1", "#!/bin/sh", "line 1: it does not begin"),
        (
            "headstart-ranges 1",
            "headstart-ranges 1 2",
            "line 1: only version 1",
        ),
        ("30313233-3435", "3031323-33435", "line 2: no UUID"),
        ("30313233", "3031323G", "line 2: no UUID"),
        ("uuid", "UUID", "line 2: `uuid`"),
        (
            "size 8589934592",
            "size 99999999999999999999",
            "line 3: no number",
        ),
        ("size 8589934592", "size ", "line 3: no number"),
        ("size 8589934592", "size 4096", "line 5: it reaches beyond"),
        ("block 4096", "block 4095", "line 4: no power of two"),
        ("block 4096", "block 0", "line 4: no power of two"),
        (
            "block 4096",
            "block 65536",
            "line 5: offset and length are multiples",
        ),
        ("4096 deadbeef", "69632 deadbeef", "line 5: a check of more"),
        ("deadbeef", "deadbee", "line 5: no CRC-32"),
        ("deadbeef", "deadbeef x", "line 5: more words"),
        ("range 1048576", "range 1048577", "line 6: offset and length"),
        ("range 1048576 8192", "range 1048576", "line 6: no length"),
        ("range 1048576 8192", "range 1048576 0", "line 6: no length"),
        ("range 1048576 8192", "range -1 8192", "line 6: no offset"),
        (
            "range 1048576 8192",
            "range 9223372036854771712 8192",
            "line 6: it reaches beyond",
        ),
        (
            "range 1048576 8192",
            "range 0 1073745920",
            "line 6: with this range",
        ),
        (
            "range 1048576 8192",
            "range 0 8192",
            "the ranges at 0 and 0 overlap",
        ),
        ("end\n", "", "line 9: it was cut off"),
        ("end\n", "end\nrange 0 4096\n", "line 10: something behind"),
    ];
    for (from, to, expected) in cases {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from}");
        let error = RangeList::parse(changed.as_bytes()).unwrap_err();
        assert!(error.starts_with(expected), "{to:?}: {error}");
    }
    let many = text.replace(
        "check 8192 4096 deadbeef\n",
        &"check 8192 4096 deadbeef\n".repeat(17),
    );
    assert!(
        RangeList::parse(many.as_bytes())
            .unwrap_err()
            .contains("more than 16 checks")
    );
    let many: String = (0..=MOST_RANGES)
        .map(|n| format!("range {} 4096\n", n * 8192))
        .collect();
    let many = text.replace("range 0 4096\n", &many);
    assert!(
        RangeList::parse(many.as_bytes())
            .unwrap_err()
            .contains("more than 65536")
    );
    for length in 0..text.len() - 4 {
        assert!(RangeList::parse(&text.as_bytes()[..length]).is_err(), "{length}");
    }
}

#[test]
fn each_byte_is_listed_once_where_it_was_first_asked_for() {
    let mut ranges = Ranges::new(VOLUME, 4096);
    ranges.ask_for(100_000_000, 10);
    ranges.ask_for(40_960, 4096);
    ranges.ask_for(0, 1);
    // The same again, with more behind it.
    ranges.ask_for(100_000_000, 9000);
    // A hole of one block is bridged, of two not.
    ranges.ask_for(40_960 + 8192, 4096);
    ranges.ask_for(40_960 + 24_576, 4096);
    ranges.ask_for(8 << 30, 4096);
    ranges.ask_for(u64::MAX, u64::MAX);
    ranges.ask_for(5, 0);
    let block = 100_000_000 / 4096 * 4096;
    let expected = [
        span(block, 12_288),
        span(40_960, 12_288),
        span(0, 4096),
        span(65_536, 4096),
    ];
    assert_eq!(ranges.finish().unwrap(), expected);
}

#[test]
fn too_much_is_not_listed() {
    let mut ranges = Ranges::new(VOLUME, 0);
    ranges.ask_for(0, MOST_IN_ALL + 1);
    assert!(ranges.finish().unwrap_err().contains("at most"));
    let mut ranges = Ranges::new(VOLUME, 0);
    (0..=MOST_RANGES as u64).for_each(|n| ranges.ask_for(n * 8192, 1));
    assert!(ranges.finish().unwrap_err().contains("65537 ranges"));
}

#[test]
fn each_chunk_is_touched_once_large_ones_first() {
    let mut room = vec![Touch::default(); 100];
    let ranges = [
        span(600 << 10, 4096),
        // The end of one chunk of 512 KiB and the beginning of the next.
        span((1 << 20) - 4096, 8192),
        span(0, 140 << 10),
        span(604 << 10, 4096),
    ];
    let count = touches(&ranges, &mut room);
    let found: Vec<(u64, u32)> = room[..count].iter().map(|it| (it.offset >> 10, it.lap)).collect();
    let expected = [(600, 0), (1024, 0), (0, 0), (1020, 1), (64, 1), (128, 1)];
    assert_eq!(found, expected);
}

#[test]
fn the_touches_of_any_list_fit() {
    // As many ranges as there may be, each as long as all can be then, and at the worst places.
    let length = MOST_IN_ALL / MOST_RANGES as u64;
    let ranges: Vec<Span> = (0..MOST_RANGES as u64)
        .map(|n| span(n * (1 << 20) + (64 << 10) - 4096, length))
        .collect();
    let mut room = vec![Touch::default(); MOST_TOUCHES];
    let count = touches(&ranges, &mut room);
    assert_eq!(count, 2 * MOST_RANGES);
    let one = [span(4096, MOST_IN_ALL)];
    let count = touches(&one, &mut room);
    assert_eq!(count as u64, MOST_IN_ALL / (64 << 10) + 1);
}

#[test]
fn the_sum_of_a_check_is_that_of_the_library() {
    for length in [0, 1, 4096] {
        let bytes: Vec<u8> = (0..length).map(|n: u32| ((n * 7) >> 3) as u8).collect();
        assert_eq!(crc32(&bytes), crc32fast::hash(&bytes), "{length}");
    }
}

#[test]
fn a_volume_tells_its_uuid() {
    let mut begin = vec![0; 4096];
    assert_eq!(uuid_of_volume(&begin), None);
    begin[1080..1082].copy_from_slice(&[0x53, 0xEF]);
    begin[1128..1144].copy_from_slice(&VOLUME.uuid);
    assert_eq!(uuid_of_volume(&begin), Some(VOLUME.uuid));
    let mut begin = b"XFSB".to_vec();
    begin.resize(48, 7);
    assert_eq!(uuid_of_volume(&begin), Some([7; 16]));
    assert_eq!(uuid_of_volume(&begin[..40]), None);
    assert_eq!(uuid_of_volume(b""), None);
}
