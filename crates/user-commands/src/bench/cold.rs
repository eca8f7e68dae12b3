//! Taking out of memory what a start reads, and no more than that unless somebody asks for it.
//!
//! The pages of its files are dropped file by file; what other processes have mapped, the kernel keeps.
//! Metadata that the plan reads through the block device is dropped there. Directories and inodes that are in
//! memory as such can only be dropped with those of the whole machine.

use anyhow::{Context, Result};
use headstart_bench::report::{ColdBy, Pages};
use headstart_model::plan::{PlanFile, RequestKind};
use headstart_model::{FilePath, PageRange, PageSet, Trace};
use headstart_store::KeyDir;
use headstart_system::device::DeviceFacts;
use headstart_system::mounts::MountTable;
use headstart_system::open::{Expect, open_checked};
use headstart_system::residency::{advise_dontneed, resident};
use rustix::fs::{Mode, OFlags};
use std::cell::RefCell;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The knob of the kernel that drops the caches of the whole machine.
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// So many files are named that stayed in memory.
const NAMED: usize = 3;

/// What a start reads, to be taken out of memory before it.
pub struct Cold {
    by: ColdBy,
    page_size: u64,
    mounts: MountTable,
    /// Its files, and which of their pages it uses.
    files: Vec<(PathBuf, PageSet)>,
    /// Files that headstart reads for it.
    own: Vec<PathBuf>,
    /// Block devices, and which bytes of their metadata are read.
    metadata: Vec<(PathBuf, Vec<(u64, u64)>)>,
    /// Of the cold start before which most stayed.
    most: RefCell<Pages>,
}

impl Cold {
    /// What a recorded start read, and headstart for it.
    pub fn new(trace: &Trace, kept: &KeyDir, by: ColdBy, headstart: &Path) -> Result<Cold> {
        let mounts = MountTable::read().context("cannot read /proc/self/mountinfo")?;
        let used = trace.used_pages();
        let files = trace
            .files
            .iter()
            .zip(used)
            .filter(|(file, pages)| file.path != FilePath::default() && !pages.is_empty())
            .map(|(file, pages)| (file.path.as_path().to_path_buf(), pages))
            .collect();
        let plan = kept.plan().or_tell(drop);
        let kept_files = fs::read_dir(kept.path()).into_iter().flatten().flatten();
        let mut own: Vec<PathBuf> = kept_files.map(|file| file.path()).collect();
        own.push(headstart.to_path_buf());
        own.extend(kept.start_path());
        Ok(Cold {
            by,
            page_size: u64::from(trace.meta.page_size),
            files,
            own,
            metadata: plan.map_or_else(Vec::new, |plan| metadata(&plan, &mounts)),
            mounts,
            most: RefCell::default(),
        })
    }

    /// Takes it out of memory, and looks what stayed.
    pub fn drop_pages(&self) -> Result<()> {
        if self.by == ColdBy::DropCaches {
            // What was not written yet cannot be dropped.
            rustix::fs::sync();
            fs::write(DROP_CACHES, "3").with_context(|| format!("cannot write {DROP_CACHES}"))?;
        }
        for path in &self.own {
            if let Some(file) = self.open(path) {
                let _ = advise_dontneed(&file, 0, 0);
            }
        }
        for (node, ranges) in &self.metadata {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
            let Ok(device) = rustix::fs::open(node, flags, Mode::empty()) else {
                continue;
            };
            for (start, length) in ranges {
                let _ = advise_dontneed(&device, *start, *length);
            }
        }
        let mut stayed: Vec<(u64, &Path)> = Vec::new();
        let mut pages = Pages::default();
        for (path, used) in &self.files {
            let Some(file) = self.open(path) else { continue };
            let _ = advise_dontneed(&file, 0, 0);
            let in_memory = self.in_memory(&file, used);
            pages.wanted += used.pages() * self.page_size;
            pages.stayed += in_memory;
            if in_memory > 0 {
                stayed.push((in_memory, path));
            }
        }
        stayed.sort_by(|a, b| b.cmp(a));
        let named = stayed.iter().take(NAMED);
        pages.files_that_stayed = named.map(|(_, path)| path.display().to_string()).collect();
        let mut most = self.most.borrow_mut();
        if pages.stayed > most.stayed || most.wanted == 0 {
            *most = pages;
        }
        Ok(())
    }

    /// What was to be cold, and what of it stayed at worst.
    pub fn pages(&self) -> Pages {
        self.most.borrow().clone()
    }

    fn open(&self, path: &Path) -> Option<OwnedFd> {
        let opened = open_checked(&self.mounts, path, &Expect::default());
        opened.ok().map(|opened| opened.fd)
    }

    /// Bytes of the used pages that are in memory.
    fn in_memory(&self, file: &OwnedFd, used: &PageSet) -> u64 {
        let ranges = resident(file, 0, u64::MAX).unwrap_or_default();
        let resident: PageSet = ranges
            .into_iter()
            .map(|range| PageRange::new(range.start, range.end - range.start))
            .collect();
        used.intersection(&resident).pages() * self.page_size
    }
}

/// What the plan reads through block devices.
fn metadata(plan: &PlanFile, mounts: &MountTable) -> Vec<(PathBuf, Vec<(u64, u64)>)> {
    let Ok(plan) = plan.plan() else { return Vec::new() };
    let devices = (0..plan.device_count()).filter_map(|index| {
        let mount = mounts.lookup(plan.device(index)?.mount_point.as_bytes())?;
        let node = DeviceFacts::of_mount(mount)?.node?;
        let requests = plan
            .requests()
            .filter(|request| request.kind == RequestKind::Metadata && usize::from(request.device) == index);
        Some((
            node,
            requests.map(|request| (request.offset, request.length)).collect(),
        ))
    });
    devices.collect()
}
