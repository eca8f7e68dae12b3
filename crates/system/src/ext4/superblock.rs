//! The one reader of ext2/3/4 super blocks: what others than [`super::Geometry`] ask of them. Field offsets
//! are those of the kernel's ext4 documentation (Documentation/filesystems/ext4/super.rst).

use super::bytes::{u16_at, u32_at, wide};
use rustix::io::pread;
use std::io;
use std::os::fd::AsFd;

/// Where it is on the device, bytes.
pub const START: u64 = 1024;
/// Bytes of it.
pub const LENGTH: usize = 1024;

const MAGIC: u16 = 0xEF53;

/// A few facts of an ext2/3/4 file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The file system's UUID.
    pub uuid: [u8; 16],
    /// Bytes of a block: 1024 to 65536.
    pub block_size: u64,
    /// When it was last checked in full, seconds since 1970.
    pub last_check_unix_s: u64,
    /// Feature bits: compatible, incompatible, compatible for reading.
    pub features: [u32; 3],
}

impl Superblock {
    /// From the device or image; `None` if there is no ext2/3/4 on it. That of a mounted file system is in
    /// memory.
    pub fn read(device: impl AsFd) -> io::Result<Option<Superblock>> {
        let mut bytes = [0; LENGTH];
        let read = pread(device, &mut bytes, START)?;
        Ok(bytes.get(..read).and_then(Superblock::parse))
    }

    /// From its [`LENGTH`] bytes.
    pub fn parse(bytes: &[u8]) -> Option<Superblock> {
        let log_block_size = u32_at(bytes, 0x18)?;
        if u16_at(bytes, 0x38)? != MAGIC || log_block_size > 6 {
            return None;
        }
        Some(Superblock {
            uuid: bytes.get(0x68..0x78)?.try_into().ok()?,
            block_size: 1024 << log_block_size,
            last_check_unix_s: wide(u32_at(bytes, 0x40)?, u32::from(*bytes.get(0x277)?)),
            features: [u32_at(bytes, 0x5C)?, u32_at(bytes, 0x60)?, u32_at(bytes, 0x64)?],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_super_block_is_none() {
        let mut bytes = vec![0; LENGTH];
        assert_eq!(Superblock::parse(&bytes), None);
        bytes[0x38..0x3A].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[0x40..0x44].copy_from_slice(&7u32.to_le_bytes());
        bytes[0x277] = 1;
        bytes[0x68..0x78].copy_from_slice(&[9; 16]);
        bytes[0x5C..0x60].copy_from_slice(&0x400u32.to_le_bytes());
        let expected = Superblock {
            uuid: [9; 16],
            block_size: 1024,
            last_check_unix_s: 1 << 32 | 7,
            features: [0x400, 0, 0],
        };
        assert_eq!(Superblock::parse(&bytes), Some(expected));
        assert_eq!(Superblock::parse(&bytes[..0x200]), None, "cut off");
        bytes[0x18] = 7;
        assert_eq!(Superblock::parse(&bytes), None, "blocks of 128 KiB");
    }

    #[test]
    fn a_short_device_has_none() {
        let file = tempfile::tempfile_in("/var/tmp").unwrap();
        assert_eq!(Superblock::read(&file).unwrap(), None);
    }
}
