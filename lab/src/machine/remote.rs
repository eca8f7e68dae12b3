//! A file system over a network: what a directory holds, shown by FUSE, read-only. Each request is answered
//! after a while, and the link has a rate that all reads share. The client may keep names, also those that
//! are not there, attributes and pages for as long as it is mounted; each open asks the server.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirEntryExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant, UNIX_EPOCH};

use anyhow::{Context, Result};
use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEntry,
    ReplyOpen, SessionACL,
};

use crate::disk::Counters;
use crate::fuse;
use crate::registry::{Guard, Item, Registry};

/// How long the client may keep what it was told: longer than a run.
const KEPT: Duration = Duration::from_secs(3600);

/// Requests that are waited for at once: as many threads.
const AT_ONCE: u16 = 64;

/// Bytes a second of the link: 10 Gbit/s, as between machines of one room.
const LINK: f64 = 1.25e9;

/// The longest read that the client asks for at once, bytes: FUSE's default.
const LONGEST_READ: u32 = 128 << 10;

/// What the server and who measures it share.
#[derive(Debug, Default)]
pub struct Server {
    requests: AtomicU64,
    bytes: AtomicU64,
    at_once: AtomicBool,
}

impl Server {
    /// Requests that were answered, and bytes that reads were answered with.
    pub fn counters(&self) -> Counters {
        Counters {
            reads: self.requests.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            busy_ms: 0,
        }
    }

    /// Answers at once until what this returns is dropped.
    pub fn at_once(self: Arc<Server>) -> AtOnce {
        self.at_once.store(true, Ordering::Relaxed);
        AtOnce(self)
    }
}

/// A mounted file system; it goes away when this is dropped.
#[derive(Debug)]
pub struct Remote {
    // Dropped in this order: the mount goes with the server, the guard only makes sure.
    _mounted: fuse::Mounted,
    _mount: Guard,
    server: Arc<Server>,
}

/// While it lives, the server answers at once.
#[derive(Debug)]
pub struct AtOnce(Arc<Server>);

impl Drop for AtOnce {
    fn drop(&mut self) {
        self.0.at_once.store(false, Ordering::Relaxed);
    }
}

impl Remote {
    /// Mounts what `source` holds at `point`; each request is answered after `answer`.
    pub fn mount(source: &Path, point: &Path, answer: Duration, registry: &Registry) -> Result<Remote> {
        fs::create_dir_all(point).with_context(|| format!("creating {}", point.display()))?;
        // As the mount table will name it.
        let point = fs::canonicalize(point).with_context(|| format!("resolving {}", point.display()))?;
        let mount = registry.guard(Item::Fuse {
            target: point.clone(),
        })?;
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName("headstart-lab".into()),
            MountOption::Subtype("remote".into()),
            MountOption::RO,
            MountOption::DefaultPermissions,
        ];
        config.acl = SessionACL::All;
        config.n_threads = Some(AT_ONCE.into());
        let server = Arc::new(Server::default());
        let served = Served {
            answer,
            server: Arc::clone(&server),
            paths: RwLock::new(HashMap::from([(INodeNo::ROOT.0, source.to_owned())])),
            link_is_free: Mutex::new(Instant::now()),
        };
        Ok(Remote {
            _mounted: fuse::Mounted::new(served, &point, &config)?,
            _mount: mount,
            server,
        })
    }

    /// Who serves it.
    pub fn server(&self) -> Arc<Server> {
        Arc::clone(&self.server)
    }
}

struct Served {
    answer: Duration,
    server: Arc<Server>,
    /// What was looked up, by inode number: the server's own, but for the root.
    paths: RwLock<HashMap<u64, PathBuf>>,
    link_is_free: Mutex<Instant>,
}

impl Served {
    /// Lets the time of an answer pass.
    fn wait(&self) {
        self.server.requests.fetch_add(1, Ordering::Relaxed);
        if !self.server.at_once.load(Ordering::Relaxed) {
            std::thread::sleep(self.answer);
        }
    }

    /// Lets so many bytes pass the link, after those that came before.
    fn pass(&self, bytes: usize) {
        self.server.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        if self.server.at_once.load(Ordering::Relaxed) {
            return;
        }
        let now = Instant::now();
        let passed = {
            let mut free = self.link_is_free.lock().unwrap_or_else(PoisonError::into_inner);
            *free = (*free).max(now) + Duration::from_secs_f64(bytes as f64 / LINK);
            *free
        };
        std::thread::sleep(passed.duration_since(now));
    }

    fn path(&self, ino: INodeNo) -> Result<PathBuf, Errno> {
        let paths = self.paths.read().unwrap_or_else(PoisonError::into_inner);
        paths.get(&ino.0).cloned().ok_or(Errno::ESTALE)
    }

    fn attributes(&self, ino: INodeNo) -> Result<FileAttr, Errno> {
        let metadata = fs::symlink_metadata(self.path(ino)?)?;
        Ok(attributes(ino, &metadata))
    }

    fn look_up(&self, parent: INodeNo, name: &OsStr) -> Result<FileAttr, Errno> {
        let path = self.path(parent)?.join(name);
        let metadata = fs::symlink_metadata(&path)?;
        let mut paths = self.paths.write().unwrap_or_else(PoisonError::into_inner);
        paths.insert(metadata.ino(), path);
        Ok(attributes(INodeNo(metadata.ino()), &metadata))
    }

    fn read_at(&self, ino: INodeNo, offset: u64, size: u32) -> Result<Vec<u8>, Errno> {
        let file = File::open(self.path(ino)?)?;
        let mut bytes = vec![0; size as usize];
        let mut length = 0;
        while length < bytes.len() {
            match file.read_at(&mut bytes[length..], offset + length as u64)? {
                0 => break,
                more => length += more,
            }
        }
        bytes.truncate(length);
        Ok(bytes)
    }

    fn list(&self, ino: INodeNo) -> Result<Vec<(INodeNo, FileType, OsString)>, Errno> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(self.path(ino)?)? {
            let entry = entry?;
            entries.push((INodeNo(entry.ino()), kind(entry.file_type()?), entry.file_name()));
        }
        // The order is the same in each call, and names nothing of how the server's own disk is laid out.
        entries.sort_by(|a, b| a.2.as_bytes().cmp(b.2.as_bytes()));
        Ok(entries)
    }
}

fn kind(kind: fs::FileType) -> FileType {
    if kind.is_dir() {
        FileType::Directory
    } else if kind.is_symlink() {
        FileType::Symlink
    } else {
        FileType::RegularFile
    }
}

fn attributes(ino: INodeNo, metadata: &Metadata) -> FileAttr {
    let time = |seconds: i64, nanoseconds: i64| {
        UNIX_EPOCH + Duration::new(seconds.max(0) as u64, nanoseconds.clamp(0, 999_999_999) as u32)
    };
    FileAttr {
        ino,
        size: metadata.size(),
        blocks: metadata.blocks(),
        atime: time(metadata.atime(), metadata.atime_nsec()),
        mtime: time(metadata.mtime(), metadata.mtime_nsec()),
        ctime: time(metadata.ctime(), metadata.ctime_nsec()),
        crtime: UNIX_EPOCH,
        kind: kind(metadata.file_type()),
        perm: (metadata.mode() & 0o7777) as u16,
        nlink: metadata.nlink() as u32,
        uid: metadata.uid(),
        gid: metadata.gid(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Filesystem for Served {
    fn init(&mut self, _: &fuser::Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted =
            InitFlags::FUSE_PARALLEL_DIROPS | InitFlags::FUSE_ASYNC_READ | InitFlags::FUSE_CACHE_SYMLINKS;
        config
            .add_capabilities(wanted)
            .map_err(|missing| io::Error::other(format!("this kernel's FUSE has no {missing:?}")))?;
        config.set_max_readahead(LONGEST_READ).map_err(fuse::refused)?;
        fuse::allow_at_once(config, AT_ONCE)
    }

    fn lookup(&self, _: &fuser::Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.wait();
        match self.look_up(parent, name) {
            Ok(attributes) => reply.entry(&KEPT, &attributes, Generation(0)),
            // A name that is not there has no inode: that, too, may be kept.
            Err(Errno::ENOENT) => match self.attributes(parent) {
                Ok(parent) => {
                    let none = FileAttr {
                        ino: INodeNo(0),
                        ..parent
                    };
                    reply.entry(&KEPT, &none, Generation(0));
                }
                Err(error) => reply.error(error),
            },
            Err(error) => reply.error(error),
        }
    }

    fn getattr(&self, _: &fuser::Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.wait();
        match self.attributes(ino) {
            Ok(attributes) => reply.attr(&KEPT, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn readlink(&self, _: &fuser::Request, ino: INodeNo, reply: ReplyData) {
        self.wait();
        match self.path(ino).and_then(|path| Ok(fs::read_link(path)?)) {
            Ok(to) => reply.data(to.as_os_str().as_bytes()),
            Err(error) => reply.error(error),
        }
    }

    fn open(&self, _: &fuser::Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.wait();
        match self.attributes(ino) {
            Ok(_) => reply.opened(
                FileHandle(0),
                FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH,
            ),
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        _: &fuser::Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.wait();
        match self.read_at(ino, offset, size) {
            Ok(bytes) => {
                self.pass(bytes.len());
                reply.data(&bytes);
            }
            Err(error) => reply.error(error),
        }
    }

    fn readdir(
        &self,
        _: &fuser::Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        self.wait();
        match self.list(ino) {
            Ok(entries) => {
                for (number, (inode, kind, name)) in entries.into_iter().enumerate().skip(offset as usize) {
                    if reply.add(inode, number as u64 + 1, kind, name) {
                        break;
                    }
                }
                reply.ok();
            }
            Err(error) => reply.error(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_is_answered_after_a_while_once_and_counted() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: mounting needs root");
            return;
        }
        let base = tempfile::tempdir_in("/var/tmp").unwrap();
        let (source, point) = (base.path().join("source"), base.path().join("point"));
        fs::create_dir_all(source.join("directory")).unwrap();
        let bytes: Vec<u8> = (0..100_000u32).map(|number| number as u8).collect();
        fs::write(source.join("directory/file"), &bytes).unwrap();
        std::os::unix::fs::symlink("file", source.join("directory/link")).unwrap();
        let registry = Registry::open(base.path()).unwrap();
        let answer = Duration::from_millis(20);
        let remote = Remote::mount(&source, &point, answer, &registry).unwrap();
        let server = remote.server();
        let asked = |what: &mut dyn FnMut()| {
            let (before, begun) = (server.counters(), Instant::now());
            what();
            let counted = server.counters().since(&before);
            (counted.reads, counted.bytes, begun.elapsed() >= answer)
        };
        let file = point.join("directory/link");
        let mut read = || assert_eq!(fs::read(&file).unwrap(), bytes);
        let (first, read_bytes, late) = asked(&mut read);
        assert!(first >= 5 && read_bytes == bytes.len() as u64 && late, "{first}");
        assert_eq!(asked(&mut read), (1, 0, true), "only the open is asked again");
        let missing = point.join("directory/none");
        let mut look = || assert!(!missing.exists());
        assert_eq!((asked(&mut look).0, asked(&mut look).0), (1, 0), "kept");
        let at_once = server.clone().at_once();
        assert!(!asked(&mut read).2);
        drop(at_once);
        assert!(asked(&mut read).2);
        let mut list = || {
            let names = fs::read_dir(point.join("directory")).unwrap();
            let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
            assert_eq!(names, ["file", "link"]);
        };
        asked(&mut list);
        assert!(
            fs::write(point.join("new"), "").is_err(),
            "nothing can be written"
        );
        drop(remote);
        assert_eq!(fs::read_dir(&point).unwrap().count(), 0, "it is unmounted");
    }
}
