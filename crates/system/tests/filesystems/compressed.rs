//! What is known of file systems that compress by blocks.

use headstart_model::FilePath;
use headstart_model::machine::{Compression, Device};
use headstart_system::device::decompression_rate;
use headstart_system::mounts::MountTable;
use headstart_system::snapshot::device_at;
use headstart_system::testing::{LoopFs, Spec, can_mount, resident, undisturbed};
use std::path::Path;

/// 24 blocks of 1 MiB that can be compressed, and a file that is smaller than a block.
fn fill(root: &Path) -> std::io::Result<()> {
    let numbers = (0u64..1_600_000).map(|n| format!("{:x} ", n.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    let mut text: Vec<u8> = numbers.flat_map(String::into_bytes).collect();
    text.truncate(24 << 20);
    std::fs::write(root.join("small"), &text[..1000])?;
    std::fs::write(root.join("large"), text)
}

fn device(fs: &LoopFs) -> Device {
    let point = FilePath::from(fs.mount_point().as_path());
    device_at(&point, &Default::default()).unwrap().unwrap()
}

#[test]
fn the_block_of_a_squashfs_is_known_and_how_fast_it_is_decompressed() {
    if !can_mount() {
        return;
    }
    let mut rates = Vec::new();
    let mut identities = Vec::new();
    let images: [(&[&str], u32); 3] = [
        (
            &["-comp", "zstd", "-b", "1M", "-Xcompression-level", "3"],
            1 << 20,
        ),
        (&["-comp", "gzip"], 128 << 10),
        (&["-comp", "xz"], 128 << 10),
    ];
    for (arguments, block) in images {
        let fs = LoopFs::create(&Spec::new("squashfs").mkfs(arguments), fill).unwrap();
        let device = device(&fs);
        let compression = device.compression.unwrap();
        assert_eq!(compression, Compression { block, rate: 0 }, "{arguments:?}");
        identities.push(device.uuid);
        let mounts = MountTable::read().unwrap();
        let paths =
            ["small", "none", "large"].map(|name| FilePath::from(fs.mount_point().join(name).as_path()));
        rates.push(decompression_rate(&mounts, paths.iter(), compression).unwrap());
        assert_eq!(
            resident(paths[2].as_path()).unwrap(),
            [],
            "what was read is dropped"
        );
        // What is in memory stays there, and tells nothing.
        undisturbed(|| {
            std::fs::read(paths[2].as_path()).unwrap();
            let rate = decompression_rate(&mounts, paths.iter(), compression);
            assert_eq!(rate, None, "{arguments:?}");
            assert_eq!(resident(paths[2].as_path()).unwrap(), [(0, 24 << 8)]);
        });
    }
    assert!(rates[2] * 2 < rates[1], "xz is slower than gzip: {rates:?} MB/s");
    identities.dedup();
    assert_eq!(identities.len(), 3, "each image is known from others");
}

#[test]
fn other_file_systems_have_no_blocks_of_one_size() {
    if !can_mount() {
        return;
    }
    for fstype in ["ext4", "erofs"] {
        let fs = LoopFs::create(&Spec::new(fstype), |_| Ok(())).unwrap();
        assert_eq!(device(&fs).compression, None, "{fstype}");
    }
}
