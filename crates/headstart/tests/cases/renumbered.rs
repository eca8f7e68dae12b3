//! Files of file systems that number inodes anew at each mount.
//!
//! What a replay makes of them is tested in `headstart_replay` (`file`), and on vfat and exfat in a virtual
//! machine (`tests/cases/vm/fat`): here is which file systems those are, of those that this kernel mounts.

use headstart_system::mounts::inodes_last;
use headstart_system::testing::{LoopFs, Spec, can_mount};
use std::fs;
use std::os::unix::fs::MetadataExt;

#[test]
fn inode_numbers_last_where_they_are_said_to() {
    if !can_mount() {
        return;
    }
    let known = fs::read_to_string("/proc/filesystems").unwrap();
    let has = |fstype: &&str| {
        known
            .lines()
            .any(|line| line.split_whitespace().last() == Some(fstype))
    };
    let kinds = [
        "ext4", "ext2", "xfs", "btrfs", "squashfs", "erofs", "vfat", "exfat",
    ];
    for fstype in kinds.into_iter().filter(has) {
        const FILES: usize = 40;
        let fill = |root: &std::path::Path| {
            (0..FILES).try_for_each(|n| fs::write(root.join(format!("f{n}")), vec![7; 100 * n]))
        };
        let mut disk = LoopFs::create(&Spec::new(fstype), fill).unwrap();
        // Looked at in two orders, each cold.
        let mut numbers = |order: &mut dyn Iterator<Item = usize>| {
            disk.remount_cold().unwrap();
            let root = disk.mount_point();
            let inode = |n: usize| (n, fs::metadata(root.join(format!("f{n}"))).unwrap().ino());
            let mut inodes: Vec<_> = order.map(inode).collect();
            inodes.sort_unstable();
            inodes
        };
        let (forwards, backwards) = (numbers(&mut (0..FILES)), numbers(&mut (0..FILES).rev()));
        assert_eq!(forwards == backwards, inodes_last(fstype), "{fstype}");
    }
}
