//! Files made as the kernel makes them, and files that are damaged.

use super::*;
use proptest::prelude::*;

const BIG: bool = true;
const DEVICE: u32 = 7 << 20 | 3;

/// One event, in either byte order.
struct Made {
    time: u64,
    sector: u64,
    bytes: u32,
    action: u32,
    data: Vec<u8>,
}

fn bytes(event: &Made, big: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let mut put = |value: u64, size: usize| {
        let bytes = value.to_be_bytes();
        let mut bytes = bytes[8 - size..].to_vec();
        if !big {
            bytes.reverse();
        }
        out.extend(bytes);
    };
    put((MAGIC | VERSION).into(), 4);
    put(1, 4);
    put(event.time, 8);
    put(event.sector, 8);
    put(event.bytes.into(), 4);
    put(event.action.into(), 4);
    put(42, 4);
    put(DEVICE.into(), 4);
    put(0, 4);
    put(0, 2);
    put(event.data.len() as u64, 2);
    out.extend(&event.data);
    out
}

fn event(time: u64, kind: u32, sector: u64, bytes: u32) -> Made {
    Made {
        time,
        sector,
        bytes,
        action: READ | kind,
        data: Vec::new(),
    }
}

fn clock(time: u64, seconds: u32, big: bool) -> Made {
    let order = |value: u32| {
        if big {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        }
    };
    Made {
        action: NOTIFY | TIMESTAMP,
        data: [order(seconds), order(500)].concat(),
        ..event(time, 0, 0, 0)
    }
}

fn file(events: &[Made], big: bool) -> Vec<u8> {
    events.iter().flat_map(|event| bytes(event, big)).collect()
}

fn read(files: &[&[u8]]) -> Result<Blktrace, BlktraceError> {
    let mut reader = Reader::default();
    for (index, bytes) in files.iter().enumerate() {
        reader.file(&format!("t.blktrace.{index}"), *bytes)?;
    }
    let processes = HashSet::from([42]);
    let start = Start {
        started_unix_ns: 10_000_000_000,
        processes: &processes,
    };
    Ok(reader.finish(&start))
}

fn ranges(found: &Blktrace) -> Vec<(u64, u64)> {
    let reads = found.reads.iter();
    reads
        .map(|read| (read.range.start / 512, read.range.length))
        .collect()
}

#[test]
fn files_of_all_processors_are_one_row_in_either_byte_order() {
    for big in [false, BIG] {
        let first = file(
            &[
                clock(1_000, 10, big),
                event(3_000, ISSUE, 800, 4096),
                event(9_000, COMPLETE, 8, 512),
            ],
            big,
        );
        let second = file(&[event(2_000, QUEUE, 8, 512), event(2_500, ISSUE, 8, 512)], big);
        let found = read(&[&first, &second]).unwrap();
        assert!(found.has_clock);
        assert_eq!(
            ranges(&found),
            [(8, 512), (800, 4096)],
            "what was issued, by time"
        );
        let one = found.reads[0];
        assert_eq!((one.major, one.minor, one.by_start), (7, 3, Some(true)));
        // At 1,000 of the kernel's clock the wall clock was 10 s and 500 ns, when the start was 10 s.
        assert_eq!((one.issued_ns, one.completed_ns), (Some(2_000), Some(8_500)));
        assert_eq!(found.reads[1].completed_ns, None);
    }
}

#[test]
fn what_is_no_read_does_not_count() {
    let mut write = event(1, ISSUE, 8, 512);
    write.action = WRITE | ISSUE;
    let mut packet = event(1, ISSUE, 8, 512);
    packet.action |= PACKET;
    let message = Made {
        action: NOTIFY | 2,
        data: vec![b'x'; 300],
        ..event(1, 0, 0, 0)
    };
    let flagged = event(2, ISSUE | CGROUP, 16, 512);
    let found = read(&[&file(&[write, packet, message, flagged], false)]).unwrap();
    assert_eq!((ranges(&found), found.has_clock), (vec![(16, 512)], false));
    assert_eq!(found.reads[0].issued_ns, None);
}

#[test]
fn a_device_without_requests_counts_what_completed_or_was_asked() {
    let asked = [event(1, QUEUE, 8, 512), event(2, QUEUE, 16, 512)];
    assert_eq!(
        ranges(&read(&[&file(&asked, false)]).unwrap()),
        [(8, 512), (16, 512)]
    );
    let completed = [event(1, QUEUE, 8, 512), event(2, COMPLETE, 8, 512)];
    assert_eq!(ranges(&read(&[&file(&completed, false)]).unwrap()), [(8, 512)]);
    let unsaid = [event(1, QUEUE, 8, 512), event(2, COMPLETE, 8, 0)];
    assert_eq!(ranges(&read(&[&file(&unsaid, false)]).unwrap()), [(8, 512)]);
}

#[test]
fn what_the_driver_gave_back_counts_once() {
    let events = [
        event(1, ISSUE, 8, 512),
        event(2, REQUEUE, 8, 512),
        event(3, ISSUE, 8, 512),
        event(4, COMPLETE, 8, 512),
    ];
    let found = read(&[&file(&events, false)]).unwrap();
    assert_eq!(ranges(&found), [(8, 512)]);
}

#[test]
fn an_empty_file_has_no_reads() {
    assert_eq!(read(&[b"", b""]).unwrap().reads, []);
}

#[test]
fn what_is_damaged_is_refused_with_its_place() {
    let whole = file(&[event(1, ISSUE, 8, 512), clock(2, 1, false)], false);
    for length in (1..48).chain(49..whole.len()) {
        let error = read(&[&whole[..length]]).unwrap_err().to_string();
        assert!(error.contains("t.blktrace.0"), "{error}");
    }
    let other = read(&[b"\x7fELF and more"]).unwrap_err().to_string();
    assert!(
        other.contains("no file of blktrace") && other.contains("7f, 45"),
        "{other}"
    );
    let mut later = whole.clone();
    later[0] = 8;
    let later = read(&[&later]).unwrap_err().to_string();
    assert!(later.contains("version 8"), "{later}");
    let mut mixed = file(&[event(1, ISSUE, 8, 512)], false);
    mixed.extend(file(&[event(1, ISSUE, 8, 512)], BIG));
    let mixed = read(&[&mixed]).unwrap_err().to_string();
    assert!(
        mixed.contains("byte 48") && mixed.contains("byte order"),
        "{mixed}"
    );
}

#[test]
fn more_than_is_read_is_refused() {
    struct Endless(Vec<u8>, usize);
    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            for byte in buffer.iter_mut() {
                *byte = self.0[self.1 % self.0.len()];
                self.1 += 1;
            }
            Ok(buffer.len())
        }
    }
    let mut reader = Reader::default();
    let endless = Endless(file(&[event(1, ISSUE, 8, 512)], false), 0);
    let error = reader.file("t", endless).unwrap_err().to_string();
    assert!(
        error.contains("events of reads") && error.contains("blktrace -a read"),
        "{error}"
    );
}

proptest! {
    /// Any bytes, and any bytes behind a sound beginning: an answer or an error, never a panic.
    #[test]
    fn any_bytes_are_answered(mut tail in prop::collection::vec(any::<u8>(), 0..300), sound in any::<bool>()) {
        if sound {
            let mut bytes = file(&[event(u64::MAX, ISSUE, u64::MAX, u32::MAX), clock(0, u32::MAX, false)], false);
            bytes.append(&mut tail);
            tail = bytes;
        }
        let _ = read(&[&tail]);
    }

    /// A byte of a sound file is another.
    #[test]
    fn a_damaged_byte_is_answered(at in 0usize..152, value in any::<u8>()) {
        let mut bytes = file(&[event(1, ISSUE, 8, 512), clock(2, 1, false), event(3, COMPLETE, 8, 512)], false);
        bytes[at] = value;
        let _ = read(&[&bytes]);
    }
}

/// What Linux 6.18 wrote of a loop device; blkparse 1.2.0 counts 8 reads dispatched and completed, 39 KiB.
#[test]
fn what_a_kernel_wrote_is_counted_as_blkparse_does() {
    let found = read(&[include_bytes!("loop-6.18.blktrace.0")]).unwrap();
    let bytes: u64 = found.reads.iter().map(|read| read.range.length).sum();
    assert_eq!((found.reads.len(), bytes / 1024), (8, 39));
    assert!(found.reads.iter().all(|read| (read.major, read.minor) == (7, 0)));
}
