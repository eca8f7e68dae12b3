//! Which blocks of a disk a start needs: from a request log, or from a headstart trace and the image it was
//! recorded on.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use headstart_model::trace::{Trace, UseKind};
use rustix::fs::OFlags;

use super::Entry;
use crate::model::{Extent, merge};
use crate::registry::{Item, Registry};
use crate::tools;

/// Bytes of a sector in logs.
const SECTOR: u64 = 512;

/// What a log (`disk serve --log`, or `requests/` of an experiment) read, in address order.
pub fn needed_by_log(path: &Path) -> Result<Vec<Extent>> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let mut lines = text.lines();
    ensure!(
        lines.next() == Some(Entry::CSV_HEADER),
        "{}: line 1: expected the header {:?}",
        path.display(),
        Entry::CSV_HEADER
    );
    let mut extents = Vec::new();
    for (number, line) in (2..).zip(lines) {
        let fields: Vec<&str> = line.split(',').collect();
        let extent = match fields[..] {
            [_, "read", sector, sectors, ..] => sectors_of(sector, sectors),
            [_, "write" | "flush", ..] => continue,
            _ => None,
        };
        match extent {
            Some(extent) => extents.push(extent),
            None => bail!("{}: line {number}: not a request: {line:?}", path.display()),
        }
    }
    Ok(merge(&extents, 0))
}

fn sectors_of(sector: &str, sectors: &str) -> Option<Extent> {
    let bytes = |text: &str| text.parse::<u64>().ok()?.checked_mul(SECTOR);
    let extent = Extent {
        offset: bytes(sector)?,
        length: bytes(sectors)?,
    };
    extent.offset.checked_add(extent.length).map(|_| extent)
}

/// What a recorded start used of the file system in `image`, by where it lies there now: the pages of its
/// files, and the metadata blocks it missed. The image is mounted read-only meanwhile. What the trace has of
/// other file systems is left out; of its file systems the one counts of which most was used.
pub fn needed_by_trace(trace: &Path, image: &Path, base: &Path, registry: &Registry) -> Result<Vec<Extent>> {
    let shown = trace.display();
    let bytes = fs::read(trace).with_context(|| format!("reading {shown}"))?;
    let trace = Trace::from_bytes(&bytes).with_context(|| format!("trace {shown}"))?;
    let page = u64::from(trace.meta.page_size);
    let mut pages = vec![0u64; trace.filesystems.len()];
    for used in &trace.uses {
        let file = trace.files.get(used.file as usize);
        if let Some(count) = file
            .and_then(|f| f.filesystem)
            .and_then(|i| pages.get_mut(i as usize))
        {
            *count += u64::from(used.pages);
        }
    }
    let most = (0..pages.len()).max_by_key(|i| pages[*i]);
    let (index, filesystem) = most
        .and_then(|i| trace.filesystems.get(i).map(|f| (i as u32, f)))
        .with_context(|| format!("trace {shown} has no file system"))?;

    let root = base.join("tio");
    fs::create_dir_all(&root).with_context(|| format!("creating {}", root.display()))?;
    let _mounted = registry.guard(Item::Mount { target: root.clone() })?;
    tools::run(
        "mount",
        [
            "-o".as_ref(),
            "ro,loop".as_ref(),
            image.as_os_str(),
            root.as_os_str(),
        ],
    )?;

    let mut extents = Vec::new();
    let mut mapper = headstart_system::extents::Mapper::new();
    for (i, file) in (0..).zip(&trace.files) {
        let inside = file.path.as_path().strip_prefix(filesystem.mount_point.as_path());
        let (Ok(inside), true) = (inside, file.filesystem == Some(index)) else {
            continue;
        };
        // Opened without waiting (a FIFO) and without following a last symbolic link out of the image.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOATIME;
        let path = root.join(inside);
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(flags.bits() as i32)
            .open(&path);
        let opened = match opened {
            Ok(file) if file.metadata().is_ok_and(|m| m.is_file()) => file,
            // Deleted since, or made by the start itself.
            _ => continue,
        };
        let used: Vec<Extent> = trace
            .uses
            .iter()
            .filter(|u| u.file == i && u.kind != UseKind::Add)
            .map(|u| Extent {
                offset: u.start.saturating_mul(page),
                length: u64::from(u.pages) * page,
            })
            .collect();
        extents.extend(place(&mut mapper, &opened, &merge(&used, 0)).with_context(|| {
            format!(
                "asking where {} lies (does {} tell?)",
                inside.display(),
                filesystem.fstype
            )
        })?);
    }
    let own = trace
        .metadata
        .iter()
        .filter(|m| (m.major, m.minor) == (filesystem.major, filesystem.minor));
    extents.extend(own.map(|m| Extent {
        offset: m.start.saturating_mul(page),
        length: u64::from(m.pages) * page,
    }));
    ensure!(
        !extents.is_empty(),
        "nothing that trace {shown} used below {} is in {}",
        filesystem.mount_point.as_path().display(),
        image.display()
    );
    let size = fs::metadata(image)?.len();
    extents.retain(|extent| {
        extent
            .offset
            .checked_add(extent.length)
            .is_some_and(|end| end <= size)
    });
    Ok(merge(&extents, 0))
}

/// Where these parts of a file are on its device.
fn place(
    mapper: &mut headstart_system::extents::Mapper,
    file: &File,
    used: &[Extent],
) -> Result<Vec<Extent>> {
    use std::os::fd::AsFd;
    let mut placed = Vec::new();
    for extent in mapper.extents(file.as_fd())? {
        for part in used {
            let begin = part.offset.max(extent.logical);
            let end =
                (part.offset.saturating_add(part.length)).min(extent.logical.saturating_add(extent.length));
            if begin < end {
                placed.push(Extent {
                    offset: extent.physical + (begin - extent.logical),
                    length: end - begin,
                });
            }
        }
    }
    Ok(placed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_gives_its_reads_and_a_bad_line_is_named() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("log.csv");
        let log = |lines: &str| {
            fs::write(&path, format!("{}\n{lines}", Entry::CSV_HEADER)).unwrap();
            needed_by_log(&path).map_err(|e| e.to_string())
        };
        let good = "5,read,80,8,1,4000\n6,write,0,8,1,100\n7,read,88,8,1,4000\n8,flush,0,0,1,100\n9,read,80,8,1,40\n";
        let expected = Extent {
            offset: 40_960,
            length: 8192,
        };
        assert_eq!(log(good).unwrap(), [expected]);
        for bad in [
            "5,read,x,8,1,4000",
            "5,erase,1,8,1,4000",
            "5,read",
            "5,read,99999999999999999999,8,1,1",
            "5,read,36028797018963967,8,1,1",
        ] {
            let message = log(&format!("5,read,80,8,1,4000\n{bad}\n")).unwrap_err();
            assert!(
                message.contains("line 3") && message.contains("log.csv"),
                "{message}"
            );
        }
        fs::write(&path, "time,what\n").unwrap();
        assert!(needed_by_log(&path).unwrap_err().to_string().contains("line 1"));
    }
}
