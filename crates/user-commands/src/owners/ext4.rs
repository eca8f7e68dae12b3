//! ext2, ext3 and ext4: every inode says where its blocks are, and the rest lies at known places.

use super::Named;
use super::claims::{Claimant, Claims};
use headstart_model::blocks::Kind;
use headstart_model::machine::ByteRange;
use headstart_system::ext4::{Area, Ext4, InodeKind, RESIZE_INODE, ReadAt};

/// Claims what the file system itself uses, then what inodes do: those that have names first.
pub fn claim<S: ReadAt>(fs: &Ext4<S>, claims: &mut Claims, named: &Named) {
    let groups = fs.geometry().groups();
    for group in 0..groups {
        // What is damaged owns nothing.
        for (area, range) in fs.areas(group).unwrap_or_default() {
            claims.claim(range, kind_of(area));
        }
        if claims.is_over() {
            return;
        }
    }
    inode(fs, claims, named, RESIZE_INODE);
    inode(fs, claims, named, fs.geometry().journal);
    for number in named.keys() {
        if claims.is_over() {
            return;
        }
        inode(fs, claims, named, *number);
    }
    for group in 0..groups {
        for number in fs.inodes_in_use(group).unwrap_or_default() {
            if claims.is_over() {
                return;
            }
            inode(fs, claims, named, number);
        }
    }
}

fn kind_of(area: Area) -> Kind {
    match area {
        Area::SuperBlock => Kind::SuperBlock,
        Area::Groups => Kind::Groups,
        Area::Bitmap => Kind::Bitmap,
        Area::Inodes => Kind::Inodes,
    }
}

fn inode<S: ReadAt>(fs: &Ext4<S>, claims: &mut Claims, named: &Named, number: u64) {
    let Ok(blocks) = fs.blocks_of(number) else { return };
    let size = fs.geometry().block_size;
    let bytes = |block: u64, count: u64| ByteRange {
        start: block.saturating_mul(size),
        length: count.saturating_mul(size),
    };
    let claimant = Claimant {
        tree: 0,
        inode: number,
        path: named.get(&number),
    };
    let (map, data) = match (number, blocks.kind) {
        (RESIZE_INODE, _) => (Kind::Groups, Kind::Groups),
        (number, _) if number == fs.geometry().journal => (Kind::Journal, Kind::Journal),
        (_, InodeKind::Directory) => (Kind::ExtentBlock, Kind::Directory),
        (_, InodeKind::Symlink) => (Kind::ExtentBlock, Kind::SymbolicLink),
        (_, InodeKind::File | InodeKind::Other) => (Kind::ExtentBlock, Kind::Data),
    };
    let mut take = |range, kind, offset| match kind {
        Kind::Groups | Kind::Journal => claims.claim(range, kind),
        _ => claims.claim_for(range, kind, claimant, offset),
    };
    for block in blocks.map {
        take(bytes(block, 1), map, 0);
    }
    for run in blocks.data {
        take(
            bytes(run.physical, run.length),
            data,
            run.logical.saturating_mul(size),
        );
    }
    if let Some(block) = blocks.attributes {
        take(bytes(block, 1), Kind::Attributes, 0);
    }
}
