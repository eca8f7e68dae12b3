//! Where a profile's files are, in an image or on the device of a mounted one.

use super::Args;
use anyhow::{Context, Result, bail};
use headstart_inspect::export::{self, ImageFile, ImageSize, Listed, Needed, Piece, PlacesOf, Unsaid};
use headstart_model::machine::Extent;
use headstart_system::extents;
use headstart_system::mounts::MountTable;
use headstart_system::open::{Expect, open_checked};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Extents of all files together: 24 MiB of them.
const EXTENTS: usize = 1 << 20;

/// Ranges of a device: a piece of a file in many extents is in as many.
const RANGES: usize = 1 << 20;

/// Lists the places of what is needed.
pub fn list(mut needed: Needed<'_>, of: PlacesOf, args: &Args) -> Result<Listed> {
    let files: Vec<File> = args.images.iter().map(|path| open(path)).collect::<Result<_>>()?;
    type ReadAt<'a> = Box<dyn Fn(&mut [u8], u64) -> std::io::Result<()> + 'a>;
    let reads: Vec<ReadAt<'_>> = files
        .iter()
        .map(|file| Box::new(|into: &mut [u8], at| file.read_exact_at(into, at)) as ReadAt<'_>)
        .collect();
    let mut images = Vec::new();
    for ((path, file), read_at) in args.images.iter().zip(&files).zip(&reads) {
        let size = file.metadata().with_context(|| path.display().to_string())?.len();
        let name = path.display().to_string();
        images.push(ImageFile { name, size, read_at });
    }

    let mut unsaid = std::mem::take(&mut needed.unsaid);
    let places = match of {
        PlacesOf::Nydus => export::nydus(&needed, &images, &mut unsaid),
        PlacesOf::Desync | PlacesOf::Overlaybd => {
            let Some(tree) = &args.tree else {
                bail!("give --tree DIR, where the image is mounted");
            };
            let device = Device::below(tree)?;
            let ranges = device.ranges(&needed, tree, &mut unsaid)?;
            match (of, &images[..]) {
                (PlacesOf::Overlaybd, layers) => export::overlaybd(&ranges, device.sizes[0].size, layers),
                (_, [index]) => export::desync(&ranges, &device.sizes, index),
                (_, _) => Err(format!("one index, given: {}", images.len())),
            }
        }
    };
    let places = places.map_err(anyhow::Error::msg)?;
    Ok(Listed {
        text: places.text,
        files: places.places,
        unsaid,
    })
}

/// Opens a regular file, without waiting for anything.
fn open(path: &Path) -> Result<File> {
    let mounts = MountTable::read().context("the mount table")?;
    let absolute = std::path::absolute(path).with_context(|| path.display().to_string())?;
    match open_checked(&mounts, &absolute, &Expect::default()) {
        Ok(opened) => {
            let file = File::from(opened.fd);
            match file.metadata().is_ok_and(|facts| facts.is_file()) {
                true => Ok(file),
                false => bail!("{}: no regular file", path.display()),
            }
        }
        Err(why) => bail!("{}: {why}", path.display()),
    }
}

/// The block device of a mounted image.
struct Device {
    number: u64,
    /// Its own size; where it is a partition then that of its disk.
    sizes: Vec<ImageSize>,
}

impl Device {
    fn below(tree: &Path) -> Result<Device> {
        let number = tree.metadata().with_context(|| tree.display().to_string())?.dev();
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let sectors = |name: &str| -> Option<u64> {
            let path = format!("/sys/dev/block/{major}:{minor}/{name}");
            std::fs::read_to_string(path).ok()?.trim().parse().ok()
        };
        let Some(size) = sectors("size") else {
            bail!(
                "{} is on no block device: mount the image by a loop device, with ext4 or XFS",
                tree.display()
            );
        };
        let bytes = |sectors: u64| sectors.saturating_mul(512);
        let own = ImageSize {
            size: bytes(size),
            at: 0,
        };
        let disk = sectors("start")
            .zip(sectors("../size"))
            .map(|(start, size)| ImageSize {
                size: bytes(size),
                at: bytes(start),
            });
        Ok(Device {
            number,
            sizes: [own].into_iter().chain(disk).collect(),
        })
    }

    /// Where the needed bytes are on the device, in the order of first use.
    fn ranges(&self, needed: &Needed<'_>, tree: &Path, unsaid: &mut Unsaid) -> Result<Vec<Range<u64>>> {
        let extents = self.extents(needed, tree, unsaid)?;
        let mut ranges = Vec::new();
        for piece in needed.pieces() {
            let Some(extents) = extents.get(&piece.file) else {
                continue;
            };
            on_device(&piece, extents, &mut ranges);
            if ranges.len() > RANGES {
                bail!(
                    "{}: the needed data is in more than {RANGES} pieces",
                    tree.display()
                );
            }
        }
        Ok(ranges)
    }

    /// Extents of the needed files, by index.
    fn extents(
        &self,
        needed: &Needed<'_>,
        tree: &Path,
        unsaid: &mut Unsaid,
    ) -> Result<HashMap<usize, Vec<Extent>>> {
        let mounts = MountTable::read().context("the mount table")?;
        let tree = std::path::absolute(tree).with_context(|| tree.display().to_string())?;
        let mut mapper = extents::Mapper::new();
        let (mut found, mut count) = (HashMap::new(), 0);
        for (index, used) in needed.files.iter().enumerate() {
            let path = tree.join(OsStr::from_bytes(used.name));
            let Ok(opened) = open_checked(&mounts, &path, &Expect::default()) else {
                unsaid.add("not to be opened in --tree", used.path());
                continue;
            };
            let file = File::from(opened.fd);
            if file.metadata().is_ok_and(|facts| facts.dev() != self.number) {
                unsaid.add("not on the device of --tree", used.path());
                continue;
            }
            let Ok(extents) = mapper.unencoded(std::os::fd::AsFd::as_fd(&file)) else {
                bail!(
                    "{}: its file system does not tell where files are",
                    tree.display()
                );
            };
            count += extents.len();
            if count > EXTENTS {
                bail!("{}: the files have more than {EXTENTS} extents", tree.display());
            }
            found.insert(index, extents);
        }
        Ok(found)
    }
}

fn on_device(piece: &Piece, extents: &[Extent], ranges: &mut Vec<Range<u64>>) {
    let first = extents.partition_point(|extent| extent.logical + extent.length <= piece.bytes.start);
    for extent in &extents[first..] {
        let begin = extent.logical.max(piece.bytes.start);
        let end = (extent.logical + extent.length).min(piece.bytes.end);
        if begin >= end {
            break;
        }
        let at = extent.physical + (begin - extent.logical);
        ranges.push(at..at + (end - begin));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_where_the_extents_say() {
        let extent = |logical, physical, length| Extent {
            logical,
            physical,
            length,
        };
        let extents = [
            extent(0, 1000, 100),
            extent(200, 5000, 100),
            extent(300, 7000, 50),
        ];
        let piece = Piece {
            file: 0,
            bytes: 50..310,
            first_use_ns: 0,
        };
        let mut ranges = Vec::new();
        on_device(&piece, &extents, &mut ranges);
        assert_eq!(ranges, [1050..1100, 5000..5100, 7000..7010]);
    }
}
