//! Damaged images: whatever the bytes, an answer or an error, never a panic, never a range beyond the device.
//! That whole images are read right is tested on mounted ones (tests/filesystems).

use super::*;
use proptest::prelude::*;
use std::process::Command;
use std::sync::OnceLock;

const SIZE: usize = 8 << 20;

/// A small file system with an indexed directory, a fragmented file, a long link; one of ext2 without
/// extents.
fn image(kind: &'static str) -> &'static Vec<u8> {
    static EXT4: OnceLock<Vec<u8>> = OnceLock::new();
    static EXT2: OnceLock<Vec<u8>> = OnceLock::new();
    let cell = if kind == "ext4" { &EXT4 } else { &EXT2 };
    cell.get_or_init(|| {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let (root, image) = (dir.path().join("root"), dir.path().join("image"));
        std::fs::create_dir_all(root.join("many")).unwrap();
        for n in 0..600 {
            std::fs::write(root.join(format!("many/a-file-with-a-long-name-{n:04}")), "").unwrap();
        }
        std::fs::write(root.join("large"), vec![1; 2 << 20]).unwrap();
        std::os::unix::fs::symlink("x".repeat(200), root.join("link")).unwrap();
        std::fs::File::create(&image)
            .unwrap()
            .set_len(SIZE as u64)
            .unwrap();
        let made = Command::new("mke2fs")
            .args(["-q", "-F", "-t", kind, "-b", "1024", "-N", "1024", "-d"])
            .args([&root, &image])
            .status()
            .unwrap();
        assert!(made.success());
        std::fs::read(image).unwrap()
    })
}

fn ask_all(fs: &Ext4<Vec<u8>>) -> usize {
    let names: [&[u8]; 2] = [b"a-file-with-a-long-name-0100", b"not there"];
    let mut ranges = 0;
    for inode in (0..700).chain([1023, 1024, 1025, u64::from(u32::MAX), u64::MAX]) {
        for want in [Want::Stat, Want::Data, Want::Names(&names), Want::List] {
            for range in fs.metadata_of(inode, &want).unwrap_or_default() {
                assert!(range.start + range.length <= fs.geometry().blocks * fs.geometry().block_size);
                ranges += 1;
            }
        }
    }
    ranges
}

#[test]
fn whole_images_give_ranges() {
    for kind in ["ext4", "ext2"] {
        let fs = Ext4::new(image(kind).clone()).unwrap();
        assert!(ask_all(&fs) > 1000);
    }
}

#[test]
fn what_is_no_ext4_is_refused_by_name() {
    let error = Ext4::new(vec![0; 4096]).err().unwrap();
    assert!(error.to_string().contains("magic"), "{error}");
    assert!(matches!(Ext4::new(vec![0; 10]).err(), Some(Ext4Error::Io(_))));
    assert!(matches!(
        Ext4::open(Path::new("/dev/null")).err(),
        Some(Ext4Error::Io(_))
    ));
    let fs = Ext4::new(image("ext4").clone()).unwrap();
    assert_eq!(fs.metadata_of(0, &Want::Stat), Err(Ext4Error::NoInode(0)));
    // More blocks than there are bytes that can be addressed: the upper half of their number.
    let mut bytes = image("ext4").clone();
    bytes[1024 + 0x150 + 2] = 64;
    let error = Ext4::new(bytes).err().unwrap();
    assert!(error.to_string().contains("number of blocks"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Random bytes anywhere in the first MiB, where super block, descriptors, inodes and directories are.
    #[test]
    fn damage_anywhere_never_crashes(
        kind in prop::sample::select(vec!["ext4", "ext2"]),
        damage in prop::collection::vec((1024usize..(1 << 20), any::<u8>()), 1..400),
    ) {
        let mut bytes = image(kind).clone();
        for (at, byte) in damage {
            bytes[at] = byte;
        }
        if let Ok(fs) = Ext4::new(bytes) {
            ask_all(&fs);
        }
    }

    /// The same, aimed at the super block and the first group descriptors.
    #[test]
    fn a_damaged_super_block_never_crashes(
        damage in prop::collection::vec((1024usize..4096, any::<u8>()), 1..8),
    ) {
        let mut bytes = image("ext4").clone();
        for (at, byte) in damage {
            bytes[at] = byte;
        }
        if let Ok(fs) = Ext4::new(bytes) {
            ask_all(&fs);
        }
    }

    /// An extent tree or an index that is all noise, at a place that is used.
    #[test]
    fn noise_in_a_block_never_crashes(block in 1usize..700, seed in any::<u64>()) {
        let mut bytes = image("ext4").clone();
        let mut state = seed | 1;
        for byte in &mut bytes[block * 1024..(block + 1) * 1024] {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *byte = state as u8;
        }
        if let Ok(fs) = Ext4::new(bytes) {
            ask_all(&fs);
        }
    }
}
