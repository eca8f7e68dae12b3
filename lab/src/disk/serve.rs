//! A FUSE file system of one file, `disk`, whose reads and writes take as long as a model says.
//!
//! FUSE through the `fuser` crate rather than an nbdkit plugin, by measurement:
//! `docs/decisions/0004-fuser-for-the-labs-disks.md`.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result};
use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyWrite, WriteFlags,
};

use super::backing::Backing;
use super::clock::{Answer, Clock};
use crate::model::{MAX_REQUEST, Op};
use crate::{fuse, tools};

/// The file's name below the mount point.
pub const FILE: &str = "disk";

/// The kernel may keep names and attributes for ever: nothing changes but the data, which is never cached.
const FOREVER: Duration = Duration::from_secs(1 << 20);

/// Requests the kernel may have under way: above any model's depth and the loop device's own 128.
const IN_FLIGHT: u16 = 512;

struct DiskFile {
    /// No two servers' files have the same: by it a loop device is known whose file has no path any more.
    inode: INodeNo,
    backing: Arc<Backing>,
    clock: Arc<Clock>,
}

/// A mounted server; the file system goes away when it is dropped.
#[derive(Debug)]
pub struct Server {
    file: PathBuf,
    _mounted: fuse::Mounted,
}

impl Server {
    /// Serves `backing` at the model's pace as `DIRECTORY/disk`.
    pub fn start(directory: &Path, backing: Arc<Backing>, clock: Arc<Clock>) -> Result<Server> {
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName("headstart-lab".into()),
            MountOption::Subtype("disk".into()),
            MountOption::NoAtime,
            // The kernel may not ask for more in one read than the model is told is possible.
            MountOption::CUSTOM(format!("max_read={MAX_REQUEST}")),
        ];
        config.n_threads = Some(2);
        let since = UNIX_EPOCH.elapsed().context("the clock is before 1970")?;
        let inode = INodeNo(since.as_nanos() as u64);
        let served = DiskFile {
            inode,
            backing,
            clock,
        };
        Ok(Server {
            file: directory.join(FILE),
            _mounted: fuse::Mounted::new(served, directory, &config)?,
        })
    }

    /// The file to attach.
    pub fn file(&self) -> &Path {
        &self.file
    }
}

/// Lets the serving threads run before any program, as a device's interrupts would: on a busy machine they
/// would else wait for a time slice. Where the system refuses, answers are only less punctual (`disk check`
/// shows by how much).
pub(super) fn raise_priority() {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else {
        return;
    };
    for task in tasks.flatten() {
        let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        if name.starts_with("fuser-") || name.starts_with(super::clock::THREAD) {
            let id = task.file_name();
            let _ = tools::run(
                "chrt",
                ["--fifo".as_ref(), "--pid".as_ref(), "10".as_ref(), id.as_os_str()],
            );
        }
    }
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_i32(
        error
            .raw_os_error()
            .unwrap_or(rustix::io::Errno::IO.raw_os_error()),
    )
}

impl DiskFile {
    fn attributes(&self, ino: INodeNo) -> Option<FileAttr> {
        let (kind, perm, nlink, size) = match ino {
            INodeNo::ROOT => (FileType::Directory, 0o500, 2, 0),
            ino if ino == self.inode => (FileType::RegularFile, 0o600, 1, self.backing.size()),
            _ => return None,
        };
        let epoch = UNIX_EPOCH;
        Some(FileAttr {
            ino,
            size,
            blocks: size / 512,
            atime: epoch,
            mtime: epoch,
            ctime: epoch,
            crtime: epoch,
            kind,
            perm,
            nlink,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }
}

impl Filesystem for DiskFile {
    fn init(&mut self, _: &fuser::Request, config: &mut KernelConfig) -> io::Result<()> {
        // Without async direct I/O the loop device's requests would come one after the other.
        config
            .add_capabilities(InitFlags::FUSE_ASYNC_DIO)
            .map_err(|_| io::Error::other("this kernel's FUSE has no asynchronous direct I/O"))?;
        config.set_max_write(MAX_REQUEST as u32).map_err(fuse::refused)?;
        fuse::allow_at_once(config, IN_FLIGHT)
    }

    fn lookup(&self, _: &fuser::Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attributes(self.inode) {
            Some(attr) if parent == INodeNo::ROOT && name == FILE => {
                reply.entry(&FOREVER, &attr, Generation(0));
            }
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &fuser::Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(ino) {
            Some(attr) => reply.attr(&FOREVER, &attr),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _: &fuser::Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // Closing asks for no flush: a process that is killed with its own file open would wait for its own
        // answer.
        reply.opened(
            FileHandle(0),
            FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_NOFLUSH,
        );
    }

    fn read(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.clock.submit(Op::Read, offset, size.into(), || -> Answer {
            match self.backing.read(offset, size as usize) {
                Ok(data) => {
                    let backing = Arc::clone(&self.backing);
                    Box::new(move || {
                        reply.data(&data);
                        backing.recycle(data);
                    })
                }
                Err(error) => Box::new(move || reply.error(errno(&error))),
            }
        });
    }

    fn write(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let length = data.len();
        self.clock.submit(Op::Write, offset, length as u64, || -> Answer {
            match self.backing.write(offset, data) {
                Ok(()) => Box::new(move || reply.written(length as u32)),
                Err(error) => Box::new(move || reply.error(errno(&error))),
            }
        });
    }

    fn flush(&self, _: &fuser::Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    /// A cache flush: what was written before it survives a power cut, once the model's drive has had its
    /// time.
    fn fsync(&self, _: &fuser::Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.clock.submit(Op::Flush, 0, 0, || {
            self.backing.flush();
            Box::new(move || reply.ok())
        });
    }
}
