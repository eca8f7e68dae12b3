//! What device mapper tells of a volume, linux/dm-ioctl.h.

use super::check;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `_IOWR(0xfd, 12, struct dm_ioctl)`.
const DM_TABLE_STATUS: u32 = 0xC138_FD0C;
/// Asks for the table instead of the status.
const DM_STATUS_TABLE: u32 = 1 << 4;
/// What was told has no room in the buffer.
const DM_BUFFER_FULL: u32 = 1 << 8;
/// Has nothing written before: who asks waits for no device.
const DM_NOFLUSH: u32 = 1 << 11;
/// Bytes of `struct dm_ioctl`, and where in it is what.
const HEADER: usize = 312;
const DATA_SIZE: usize = 12;
const DATA_START: usize = 16;
const TARGET_COUNT: usize = 20;
const FLAGS: usize = 28;
const DEVICE: usize = 40;
/// Bytes of `struct dm_target_spec`, and where in it is what.
const TARGET: usize = 40;
const LENGTH: usize = 8;
const NEXT: usize = 20;
const TYPE: usize = 24;
/// Bytes for what is told: of a hundred targets a hundred words each.
const ROOM: usize = 64 << 10;

/// A part of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// What it is, such as `thin`.
    pub kind: String,
    /// Bytes.
    pub length: u64,
    /// Its status, or its line in the table.
    pub text: String,
}

/// The status of the volume with this device number, or its table, asked through `/dev/mapper/control`.
pub fn targets(control: BorrowedFd<'_>, (major, minor): (u32, u32), table: bool) -> io::Result<Vec<Target>> {
    let mut buffer = vec![0u64; ROOM / 8];
    let bytes = as_bytes(&mut buffer);
    // The version that headers have had since 2003 at least, and every kernel takes.
    bytes[..4].copy_from_slice(&4u32.to_ne_bytes());
    bytes[DATA_SIZE..][..4].copy_from_slice(&(ROOM as u32).to_ne_bytes());
    bytes[DATA_START..][..4].copy_from_slice(&(HEADER as u32).to_ne_bytes());
    let flags = DM_NOFLUSH | if table { DM_STATUS_TABLE } else { 0 };
    bytes[FLAGS..][..4].copy_from_slice(&flags.to_ne_bytes());
    // huge_encode_dev(), include/linux/kdev_t.h: as stat(2) has it where numbers are small.
    bytes[DEVICE..][..8].copy_from_slice(&rustix::fs::makedev(major, minor).to_ne_bytes());
    let at = bytes.as_mut_ptr();
    // SAFETY: the kernel reads and writes `data_size` bytes at most, which the buffer has; it is aligned as
    // struct dm_ioctl is.
    check(unsafe { libc::ioctl(control.as_raw_fd(), DM_TABLE_STATUS as _, at) }.into())?;
    parse(bytes).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The bytes of words.
fn as_bytes(words: &mut [u64]) -> &mut [u8] {
    // SAFETY: the same memory for as long; bytes have no alignment, and every value of them is one.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), words.len() * 8) }
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn parse(bytes: &[u8]) -> Option<Vec<Target>> {
    if number(bytes, FLAGS)? & DM_BUFFER_FULL != 0 {
        return None;
    }
    let data = bytes.get(number(bytes, DATA_START)? as usize..)?;
    let mut targets = Vec::new();
    let mut at = 0;
    for _ in 0..number(bytes, TARGET_COUNT)? {
        let spec = data.get(at..)?;
        let length = u64::from_ne_bytes(spec.get(LENGTH..LENGTH + 8)?.try_into().ok()?);
        let text = |part: &[u8]| {
            let end = part.iter().position(|byte| *byte == 0).unwrap_or(part.len());
            String::from_utf8_lossy(&part[..end]).into_owned()
        };
        targets.push(Target {
            kind: text(spec.get(TYPE..TARGET)?),
            length: length.saturating_mul(512),
            text: text(spec.get(TARGET..)?),
        });
        let next = number(spec, NEXT)? as usize;
        // Offsets from the first; nothing that leads back.
        if next <= at {
            break;
        }
        at = next;
    }
    Some(targets)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the kernel fills it: offsets from the first target, strings behind each.
    fn kernel_answer(targets: &[(&str, u64, &str)]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER];
        bytes[DATA_START..][..4].copy_from_slice(&(HEADER as u32).to_ne_bytes());
        bytes[TARGET_COUNT..][..4].copy_from_slice(&(targets.len() as u32).to_ne_bytes());
        for (kind, sectors, words) in targets {
            let mut spec = vec![0; TARGET];
            spec[LENGTH..][..8].copy_from_slice(&sectors.to_ne_bytes());
            spec[TYPE..][..kind.len()].copy_from_slice(kind.as_bytes());
            spec.extend_from_slice(words.as_bytes());
            spec.push(0);
            spec.resize(spec.len().next_multiple_of(8), 0);
            let next = (bytes.len() - HEADER + spec.len()) as u32;
            spec[NEXT..][..4].copy_from_slice(&next.to_ne_bytes());
            bytes.extend_from_slice(&spec);
        }
        bytes.resize(bytes.len() + 100, 0);
        bytes
    }

    #[test]
    fn each_target_is_told_with_its_words() {
        let bytes = kernel_answer(&[("thin", 8, "4 7"), ("linear", 16, "253:0 2048")]);
        let targets = parse(&bytes).unwrap();
        let facts_of = |one: &Target| (one.kind.clone(), one.length, one.text.clone());
        assert_eq!(facts_of(&targets[0]), ("thin".into(), 4096, "4 7".into()));
        assert_eq!(
            facts_of(&targets[1]),
            ("linear".into(), 8192, "253:0 2048".into())
        );
    }

    #[test]
    fn what_is_cut_off_or_leads_nowhere_is_no_answer_and_no_hang() {
        let mut bytes = kernel_answer(&[("thin", 8, "4 7"), ("thin", 8, "4 7")]);
        bytes[HEADER + NEXT..][..4].copy_from_slice(&0u32.to_ne_bytes());
        bytes[TARGET_COUNT..][..4].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(parse(&bytes).unwrap().len(), 1);
        assert_eq!(parse(&bytes[..HEADER + 20]), None);
        assert_eq!(parse(&[]), None);
        bytes[FLAGS..][..4].copy_from_slice(&DM_BUFFER_FULL.to_ne_bytes());
        assert_eq!(parse(&bytes), None);
    }
}
