//! Media of live systems: an optical drive, which has one head whatever the device above it says, and memory,
//! into which a medium may have been copied.

use super::devices_below::{Layer, visit_below};
use super::{DeviceFacts, default_cost};
use crate::mounts::{Mount, MountTable};
use headstart_model::machine::{Cost, DeviceClass};
use std::path::{Path, PathBuf};

/// So many images lie in each other, at most: a file system in an ISO in a file in memory are two.
const MOST_IMAGES: usize = 4;

/// What an optical drive costs: a 24x CD-ROM drive's near reads, a jump of 10 ms and half a turn, at 1.6 to
/// 3.7 MB/s (the lab's `cdrom24x.toml` has the sources). None is measured: its file systems have no UUID to
/// keep that by, and far reads of 100 ms each would take half a minute.
pub fn optical_cost() -> Cost {
    Cost {
        class: DeviceClass::Disk,
        bandwidth: 2.6e6,
        latency: 16e-3,
        depth: 1,
    }
}

impl DeviceFacts {
    /// What reading from it probably costs, where nothing was measured.
    pub fn usual_cost(&self) -> Cost {
        match self.is_optical() {
            true => optical_cost(),
            false => default_cost(self.guess().class),
        }
    }

    /// Whether it is an optical drive, or lies on one, as the image of a live CD.
    pub fn is_optical(&self) -> bool {
        let mut found = is_optical_drive(&self.disk);
        visit_below((self.major, self.minor), &mut |layer| {
            if let Layer::Disk(disk) = layer {
                found |= name(disk).is_some_and(is_optical_drive);
            }
        });
        found
    }
}

fn name(disk: &Path) -> Option<&str> {
    disk.file_name()?.to_str()
}

/// By the kernel's name for it: `sr0`.
fn is_optical_drive(name: &str) -> bool {
    is_numbered(name, "sr")
}

fn is_numbered(name: &str, kind: &str) -> bool {
    let number = name.strip_prefix(kind);
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether a mounted file system lies in memory: it is one in memory, it is on a disk in memory, or its image
/// is a file of such a one, as after `toram` of live-boot.
pub fn lies_in_memory(mount: &Mount, mounts: &MountTable) -> bool {
    let image_of = |mount: &Mount| {
        let facts = DeviceFacts::of_mount(mount)?;
        Some((facts.disk, facts.loop_file))
    };
    lies_in(mount, mounts, &image_of)
}

/// The disk that a mount is on, and the file that is its image, if any.
type ImageOf<'a> = dyn Fn(&Mount) -> Option<(String, Option<PathBuf>)> + 'a;

/// The same by what `image_of` says.
fn lies_in(mount: &Mount, mounts: &MountTable, image_of: &ImageOf<'_>) -> bool {
    let mut mount = mount;
    for _ in 0..MOST_IMAGES {
        if matches!(mount.fstype.as_str(), "tmpfs" | "ramfs") {
            return true;
        }
        let Some((disk, image)) = image_of(mount) else {
            return false;
        };
        if ["ram", "zram"].iter().any(|kind| is_numbered(&disk, kind)) {
            return true;
        }
        let holds = image.and_then(|image| mounts.lookup(image.as_os_str().as_encoded_bytes()));
        match holds {
            Some(holds) => mount = holds,
            None => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As live-boot mounts them: the medium, the image on it, and a disk beside.
    fn mounts(medium: &str) -> MountTable {
        let text = format!(
            "1 1 0:1 / / rw - rootfs rootfs rw\n\
             2 1 7:9 / /run/live/medium ro - {medium} {medium} ro\n\
             3 1 7:0 / /run/live/rootfs/filesystem.squashfs ro - squashfs /dev/loop0 ro\n\
             4 1 8:1 / /home rw - ext4 /dev/sda1 rw\n"
        );
        MountTable::parse(text.as_bytes())
    }

    fn in_memory(medium: &str, disk_of_medium: &str) -> [bool; 2] {
        let mounts = mounts(medium);
        let image_of = |mount: &Mount| match mount.fstype.as_str() {
            "squashfs" => Some((
                "loop0".into(),
                Some("/run/live/medium/live/filesystem.squashfs".into()),
            )),
            "ext4" => Some(("sda".into(), None)),
            _ => Some((disk_of_medium.into(), None)),
        };
        ["/run/live/rootfs/filesystem.squashfs", "/home"].map(|point| {
            let mount = mounts.lookup(point.as_bytes()).unwrap();
            lies_in(mount, &mounts, &image_of)
        })
    }

    #[test]
    fn an_image_lies_where_its_medium_lies() {
        assert_eq!(in_memory("iso9660", "sr0"), [false, false]);
        assert_eq!(in_memory("tmpfs", ""), [true, false], "toram");
        assert_eq!(in_memory("udf", "ram0"), [true, false], "a disk in memory");
        assert_eq!(in_memory("vfat", "sdb"), [false, false]);
    }

    #[test]
    fn an_image_that_is_said_to_lie_on_itself_lies_in_no_memory() {
        let mounts = mounts("iso9660");
        let on_itself = |_: &Mount| Some(("loop0".into(), Some("/run/live/medium/image".into())));
        let mount = mounts.lookup(b"/run/live/medium").unwrap();
        assert!(!lies_in(mount, &mounts, &on_itself));
    }

    #[test]
    fn optical_drives_are_told_by_their_names() {
        for (name, expected) in [
            ("sr0", true),
            ("sr11", true),
            ("sr", false),
            ("srv0", false),
            ("sda", false),
        ] {
            assert_eq!(is_optical_drive(name), expected, "{name}");
        }
    }
}
