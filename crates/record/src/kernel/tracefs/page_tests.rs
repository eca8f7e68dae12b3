//! Pages made by hand, one the kernel wrote, and many that nobody would write.

use super::super::format::Format;
use super::*;

/// `events/header_page` of Linux 6.18 on x86-64.
const HEADER: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
    \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
    \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
    \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";

/// A page of 72 `mm_filemap_map_pages` events that Linux 6.18 wrote, without the unused end.
const RECORDED: &[u8] = include_bytes!("page-6.18.bin");

fn layout() -> PageLayout {
    PageLayout::new(&Format::parse(HEADER)).unwrap()
}

/// A page with these words of events after its head.
fn page(time: u64, flags: u64, words: &[u32]) -> Vec<u8> {
    let mut bytes = time.to_le_bytes().to_vec();
    bytes.extend(((words.len() as u64 * 4) | flags).to_le_bytes());
    bytes.extend(words.iter().flat_map(|w| w.to_le_bytes()));
    bytes
}

fn head(kind: u32, delta: u32) -> u32 {
    kind | (delta << 5)
}

/// Time and record.
type Event = (u64, Vec<u8>);

fn read(bytes: &[u8]) -> Result<(u64, Vec<Event>), Damaged> {
    let page = layout().page(bytes)?;
    let events = page
        .events
        .map(|e| e.map(|(time, record)| (time, record.to_vec())))
        .collect::<Result<_, _>>()?;
    Ok((page.missed, events))
}

#[test]
fn every_type_of_event_is_understood() {
    let words = [
        head(1, 5),
        0xaaaa_aaaa, // a record of one word
        head(30, 1),
        1, // 2^27 + 1 ns later
        head(0, 2),
        12,
        0xbbbb_bbbb,
        0xcccc_cccc, // a record whose length stands before it
        head(29, 3),
        8,
        0xdddd_dddd, // a discarded record
        head(31, 7),
        2, // the time is 2^28 + 7
        head(2, 1),
        1,
        2,
        head(29, 0),
        99, // nothing more on this page
    ];
    let (missed, events) = read(&page(1 << 60, 0, &words)).unwrap();
    let times: Vec<u64> = events.iter().map(|e| e.0).collect();
    let later = (1 << 60) + 5 + (1 << 27) + 1 + 2;
    assert_eq!(times, [(1 << 60) + 5, later, (1 << 60) + (1 << 28) + 8]);
    assert_eq!(events.iter().map(|e| e.1.len()).collect::<Vec<_>>(), [4, 8, 8]);
    assert_eq!(events[1].1, [[0xbb; 4], [0xcc; 4]].concat());
    assert_eq!(missed, 0);
}

#[test]
fn missed_events_are_counted_as_exactly_as_the_kernel_tells() {
    let mut stored = page(0, 1 << 31 | 1 << 30, &[head(1, 0), 7]);
    stored.extend(41u64.to_le_bytes());
    assert_eq!(read(&stored).unwrap().0, 41);
    assert_eq!(read(&stored[..28]).unwrap().0, 1, "the count is cut off");
    assert_eq!(read(&page(0, 1 << 31, &[head(1, 0), 7])).unwrap().0, 1);
}

#[test]
fn a_page_of_the_kernel_is_read_whole() {
    let (missed, events) = read(RECORDED).unwrap();
    assert_eq!((missed, events.len()), (0, 72));
    assert!(events.is_sorted_by_key(|e| e.0));
    assert!(
        events
            .iter()
            .all(|(_, record)| record.len() == 40 && record[..2] == events[0].1[..2])
    );
}

#[test]
fn a_page_cut_anywhere_is_damaged_or_shorter_but_never_more() {
    let whole = read(RECORDED).unwrap().1;
    for length in 0..RECORDED.len() {
        if let Ok((_, events)) = read(&RECORDED[..length]) {
            assert_eq!(events, whole, "cut at {length}");
        }
    }
}

#[test]
fn damage_anywhere_never_panics_and_ends() {
    // A multiplicative generator (Lehmer, 48271 mod 2^31 - 1): the same damage every time.
    let mut state = 1u64;
    let mut random = move |below: usize| {
        state = state * 48271 % 0x7fff_ffff;
        state as usize % below
    };
    for _ in 0..20_000 {
        let mut bytes = RECORDED.to_vec();
        for _ in 0..=random(8) {
            let at = random(bytes.len());
            bytes[at] = [0, 0xff, random(256) as u8][random(3)];
        }
        if let Ok(page) = layout().page(&bytes) {
            assert!(
                page.events.count() <= bytes.len() / 4,
                "every event takes at least a word"
            );
        }
    }
}
