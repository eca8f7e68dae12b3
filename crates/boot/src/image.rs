//! The root of this system, or of another that is an image: every path is resolved inside it
//! (`RESOLVE_IN_ROOT` of openat2(2), or what stands for it), so that a link in an image, `/usr/sbin` to
//! `/opt/sbin`, leads to the image's and never to this system's.

use anyhow::{Context, Result, bail};
use headstart_system::resolve;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::path::{Component, Path, PathBuf};

/// What the names of unfinished files begin with; generators of initramfs and systemd take no notice of such.
const TEMPORARY: &str = ".tmp-headstart-";

/// A root.
pub struct Image {
    root: OwnedFd,
    /// As it is named.
    path: PathBuf,
}

impl Image {
    /// That of this system, or another.
    pub fn open(other: Option<&Path>) -> Result<Image> {
        let path = other.unwrap_or(Path::new("/"));
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, path, flags, Mode::empty())
            .with_context(|| format!("cannot enter {}", path.display()))?;
        Ok(Image {
            root,
            path: path.to_owned(),
        })
    }

    /// A path of it as it is called from outside, for people.
    pub fn named(&self, path: impl AsRef<Path>) -> PathBuf {
        match inside(path.as_ref()) {
            itself if itself == Path::new(".") => self.path.clone(),
            path => self.path.join(path),
        }
    }

    fn resolve(&self, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        // Never a file to be read: to open a FIFO would wait.
        let flags = flags | OFlags::CLOEXEC;
        let how = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        resolve::open(self.root.as_fd(), inside(path), flags, how)
    }

    fn kind(&self, path: impl AsRef<Path>) -> Option<FileType> {
        let file = self.resolve(path.as_ref(), OFlags::PATH).ok()?;
        let facts = rustix::fs::fstat(file).ok()?;
        Some(FileType::from_raw_mode(facts.st_mode))
    }

    /// Whether something is there.
    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.kind(path).is_some()
    }

    /// Whether a file is there.
    pub fn has_file(&self, path: impl AsRef<Path>) -> bool {
        self.kind(path) == Some(FileType::RegularFile)
    }

    /// Whether a directory is there.
    pub fn has_directory(&self, path: impl AsRef<Path>) -> bool {
        self.kind(path) == Some(FileType::Directory)
    }

    /// What is there itself, if it is a link not what that leads to.
    pub fn kind_itself(&self, path: impl AsRef<Path>) -> Option<FileType> {
        let (directory, name) = self.parent(path.as_ref()).ok()?;
        let facts = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some(FileType::from_raw_mode(facts.st_mode))
    }

    /// The directory that a path is in, opened, and its name there.
    fn parent<'a>(&self, path: &'a Path) -> Result<(OwnedFd, &'a OsStr)> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            bail!("{} names no file", path.display());
        };
        let named = || format!("cannot enter {}", self.named(parent).display());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        Ok((self.resolve(parent, flags).with_context(named)?, name))
    }

    /// Makes a directory and those above it, where they are not there.
    pub fn make_directory(&self, path: impl AsRef<Path>, mode: u32) -> Result<()> {
        let mut made = PathBuf::new();
        for part in path.as_ref().components() {
            let Component::Normal(name) = part else { continue };
            let above = made.clone();
            made.push(name);
            if self.has_directory(&made) {
                continue;
            }
            let named = || format!("cannot create {}: run as root", self.named(&made).display());
            let directory = self.resolve(&above, OFlags::RDONLY | OFlags::DIRECTORY);
            let directory = directory.with_context(named)?;
            rustix::fs::mkdirat(&directory, name, Mode::from_raw_mode(mode)).with_context(named)?;
        }
        Ok(())
    }

    /// Writes a file whole or not at all, in place of a file or a link that is there: with half of it the
    /// machine may not boot.
    pub fn write(&self, path: impl AsRef<Path>, text: impl AsRef<[u8]>, mode: u32) -> Result<()> {
        let path = path.as_ref();
        if let Some(parent) = path.parent() {
            self.make_directory(parent, 0o755)?;
        }
        self.replace(path, "write", |directory, temporary| {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = rustix::fs::openat(directory, temporary, flags, Mode::RUSR | Mode::WUSR)?;
            let mut file = File::from(file);
            file.write_all(text.as_ref())?;
            // Whatever the umask is.
            rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
            Ok(file.sync_all()?)
        })
    }

    /// Makes a link to `target` in place of a file or a link that is there, in the same way.
    pub fn link(&self, target: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<()> {
        self.replace(path.as_ref(), "link", |directory, temporary| {
            Ok(rustix::fs::symlinkat(target.as_ref(), directory, temporary)?)
        })
    }

    /// Has something made under another name, then gives it that of `path`.
    fn replace(
        &self,
        path: &Path,
        what: &str,
        make: impl FnOnce(&OwnedFd, &OsStr) -> Result<()>,
    ) -> Result<()> {
        let (directory, name) = self.parent(path)?;
        let mut temporary = std::ffi::OsString::from(TEMPORARY);
        temporary.push(name);
        // Of one that was killed here.
        let _ = rustix::fs::unlinkat(&directory, &temporary, AtFlags::empty());
        let replaced = make(&directory, &temporary).and_then(|()| {
            rustix::fs::renameat(&directory, &temporary, &directory, name)?;
            Ok(rustix::fs::fsync(&directory)?)
        });
        if replaced.is_err() {
            // Nothing more can be done about it.
            let _ = rustix::fs::unlinkat(&directory, &temporary, AtFlags::empty());
        }
        replaced.with_context(|| format!("cannot {what} {}: run as root", self.named(path).display()))
    }

    /// Removes a file or a link; whether it was there.
    pub fn remove(&self, path: impl AsRef<Path>) -> Result<bool> {
        let path = path.as_ref();
        if self.kind_itself(path).is_none() {
            return Ok(false);
        }
        let (directory, name) = self.parent(path)?;
        match rustix::fs::unlinkat(&directory, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error)
                .with_context(|| format!("cannot remove {}: run as root", self.named(path).display())),
        }
    }

    /// The path by which this system finds a directory of the image, without a link in it. What is not there
    /// yet of it is where it would be made.
    fn real_path(&self, path: &Path) -> Result<PathBuf> {
        let mut there = inside(path);
        let mut missing = Vec::new();
        loop {
            match self.resolve(there, OFlags::PATH | OFlags::DIRECTORY) {
                Ok(directory) => {
                    let real = resolve::path_of(directory.as_fd());
                    let real = real.with_context(|| format!("cannot read where {} is", there.display()))?;
                    return Ok(missing.iter().rev().fold(real, |all, name| all.join(name)));
                }
                Err(Errno::NOENT) if self.kind_itself(there).is_none() => {}
                Err(error) => {
                    let named = self.named(there);
                    return Err(error)
                        .with_context(|| format!("cannot enter {} of that image", named.display()));
                }
            }
            let (Some(parent), Some(name)) = (there.parent(), there.file_name()) else {
                bail!("{} is no directory", self.named(path).display());
            };
            missing.push(name);
            there = parent;
        }
    }
}

/// A path without its leading slash: seen from a root.
fn inside(path: &Path) -> &Path {
    let path = path.strip_prefix("/").unwrap_or(path);
    match path.as_os_str().is_empty() {
        true => Path::new("."),
        false => path,
    }
}

/// The state directory of the system whose root is `root`.
pub fn state_below(root: &Path) -> Result<PathBuf> {
    Image::open(Some(root))?.real_path(Path::new("var/lib/headstart"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_of_an_image_lead_into_it() {
        let (host, image) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (host, root) = (host.path(), image.path());
        // The same path in both: the image's is meant.
        let below = root.join(host.strip_prefix("/").unwrap());
        fs::create_dir_all(&below).unwrap();
        symlink(host, root.join("lib")).unwrap();
        let image = Image::open(Some(root)).unwrap();
        image.write("lib/a/file", "x", 0o644).unwrap();
        image.link("/target", "lib/link").unwrap();
        assert_eq!(fs::read(below.join("a/file")).unwrap(), b"x");
        assert_eq!(fs::read_link(below.join("link")).unwrap(), Path::new("/target"));
        assert!(image.has_file("/lib/a/file") && image.has_directory("lib/a") && !image.exists("lib/link"));
        assert!(image.kind_itself("lib/link").is_some());
        assert!(image.remove("lib/link").unwrap() && !image.remove("lib/link").unwrap());
        assert_eq!(
            fs::read_dir(host).unwrap().count(),
            0,
            "nothing of this system changed"
        );
        assert_eq!(
            image.real_path(Path::new("lib/new/state")).unwrap(),
            below.join("new/state")
        );
        // What leads nowhere in the image is no path of this system either.
        fs::remove_dir_all(&below).unwrap();
        assert!(
            image.real_path(Path::new("lib/new")).is_err() && image.make_directory("lib/new", 0o755).is_err()
        );
        assert_eq!(fs::read_dir(host).unwrap().count(), 0);
    }
}
