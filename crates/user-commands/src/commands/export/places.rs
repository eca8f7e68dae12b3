//! Where a profile's files are, in an image or on the device of a mounted one.

use super::Args;
use crate::addresses::{KNOWN, on_device};
use anyhow::{Context, Result, bail};
use headstart_inspect::export::{
    self, ImageFile, ImageSize, Listed, Needed, ONLY_METADATA, PlacesOf, Unsaid,
};
use headstart_model::machine::{Extent, FileFacts, PathKind};
use headstart_model::{FilePath, profile};
use headstart_system::mounts::MountTable;
use headstart_system::open::{Expect, open_checked};
use headstart_system::snapshot::{self, Options, Wanted, snapshot};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

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
    number: (u32, u32),
    /// Its own size; where it is a partition then that of its disk.
    sizes: Vec<ImageSize>,
}

impl Device {
    fn below(tree: &Path) -> Result<Device> {
        let number = tree.metadata().with_context(|| tree.display().to_string())?.dev();
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let number = (major, minor);
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

    /// Where the needed bytes are on the device: metadata, without which no file is found, then data in the
    /// order of first use.
    fn ranges(&self, needed: &Needed<'_>, tree: &Path, unsaid: &mut Unsaid) -> Result<Vec<Range<u64>>> {
        let tree = std::path::absolute(tree).with_context(|| tree.display().to_string())?;
        let path = |name: &[u8]| FilePath::from(tree.join(OsStr::from_bytes(name)).as_path());
        let files = needed.files.iter().map(|used| (used.name, snapshot::Need::Data));
        let others = needed.metadata.iter().map(|(name, need)| (*name, for_(*need)));
        let wanted = files.chain(others).map(|(name, need)| Wanted {
            path: path(name),
            need,
        });
        let options = Options {
            opens_all: true,
            ..Options::default()
        };
        let machine =
            snapshot(&wanted.collect::<Vec<_>>(), &options).context("cannot look at this machine")?;
        let Some(device) = machine
            .devices
            .iter()
            .position(|it| (it.major, it.minor) == self.number)
        else {
            bail!(
                "{} has none of the needed files on its own device",
                tree.display()
            );
        };
        let kind = &machine.devices[device].fstype;
        if !KNOWN.contains(&kind.as_str()) {
            bail!(
                "{}: {kind} does not tell where data is on its device, as {} do",
                tree.display(),
                KNOWN.join(", ")
            );
        }
        let own = || machine.files.iter().filter(|it| it.device == Some(device as u32));
        let metadata = own().flat_map(|it| &it.metadata);
        let mut ranges: Vec<Range<u64>> = metadata.map(|it| it.start..it.start + it.length).collect();
        let found: HashMap<&FilePath, &FileFacts> = own()
            .filter(|it| it.found == PathKind::File)
            .map(|it| (&it.path, it))
            .collect();
        let extents: Vec<Option<&[Extent]>> = needed
            .files
            .iter()
            .map(|used| found.get(&path(used.name)).map(|it| &it.extents[..]))
            .collect();
        for (used, _) in needed.files.iter().zip(&extents).filter(|(_, it)| it.is_none()) {
            unsaid.add("not on the device of --tree", used.path());
        }
        for piece in needed.pieces() {
            on_device(&piece.bytes, extents[piece.file].unwrap_or_default(), |at| {
                ranges.push(at)
            });
            if ranges.len() > RANGES {
                bail!(
                    "{}: the needed data is in more than {RANGES} pieces",
                    tree.display()
                );
            }
        }
        if machine.devices[device].metadata_by_block {
            unsaid.forget(ONLY_METADATA);
        }
        Ok(ranges)
    }
}

fn for_(need: profile::Need) -> snapshot::Need {
    match need {
        profile::Need::List => snapshot::Need::List,
        profile::Need::Missing | profile::Need::Stat | profile::Need::Open => snapshot::Need::Stat,
    }
}
