//! What keys need of one volume, by address: the range list of `headstart plan --ranges-of`.
//!
//! The list serves a machine whose volume is filled as it is read, on whatever device it is made. So it is
//! planned as for such a volume: metadata amid the data, each in the order in which it is first needed.

use crate::addresses::{KNOWN, on_device};
use crate::owners::raw::Raw;
use crate::owners::xfs::Geometry;
use anyhow::{Context, Result, bail};
use headstart_boot::init::OF_HEADSTART;
use headstart_model::machine::{Cost, DeviceClass, FileFacts, FirstTouch, Machine, PathKind};
use headstart_model::plan::{NO_FILE, PlanDraft, RequestKind};
use headstart_model::range_list::text::{Check, MOST_CHECKS, Span, Volume, crc32};
use headstart_model::range_list::{RangeList, Ranges};
use headstart_model::{FilePath, Profile};
use headstart_plan::{PlanOptions, RecordedMetadata, recorded_metadata};
use headstart_start::keys::find_known;
use headstart_start::machine::{self, Costs, Measure};
use headstart_start::{complain, now_unix_ns};
use headstart_store::{KeyDir, Store};
use headstart_system::mounts::MountTable;
use headstart_system::open::{Expect, open_checked};
use headstart_system::snapshot::{self, Need, Options, Wanted};
use headstart_system::sys::xfs::directory_blocks;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// What all places and lengths are multiples of, bytes: a page, and no less than any block of a file system
/// here.
const BLOCK: u64 = 4096;
/// A cloud volume, once it is filled (lab/models/cloud.toml).
const COST: Cost = Cost {
    class: DeviceClass::Network,
    bandwidth: 125e6,
    latency: 0.7e-3,
    depth: 16,
};
/// What is fetched of it at the first touch (lab/models/lazy.toml).
const FIRST_TOUCH: FirstTouch = FirstTouch {
    granule: 512 << 10,
    latency: 33e-3,
    depth: 10,
};
/// Directories of which an image's maker alone changes the files: what is compared lies there.
const NEVER_WRITTEN: [&str; 6] = ["usr", "bin", "sbin", "lib", "lib64", "opt"];

/// headstart's own programs, in the order in which a boot reads them.
const OWN: [&str; 2] = ["/usr/sbin/headstart-init", "/usr/bin/headstart"];

/// A block device that is there.
struct Device<'a> {
    node: &'a Path,
    number: (u32, u32),
    size: u64,
}

impl Device<'_> {
    fn find(node: &Path) -> Result<Device<'_>> {
        let name = || node.display().to_string();
        let facts = node.metadata().with_context(name)?;
        if !facts.file_type().is_block_device() {
            bail!("{} is no block device: name that of the volume", node.display());
        }
        let number = (rustix::fs::major(facts.rdev()), rustix::fs::minor(facts.rdev()));
        let path = format!("/sys/dev/block/{}:{}/size", number.0, number.1);
        let sectors: Option<u64> = std::fs::read_to_string(&path)
            .with_context(|| path.clone())?
            .trim()
            .parse()
            .ok();
        let size = sectors
            .and_then(|sectors| sectors.checked_mul(512))
            .context(path)?;
        Ok(Device { node, number, size })
    }
}

/// Lists what the keys need of a volume.
pub fn of_device(node: &Path, keys: &[PathBuf], store: &Store) -> Result<RangeList> {
    let device = Device::find(node)?;
    let mut listing: Option<Listing<'_>> = None;
    for key in keys {
        let kept = find_known(&key.to_string_lossy(), store)?;
        let (profile, recorded) = known(&kept)?;
        let costs = Costs {
            measure: Measure::Nothing,
            ..Costs::new(store, None)
        };
        let mut machine = machine::snapshot(&profile, &costs, &mut |line| complain(&line))?;
        let index = index(&mut machine, &device, &kept)?;
        let options = PlanOptions {
            budget: Some(u64::MAX),
            ..PlanOptions::new(now_unix_ns())
        };
        let draft = headstart_plan::plan(&profile, &machine, &recorded, &options);
        let listing = match &mut listing {
            Some(listing) => listing,
            None => listing.insert(Listing::new(&device, &machine, index)?),
        };
        listing.add_own(&kept)?;
        listing.add(&draft, &machine, index)?;
    }
    match listing {
        Some(listing) => listing.finish(),
        None => bail!("no key is named"),
    }
}

/// What was learned of a key, and the metadata that its kept starts read.
fn known(kept: &KeyDir) -> Result<(Profile, Vec<RecordedMetadata>)> {
    let own = kept.profile().or_tell(|line| complain(&line));
    let imported = || kept.imported()?.1.profile().or_tell(|line| complain(&line));
    let Some(profile) = own.or_else(imported) else {
        bail!(
            "nothing was learned of {} yet: `headstart status` says why",
            kept.key()
        );
    };
    let mut recorded = Vec::new();
    for path in kept.traces() {
        if let Some(trace) = kept.trace(&path).or_tell(|line| complain(&line)) {
            recorded.extend(recorded_metadata(&trace));
        }
    }
    Ok((profile, recorded))
}

/// Which of the machine's devices it is. It is planned for as if it were filled as it is read.
fn index(machine: &mut Machine, device: &Device<'_>, kept: &KeyDir) -> Result<usize> {
    let found = machine
        .devices
        .iter()
        .position(|it| (it.major, it.minor) == device.number);
    let Some(index) = found else {
        let others = machine.devices.iter().filter(|it| !it.node.as_bytes().is_empty());
        let others: Vec<String> = others
            .map(|it| format!("{} ({})", it.node, it.mount_point))
            .collect();
        bail!(
            "{} needs nothing of a file system that is mounted from {}; what it needs is on: {}",
            kept.key(),
            device.node.display(),
            others.join(", ")
        );
    };
    let planned = &mut machine.devices[index];
    if !KNOWN.contains(&planned.fstype.as_str()) {
        bail!(
            "{}: {} does not tell where data is on its device, as {} do",
            device.node.display(),
            planned.fstype,
            KNOWN.join(", ")
        );
    }
    planned.cost = COST;
    planned.first_touch = Some(FIRST_TOUCH);
    planned.sequential_cutoff = None;
    Ok(index)
}

/// A list in the making.
struct Listing<'a> {
    device: &'a Device<'a>,
    volume: Volume,
    mount_point: PathBuf,
    mounts: MountTable,
    ranges: Ranges,
    checks: Vec<Check>,
    /// Files whose contents were compared with the device.
    compared: HashSet<FilePath>,
    /// Files of which others than the image's maker may change the contents, where there are no others.
    others: Vec<Check>,
    differ: Option<FilePath>,
    raw: Raw,
    xfs: Option<Geometry>,
    /// Inodes of XFS that are listed already.
    inodes: HashSet<u64>,
}

impl<'a> Listing<'a> {
    fn new(device: &'a Device<'a>, machine: &Machine, index: usize) -> Result<Listing<'a>> {
        let facts = &machine.devices[index];
        let mount_point = PathBuf::from(OsStr::from_bytes(facts.mount_point.as_bytes()));
        if facts.uuid == [0; 16] {
            bail!("{}: its file system has no UUID", device.node.display());
        }
        // What was written a moment ago has no place yet.
        File::open(&mount_point)
            .and_then(|root| Ok(rustix::fs::syncfs(root)?))
            .with_context(|| mount_point.display().to_string())?;
        let volume = Volume {
            uuid: facts.uuid,
            size: device.size,
            block: BLOCK,
        };
        let name = || device.node.display().to_string();
        let mut raw = Raw::open(device.node).with_context(name)?;
        let xfs = match facts.fstype == "xfs" {
            true => {
                let block = raw.read(0, BLOCK as usize).with_context(name)?;
                Some(
                    Geometry::parse(block)
                        .map_err(anyhow::Error::msg)
                        .with_context(name)?,
                )
            }
            false => None,
        };
        Ok(Listing {
            device,
            volume,
            mount_point,
            mounts: MountTable::read().context("the mount table")?,
            ranges: Ranges::new(volume, COST.bridge()),
            checks: Vec::new(),
            compared: HashSet::new(),
            others: Vec::new(),
            differ: None,
            raw,
            xfs,
            inodes: HashSet::new(),
        })
    }

    /// Adds what headstart itself reads before it reads ahead for a key: no recording has that, and all else
    /// waits for it. Nothing where this machine reads nothing ahead for the key.
    fn add_own(&mut self, kept: &KeyDir) -> Result<()> {
        let Some(start) = kept.start_path().filter(|start| start.is_file()) else {
            return Ok(());
        };
        let files = OWN
            .map(PathBuf::from)
            .into_iter()
            .chain([start])
            .chain(kept.guard_path());
        let wanted: Vec<Wanted> = files
            .filter_map(|path| path.canonicalize().ok())
            .map(|path| Wanted {
                path: FilePath::from(path.as_path()),
                need: Need::Data,
            })
            .collect();
        let machine =
            snapshot::snapshot(&wanted, &Options::default()).context("cannot look at this machine")?;
        let is_here = |facts: &&FileFacts| {
            let device = facts.device.and_then(|index| machine.devices.get(index as usize));
            device.is_some_and(|device| (device.major, device.minor) == self.device.number)
        };
        for facts in machine.files.iter().filter(is_here) {
            for range in &facts.metadata {
                self.ranges.ask_for(range.start, range.length);
            }
            let ranges = &mut self.ranges;
            on_device(&(0..facts.size.min(OF_HEADSTART as u64)), &facts.extents, |at| {
                ranges.ask_for(at.start, at.end - at.start);
            });
        }
        Ok(())
    }

    /// Adds what a plan asks for, in its order.
    fn add(&mut self, draft: &PlanDraft, machine: &Machine, index: usize) -> Result<()> {
        let facts: HashMap<&FilePath, &FileFacts> = machine
            .files
            .iter()
            .filter(|facts| facts.device == Some(index as u32))
            .map(|facts| (&facts.path, facts))
            .collect();
        for request in draft.requests.iter().filter(|it| usize::from(it.device) == index) {
            if request.kind == RequestKind::Metadata && request.file == NO_FILE {
                self.ranges.ask_for(request.offset, request.length);
                continue;
            }
            let Some(file) = draft.files.get(request.file as usize) else {
                continue;
            };
            self.add_inodes(&file.path, &facts);
            let Some(facts) = facts
                .get(&file.path)
                .filter(|_| request.kind == RequestKind::Data)
            else {
                continue;
            };
            let bytes = request.offset..request.offset.saturating_add(request.length);
            let ranges = &mut self.ranges;
            on_device(&bytes, &facts.extents, |at| {
                ranges.ask_for(at.start, at.end - at.start)
            });
            self.check(facts, request.offset)?;
        }
        Ok(())
    }

    /// Adds the inode of a path on XFS, those of the directories above it, and their blocks: a plan has those
    /// of ext2/3/4 only.
    fn add_inodes(&mut self, path: &FilePath, facts: &HashMap<&FilePath, &FileFacts>) {
        let Some(geometry) = &self.xfs else { return };
        let path = Path::new(OsStr::from_bytes(path.as_bytes()));
        let mut above: Vec<&Path> = path.ancestors().collect();
        above.reverse();
        for path in above {
            let Some(facts) = facts.get(&FilePath::from(path)) else {
                continue;
            };
            if facts.found == PathKind::Missing || !self.inodes.insert(facts.inode) {
                continue;
            }
            if let Some(inodes) = geometry.inodes_around(facts.inode) {
                self.ranges.ask_for(inodes.start, inodes.length);
            }
            if facts.found != PathKind::Directory {
                continue;
            }
            let opened = open_checked(&self.mounts, path, &Expect::default());
            let blocks = opened
                .ok()
                .and_then(|opened| directory_blocks(opened.fd.as_fd()).ok());
            for (start, length) in blocks.unwrap_or_default() {
                self.ranges.ask_for(start, length);
            }
        }
    }

    /// Adds a check of the first whole block of a file from an offset on, as the file and the device have it.
    fn check(&mut self, facts: &FileFacts, offset: u64) -> Result<()> {
        if self.checks.len() >= MOST_CHECKS || self.compared.contains(&facts.path) {
            return Ok(());
        }
        let begin = offset / BLOCK * BLOCK;
        let mut places = Vec::new();
        on_device(&(begin..begin + BLOCK), &facts.extents, |at| places.push(at));
        let [place] = &places[..] else { return Ok(()) };
        let is_whole = place.end - place.start == BLOCK && begin + BLOCK <= facts.size;
        if !is_whole || place.start % BLOCK != 0 {
            return Ok(());
        }
        let path = Path::new(OsStr::from_bytes(facts.path.as_bytes()));
        let mut in_file = vec![0; BLOCK as usize];
        let Ok(opened) = open_checked(&self.mounts, path, &Expect::default()) else {
            return Ok(());
        };
        if File::from(opened.fd).read_exact_at(&mut in_file, begin).is_err()
            || in_file.iter().all(|it| *it == 0)
        {
            return Ok(());
        }
        self.compared.insert(facts.path.clone());
        let name = || self.device.node.display().to_string();
        let on_device = self.raw.read(place.start, BLOCK as usize).with_context(name)?;
        if on_device != in_file {
            self.differ.get_or_insert(facts.path.clone());
            return Ok(());
        }
        let check = Check {
            span: Span {
                start: place.start,
                length: BLOCK,
            },
            crc: crc32(&in_file),
        };
        let below = path.strip_prefix(&self.mount_point).unwrap_or(path);
        let first = below.components().next().map(|first| first.as_os_str());
        match NEVER_WRITTEN.iter().any(|known| first == Some(OsStr::new(known))) {
            true => self.checks.push(check),
            false if self.others.len() < MOST_CHECKS => self.others.push(check),
            false => {}
        }
        Ok(())
    }

    fn finish(self) -> Result<RangeList> {
        let name = || self.device.node.display().to_string();
        let checks = match self.checks.is_empty() {
            true => self.others,
            false => self.checks,
        };
        match (checks.is_empty(), &self.differ) {
            (true, Some(path)) => bail!("{}: the data of {path} is not where the file system says", name()),
            (true, None) => bail!(
                "{}: no file has a whole block by which another volume could be told from it",
                name()
            ),
            (false, _) => {}
        }
        let ranges = self.ranges.finish().map_err(|what| {
            anyhow::anyhow!(
                "{}: more is needed than a list can say: {what}",
                self.device.node.display()
            )
        })?;
        Ok(RangeList {
            volume: self.volume,
            checks,
            ranges,
        })
    }
}
