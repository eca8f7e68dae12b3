//! Opening files that a profile or plan names, as if an enemy had written it: only regular files and
//! directories on local file systems, never through a last symbolic link or a magic link, never blocking,
//! without side effects on devices, without touching access times.
//!
//! The path is first looked up in the mount table, so nothing is asked of a file system that may not answer;
//! it is resolved from the root of the mount that it is on, and never out of it. Then an `O_PATH` descriptor
//! resolver the object, which opens nothing; what it is, is checked on that descriptor; only then the same
//! object is opened for reading, by way of `/proc/self/fd`.

use crate::files::{self, Stat, Type};
use crate::mounts::{Inside, Kind, Mount, MountTable};
use crate::open_cost::OPENS;
use crate::why_not_opened::skip;
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags};
use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Instant;

pub use crate::why_not_opened::Skip;

/// What a file is expected to be; `None` is not checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expect {
    /// Inode number.
    pub inode: Option<u64>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Modification time, nanoseconds since 1970.
    pub mtime_ns: Option<i64>,
    /// Inode generation.
    pub generation: Option<u32>,
    /// A user who has to be allowed to read it ([`Stat::may_be_read_by`]); what has an access control list
    /// counts as closed to all but its owner.
    pub reader: Option<u32>,
}

/// An open file or directory.
#[derive(Debug)]
pub struct Opened {
    /// The descriptor, open for reading.
    pub fd: OwnedFd,
    /// Its facts.
    pub stat: Stat,
}

/// Opens a regular file or directory for reading.
pub fn open_checked(mounts: &MountTable, path: &Path, expect: &Expect) -> Result<Opened, Skip> {
    let (pin, stat) = pin(mounts, path)?;
    open_pinned(pin.as_fd(), stat, expect)
}

/// The inode generation of the file or directory at a path, 0 where it cannot be found out.
pub fn generation_at(path: &Path) -> u32 {
    let opened = MountTable::read().map(|mounts| open_checked(&mounts, path, &Expect::default()));
    match opened {
        Ok(Ok(opened)) => files::generation(opened.fd.as_fd()),
        _ => 0,
    }
}

/// [`open_checked`] from where something is pinned already, whatever it is.
pub fn open_pinned(pin: BorrowedFd<'_>, stat: Stat, expect: &Expect) -> Result<Opened, Skip> {
    match stat.kind {
        Type::Symlink => return Err(Skip::Symlink),
        Type::Special => return Err(Skip::Special),
        Type::File | Type::Directory => {}
    }
    let is_closed_to = |user| !stat.may_be_read_by(user) || is_listed(pin, &stat, user);
    if expect.reader.is_some_and(is_closed_to) {
        return Err(Skip::Denied);
    }
    let expected = [
        ("inode", expect.inode.is_none_or(|inode| inode == stat.inode)),
        ("size", expect.size.is_none_or(|size| size == stat.size)),
        (
            "mtime",
            expect.mtime_ns.is_none_or(|mtime| mtime == stat.mtime_ns),
        ),
    ];
    if let Some((what, _)) = expected.iter().find(|(_, same)| !same) {
        return Err(Skip::Changed { what });
    }
    let fd = reopen(pin)?;
    if expect
        .generation
        .is_some_and(|generation| generation != files::generation(fd.as_fd()))
    {
        return Err(Skip::Changed { what: "generation" });
    }
    Ok(Opened { fd, stat })
}

/// The bytes of a regular file of so many at most, on a local file system or one in memory. Where nobody may
/// wait for a device (`cached`) only of one that is in memory, as what was written just now: else
/// [`Skip::Cold`], as for one that is larger.
pub fn read_small(
    mounts: &MountTable,
    path: &Path,
    most: usize,
    cached: bool,
    expect: &Expect,
) -> Result<Vec<u8>, Skip> {
    let index = index_of(mounts, path, |kind| kind != Kind::Other)?;
    let inside = mounts.inside(index, path.as_os_str().as_bytes())?;
    let pin = inside.open(cached)?;
    let stat = stat_pin(pin.as_fd())?;
    if stat.kind != Type::File {
        return Err(Skip::Special);
    }
    let file = open_pinned(pin.as_fd(), stat, expect)?;
    // A file system in memory has no such reads, and needs none.
    let flags = match cached && mounts.kind_at(index) == Kind::Local {
        true => ReadWriteFlags::NOWAIT,
        false => ReadWriteFlags::empty(),
    };
    let mut bytes = vec![0; most + 1];
    let mut length = 0;
    while length <= most {
        let into = &mut [IoSliceMut::new(&mut bytes[length..])];
        match rustix::io::preadv2(&file.fd, into, length as u64, flags) {
            Ok(0) => {
                bytes.truncate(length);
                return Ok(bytes);
            }
            Ok(read) => length += read,
            Err(_) => break,
        }
    }
    Err(Skip::Cold)
}

/// Whether a user may look up names in what is pinned, a directory: as for [`Expect::reader`].
pub fn may_be_searched_by(pin: BorrowedFd<'_>, stat: &Stat, user: u32) -> bool {
    stat.may_be_searched_by(user) && !is_listed(pin, stat, user)
}

/// Whether an access control list may say of a user what the permissions do not. It never does of the owner.
fn is_listed(pin: BorrowedFd<'_>, stat: &Stat, user: u32) -> bool {
    user != 0 && user != stat.owner && files::has_access_list(pin)
}

/// PathResolver whatever is at a path of a local file system, without opening it. Symbolic links are pinned
/// themselves, and none is followed. [`crate::path_resolver`] does the same for many paths.
pub fn pin(mounts: &MountTable, path: &Path) -> Result<(OwnedFd, Stat), Skip> {
    let fd = inside_local(mounts, path)?.open(false)?;
    let stat = stat_pin(fd.as_fd())?;
    Ok((fd, stat))
}

/// [`pin`], on file systems in memory as well: what has to be known of the directories on a way lies there,
/// too.
pub fn pin_on_the_way(mounts: &MountTable, path: &Path) -> Result<(OwnedFd, Stat), Skip> {
    let index = index_of(mounts, path, |kind| kind != Kind::Other)?;
    let fd = mounts.inside(index, path.as_os_str().as_bytes())?.open(false)?;
    let stat = stat_pin(fd.as_fd())?;
    Ok((fd, stat))
}

/// [`pin`], if that can be done without reading anything from a device; else [`Skip::Cold`]. The kernel says
/// so too where another mount begins on the way.
///
/// Fails with `Skip::Io(EINVAL)` before Linux 5.12, which cannot say (`RESOLVE_CACHED` of openat2(2)).
pub fn pin_cached(mounts: &MountTable, path: &Path) -> Result<(OwnedFd, Stat), Skip> {
    let fd = inside_local(mounts, path)?.open(true)?;
    let stat = stat_pin(fd.as_fd())?;
    Ok((fd, stat))
}

/// [`pin_cached`], of which nothing is asked but whether the kernel remembers it.
pub fn find_cached(mounts: &MountTable, path: &Path) -> Result<OwnedFd, Skip> {
    inside_local(mounts, path)?.open(true)
}

/// Opens the root of a mount, a directory, if it still is the uppermost at its mount point.
pub fn open_root(mounts: &MountTable, mount: &Mount) -> Result<OwnedFd, Skip> {
    let index = mounts.index_of_id(mount.id);
    let inside = mounts.inside(index.ok_or(Skip::NotLocal)?, mount.mount_point.as_bytes())?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let path = format!("/proc/self/fd/{}", inside.root.as_raw_fd());
    rustix::fs::open(path, flags, Mode::empty()).map_err(skip)
}

/// The mount a path is on by its name, if it may be looked up.
pub(crate) fn local_mount<'a>(mounts: &'a MountTable, path: &Path) -> Result<&'a Mount, Skip> {
    Ok(&mounts.all()[local_index(mounts, path)?])
}

/// The root of the mount that a path is on, and the path from there.
pub(crate) fn inside_local<'a>(mounts: &'a MountTable, path: &Path) -> Result<Inside<'a>, Skip> {
    mounts.inside(local_index(mounts, path)?, path.as_os_str().as_bytes())
}

fn local_index(mounts: &MountTable, path: &Path) -> Result<usize, Skip> {
    index_of(mounts, path, |kind| kind == Kind::Local)
}

fn index_of(mounts: &MountTable, path: &Path, may_be: impl Fn(Kind) -> bool) -> Result<usize, Skip> {
    if !path.is_absolute() {
        return Err(Skip::Missing);
    }
    let index = mounts
        .index_of(path.as_os_str().as_bytes())
        .ok_or(Skip::NotLocal)?;
    match may_be(mounts.kind_at(index)) {
        true => Ok(index),
        false => Err(Skip::NotLocal),
    }
}

pub(crate) fn stat_pin(pin: BorrowedFd<'_>) -> Result<Stat, Skip> {
    files::stat(pin).map_err(|error| Skip::Io(error.raw_os_error().unwrap_or(0)))
}

/// Opens a pinned regular file or directory for reading. O_NONBLOCK: a lease on it is not waited for.
pub fn reopen(pin: BorrowedFd<'_>) -> Result<OwnedFd, Skip> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOATIME | OFlags::CLOEXEC | OFlags::NOCTTY;
    let path = format!("/proc/self/fd/{}", pin.as_raw_fd());
    let begun = Instant::now();
    let opened = rustix::fs::open(path, flags, Mode::empty());
    OPENS.note(begun.elapsed());
    opened.map_err(|error| match error {
        Errno::PERM => Skip::NoAtime,
        error => skip(error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, symlink};

    fn open(path: impl AsRef<Path>) -> Result<Opened, Skip> {
        open_checked(&MountTable::read().unwrap(), path.as_ref(), &Expect::default())
    }

    fn directory() -> tempfile::TempDir {
        tempfile::tempdir_in("/var/tmp").unwrap()
    }

    #[test]
    fn only_files_and_directories_of_local_file_systems_open() {
        let dir = directory();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("file"), "x").unwrap();
        symlink("file", at("link")).unwrap();
        symlink(dir.path(), at("self")).unwrap();
        symlink("/proc", at("proc")).unwrap();
        let fifo = std::process::Command::new("mkfifo")
            .arg(at("fifo"))
            .status()
            .unwrap();
        assert!(fifo.success());
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();

        assert_eq!(open(at("file")).unwrap().stat.kind, Type::File);
        assert_eq!(open(dir.path()).unwrap().stat.kind, Type::Directory);
        assert_eq!(open(at("link")).unwrap_err(), Skip::Symlink);
        assert_eq!(open(at("self/file")).unwrap_err(), Skip::Symlink);
        assert_eq!(open(at("self/../file")).unwrap_err(), Skip::Symlink);
        assert_eq!(open(at("none")).unwrap_err(), Skip::Missing);
        assert_eq!(open(at("file/x")).unwrap_err(), Skip::Missing);
        assert_eq!(open("file").unwrap_err(), Skip::Missing);
        assert_eq!(open(at("x".repeat(300).as_str())).unwrap_err(), Skip::Missing);
        // Nobody writes to the FIFO: an ordinary open would block for ever.
        assert_eq!(open(at("fifo")).unwrap_err(), Skip::Special);
        assert_eq!(open(at("socket")).unwrap_err(), Skip::Special);
        for path in [
            "/proc/self/maps",
            "/proc/self/root/etc/passwd",
            "/sys/kernel",
            "/dev/null",
            "/dev/loop0",
        ] {
            assert_eq!(open(path).unwrap_err(), Skip::NotLocal, "{path}");
        }
        assert_eq!(open(at("proc/self/maps")).unwrap_err(), Skip::Symlink);
    }

    #[test]
    fn a_small_file_is_read_whole_or_not_at_all() {
        let dir = directory();
        let path = dir.path().join("file");
        std::fs::write(&path, "text").unwrap();
        std::os::unix::fs::symlink("file", dir.path().join("link")).unwrap();
        let read = |path: &Path, most, cached| {
            read_small(
                &MountTable::read().unwrap(),
                path,
                most,
                cached,
                &Expect::default(),
            )
        };
        for cached in [false, true] {
            assert_eq!(read(&path, 4, cached).unwrap(), b"text");
            assert_eq!(read(&path, 3, cached), Err(Skip::Cold));
            assert!(read(&dir.path().join("link"), 4, cached).is_err());
            assert!(read(dir.path(), 4, cached).is_err());
            assert_eq!(
                read(Path::new("/proc/version"), 4096, cached),
                Err(Skip::NotLocal)
            );
        }
        std::fs::File::open(&path).unwrap().sync_all().unwrap();
        let file = std::fs::File::open(&path).unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        assert_eq!(read(&path, 4, false).unwrap(), b"text");
    }

    #[test]
    fn a_file_is_opened_for_whom_its_permissions_let_read_it() {
        use std::os::unix::fs::PermissionsExt;
        let dir = directory();
        let path = dir.path().join("file");
        std::fs::write(&path, "x").unwrap();
        let mounts = MountTable::read().unwrap();
        let owner = std::fs::metadata(&path).unwrap().uid();
        let opens = |reader: u32, mode: u32| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let expect = Expect {
                reader: Some(reader),
                ..Expect::default()
            };
            open_checked(&mounts, &path, &expect).map(drop)
        };
        let other = owner + 4711;
        assert_eq!(opens(owner, 0o600), Ok(()));
        assert_eq!(opens(other, 0o644), Ok(()));
        assert_eq!(opens(other, 0o640), Err(Skip::Denied));
        assert_eq!(opens(other, 0o600), Err(Skip::Denied));
        // All but those of its group may read it: this one may be of that.
        assert_eq!(opens(other, 0o604), Err(Skip::Denied));
        // The list may deny it to one of those whom the permissions let.
        assert_eq!(opens(other, 0o644), Ok(()));
        list(&path);
        assert_eq!(opens(other, 0o644), Err(Skip::Denied));
        assert_eq!(opens(owner, 0o644), Ok(()));
        let of_directory = |user| {
            let (pin, stat) = pin(&mounts, dir.path()).unwrap();
            may_be_searched_by(pin.as_fd(), &stat, user)
        };
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
        assert!(of_directory(other));
        list(dir.path());
        assert!(of_directory(owner) && !of_directory(other));
    }

    /// Gives it an access control list that denies it to user 4711 alone: `struct posix_acl_xattr_entry` of
    /// posix_acl_xattr.h.
    fn list(path: &Path) {
        const ANY: u32 = u32::MAX;
        // Its owner, a user, its group, the most of those two, all others.
        let entries = [
            (0x01, 7, ANY),
            (0x02, 0, 4711),
            (0x04, 5, ANY),
            (0x10, 5, ANY),
            (0x20, 5, ANY),
        ];
        let mut bytes = 2u32.to_le_bytes().to_vec();
        for (tag, rights, id) in entries {
            bytes.extend(u16::to_le_bytes(tag));
            bytes.extend(u16::to_le_bytes(rights));
            bytes.extend(u32::to_le_bytes(id));
        }
        let name = "system.posix_acl_access";
        rustix::fs::setxattr(path, name, &bytes, rustix::fs::XattrFlags::empty()).unwrap();
    }

    #[test]
    fn a_file_that_changed_is_refused_by_what_changed() {
        let dir = directory();
        let path = dir.path().join("file");
        std::fs::write(&path, "x").unwrap();
        let mounts = MountTable::read().unwrap();
        let stat = open(&path).unwrap().stat;
        let same = Expect {
            inode: Some(stat.inode),
            size: Some(1),
            mtime_ns: Some(stat.mtime_ns),
            generation: Some(files::generation(open(&path).unwrap().fd.as_fd())),
            reader: None,
        };
        let check = |expect: Expect| open_checked(&mounts, &path, &expect).map(|_| ());
        assert_eq!(check(same), Ok(()));
        assert_eq!(
            check(Expect {
                size: Some(2),
                ..same
            }),
            Err(Skip::Changed { what: "size" })
        );
        assert_eq!(
            check(Expect {
                mtime_ns: Some(0),
                ..same
            }),
            Err(Skip::Changed { what: "mtime" })
        );
        assert_eq!(
            check(Expect {
                inode: Some(1),
                ..same
            }),
            Err(Skip::Changed { what: "inode" })
        );
        let generation = same.generation.map(|g| g ^ 1);
        assert_eq!(
            check(Expect { generation, ..same }),
            Err(Skip::Changed { what: "generation" })
        );
    }

    #[test]
    fn reading_leaves_the_access_time_alone() {
        let dir = directory();
        let path = dir.path().join("file");
        std::fs::write(&path, "x").unwrap();
        let old = std::fs::FileTimes::new().set_accessed(std::time::SystemTime::UNIX_EPOCH);
        std::fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_times(old)
            .unwrap();
        let mut text = String::new();
        let mut file = std::fs::File::from(open(&path).unwrap().fd);
        std::io::Read::read_to_string(&mut file, &mut text).unwrap();
        assert_eq!(
            (text.as_str(), std::fs::metadata(&path).unwrap().atime()),
            ("x", 0)
        );
    }
}
