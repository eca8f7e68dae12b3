//! Whole files: written all or not at all, read with a bound.

use crate::StoreError;
use rustix::fs::{Access, Advice, AtFlags, CWD, Mode, OFlags, RenameFlags};
use std::fs::{File, Metadata, Permissions};
use std::io::{self, Read, Write};
use std::num::NonZeroU64;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// What the names of temporary files begin with.
pub(crate) const TEMPORARY: &str = ".tmp-";

/// Less than any device's request limit, beyond which an advice is cut off silently.
const CHUNK: usize = 128 << 10;
/// What the first read of a file brings in any case, bytes.
const ONE_READ: u64 = 8192;

static COUNTER: AtomicU64 = AtomicU64::new(0);

/// A name for what does not last, which no other thread or process has: one of the same number in another pid
/// namespace has another time.
pub(crate) fn temporary_name() -> String {
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{TEMPORARY}{}-{number}-{}", std::process::id(), now.as_nanos())
}

/// How much of its file system a file takes, bytes.
pub(crate) fn taken(facts: &Metadata) -> u64 {
    // st_blocks counts 512 bytes, whatever the file system's blocks are (stat(2)).
    facts.blocks() * 512
}

/// The same of what is at a path, no link followed; nothing if nothing is there.
pub(crate) fn taken_by(path: &Path) -> u64 {
    std::fs::symlink_metadata(path).map_or(0, |facts| taken(&facts))
}

/// Writes a file whole or not at all, readable by its owner only.
///
/// After it returned, the new content survives a crash of the machine; on an error, and at any moment before,
/// the old content is there.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    write_whole_for(path, bytes, 0o600)
}

/// The same, with permissions of its own.
pub fn write_whole_for(path: &Path, bytes: &[u8], mode: u32) -> Result<(), StoreError> {
    replace(path, |temporary| {
        fill(temporary, path, |file| file.write_all(bytes), mode)
    })
}

/// As [`write_whole`], for what is too large to be held in memory: `write` writes it, in pieces of any size.
pub fn write_whole_by(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), StoreError> {
    let buffered = |file: &mut File| {
        let mut out = io::BufWriter::with_capacity(1 << 16, file);
        write(&mut out)?;
        out.flush()
    };
    replace(path, |temporary| fill(temporary, path, buffered, 0o600))
}

/// Writes a file that a person has named: whole or not at all, as [`write_whole`] does. Where a link is
/// named, what it leads to is replaced. What is there and is no file (a device, a FIFO, the standard output)
/// is written into.
pub fn write_output(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    write_output_by(path, |out| out.write_all(bytes))
}

/// As [`write_output`], for what is too large to be held in memory.
pub fn write_output_by(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), StoreError> {
    let target = std::fs::canonicalize(path);
    // The files below /proc/self/fd, to which /dev/stdout leads, are open already: another in their place
    // would not be those.
    let is_open = path.starts_with("/dev") || path.starts_with("/proc");
    match (std::fs::metadata(path), target) {
        (Ok(facts), _) if !facts.is_dir() && (is_open || !facts.is_file()) => {
            let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::NOCTTY | OFlags::CLOEXEC;
            let fd = rustix::fs::openat(CWD, path, flags, Mode::empty())
                .map_err(|e| StoreError::io("open", path, e))?;
            write(&mut File::from(fd)).map_err(|e| StoreError::io("write", path, e))
        }
        (Ok(_), Ok(target)) => write_whole_by(&target, write),
        _ => write_whole_by(path, write),
    }
}

/// Whether [`write_output`] may succeed: asked before what is to be written is made.
pub fn check_output(path: &Path) -> Result<(), StoreError> {
    let in_place = match std::fs::metadata(path) {
        Ok(facts) if facts.is_dir() => return Err(StoreError::NotRegular(path.to_owned())),
        Ok(facts) => !facts.is_file(),
        Err(_) => false,
    };
    let (asked, access) = match in_place {
        true => (path, Access::WRITE_OK),
        false => (directory_of(path), Access::WRITE_OK | Access::EXEC_OK),
    };
    rustix::fs::access(asked, access).map_err(|e| StoreError::io("write", path, e))
}

/// Where a path's last part is.
fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Has something made under another name, then gives it that of `path`.
fn replace(path: &Path, make: impl FnOnce(&Path) -> Result<(), StoreError>) -> Result<(), StoreError> {
    let directory = directory_of(path);
    let temporary = directory.join(temporary_name());
    let made = make(&temporary)
        .and_then(|()| std::fs::rename(&temporary, path).map_err(|e| StoreError::io("replace", path, e)));
    if made.is_err() {
        // Nothing more can be done about it; the next writer removes leftovers.
        let _ = std::fs::remove_file(&temporary);
        return made;
    }
    sync_directory(directory)
}

/// Errors name the file that it becomes: the other name is different each time, and gone.
fn fill(
    temporary: &Path,
    path: &Path,
    write: impl FnOnce(&mut File) -> io::Result<()>,
    mode: u32,
) -> Result<(), StoreError> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(CWD, temporary, flags, Mode::RUSR | Mode::WUSR)
        .map_err(|e| StoreError::io("create", path, e))?;
    let mut file = File::from(fd);
    write(&mut file)
        // Whatever the umask is.
        .and_then(|()| file.set_permissions(Permissions::from_mode(mode)))
        .and_then(|()| file.sync_all())
        .map_err(|e| StoreError::io("write", path, e))
}

/// Makes renames and removals in a directory last.
pub(crate) fn sync_directory(directory: &Path) -> Result<(), StoreError> {
    File::open(directory)
        .and_then(|d| d.sync_all())
        .map_err(|e| StoreError::io("sync", directory, e))
}

/// Reads a regular file of at most `limit` bytes; `None` if nothing is there. Never blocks on a FIFO.
pub fn read_bounded(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, StoreError> {
    Ok(read_open(path, limit)?.map(|(bytes, _)| bytes))
}

/// The first `most` bytes of a regular file, or all where it has fewer; `None` if nothing is there. Never
/// blocks on a FIFO.
pub(crate) fn read_head(path: &Path, most: u64) -> Result<Option<Vec<u8>>, StoreError> {
    let Some((file, _)) = open_regular(path)? else {
        return Ok(None);
    };
    let mut bytes = Vec::new();
    file.take(most)
        .read_to_end(&mut bytes)
        .map_err(|e| StoreError::io("read", path, e))?;
    Ok(Some(bytes))
}

/// Like [`read_bounded`], with the file that was read: as long as it is open, no other has its inode.
pub(crate) fn read_open(path: &Path, limit: u64) -> Result<Option<(Vec<u8>, File)>, StoreError> {
    let Some((file, length)) = open_regular(path)? else {
        return Ok(None);
    };
    let too_large = |size| StoreError::TooLarge {
        path: path.to_owned(),
        size,
        limit,
    };
    if length > limit {
        return Err(too_large(length));
    }
    // In one go where it is cold: read piece by piece it comes in windows that wait for one another. Advice
    // that is not taken does no harm.
    for offset in (0..length).step_by(CHUNK).skip_while(|_| length <= ONE_READ) {
        let _ = rustix::fs::fadvise(&file, offset, NonZeroU64::new(CHUNK as u64), Advice::WillNeed);
    }
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
    let read = read_all(&file, &mut bytes).and_then(|read| {
        bytes.truncate(read);
        let more = (limit + 1).saturating_sub(read as u64);
        (&file).take(more).read_to_end(&mut bytes)
    });
    read.map_err(|e| StoreError::io("read", path, e))?;
    // It may have grown meanwhile.
    if bytes.len() as u64 > limit {
        return Err(too_large(bytes.len() as u64));
    }
    Ok(Some((bytes, file)))
}

/// Reads until these bytes are full, or the file has no more; how many there are. Who reads until the end
/// alone asks for a few at first.
fn read_all(mut file: &File, bytes: &mut [u8]) -> std::io::Result<usize> {
    let mut read = 0;
    while read < bytes.len() {
        match file.read(&mut bytes[read..]) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

/// A regular file, open to be read, and its length; `None` if nothing is there.
fn open_regular(path: &Path) -> Result<Option<(File, u64)>, StoreError> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd = match rustix::fs::openat(CWD, path, flags, Mode::empty()) {
        Ok(fd) => fd,
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => return Ok(None),
        Err(e) => return Err(StoreError::io("open", path, e)),
    };
    let file = File::from(fd);
    let facts = file.metadata().map_err(|e| StoreError::io("look at", path, e))?;
    if !facts.is_file() {
        return Err(StoreError::NotRegular(path.to_owned()));
    }
    Ok(Some((file, facts.len())))
}

/// Makes a directory and those above it, 0700 for those it makes.
pub(crate) fn make_directory(path: &Path) -> Result<(), StoreError> {
    use std::os::unix::fs::DirBuilderExt;
    // To make one that is there waits where the file system is frozen.
    if path.is_dir() {
        return Ok(());
    }
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|e| StoreError::io("create", path, e))
}

/// Moves a file that cannot be decoded out of the way and returns where it is now; one such file is kept for
/// each name. `None` if a writer has replaced the file that was `read`: then the new one stays.
pub(crate) fn move_aside(path: &Path, read: &File) -> io::Result<Option<PathBuf>> {
    let with = |ending: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        PathBuf::from(name)
    };
    let identity = |facts: std::fs::Metadata| (facts.dev(), facts.ino());
    let read = identity(read.metadata()?);
    if identity(std::fs::symlink_metadata(path)?) != read {
        return Ok(None);
    }
    // The writer may still come between, so what was moved is looked at again before it takes the place of
    // another.
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    let moved = with(&format!(".moved-{}-{number}", std::process::id()));
    std::fs::rename(path, &moved)?;
    if identity(std::fs::symlink_metadata(&moved)?) != read {
        // Back, unless yet another was written: that one is newer.
        if rustix::fs::renameat_with(CWD, &moved, CWD, path, RenameFlags::NOREPLACE).is_err() {
            std::fs::remove_file(&moved)?;
        }
        return Ok(None);
    }
    let aside = with(".damaged");
    std::fs::rename(&moved, &aside)?;
    Ok(Some(aside))
}

/// The same of what is at a path and cannot be read: no regular file, or too large for one of ours.
pub(crate) fn move_unread_aside(path: &Path) -> io::Result<PathBuf> {
    let mut name = path.as_os_str().to_owned();
    name.push(".damaged");
    let aside = PathBuf::from(name);
    std::fs::rename(path, &aside)?;
    Ok(aside)
}

/// Removes temporary files that a killed writer left. The caller holds the directory's lock, so none is in
/// use.
pub(crate) fn remove_leftovers(directory: &Path) {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(TEMPORARY) {
            // A leftover that stays costs space only.
            let _ = rustix::fs::unlinkat(CWD, entry.path(), AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_private_and_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        write_whole(&path, b"one").unwrap();
        write_whole(&path, b"two").unwrap();
        assert_eq!(read_bounded(&path, 3).unwrap().unwrap(), b"two");
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(
            std::fs::read_dir(dir.path()).unwrap().count(),
            1,
            "no temporary file is left"
        );
    }

    #[test]
    fn reading_is_bounded_and_never_blocks() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        assert!(read_bounded(&path, 9).unwrap().is_none());
        write_whole(&path, &[0; 10]).unwrap();
        assert!(matches!(
            read_bounded(&path, 9),
            Err(StoreError::TooLarge { size: 10, .. })
        ));
        assert!(matches!(
            read_bounded(dir.path(), 9),
            Err(StoreError::NotRegular(_))
        ));
        let fifo = dir.path().join("fifo");
        rustix::fs::mknodat(CWD, &fifo, rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert!(matches!(read_bounded(&fifo, 9), Err(StoreError::NotRegular(_))));
    }

    #[test]
    fn only_the_file_that_was_read_is_moved_aside() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        write_whole(&path, b"damaged").unwrap();
        let (_, read) = read_open(&path, 9).unwrap().unwrap();
        write_whole(&path, b"new").unwrap();
        assert_eq!(move_aside(&path, &read).unwrap(), None);
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        let (_, read) = read_open(&path, 9).unwrap().unwrap();
        let aside = move_aside(&path, &read).unwrap().unwrap();
        assert_eq!(std::fs::read(aside).unwrap(), b"new");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_a_person_names_and_is_no_file_is_written_into() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("f"), dir.path().join("link"));
        std::fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write_output(&link, b"new").unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"new");
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        // A link that leads nowhere yet is a name as any other.
        let loose = dir.path().join("loose");
        std::os::unix::fs::symlink("nowhere", &loose).unwrap();
        write_output(&loose, b"new").unwrap();
        assert_eq!(std::fs::read(&loose).unwrap(), b"new");
        let fifo = dir.path().join("fifo");
        rustix::fs::mknodat(CWD, &fifo, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let reader = {
            let fifo = fifo.clone();
            std::thread::spawn(move || std::fs::read(fifo).unwrap())
        };
        write_output(&fifo, b"new").unwrap();
        assert_eq!(reader.join().unwrap(), b"new");
        let is_fifo = std::os::unix::fs::FileTypeExt::is_fifo;
        assert!(is_fifo(&std::fs::symlink_metadata(&fifo).unwrap().file_type()));
    }

    #[test]
    fn what_cannot_be_written_is_told_before_it_is_made() {
        let dir = tempfile::tempdir().unwrap();
        for good in [dir.path().join("new"), PathBuf::from("/dev/null")] {
            check_output(&good).unwrap();
        }
        for bad in [dir.path().to_owned(), dir.path().join("none/new")] {
            assert!(check_output(&bad).is_err(), "{}", bad.display());
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn an_error_leaves_the_old_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d");
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("x"), "x").unwrap();
        assert!(write_whole(&path, b"new").is_err(), "a directory is in the way");
        assert!(path.join("x").exists());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
