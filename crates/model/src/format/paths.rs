//! All paths of a trace, each once: of most only the end differs from the path before.

use super::columns::{Column, Cursor};
use crate::FilePath;
use crate::limits::{self, bounded};
use std::collections::HashMap;

/// The paths to be written, in the order in which they were met.
#[derive(Default)]
pub(super) struct PathList<'a> {
    index: HashMap<&'a FilePath, u32>,
    paths: Vec<&'a FilePath>,
    listed: usize,
    referred: usize,
}

impl<'a> PathList<'a> {
    /// The index of a path that is referred to.
    pub fn add(&mut self, path: &'a FilePath) -> u32 {
        self.referred = self.referred.saturating_add(path.as_bytes().len());
        self.meet(path)
    }

    /// The path's index; a new path is appended.
    pub fn meet(&mut self, path: &'a FilePath) -> u32 {
        *self.index.entry(path).or_insert_with(|| {
            self.paths.push(path);
            self.listed = self.listed.saturating_add(path.as_bytes().len());
            (self.paths.len() - 1) as u32
        })
    }

    /// The columns: how many leading parts are those of the path before, and the rest.
    pub fn columns(&self) -> Result<[Column; 2], String> {
        bounded("paths", self.paths.len(), limits::PATHS)?;
        bounded("bytes of paths", self.listed, limits::PATH_BYTES)?;
        bounded(
            "bytes of paths referred to",
            self.referred,
            limits::REFERRED_BYTES,
        )?;
        let [mut shared, mut rest] = <[Column; 2]>::default();
        let mut before: &[u8] = b"";
        for path in &self.paths {
            let path = path.as_bytes();
            // What else a path must not have depends on whose it is; a NUL would end it here.
            if path.contains(&0) || path.len() > limits::PATH {
                return Err(format!("{:?} is no path", String::from_utf8_lossy(path)));
            }
            let parts = parts_in_common(before, path);
            shared.number(parts as u64);
            rest.text(&path[prefix(before, parts).unwrap_or(0)..]);
            before = path;
        }
        Ok([shared, rest])
    }
}

/// The path followed by a slash, where the parts of it end.
fn slashes(path: &[u8]) -> impl Iterator<Item = usize> + '_ {
    let inner = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    inner.map(|(at, _)| at).chain([path.len()])
}

/// How many leading parts, each up to and with its slash, two paths have in common; `before` is taken to end
/// in one.
fn parts_in_common(before: &[u8], path: &[u8]) -> usize {
    let same = before.iter().zip(path).take_while(|(a, b)| a == b).count();
    let ends =
        |at: &usize| *at < same || (*at == same && *at == before.len() && path.get(*at) == Some(&b'/'));
    slashes(before).take_while(ends).count()
}

/// The length of the first `parts` parts of a path that is taken to end in a slash.
fn prefix(path: &[u8], parts: usize) -> Option<usize> {
    match parts {
        0 => Some(0),
        _ => slashes(path).nth(parts - 1).map(|at| at + 1),
    }
}

/// The paths as read, and how many bytes of them may still be referred to.
pub(super) struct Paths {
    paths: Vec<FilePath>,
    left: usize,
}

impl Paths {
    /// Reads the columns.
    pub fn read([mut shared, mut rest]: [Cursor<'_>; 2]) -> Result<Paths, String> {
        let rows = shared.rows();
        bounded("paths", rows, limits::PATHS)?;
        let mut paths: Vec<FilePath> = Vec::with_capacity(rows);
        let mut listed = 0;
        while shared.more() {
            let before: &[u8] = paths.last().map_or(b"", |path| path.as_bytes());
            let parts = shared.small()?;
            let length = prefix(before, parts)
                .ok_or_else(|| format!("path {} begins with more than the one before", paths.len()))?;
            let mut path = before[..length.min(before.len())].to_vec();
            path.resize(length, b'/');
            path.extend_from_slice(rest.text()?);
            if path.len() > limits::PATH {
                return Err(format!(
                    "path {} has more than {} bytes",
                    paths.len(),
                    limits::PATH
                ));
            }
            listed += path.len();
            bounded("bytes of paths", listed, limits::PATH_BYTES)?;
            paths.push(FilePath::from(path));
        }
        Ok(Paths {
            paths,
            left: limits::REFERRED_BYTES,
        })
    }

    /// A path by its index.
    pub fn get(&mut self, index: u64) -> Result<FilePath, String> {
        let path = usize::try_from(index).ok().and_then(|at| self.paths.get(at));
        let path = path.ok_or_else(|| format!("path {index} is not listed"))?;
        let left = self.left.checked_sub(path.as_bytes().len());
        self.left = left.ok_or_else(|| {
            format!(
                "it has more than {} bytes of paths referred to",
                limits::REFERRED_BYTES
            )
        })?;
        Ok(path.clone())
    }
}

/// Indices that mostly go up by one, each new path being met in the order of the list.
#[derive(Default)]
pub(super) struct Reference {
    next: u64,
}

impl Reference {
    /// Writes an index.
    pub fn put(&mut self, column: &mut Column, index: u32) {
        column.step(self.next, u64::from(index));
        self.next = self.next.max(u64::from(index) + 1);
    }

    /// Reads an index.
    pub fn take(&mut self, column: &mut Cursor<'_>) -> Result<u64, String> {
        let index = column.step(self.next)?;
        self.next = self.next.max(index.saturating_add(1));
        Ok(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::columns::{join, split};

    #[test]
    fn lists_come_back() {
        let given = [
            "", "/", "/a", "/a/b", "/a/bc", "/a/b", "//", "x/y", "x", "/a/b/c/d", "/a/b/e",
        ]
        .map(FilePath::from);
        let mut list = PathList::default();
        let indices: Vec<u32> = given.iter().map(|path| list.add(path)).collect();
        let bytes = join(&list.columns().unwrap());
        let mut paths = Paths::read(split(&bytes).unwrap()).unwrap();
        for (path, index) in given.iter().zip(indices) {
            assert_eq!(paths.get(u64::from(index)).as_ref(), Ok(path));
        }
        assert!(paths.get(given.len() as u64).is_err());
    }

    #[test]
    fn what_is_shared_is_whole_parts() {
        for (before, path, parts) in [
            ("/a/b", "/a/b/c", 3),
            ("/a/b", "/a/bc", 2),
            ("", "/a", 1),
            ("a", "a/b", 1),
        ] {
            assert_eq!(
                parts_in_common(before.as_bytes(), path.as_bytes()),
                parts,
                "{before} {path}"
            );
        }
    }
}
