//! Resolving a path without leaving a directory, also where the kernel has no openat2(2): before Linux 5.6,
//! in a system of another processor that an emulator runs (qemu-user before 9.2), and where a filter of
//! system calls refuses it.
//!
//! There the path is walked part by part, each opened by `O_PATH` and `O_NOFOLLOW` from the one before:
//! nothing is opened in earnest, no link is followed by the kernel, and `..` leads back the way that was
//! come. So nobody who moves directories meanwhile leads the walk outside.

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatxFlags, fstat, fstatfs, openat, readlinkat, statx,
};
use rustix::io::Errno;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// As many links as the kernel follows in a path (path_resolution(7)).
const MOST_LINKS: usize = 40;
/// As many parts as a path may have, with what its links lead through: each may take a descriptor.
const MOST_PARTS: usize = 512;
/// Its links lead anywhere, whatever they say.
const PROC: u64 = 0x9fa0;

/// Opens a path from `root` on as openat2(2) does with `flags` and `resolve`, of which these are known:
/// `IN_ROOT`, `BENEATH`, `NO_XDEV`, `NO_SYMLINKS`, `NO_MAGICLINKS`. One of the first two is needed, unless
/// `root` is that of this process.
///
/// # Errors
/// Those of openat2(2). `EINVAL` where `RESOLVE_CACHED` is asked for and nobody can tell.
pub fn open(
    root: BorrowedFd<'_>,
    path: &Path,
    flags: OFlags,
    resolve: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    match rustix::fs::openat2(root, path, flags, Mode::empty(), resolve) {
        // Filters of system calls answer by the second, too; if that is openat2's own answer the walk gives
        // it again.
        Err(Errno::NOSYS | Errno::PERM) => walk(root, path, flags, resolve),
        opened => opened,
    }
}

fn walk(root: BorrowedFd<'_>, path: &Path, flags: OFlags, resolve: ResolveFlags) -> Result<OwnedFd, Errno> {
    if resolve.contains(ResolveFlags::CACHED) {
        return Err(Errno::INVAL);
    }
    let bytes = path.as_os_str().as_bytes();
    let flags = match bytes.ends_with(b"/") {
        true => flags | OFlags::DIRECTORY,
        false => flags,
    };
    let is_bounded = resolve.intersects(ResolveFlags::IN_ROOT | ResolveFlags::BENEATH);
    let begin = match is_bounded || !path.is_absolute() {
        true => open_name(root, OsStr::new("."))?,
        false => open_name(CWD, OsStr::new("/"))?,
    };
    let mut walk = Walk {
        resolve,
        mount: mount_of(root)?,
        way: vec![begin],
        rest: Vec::new(),
        links: 0,
    };
    walk.go_on(path)?;
    let mut parts = 0;
    let mut last = None;
    while let Some(name) = walk.rest.pop() {
        parts += 1;
        if parts > MOST_PARTS {
            return Err(Errno::NAMETOOLONG);
        }
        let is_last = walk.rest.is_empty();
        last = walk.step(&name, is_last, flags)?;
    }
    let here = walk.way.last().ok_or(Errno::NOENT)?;
    match last {
        Some((file, name)) => finish(here.as_fd(), file, &name, flags),
        None if flags.contains(OFlags::PATH) => walk.way.pop().ok_or(Errno::NOENT),
        None => openat(here, ".", flags, Mode::empty()),
    }
}

/// A walk under way.
struct Walk {
    resolve: ResolveFlags,
    /// The mount that it began on.
    mount: (u32, u32, u64),
    /// The directories that were come through, the first of which is the root.
    way: Vec<OwnedFd>,
    /// The parts that are to come, the next one last.
    rest: Vec<CString>,
    links: usize,
}

impl Walk {
    /// The parts of a path come next; an absolute one begins at the root anew.
    fn go_on(&mut self, path: &Path) -> Result<(), Errno> {
        let bytes = path.as_os_str().as_bytes();
        if bytes.is_empty() {
            return Err(Errno::NOENT);
        }
        if bytes[0] == b'/' {
            if self.resolve.contains(ResolveFlags::BENEATH) {
                return Err(Errno::XDEV);
            }
            self.way.truncate(1);
        }
        let parts = bytes
            .split(|byte| *byte == b'/')
            .rev()
            .filter(|part| !part.is_empty() && *part != b".".as_slice());
        for part in parts {
            self.rest.push(CString::new(part).map_err(|_| Errno::INVAL)?);
        }
        match self.rest.len() > MOST_PARTS {
            true => Err(Errno::NAMETOOLONG),
            false => Ok(()),
        }
    }

    /// Takes one part: into a directory, or what it is if that is the last and no directory.
    fn step(
        &mut self,
        name: &CString,
        is_last: bool,
        flags: OFlags,
    ) -> Result<Option<(OwnedFd, CString)>, Errno> {
        if name.as_bytes() == b".." {
            if self.way.len() > 1 {
                self.way.pop();
            } else if self.resolve.contains(ResolveFlags::BENEATH) {
                return Err(Errno::XDEV);
            }
            return Ok(None);
        }
        let here = self.way.last().ok_or(Errno::NOENT)?;
        let next = open_name(here.as_fd(), OsStr::from_bytes(name.as_bytes()))?;
        if self.resolve.contains(ResolveFlags::NO_XDEV) && mount_of(next.as_fd())? != self.mount {
            return Err(Errno::XDEV);
        }
        match FileType::from_raw_mode(fstat(&next)?.st_mode) {
            FileType::Directory => {
                self.way.push(next);
                Ok(None)
            }
            FileType::Symlink if is_last && flags.contains(OFlags::NOFOLLOW) => {
                Ok(Some((next, name.clone())))
            }
            FileType::Symlink => self.follow(&next).map(|()| None),
            _ if is_last => Ok(Some((next, name.clone()))),
            _ => Err(Errno::NOTDIR),
        }
    }

    fn follow(&mut self, link: &OwnedFd) -> Result<(), Errno> {
        self.links += 1;
        let is_magic = fstatfs(link)?.f_type as u64 == PROC;
        if self.resolve.contains(ResolveFlags::NO_SYMLINKS) || is_magic || self.links > MOST_LINKS {
            return Err(Errno::LOOP);
        }
        let to = readlinkat(link, "", Vec::new())?;
        self.go_on(Path::new(OsStr::from_bytes(to.as_bytes())))
    }
}

/// What was found, opened as it was asked for; only if it still is what is there.
fn finish(parent: BorrowedFd<'_>, found: OwnedFd, name: &CString, flags: OFlags) -> Result<OwnedFd, Errno> {
    let facts = fstat(&found)?;
    if flags.contains(OFlags::DIRECTORY) {
        return Err(Errno::NOTDIR);
    }
    if flags.contains(OFlags::PATH) {
        return Ok(found);
    }
    if FileType::from_raw_mode(facts.st_mode) == FileType::Symlink {
        return Err(Errno::LOOP);
    }
    let opened = openat(parent, name, flags | OFlags::NOFOLLOW, Mode::empty())?;
    let there = fstat(&opened)?;
    match (there.st_dev, there.st_ino) == (facts.st_dev, facts.st_ino) {
        true => Ok(opened),
        false => Err(Errno::AGAIN),
    }
}

fn open_name(directory: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    openat(
        directory,
        name,
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

/// The mount of what is open, where the kernel tells of mounts, and its device.
fn mount_of(file: BorrowedFd<'_>) -> Result<(u32, u32, u64), Errno> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    match statx(file, c"", flags, StatxFlags::MNT_ID) {
        Ok(facts) => Ok((facts.stx_dev_major, facts.stx_dev_minor, facts.stx_mnt_id)),
        // An emulator may not know that either.
        Err(Errno::NOSYS | Errno::PERM) => Ok((0, 0, fstat(file)?.st_dev)),
        Err(error) => Err(error),
    }
}

/// Where a descriptor leads to by its name in `/proc`, for whoever has to say it.
pub fn path_of(file: BorrowedFd<'_>) -> std::io::Result<std::path::PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    const IN_ROOT: ResolveFlags = ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS);
    const INSIDE: ResolveFlags = ResolveFlags::BENEATH
        .union(ResolveFlags::NO_XDEV)
        .union(ResolveFlags::NO_SYMLINKS)
        .union(ResolveFlags::NO_MAGICLINKS);

    #[test]
    fn case_20_a_walk_ends_where_the_kernel_does() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        fs::create_dir_all(at("a/b/c")).unwrap();
        fs::write(at("a/file"), "x").unwrap();
        for (target, link) in [
            ("/a/b", "absolute"),
            ("a/b", "relative"),
            ("../../../../etc", "a/out"),
            ("/nowhere", "broken"),
            ("self", "self"),
            ("/a/file", "file"),
            ("absolute/../file", "a/round"),
            ("absolute/../file", "round"),
        ] {
            symlink(target, at(link)).unwrap();
        }
        fs::create_dir(at("etc")).unwrap();
        let root = rustix::fs::open(dir.path(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let look = OFlags::PATH | OFlags::CLOEXEC;
        let ways = [
            (look, IN_ROOT),
            (look | OFlags::NOFOLLOW, IN_ROOT),
            (look | OFlags::DIRECTORY, IN_ROOT),
            (OFlags::RDONLY | OFlags::CLOEXEC, IN_ROOT),
            (OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, IN_ROOT),
            (look | OFlags::NOFOLLOW, INSIDE),
            (look, INSIDE),
        ];
        let paths = [
            ".",
            "a",
            "a/",
            "/a",
            "a/b/../file",
            "../a/b",
            "a/../../a",
            "absolute",
            "absolute/c",
            "relative/c/..",
            "a/out",
            "broken",
            "broken/x",
            "self",
            "self/x",
            "file",
            "file/x",
            "a/file/",
            "a/round",
            "round",
            "none",
            "a/none/b",
            "",
            "/",
            "..",
        ];
        for (flags, resolve) in ways {
            for path in paths {
                let told = |opened: Result<OwnedFd, Errno>| {
                    opened.map(|file| (path_of(file.as_fd()).unwrap(), fstat(&file).unwrap().st_ino))
                };
                let kernel = told(rustix::fs::openat2(&root, path, flags, Mode::empty(), resolve));
                assert_eq!(
                    told(walk(root.as_fd(), Path::new(path), flags, resolve)),
                    kernel,
                    "{path:?} {flags:?} {resolve:?}"
                );
            }
        }
    }

    #[test]
    fn case_20_a_walk_stays_on_its_mount_and_follows_no_magic() {
        let slash = rustix::fs::open("/", OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        assert_eq!(
            walk(slash.as_fd(), Path::new("proc/self/status"), flags, INSIDE).unwrap_err(),
            Errno::XDEV
        );
        let follows = OFlags::PATH | OFlags::CLOEXEC;
        let magic = format!("proc/{}/cwd/x", std::process::id());
        assert_eq!(
            walk(slash.as_fd(), Path::new(&magic), follows, IN_ROOT).unwrap_err(),
            Errno::LOOP
        );
        let long = "a/".repeat(MOST_PARTS + 1);
        assert_eq!(
            walk(slash.as_fd(), Path::new(&long), follows, IN_ROOT).unwrap_err(),
            Errno::NAMETOOLONG
        );
        let cached = IN_ROOT | ResolveFlags::CACHED;
        assert_eq!(
            walk(CWD, Path::new("."), follows, cached).unwrap_err(),
            Errno::INVAL
        );
    }
}
