//! Paths as the kernel has them: bytes without NUL, not necessarily UTF-8.

use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A path as bytes; shown with invalid UTF-8 replaced.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct FilePath(Vec<u8>);

impl FilePath {
    /// The path as its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The path for the standard library's file functions.
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
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
            (0, _) => Some(FilePath(b"/".to_vec())),
            _ => Some(FilePath(self.0[..cut].to_vec())),
        }
    }
}

impl From<&[u8]> for FilePath {
    fn from(bytes: &[u8]) -> Self {
        FilePath(bytes.to_vec())
    }
}

impl From<Vec<u8>> for FilePath {
    fn from(bytes: Vec<u8>) -> Self {
        FilePath(bytes)
    }
}

impl From<&str> for FilePath {
    fn from(text: &str) -> Self {
        FilePath(text.as_bytes().to_vec())
    }
}

impl From<&Path> for FilePath {
    fn from(path: &Path) -> Self {
        FilePath(path.as_os_str().as_bytes().to_vec())
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
                Ok(FilePath(v.to_vec()))
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
    fn bytes_that_are_not_utf8_survive() {
        let path = FilePath::from(&b"/caf\xe9"[..]);
        let bytes = postcard::to_allocvec(&path).unwrap();
        assert_eq!(postcard::from_bytes::<FilePath>(&bytes).unwrap(), path);
    }
}
