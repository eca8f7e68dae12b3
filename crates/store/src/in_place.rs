//! A block of a file that is written over where it is: the file keeps its inode, size and place.
//!
//! Of such a write only the data matters, and it needs no journal. But ext4 cannot tell that: fdatasync(2) of
//! an inode that came into memory while a transaction was running commits that transaction (`ext4_iget` in
//! fs/ext4/inode.c), which a disk does in two more writes and flushes. So on ext2/3/4 the block goes past the
//! page cache, and then the device is told to flush its write cache: one write and one flush.

use rustix::fs::{AtFlags, FileType, OFlags, StatxFlags, fcntl_getfl, fcntl_setfl, fstat, fstatfs, statx};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes: a block of most file systems, written whole, for which nothing has to be read.
pub(crate) const BLOCK: usize = 4096;

/// Of ext2, ext3 and ext4 (statfs(2)).
const EXT4: u64 = 0xef53;

/// As O_DIRECT wants it: no device has larger sectors, or asks for more of memory.
#[repr(align(4096))]
struct Aligned([u8; BLOCK]);

/// Writes the first block of a file over, and waits until that will survive a power cut. `device` is the
/// block device that the file is on, where that is open.
pub(crate) fn write_over(file: &File, block: &[u8; BLOCK], device: Option<&File>) -> io::Result<()> {
    if let Some(device) = device.filter(|device| passes_journal(file, device).unwrap_or(false)) {
        if write_directly(file, block).is_ok() && device.sync_all().is_ok() {
            return Ok(());
        }
    }
    file.write_all_at(block, 0)?;
    file.sync_data()
}

/// Whether a write with O_DIRECT goes to this device, and needs nothing else to last. The kernel says where
/// it would take the page cache all the same, as with data=journal (STATX_DIOALIGN, from Linux 6.1 on).
fn passes_journal(file: &File, device: &File) -> rustix::io::Result<bool> {
    if fstatfs(file)?.f_type as u64 != EXT4 {
        return Ok(false);
    }
    let (on, node) = (fstat(file)?.st_dev, fstat(device)?);
    let of_direct = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)?;
    let fits = |alignment: u32| (1..=BLOCK as u32).contains(&alignment);
    Ok(FileType::from_raw_mode(node.st_mode) == FileType::BlockDevice
        && node.st_rdev == on
        && of_direct.stx_mask & StatxFlags::DIOALIGN.bits() != 0
        && fits(of_direct.stx_dio_mem_align)
        && fits(of_direct.stx_dio_offset_align))
}

/// Leaves the file as it was opened, however it ends.
fn write_directly(file: &File, block: &[u8; BLOCK]) -> io::Result<()> {
    let flags = fcntl_getfl(file)?;
    fcntl_setfl(file, flags | OFlags::DIRECT)?;
    let written = file.write_all_at(&Aligned(*block).0, 0);
    fcntl_setfl(file, flags)?;
    written
}
