//! Paths as the kernel has them: bytes without NUL, not necessarily UTF-8; and which of them a file may hold.

use crate::limits;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Why a path may not be in a trace, a profile or a plan.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub enum PathError {
    /// It does not begin with `/`.
    #[error("is not absolute")]
    Relative,
    /// It is longer than [`limits::PATH`].
    #[error("has {0} bytes, {max} are allowed", max = limits::PATH)]
    TooLong(usize),
    /// It has a NUL, which no path of the kernel's has.
    #[error("has a NUL")]
    Nul,
    /// It has a component that is empty, as in `/a//b` and `/a/`.
    #[error("has an empty component")]
    Empty,
    /// It has a component `.` or `..`.
    #[error("has a component . or ..")]
    Dots,
}

/// Whether a trace, a profile or a plan may hold this path: absolute, at most [`limits::PATH`] bytes, without
/// NUL, and without a component that is empty, `.` or `..`. `/` alone may be.
///
/// With other components a path has several spellings. A mount point or an exclusion is found by comparing
/// spellings, so `w/../mnt/dead` would get around both.
pub fn check(path: &[u8]) -> Result<(), PathError> {
    if path.len() > limits::PATH {
        return Err(PathError::TooLong(path.len()));
    }
    if path.contains(&0) {
        return Err(PathError::Nul);
    }
    let Some(components) = path.strip_prefix(b"/") else {
        return Err(PathError::Relative);
    };
    if components.is_empty() {
        return Ok(());
    }
    for component in components.split(|byte| *byte == b'/') {
        match component {
            b"" => return Err(PathError::Empty),
            b"." | b".." => return Err(PathError::Dots),
            _ => {}
        }
    }
    Ok(())
}

/// A path as bytes; shown with invalid UTF-8 replaced. A clone shares the bytes: a trace refers to the same
/// path often.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct FilePath(Arc<[u8]>);

impl FilePath {
    /// The path as its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The path for the standard library's file functions.
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }

    /// Whether a trace, a profile or a plan may hold it; see [`check`].
    pub fn check(&self) -> Result<(), PathError> {
        check(&self.0)
    }

    /// Whether it begins with `/`.
    pub fn is_absolute(&self) -> bool {
        self.0.first() == Some(&b'/')
    }

    /// The directory the path lies in, by its text; `None` for `/` and for a path without a slash.
    pub fn parent(&self) -> Option<FilePath> {
        let cut = self.0.iter().rposition(|b| *b == b'/')?;
        match (cut, self.0.len()) {
            (0, 1) => None,
            (0, _) => Some(FilePath::from(&b"/"[..])),
            _ => Some(FilePath::from(&self.0[..cut])),
        }
    }
}

impl From<&[u8]> for FilePath {
    fn from(bytes: &[u8]) -> Self {
        FilePath(bytes.into())
    }
}

impl From<Vec<u8>> for FilePath {
    fn from(bytes: Vec<u8>) -> Self {
        FilePath(bytes.into())
    }
}

impl From<&str> for FilePath {
    fn from(text: &str) -> Self {
        FilePath(text.as_bytes().into())
    }
}

impl From<&Path> for FilePath {
    fn from(path: &Path) -> Self {
        FilePath(path.as_os_str().as_bytes().into())
    }
}

impl fmt::Display for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        String::from_utf8_lossy(&self.0).fmt(f)
    }
}

impl fmt::Debug for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

impl Serialize for FilePath {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.serialize_str(&String::from_utf8_lossy(&self.0))
        } else {
            serializer.serialize_bytes(&self.0)
        }
    }
}

impl<'de> Deserialize<'de> for FilePath {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl serde::de::Visitor<'_> for Bytes {
            type Value = FilePath;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a path")
            }
            fn visit_bytes<E: serde::de::Error>(self, v: &[u8]) -> Result<FilePath, E> {
                Ok(FilePath(v.into()))
            }
            fn visit_str<E: serde::de::Error>(self, v: &str) -> Result<FilePath, E> {
                Ok(FilePath::from(v))
            }
        }
        if deserializer.is_human_readable() {
            deserializer.deserialize_str(Bytes)
        } else {
            deserializer.deserialize_bytes(Bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_end_at_the_root() {
        let parent = |p: &str| FilePath::from(p).parent().map(|p| p.to_string());
        assert_eq!(parent("/a/b"), Some("/a".into()));
        assert_eq!(parent("/a"), Some("/".into()));
        assert_eq!(parent("/"), None);
        assert_eq!(parent("a"), None);
    }

    #[test]
    fn a_path_has_one_spelling() {
        for good in ["/", "/a", "/a/b.c", "/...", "/.a/..b/c..", "/\u{fc}"] {
            assert_eq!(check(good.as_bytes()), Ok(()), "{good}");
        }
        for (bad, why) in [
            ("", PathError::Relative),
            ("a", PathError::Relative),
            ("./a", PathError::Relative),
            ("//", PathError::Empty),
            ("//a", PathError::Empty),
            ("/a//b", PathError::Empty),
            ("/a/", PathError::Empty),
            ("/.", PathError::Dots),
            ("/a/./b", PathError::Dots),
            ("/..", PathError::Dots),
            ("/w/../mnt/dead/x", PathError::Dots),
            ("/a/..", PathError::Dots),
            ("/a\0b", PathError::Nul),
        ] {
            assert_eq!(check(bad.as_bytes()), Err(why), "{bad:?}");
        }
        let long = |bytes: usize| check(format!("/{}", "x".repeat(bytes - 1)).as_bytes());
        assert_eq!(long(limits::PATH), Ok(()));
        assert_eq!(long(limits::PATH + 1), Err(PathError::TooLong(limits::PATH + 1)));
    }

    #[test]
    fn bytes_that_are_not_utf8_survive() {
        let path = FilePath::from(&b"/caf\xe9"[..]);
        let bytes = postcard::to_allocvec(&path).unwrap();
        assert_eq!(postcard::from_bytes::<FilePath>(&bytes).unwrap(), path);
    }
}
