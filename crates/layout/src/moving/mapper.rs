//! How much room a volume of device mapper has for what it takes as it is written: thin volumes, snapshots
//! and their origins, deduplicated volumes (the kernel's Documentation/admin-guide/device-mapper).

use headstart_system::sys::mapper::{Target, targets};
use rustix::fs::{Mode, OFlags};
use std::os::fd::{AsFd, OwnedFd};

/// One that has so many parts is asked no further.
const MOST_TARGETS: usize = 64;
const SECTOR: u64 = 512;
/// Bytes of a pool's metadata block (`DM_SM_METADATA_BLOCK_SIZE`), and of a deduplicated volume's.
const BLOCK: u64 = 4096;
/// So many blocks of data a block of a pool's metadata maps at least: a leaf has room for 252, and is half
/// full or more.
const MAPPED_BY_ONE: u64 = 126;
/// This share of a pool stays free: it is others', too.
const STAYS_FREE: u64 = 20;

/// How many bytes may be written to a volume before what it takes them from is full; `None` where it takes
/// none.
pub(super) fn free(device: (u32, u32)) -> Option<u64> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let control = rustix::fs::open("/dev/mapper/control", flags, Mode::empty()).ok()?;
    let targets = targets(control.as_fd(), device, false).ok()?;
    let space_of = |one: &Target| match one.kind.as_str() {
        "thin" => thin_space(&control, device, one),
        "snapshot" => snapshot_space(&one.text),
        "vdo" => vdo_space(&one.text),
        _ => None,
    };
    targets.iter().take(MOST_TARGETS).filter_map(space_of).min()
}

/// Whether what is written to a volume is copied first, for snapshots of it.
pub(super) fn is_origin(device: (u32, u32)) -> bool {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let control = rustix::fs::open("/dev/mapper/control", flags, Mode::empty());
    let targets = control
        .ok()
        .and_then(|control| targets(control.as_fd(), device, false).ok());
    targets.is_some_and(|targets| targets.iter().any(|target| target.kind == "snapshot-origin"))
}

fn thin_space(control: &OwnedFd, device: (u32, u32), target: &Target) -> Option<u64> {
    let unmapped = target.length.saturating_sub(mapped(&target.text)?);
    let table = targets(control.as_fd(), device, true).ok()?;
    let table = table.into_iter().find(|other| other.kind == "thin")?;
    let pool = number(table.text.split_whitespace().next()?)?;
    let [status, table] = [false, true].map(|table| targets(control.as_fd(), pool, table).ok());
    let free = pool_space(&status?.first()?.text, &table?.first()?.text)?;
    Some(if free >= unmapped { u64::MAX } else { free })
}

/// `<mapped sectors> <highest mapped sector>`.
fn mapped(status: &str) -> Option<u64> {
    let sectors: u64 = status.split_whitespace().next()?.parse().ok()?;
    Some(sectors.saturating_mul(SECTOR))
}

/// `<transaction> <used>/<all metadata blocks> <used>/<all data blocks> …`, and of the table
/// `<metadata device> <data device> <sectors of a block> …`. One that failed has no room.
fn pool_space(status: &str, table: &str) -> Option<u64> {
    let mut words = status.split_whitespace();
    if words.next()? == "Fail" {
        return Some(0);
    }
    let (metadata, data) = (share(words.next()?)?, share(words.next()?)?);
    let block = table.split_whitespace().nth(2)?.parse::<u64>().ok()?;
    let block = block.saturating_mul(SECTOR);
    let left = |(used, all): (u64, u64)| all.saturating_sub(used).saturating_sub(all.div_ceil(STAYS_FREE));
    let blocks = left(data).min(left(metadata).saturating_mul(MAPPED_BY_ONE));
    // Out of space, or failed to note something: it takes nothing more.
    let takes = !words.any(|word| matches!(word, "ro" | "out_of_data_space" | "needs_check"));
    Some(if takes { blocks.saturating_mul(block) } else { 0 })
}

/// `<used>/<all sectors> <those of metadata>`; or a word where it cannot be used any more.
fn snapshot_space(status: &str) -> Option<u64> {
    match status.split_whitespace().next()? {
        "Invalid" | "Overflow" | "Merge" => Some(0),
        first => {
            let (used, all) = share(first)?;
            let left = all.saturating_sub(used).saturating_sub(all.div_ceil(STAYS_FREE));
            Some(left.saturating_mul(SECTOR))
        }
    }
}

/// `<device> <mode> <in recovery> <index> <compression> <used> <all blocks>`.
fn vdo_space(status: &str) -> Option<u64> {
    let words: Vec<&str> = status.split_whitespace().collect();
    let number = |at: usize| words.get(at)?.parse::<u64>().ok();
    let (used, all) = (number(5)?, number(6)?);
    let left = all.saturating_sub(used).saturating_sub(all.div_ceil(STAYS_FREE));
    Some(match *words.get(1)? {
        "read-only" => 0,
        _ => left.saturating_mul(BLOCK),
    })
}

fn share(word: &str) -> Option<(u64, u64)> {
    let (used, all) = word.split_once('/')?;
    Some((used.parse().ok()?, all.parse().ok()?))
}

/// A device number as a table has it.
fn number(word: &str) -> Option<(u32, u32)> {
    let (major, minor) = word.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_pool_has_the_room_that_its_data_and_its_metadata_have() {
        let table = "253:0 253:1 128 0 1 error_if_no_space ";
        let status = |metadata: &str, data: &str, state: &str| {
            format!("1 {metadata} {data} - {state} discard_passdown error_if_no_space - 1024 ")
        };
        let space_with = |metadata, data, state| pool_space(&status(metadata, data, state), table);
        // 3,200 blocks of 64 KiB, of which a twentieth stays free.
        assert_eq!(space_with("10/2048", "0/3200", "rw"), Some(3040 * MIB / 16));
        assert_eq!(space_with("10/2048", "3000/3200", "rw"), Some(40 * MIB / 16));
        assert_eq!(space_with("10/2048", "3190/3200", "rw"), Some(0));
        assert_eq!(
            space_with("190/200", "0/3200", "rw"),
            Some(0),
            "its metadata is full"
        );
        assert_eq!(space_with("189/200", "0/3200", "rw"), Some(126 * MIB / 16));
        assert_eq!(space_with("10/2048", "0/3200", "out_of_data_space"), Some(0));
        assert_eq!(space_with("10/2048", "0/3200", "ro"), Some(0));
        assert_eq!(pool_space("Fail", table), Some(0));
        for strange in ["", "Error", "1 2 3 4", "1 2/x 3/4 - rw"] {
            assert_eq!(pool_space(strange, table), None, "{strange}");
        }
    }

    #[test]
    fn a_snapshot_has_the_room_of_its_own_store_and_what_is_spoilt_none() {
        assert_eq!(
            snapshot_space("20480/409600 176"),
            Some((409_600 - 20_480 - 20_480) * 512)
        );
        assert_eq!(snapshot_space("Invalid"), Some(0));
        assert_eq!(snapshot_space("Unknown"), None);
    }

    #[test]
    fn a_deduplicated_volume_has_the_blocks_that_nothing_is_stored_in() {
        let status = |mode: &str| format!("/dev/dm-3 {mode} - online online 1000 2000");
        assert_eq!(vdo_space(&status("normal")), Some(900 * 4096));
        assert_eq!(vdo_space(&status("read-only")), Some(0));
        assert_eq!(vdo_space("/dev/dm-3 normal"), None);
    }

    #[test]
    fn what_a_thin_volume_has_already_it_takes_nowhere() {
        assert_eq!(mapped("2048 4095"), Some(MIB));
        assert_eq!(mapped("0 -"), Some(0));
        assert_eq!((mapped("Fail"), mapped("-")), (None, None));
    }
}
