//! The text of a range list (headstart-ranges(5)). It needs no memory of its own and no library, for the
//! program `headstart-hydrate`, which has neither, is compiled with this very file.

/// Bytes of a list's file at most: what the most lines take.
pub const MOST_BYTES: usize = 4 << 20;
/// Ranges of a list at most.
pub const MOST_RANGES: usize = 1 << 16;
/// Checks of a list at most.
pub const MOST_CHECKS: usize = 16;
/// Bytes of all ranges together at most. A boot needs some tens of MiB.
pub const MOST_IN_ALL: u64 = 1 << 30;
/// Bytes of a check at most.
pub const MOST_OF_CHECK: u64 = 64 << 10;
/// What blocks a volume can have, bytes.
const BLOCKS: core::ops::RangeInclusive<u64> = 512..=64 << 10;

/// What a list begins with.
pub const FIRST_LINE: &str = "headstart-ranges 1";
/// What it ends with: one that was cut off is noticed.
pub const LAST_LINE: &str = "end";

/// Which volume a list is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Volume {
    /// UUID of its file system.
    pub uuid: [u8; 16],
    /// Bytes of the device.
    pub size: u64,
    /// What all offsets and lengths are multiples of, bytes.
    pub block: u64,
}

/// Bytes of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The first.
    pub start: u64,
    /// How many.
    pub length: u64,
}

/// What bytes of the device are on the volume that the list is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Check {
    /// Which.
    pub span: Span,
    /// Their CRC-32 (that of zlib and gzip).
    pub crc: u32,
}

/// What is wrong, and in which line; the first has number 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The line's number.
    pub line: usize,
    /// What is wrong with it.
    pub what: &'static str,
}

/// What a list says; the checks and ranges lie where the reader was told to put them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// Which volume it is of.
    pub volume: Volume,
    /// How many checks it has.
    pub checks: usize,
    /// How many ranges it has.
    pub ranges: usize,
}

/// Reads a list. All lines have their order: first, `uuid`, `size`, `block`, checks, ranges, last. Empty
/// lines and those that begin with `#` may be anywhere but before the first.
///
/// Afterwards it is known of each span that it has at least one block and lies on the device; whether ranges
/// overlap is not known yet ([`overlap`]).
pub fn read(text: &[u8], checks: &mut [Check; MOST_CHECKS], ranges: &mut [Span]) -> Result<Read, Wrong> {
    let mut read = Read {
        volume: Volume::default(),
        checks: 0,
        ranges: 0,
    };
    let (mut stage, mut total, mut number) = (Stage::First, 0u64, 0);
    for line in text.split(|byte| *byte == b'\n') {
        number += 1;
        let wrong = |what| Wrong { line: number, what };
        if stage != Stage::First && (line.is_empty() || line.first() == Some(&b'#')) {
            continue;
        }
        let mut words = line.split(|byte| *byte == b' ');
        let word = words.next().unwrap_or_default();
        let volume = &mut read.volume;
        stage = match (stage, word) {
            (Stage::First, _) if line == FIRST_LINE.as_bytes() => Stage::Uuid,
            (Stage::First, b"headstart-ranges") => return Err(wrong("only version 1 is known here")),
            (Stage::First, _) => return Err(wrong("it does not begin as a range list does")),
            (Stage::Uuid, b"uuid") => {
                volume.uuid = words.next().and_then(uuid).ok_or(wrong("no UUID"))?;
                Stage::Size
            }
            (Stage::Size, b"size") => {
                volume.size = count(words.next()).ok_or(wrong("no number of bytes"))?;
                Stage::Block
            }
            (Stage::Block, b"block") => {
                let block = count(words.next()).filter(|it| BLOCKS.contains(it) && it.is_power_of_two());
                volume.block = block.ok_or(wrong("no power of two from 512 to 65536"))?;
                Stage::Checks
            }
            (Stage::Checks, b"check") => {
                let span = span(volume, words.next(), words.next()).map_err(wrong)?;
                if span.length > MOST_OF_CHECK {
                    return Err(wrong("a check of more than 65536 bytes"));
                }
                let crc = words.next().and_then(hexadecimal).ok_or(wrong("no CRC-32"))?;
                let place = checks.get_mut(read.checks).ok_or(wrong("more than 16 checks"))?;
                *place = Check { span, crc };
                read.checks += 1;
                Stage::Checks
            }
            (Stage::Checks | Stage::Ranges, b"range") => {
                let span = span(volume, words.next(), words.next()).map_err(wrong)?;
                total = total.saturating_add(span.length);
                if total > MOST_IN_ALL {
                    return Err(wrong("with this range it has more than 1 GiB"));
                }
                let place = ranges
                    .get_mut(read.ranges)
                    .ok_or(wrong("more than 65536 ranges"))?;
                *place = span;
                read.ranges += 1;
                Stage::Ranges
            }
            (Stage::Checks | Stage::Ranges, _) if word == LAST_LINE.as_bytes() => Stage::End,
            (Stage::End, _) => return Err(wrong("something behind the end")),
            (Stage::Uuid, _) => return Err(wrong("`uuid` belongs here")),
            (Stage::Size, _) => return Err(wrong("`size` belongs here")),
            (Stage::Block, _) => return Err(wrong("`block` belongs here")),
            (Stage::Checks, _) => return Err(wrong("`check`, `range` or `end` belongs here")),
            (Stage::Ranges, _) => return Err(wrong("`range` or `end` belongs here")),
        };
        if stage != Stage::Uuid && words.next().is_some() {
            return Err(wrong("more words than belong here"));
        }
    }
    match stage {
        Stage::End => Ok(read),
        _ => Err(Wrong {
            line: number,
            what: "it was cut off: no `end`",
        }),
    }
}

/// Which lines may come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    First,
    Uuid,
    Size,
    Block,
    Checks,
    Ranges,
    End,
}

/// The first two ranges that overlap, if any do. Sorts them.
pub fn overlap(ranges: &mut [Span]) -> Option<[Span; 2]> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut last: Option<Span> = None;
    for range in ranges.iter() {
        // None reaches beyond the device.
        if let Some(before) = last.filter(|before| before.start + before.length > range.start) {
            return Some([before, *range]);
        }
        last = Some(*range);
    }
    None
}

fn span(volume: &Volume, start: Option<&[u8]>, length: Option<&[u8]>) -> Result<Span, &'static str> {
    let start = count(start).ok_or("no offset")?;
    let length = count(length).filter(|length| *length > 0).ok_or("no length")?;
    if (start | length) & (volume.block - 1) != 0 {
        return Err("offset and length are multiples of the block");
    }
    match start.checked_add(length) {
        Some(end) if end <= volume.size => Ok(Span { start, length }),
        _ => Err("it reaches beyond the end of the device"),
    }
}

/// A number in decimal digits, up to what a file's offset can be.
pub fn count(digits: Option<&[u8]>) -> Option<u64> {
    let digits = digits.filter(|digits| !digits.is_empty())?;
    let mut number = 0u64;
    for digit in digits {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
        number = number.checked_mul(10)?.checked_add(digit.into())?;
    }
    (number <= i64::MAX as u64).then_some(number)
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

fn hexadecimal(digits: &[u8]) -> Option<u32> {
    if digits.len() != 8 {
        return None;
    }
    let mut number = 0;
    for digit in digits {
        number = number << 4 | u32::from(nibble(*digit)?);
    }
    Some(number)
}

/// A UUID as `blkid` prints it: 8-4-4-4-12 hexadecimal digits in lower case.
fn uuid(text: &[u8]) -> Option<[u8; 16]> {
    let mut uuid = [0; 16];
    let mut digits = 0;
    for (at, digit) in text.iter().enumerate() {
        if matches!(at, 8 | 13 | 18 | 23) {
            if *digit != b'-' {
                return None;
            }
            continue;
        }
        let place = uuid.get_mut(digits / 2)?;
        *place = *place << 4 | nibble(*digit)?;
        digits += 1;
    }
    (digits == 32).then_some(uuid)
}

/// The UUID of the file system that a device begins with, from the first 4096 bytes of the device; `None`
/// where it is neither ext2/3/4 nor XFS (fs/ext4/ext4.h, fs/xfs/libxfs/xfs_format.h).
pub fn uuid_of_volume(begin: &[u8]) -> Option<[u8; 16]> {
    let at = match begin {
        _ if begin.starts_with(b"XFSB") => 32,
        _ if begin.get(1080..1082) == Some(&[0x53, 0xEF]) => 1128,
        _ => return None,
    };
    begin.get(at..at + 16)?.try_into().ok()
}

/// The CRC-32 of zlib and gzip: reflected, polynomial 0xEDB88320.
pub fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = !0u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { 0xEDB8_8320 } else { 0 };
        }
    }
    !crc
}
