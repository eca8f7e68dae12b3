//! Mounts on which starts gain little or nothing, and why.

use super::{Mount, MountTable};
use crate::open::{Expect, open_checked};
use headstart_model::FilePath;
use serde::Serialize;
use std::fs::File;
use std::io::Read;

/// A mount, and what there is to say of it.
#[derive(Debug, PartialEq, Serialize)]
pub struct MountNote {
    /// Where it is mounted.
    pub mount_point: String,
    /// Its type, as mountinfo has it.
    pub fstype: String,
    /// What is to be said, a clause for people.
    pub note: &'static str,
}

/// So many are told: a machine with many snaps has one of each.
const MOST: usize = 32;

const OF_REMOTE: &str = "a server or a program answers, and may never: for programs is read ahead there by processes that nobody waits \
                         for, for boots is not";
const OF_ZFS: &str = "ZFS keeps what it reads in a cache of its own (ARC), of which neither a recorder nor fadvise(2) knows: nothing is \
                      learned or read ahead there";
const OF_APPIMAGE: &str = "an AppImage: a program unpacks it, and what starts read in it is not learned; compressed by xz it waits for \
                           a processor, not for a disk";
const OF_XZ: &str =
    "compressed by xz: a start from it waits for a processor that unpacks rather than for a disk";

/// Those of this machine.
pub fn notes() -> Vec<MountNote> {
    MountTable::read().map_or_else(
        |_| Vec::new(),
        |mounts| notes_of(&mounts, |mount| is_xz(&mounts, mount)),
    )
}

fn notes_of(mounts: &MountTable, is_xz: impl Fn(&Mount) -> bool) -> Vec<MountNote> {
    let note = |mount: &Mount| {
        let point = mount.mount_point.to_string();
        let note = match mount.fstype.as_str() {
            // Where an AppImage mounts itself.
            fuse if fuse.starts_with("fuse") && point.contains("/.mount_") => OF_APPIMAGE,
            _ if mount.is_remote => OF_REMOTE,
            "zfs" => OF_ZFS,
            "squashfs" if is_xz(mount) => OF_XZ,
            _ => return None,
        };
        Some(MountNote {
            mount_point: point,
            fstype: mount.fstype.clone(),
            note,
        })
    };
    mounts.all().iter().filter_map(note).take(MOST).collect()
}

/// Whether an image that is mounted by a loop device, as snaps are, is compressed by xz; false where that
/// cannot be read.
fn is_xz(mounts: &MountTable, mount: &Mount) -> bool {
    let device = format!("/sys/dev/block/{}:{}/loop/backing_file", mount.major, mount.minor);
    let Ok(image) = std::fs::read_to_string(device) else {
        return false;
    };
    let path = FilePath::from(image.trim_end_matches('\n'));
    let start = open_checked(mounts, path.as_path(), &Expect::default())
        .ok()
        .and_then(|opened| {
            let mut start = [0; SUPERBLOCK];
            File::from(opened.fd).read_exact(&mut start).ok().map(|()| start)
        });
    start.is_some_and(|start| says_xz(&start))
}

/// So much of a superblock tells the compression: magic, four numbers of 32 bits, and it
/// (`squashfs_super_block`, fs/squashfs/squashfs_fs.h).
const SUPERBLOCK: usize = 22;

fn says_xz(start: &[u8; SUPERBLOCK]) -> bool {
    const XZ: [u8; 2] = 4u16.to_le_bytes();
    start.starts_with(b"hsqs") && start.ends_with(&XZ)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn mounts_on_which_starts_gain_nothing_are_told_with_the_reason() {
        let table = b"1 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
            2 1 0:50 / /srv rw - nfs4 server:/srv rw\n\
            3 1 0:51 / /tmp/.mount_KritaX rw - fuse.Krita.AppImage Krita rw\n\
            4 1 7:1 / /snap/core/1 ro - squashfs /dev/loop1 ro\n\
            5 1 7:2 / /snap/firefox/2 ro - squashfs /dev/loop2 ro\n\
            6 1 0:52 / /home/anna/cloud rw - fuse.rclone cloud rw,user_id=1000\n\
            7 1 0:53 / /store rw - fuse.s3fs s3fs rw,user_id=0\n\
            8 1 0:54 / /tank rw - zfs tank rw\n";
        let notes = notes_of(&MountTable::parse(table), |mount| mount.minor == 1);
        let told: Vec<(&str, &str)> = notes
            .iter()
            .map(|noted| (noted.mount_point.as_str(), noted.note))
            .collect();
        let expected = [
            ("/srv", OF_REMOTE),
            ("/tmp/.mount_KritaX", OF_APPIMAGE),
            ("/snap/core/1", OF_XZ),
            ("/store", OF_REMOTE),
            ("/tank", OF_ZFS),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn the_compression_is_in_the_superblock() {
        let mut start = [0; SUPERBLOCK];
        start[..4].copy_from_slice(b"hsqs");
        for (number, is) in [(1, false), (4, true), (6, false)] {
            start[20] = number;
            assert_eq!(says_xz(&start), is, "{number}");
        }
        start[0] = b's';
        start[20] = 4;
        assert!(!says_xz(&start));
    }

    #[test]
    fn an_image_that_mksquashfs_has_made_is_told() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "some text").unwrap();
        for (compression, is) in [("xz", true), ("gzip", false)] {
            let image = dir.path().join(compression);
            let ran = std::process::Command::new("mksquashfs")
                .args([
                    dir.path().join("file").as_path(),
                    &image,
                    Path::new("-comp"),
                    Path::new(compression),
                ])
                .output()
                .expect("mksquashfs runs: install squashfs-tools");
            assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
            let mut start = [0; SUPERBLOCK];
            File::open(&image).unwrap().read_exact(&mut start).unwrap();
            assert_eq!(says_xz(&start), is, "{compression}");
        }
    }
}
