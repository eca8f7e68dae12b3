//! Notes what leads to headstart's state at the program's own file, for the next one that begins with both on
//! a cold disk (`way`).

use super::{path, way};
use crate::device::DeviceFacts;
use crate::mounts::MountTable;
use crate::snapshot::{Costs, Need, Options, Wanted, snapshot};
use headstart_model::FilePath;
use headstart_model::machine::FileFacts;
use rustix::fs::{Mode, OFlags, XattrFlags, fgetxattr, fsetxattr, fstat};
use rustix::thread::{CapabilitySet, capabilities};
use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The attribute. Only who may administer the machine reads or writes one of this kind.
pub(super) const WAY: &CStr = c"trusted.headstart";
/// Bytes of it: no more fit into an ext4 inode of 256 bytes. What does not is another read.
const MOST: usize = 60;
const _: () = assert!(MOST <= way::MOST);
/// No more of what a path has in metadata: its inode, and two blocks of a directory.
const BLOCKS: usize = 3;
/// In so many blocks of a directory a name is looked for.
const SEARCHED: usize = 64;

/// Notes at the program's file where on its device these files, and the directories that lead to them, have
/// their inodes and blocks: of the first of them first, for not all may fit. And where by `costs` the device
/// is filled as it is read, the first page of their data: read by way of the device it is not in memory for
/// who reads the file, but it is fetched. Where the program is on another device, or the attribute cannot be
/// written, nothing is noted, and each block is read as it is needed.
pub fn note_way(paths: &[&Path], costs: &Costs<'_>) {
    // Without it the kernel says that there is no such attribute, and lets none be made.
    if !capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN)) {
        return;
    }
    let program = path().and_then(|path| File::open(path).ok());
    let _not_noted = program.map(|program| note(&program, paths, costs));
}

/// Notes at `other`, a program that executes this one, where this program is. Nothing is noted in the cases
/// of [`note_way`].
pub fn note_way_to_itself(other: &Path, costs: &Costs<'_>) {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(other, flags, Mode::empty());
    if let (Some(path), Ok(file)) = (path(), file) {
        let _not_noted = note(&File::from(file), &[&path], costs);
    }
}

fn note(program: &File, paths: &[&Path], costs: &Costs<'_>) -> io::Result<()> {
    let Some(value) = value(program, paths, costs)? else {
        return Ok(());
    };
    let mut before = [0; way::MOST];
    let same = fgetxattr(program, WAY, &mut before).is_ok_and(|length| before[..length] == value);
    if !same {
        fsetxattr(program, WAY, &value, XattrFlags::empty())?;
    }
    Ok(())
}

/// What the attribute is to be; `None` where what leads there is not known.
fn value(program: &File, paths: &[&Path], costs: &Costs<'_>) -> io::Result<Option<Vec<u8>>> {
    let on = fstat(program)?.st_dev;
    let mounts = MountTable::read()?;
    let mount = mounts.by_device(rustix::fs::major(on), rustix::fs::minor(on));
    let node = mount.and_then(DeviceFacts::of_mount).and_then(|facts| facts.node);
    let Some(node) = node else { return Ok(None) };
    let device = File::open(&node)?;
    let wanted = |path: &&Path| Wanted {
        path: FilePath::from(*path),
        need: Need::Data,
    };
    let wanted: Vec<Wanted> = paths.iter().map(wanted).collect();
    let options = Options {
        costs,
        ..Options::default()
    };
    let machine = snapshot(&wanted, &options)?;
    let own = machine.devices.iter().position(|device| {
        device.metadata_by_block && mount.is_some_and(|mount| mount.mount_point == device.mount_point)
    });
    let Some(own) = own else { return Ok(None) };
    let is_filled_as_it_is_read = machine.devices[own].first_touch.is_some();
    let blocks = |facts: &FileFacts| -> Vec<u64> {
        let ranges = facts.metadata.iter();
        let blocks = ranges.flat_map(|range| (range.start..range.start + range.length).step_by(way::PAGE));
        let mut blocks: Vec<u64> = blocks.take(SEARCHED).collect();
        if blocks.len() > BLOCKS {
            // The first block of a large directory leads to the one that has the name.
            let name = paths.iter().find_map(|path| name_below(path, &facts.path));
            let has_name = |block: &u64| name.is_some_and(|name| has_entry(&device, *block, name));
            blocks[BLOCKS - 1] = blocks[1..]
                .iter()
                .copied()
                .find(has_name)
                .unwrap_or(blocks[BLOCKS - 1]);
            blocks.truncate(BLOCKS);
        }
        let data = facts.extents.first().filter(|_| is_filled_as_it_is_read);
        blocks
            .into_iter()
            .chain(data.map(|extent| extent.physical))
            .collect()
    };
    // The root directory's are in memory: the program was found by way of it.
    let is_read = |facts: &&FileFacts| facts.device == Some(own as u32) && facts.path.as_bytes() != b"/";
    let mut pages: Vec<u32> = Vec::new();
    for byte in machine.files.iter().filter(is_read).flat_map(blocks) {
        match u32::try_from(byte / way::PAGE as u64) {
            Ok(page) if !pages.contains(&page) => pages.push(page),
            _ => {}
        }
    }
    let mut value = node.into_os_string().into_encoded_bytes();
    value.push(0);
    let room = MOST.saturating_sub(value.len()) / size_of::<u32>();
    pages.truncate(room);
    // As a head passes them.
    pages.sort_unstable();
    value.extend(pages.iter().flat_map(|page| page.to_le_bytes()));
    Ok((room > 0).then_some(value))
}

/// The name in this directory that leads to the path; `None` where it is no directory above it.
fn name_below<'a>(path: &'a Path, directory: &FilePath) -> Option<&'a [u8]> {
    let below = path.strip_prefix(OsStr::from_bytes(directory.as_bytes())).ok()?;
    Some(below.components().next()?.as_os_str().as_bytes())
}

/// Whether a directory's block at this byte of the device has an entry of this name (`struct
/// ext4_dir_entry_2` of the kernel's fs/ext4/ext4.h: the name's length and the type stand before the name).
fn has_entry(device: &File, block: u64, name: &[u8]) -> bool {
    let mut bytes = [0; way::PAGE];
    let entry = [&[name.len() as u8, 0], name].concat();
    device.read_exact_at(&mut bytes, block).is_ok()
        && bytes
            .windows(entry.len())
            .any(|at| at[0] == entry[0] && at[2..] == entry[2..])
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use crate::residency::resident_pages;
    use crate::testing::{LoopFs, Spec, can_mount};
    use headstart_model::machine::{Cost, DeviceClass, FirstTouch};
    use std::fs::{self, OpenOptions};
    use std::os::fd::AsRawFd;

    const STATES: &str = "var/lib/headstart/starts";
    const STATE: &str = "var/lib/headstart/starts/k";

    /// A file system with a program, and a state four directories away.
    fn disk() -> io::Result<LoopFs> {
        LoopFs::create(&Spec::new("ext4"), |root| {
            fs::write(root.join("program"), "program")?;
            fs::create_dir_all(root.join(STATES))?;
            fs::write(root.join(STATE), [7; 9000])
        })
    }

    fn open(disk: &LoopFs, name: &str) -> io::Result<File> {
        File::open(disk.mount_point().join(name))
    }

    /// What the first instructions do with a program's attribute.
    fn ask_for(program: &File) {
        let call = |number: usize, [a, b, c, d, e, f]: [usize; 6]| {
            let number = number as libc::c_long;
            // SAFETY: what is called is up to the function below.
            let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
            result as isize
        };
        // SAFETY: a string, and a function that makes system calls.
        unsafe { way::ask_for(program.as_raw_fd() as usize, WAY.as_ptr().cast(), call) };
    }

    fn pages(value: &[u8]) -> Vec<u64> {
        let pages = value.iter().position(|byte| *byte == 0).map_or(0, |end| end + 1);
        let numbers = value[pages..].chunks_exact(4);
        let number = |four: &[u8]| {
            four.iter()
                .rev()
                .fold(0, |number, byte| number << 8 | u64::from(*byte))
        };
        numbers.map(number).collect()
    }

    fn is_there(device: &File, page: u64) -> io::Result<bool> {
        let size = way::PAGE as u64;
        Ok(resident_pages(device, page * size, size)? == 1)
    }

    /// Waits for what was asked for, and reads nothing else.
    fn wait_for(device: &File, pages: &[u64]) -> io::Result<()> {
        for page in pages {
            assert!(is_there(device, *page)?, "{page} of {pages:?} was not asked for");
            rustix::io::pread(device, &mut [0; 1], page * way::PAGE as u64)?;
        }
        Ok(())
    }

    #[test]
    fn what_leads_to_the_state_is_noted_and_asked_for_at_once() {
        if !can_mount() {
            return;
        }
        let mut disk = disk().unwrap();
        let state = disk.mount_point().join(STATE);
        let paths = [state.as_path()];
        note(&open(&disk, "program").unwrap(), &paths, &|_| None).unwrap();
        let noted = value(&open(&disk, "program").unwrap(), &paths, &|_| None)
            .unwrap()
            .unwrap();
        let node = disk.node();
        assert!(noted.starts_with(node.as_os_str().as_encoded_bytes()));
        let pages = pages(&noted);
        // Four directories with an inode and a block each, and the file's inode; some inodes lie together.
        assert!((5..=9).contains(&pages.len()) && pages.is_sorted(), "{pages:?}");

        disk.remount_cold().unwrap();
        let (program, device) = (open(&disk, "program").unwrap(), File::open(disk.node()).unwrap());
        let again = [
            disk.node().as_os_str().as_encoded_bytes(),
            &noted[node.as_os_str().len()..],
        ]
        .concat();
        fsetxattr(&program, WAY, &again, XattrFlags::empty()).unwrap();
        assert!(!pages.iter().all(|page| is_there(&device, *page).unwrap()));
        ask_for(&program);
        wait_for(&device, &pages).unwrap();
        // Nothing has to be read for a look-up then.
        let before = disk.reads().requests;
        fs::symlink_metadata(&state).unwrap();
        assert_eq!(disk.reads().requests, before);
    }

    #[test]
    fn on_a_volume_that_is_filled_as_it_is_read_the_data_is_touched_too() {
        if !can_mount() {
            return;
        }
        let disk = disk().unwrap();
        let state = disk.mount_point().join(STATE);
        let lazy = |_: &_| {
            let cost = Cost {
                class: DeviceClass::Flash,
                bandwidth: 1e8,
                latency: 1e-3,
                depth: 4,
            };
            let first_touch = FirstTouch {
                granule: 512 << 10,
                latency: 0.03,
                depth: 10,
            };
            Some((cost, Some(first_touch)))
        };
        let program = open(&disk, "program").unwrap();
        let noted_pages = |costs: &Costs<'_>| pages(&value(&program, &[&state], costs).unwrap().unwrap());
        let first =
            crate::extents::extents(open(&disk, STATE).unwrap()).unwrap()[0].physical / way::PAGE as u64;
        assert!(noted_pages(&lazy).contains(&first));
        assert!(!noted_pages(&|_| None).contains(&first));
    }

    #[test]
    fn of_a_large_directory_the_block_with_the_name_is_noted() {
        if !can_mount() {
            return;
        }
        let mut disk = LoopFs::create(&Spec::new("ext4"), |root| {
            fs::write(root.join("program"), "program")?;
            fs::create_dir(root.join("bin"))?;
            // Of 250 bytes each: many blocks.
            (0..400).try_for_each(|n| fs::write(root.join(format!("bin/{n:0250}")), ""))?;
            fs::write(root.join("bin/headstart"), "headstart")
        })
        .unwrap();
        let path = disk.mount_point().join("bin/headstart");
        let noted = value(&open(&disk, "program").unwrap(), &[&path], &|_| None);
        let pages = pages(&noted.unwrap().unwrap());
        assert!(pages.len() <= 2 * BLOCKS, "{pages:?}");
        disk.remount_cold().unwrap();
        let device = File::open(disk.node()).unwrap();
        let mut page = [0; way::PAGE];
        for number in pages {
            rustix::io::pread(&device, &mut page, number * way::PAGE as u64).unwrap();
        }
        // Nothing else has to be read to find it.
        let before = disk.reads().requests;
        fs::symlink_metadata(disk.mount_point().join("bin/headstart")).unwrap();
        assert_eq!(disk.reads().requests, before);
    }

    #[test]
    fn what_is_first_is_noted_where_not_all_fits() {
        if !can_mount() {
            return;
        }
        let disk = disk().unwrap();
        let root = disk.mount_point();
        let others: Vec<_> = (0..20).map(|n| root.join(format!("d{n}/e/f"))).collect();
        for other in &others {
            fs::create_dir_all(other).unwrap();
        }
        rustix::fs::syncfs(open(&disk, "program").unwrap()).unwrap();
        let state = root.join(STATE);
        let program = open(&disk, "program").unwrap();
        let noted = |paths: &[&Path]| value(&program, paths, &|_| None).unwrap().unwrap();
        let own = noted(&[&state]);
        let mut paths = vec![state.as_path()];
        paths.extend(others.iter().map(|path| path.as_path()));
        let whole = noted(&paths);
        assert!(own.len() < whole.len() && whole.len() <= MOST && whole.len() > MOST - 4);
        let whole_pages = pages(&whole);
        assert!(pages(&own).iter().all(|page| whole_pages.contains(page)));
        // And it fits into the inode, where it costs no read.
        note(&program, &paths, &|_| None).unwrap();
        assert_eq!(
            fs::metadata(root.join("program"))
                .map(|facts| std::os::unix::fs::MetadataExt::blocks(&facts))
                .unwrap(),
            8
        );
    }

    #[test]
    fn an_attribute_of_no_sense_asks_for_nothing() {
        if !can_mount() {
            return;
        }
        let (disk, other) = (disk().unwrap(), disk().unwrap());
        let program = OpenOptions::new()
            .read(true)
            .write(true)
            .open(disk.mount_point().join("program"))
            .unwrap();
        let fifo = disk.beside().join("fifo");
        crate::testing::run(std::process::Command::new("mkfifo").arg(&fifo)).unwrap();
        let device = File::open(other.node()).unwrap();
        let page = 1000;
        let with = |path: &Path| {
            let mut value = path.as_os_str().as_encoded_bytes().to_vec();
            value.push(0);
            value.extend(u32::to_le_bytes(page));
            value
        };
        let values = [
            Vec::new(),
            b"/dev/without-an-end".to_vec(),
            vec![0],
            with(&disk.mount_point().join("program")),
            with(&fifo),
            with(Path::new("/nothing/here")),
            // Another file system's.
            with(&other.node()),
            // Half a number.
            [with(&other.node()), vec![1, 2]].concat(),
        ];
        for value in values {
            fsetxattr(&program, WAY, &value, XattrFlags::empty()).unwrap();
            ask_for(&program);
        }
        assert!(!is_there(&device, page.into()).unwrap());
        // A page behind the device's end is none.
        let mut own = with(&disk.node());
        let at = own.len() - 4;
        own[at..].fill(0xff);
        fsetxattr(&program, WAY, &own, XattrFlags::empty()).unwrap();
        ask_for(&program);
    }
}
