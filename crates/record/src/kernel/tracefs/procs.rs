//! Paths of the inodes that living processes have mapped or open: the way to a path where file handles do not
//! help.

use crate::kernel::event::Dev;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The files that the processes looked at so far have open or mapped.
#[derive(Debug, Default)]
pub(super) struct ProcessFiles {
    mapped: HashMap<(Dev, u64), Vec<u8>>,
    /// By mount, since st_dev is not the super block's device on btrfs.
    open: HashMap<(u32, u64), Vec<u8>>,
    looked: HashSet<u32>,
}

impl ProcessFiles {
    /// The path by which `pid` holds an inode of the file system `dev`, which is mounted as `mounts` (their
    /// ids). A process is looked at once.
    pub fn path(
        &mut self,
        pid: u32,
        dev: Dev,
        inode: u64,
        mut mounts: impl Iterator<Item = u32>,
    ) -> Option<&[u8]> {
        if self.looked.insert(pid) {
            self.scan(pid);
        }
        let mapped = self.mapped.get(&(dev, inode));
        mapped
            .or_else(|| mounts.find_map(|mount| self.open.get(&(mount, inode))))
            .map(Vec::as_slice)
    }

    fn scan(&mut self, pid: u32) {
        let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
        for (dev, inode, path) in maps.split(|b| *b == b'\n').filter_map(mapping) {
            self.mapped.entry((dev, inode)).or_insert(path);
        }
        for entry in fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let info = fs::read_to_string(Path::new(&format!("/proc/{pid}/fdinfo")).join(entry.file_name()));
            let Some(mount) = info.ok().as_deref().and_then(mount_id) else {
                continue;
            };
            let (Ok(path), Ok(metadata)) = (fs::read_link(entry.path()), fs::metadata(entry.path())) else {
                continue;
            };
            let path = path.as_os_str().as_bytes();
            if path.starts_with(b"/") {
                self.open
                    .entry((mount, metadata.ino()))
                    .or_insert_with(|| path.to_vec());
            }
        }
    }
}

/// The `mnt_id:` line of a fdinfo.
fn mount_id(info: &str) -> Option<u32> {
    info.lines()
        .find_map(|line| line.strip_prefix("mnt_id:"))?
        .trim()
        .parse()
        .ok()
}

/// `addresses rights offset major:minor inode      path`, of a file.
fn mapping(line: &[u8]) -> Option<(Dev, u64, Vec<u8>)> {
    let mut rest = line;
    let mut word = || {
        let begin = rest.iter().position(|b| *b != b' ')?;
        let length = rest[begin..]
            .iter()
            .position(|b| *b == b' ')
            .unwrap_or(rest.len() - begin);
        let (word, after) = rest[begin..].split_at(length);
        rest = after;
        std::str::from_utf8(word).ok()
    };
    let (major, minor) = (word()?, word()?, word()?, word()?).3.split_once(':')?;
    let inode = word()?.parse().ok().filter(|inode| *inode != 0)?;
    let dev = Dev {
        major: u32::from_str_radix(major, 16).ok()?,
        minor: u32::from_str_radix(minor, 16).ok()?,
    };
    let path = &rest[rest.iter().position(|b| *b != b' ')?..];
    path.starts_with(b"/").then(|| (dev, inode, unescape(path)))
}

/// The kernel writes a line feed in a name as `\012`, and nothing else so.
fn unescape(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((first, after)) = rest.split_first() {
        match rest.strip_prefix(b"\\012") {
            Some(after) => {
                out.push(b'\n');
                rest = after;
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn mappings_of_files_are_read_and_others_passed_over() {
        let line = b"7f00-7f01 r-xp 00001000 fd:02 1234                   /usr/lib/a b\\012c";
        assert_eq!(
            mapping(line),
            Some((
                Dev {
                    major: 0xfd,
                    minor: 2
                },
                1234,
                b"/usr/lib/a b\nc".to_vec()
            ))
        );
        assert_eq!(
            mapping(b"7f00-7f01 rw-p 00000000 00:00 0                      [heap]"),
            None
        );
        assert_eq!(mapping(b"7f00-7f01 rw-p 00000000 00:00 0"), None);
        assert_eq!(mapping(b""), None);
    }

    #[test]
    fn a_mapped_and_an_open_file_of_this_process_are_found() {
        let mut files = ProcessFiles::default();
        let pid = std::process::id();
        let executable = fs::read_link("/proc/self/exe").unwrap();
        let maps = fs::read("/proc/self/maps").unwrap();
        let (dev, inode, _) = maps.split(|b| *b == b'\n').filter_map(mapping).next().unwrap();
        let path = files.path(pid, dev, inode, [].into_iter()).unwrap();
        assert_eq!(path, executable.as_os_str().as_bytes());

        let file = tempfile::NamedTempFile::new().unwrap();
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_file().as_raw_fd())).unwrap();
        let inode = file.as_file().metadata().unwrap().ino();
        let path = files.path(pid, dev, inode, mount_id(&info).into_iter());
        assert_eq!(path, None, "looked at before the file was opened");
        let mut files = ProcessFiles::default();
        let path = files.path(pid, dev, inode, mount_id(&info).into_iter());
        assert_eq!(path, Some(file.path().as_os_str().as_bytes()));
    }
}
