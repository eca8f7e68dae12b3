//! The container: a header, a table of sections, the sections.
//!
//! | offset | size | header |
//! |---|---|---|
//! | 0 | 8 | magic |
//! | 8 | 2 | major version: a reader refuses one it does not know |
//! | 10 | 2 | minor version: sections may have been added |
//! | 12 | 4 | number of sections |
//! | 16 | 8 | length of the file |
//! | 24 | 4 | CRC-32 of the header (this field 0) and the table |
//! | 28 | 4 | zero |
//!
//! | offset | size | row of the table |
//! |---|---|---|
//! | 0 | 4 | tag |
//! | 4 | 4 | encoding: 0 as it is, 1 zstd |
//! | 8 | 8 | offset in the file, a multiple of 8 |
//! | 16 | 8 | length in the file |
//! | 24 | 8 | length when decoded |
//! | 32 | 4 | CRC-32 of the bytes in the file |
//! | 36 | 4 | zero |
//!
//! All numbers are little-endian. A reader skips sections whose tag it does not know; a changed meaning gets
//! a new tag.

use super::Kind;
use super::values::Values;
use crate::limits;
use serde::Serialize;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The level of compressed sections, by their length. At 9 the trace of a boot takes some 3 ms; at 19 it
/// takes 27, and is 4 to 8 % smaller. Up to 128 KiB, as programs' have them, 15 takes 10 ms at most, and
/// leaves 3 % less.
fn level(bytes: usize) -> i32 {
    if bytes <= 128 << 10 { 15 } else { 9 }
}

/// Why bytes are not a file of the kind asked for.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// It begins otherwise.
    #[error("this is no headstart {expected}: it does not begin with its magic{found}")]
    Magic {
        /// The kind asked for.
        expected: &'static str,
        /// What it is instead, as a clause.
        found: String,
    },
    /// It is of a later major version.
    #[error(
        "the {kind} has format version {found}, this headstart reads version {read}: use a newer headstart"
    )]
    Version {
        /// The kind.
        kind: &'static str,
        /// Its major version.
        found: u16,
        /// The one that is read.
        read: u16,
    },
    /// It is of an earlier major version.
    #[error(
        "the {kind} has format version {found}, this headstart reads version {read}: record or make it again"
    )]
    Old {
        /// The kind.
        kind: &'static str,
        /// Its major version.
        found: u16,
        /// The one that is read.
        read: u16,
    },
    /// It is damaged or made to deceive.
    #[error("the {kind} is damaged ({what}): record or make it again")]
    Damaged {
        /// The kind.
        kind: &'static str,
        /// What does not fit.
        what: String,
    },
    /// What should be written exceeds a limit of the format.
    #[error("the {kind} cannot be written: {what}")]
    TooLarge {
        /// The kind.
        kind: &'static str,
        /// What exceeds which limit.
        what: String,
    },
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct Header {
    magic: [u8; 8],
    major: U16,
    minor: U16,
    sections: U32,
    length: U64,
    check: U32,
    zero: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct Row {
    tag: [u8; 4],
    encoding: U32,
    offset: U64,
    stored: U64,
    plain: U64,
    check: U32,
    zero: U32,
}

const HEADER: usize = size_of::<Header>();
const ROW: usize = size_of::<Row>();
const RAW: u32 = 0;
const ZSTD: u32 = 1;

/// Collects sections and writes the file.
pub struct Writer {
    kind: Kind,
    major: u16,
    sections: Vec<([u8; 4], u32, u64, Vec<u8>)>,
}

impl Writer {
    /// A file of the given kind without sections.
    pub fn new(kind: Kind) -> Writer {
        Writer {
            kind,
            major: kind.major(),
            sections: Vec::new(),
        }
    }

    /// The file is one of this earlier major version, which has all that is in it.
    pub fn of_major(self, major: u16) -> Writer {
        Writer { major, ..self }
    }

    /// Adds a section as it is.
    pub fn raw(&mut self, tag: &[u8; 4], bytes: &[u8]) {
        self.sections
            .push((*tag, RAW, bytes.len() as u64, bytes.to_vec()));
    }

    fn too_large(&self, what: impl Into<String>) -> FormatError {
        FormatError::TooLarge {
            kind: self.kind.name(),
            what: what.into(),
        }
    }

    /// Adds a section of at most `most` bytes compressed.
    pub fn compressed(&mut self, tag: &[u8; 4], bytes: &[u8], most: usize) -> Result<(), FormatError> {
        if bytes.len() > most {
            return Err(self.too_large(format!(
                "section {} has {} bytes, {most} are allowed",
                name(tag),
                bytes.len()
            )));
        }
        let stored = zstd::bulk::compress(bytes, level(bytes.len()))
            .map_err(|e| self.too_large(format!("zstd: {e}")))?;
        self.sections.push((*tag, ZSTD, bytes.len() as u64, stored));
        Ok(())
    }

    /// Adds a section of a value, encoded by postcard in at most `most` bytes and compressed.
    pub fn value<T: Serialize + ?Sized>(
        &mut self,
        tag: &[u8; 4],
        value: &T,
        most: usize,
    ) -> Result<(), FormatError> {
        let bytes = postcard::to_stdvec(value).map_err(|e| self.too_large(e.to_string()))?;
        self.compressed(tag, &bytes, most)
    }

    /// The file.
    pub fn finish(self) -> Result<Vec<u8>, FormatError> {
        let align = |n: usize| n.next_multiple_of(8);
        let mut offset = align(HEADER + ROW * self.sections.len());
        let mut rows = Vec::with_capacity(self.sections.len());
        for (tag, encoding, plain, stored) in &self.sections {
            rows.push(Row {
                tag: *tag,
                encoding: U32::new(*encoding),
                offset: U64::new(offset as u64),
                stored: U64::new(stored.len() as u64),
                plain: U64::new(*plain),
                check: U32::new(crc32fast::hash(stored)),
                zero: U32::ZERO,
            });
            offset = align(offset + stored.len());
        }
        let most = self.kind.most_bytes();
        if offset > most {
            return Err(self.too_large(format!("it would have {offset} bytes, {most} are allowed")));
        }
        let mut header = Header {
            magic: *self.kind.magic(),
            major: U16::new(self.major),
            minor: U16::new(self.kind.minor()),
            sections: U32::new(rows.len() as u32),
            length: U64::new(offset as u64),
            check: U32::ZERO,
            zero: U32::ZERO,
        };
        header.check = U32::new(check(&header, rows.as_bytes()));
        let mut file = Vec::with_capacity(offset);
        file.extend_from_slice(header.as_bytes());
        file.extend_from_slice(rows.as_bytes());
        for ((_, _, _, stored), row) in self.sections.iter().zip(&rows) {
            file.resize(row.offset.get() as usize, 0);
            file.extend_from_slice(stored);
        }
        file.resize(offset, 0);
        Ok(file)
    }
}

fn name(tag: &[u8; 4]) -> String {
    String::from_utf8_lossy(tag).into_owned()
}

fn check(header: &Header, rows: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(
        Header {
            check: U32::ZERO,
            ..*header
        }
        .as_bytes(),
    );
    hasher.update(rows);
    hasher.finalize()
}

/// A file whose header and table are sound; sections are checked when asked for.
pub struct Container<'a> {
    kind: Kind,
    bytes: &'a [u8],
    rows: &'a [Row],
}

impl<'a> Container<'a> {
    /// Reads header and table.
    pub fn new(kind: Kind, bytes: &'a [u8]) -> Result<Container<'a>, FormatError> {
        let damaged = |what: &str| FormatError::Damaged {
            kind: kind.name(),
            what: what.into(),
        };
        if !bytes.starts_with(kind.magic()) {
            let other_kind = Kind::detect(bytes)
                .map(|k| format!(", but with that of a {}", k.name()))
                .unwrap_or_default();
            return Err(FormatError::Magic {
                expected: kind.name(),
                found: other_kind,
            });
        }
        let (header, rest) = Header::ref_from_prefix(bytes).map_err(|_| damaged("the header is cut"))?;
        let (kind_name, found, read) = (kind.name(), header.major.get(), kind.major());
        if found > read {
            return Err(FormatError::Version {
                kind: kind_name,
                found,
                read,
            });
        }
        if found < kind.oldest() {
            return Err(FormatError::Old {
                kind: kind_name,
                found,
                read,
            });
        }
        if header.length.get() != bytes.len() as u64 {
            return Err(damaged("its length is not the one it states"));
        }
        let most = kind.most_bytes();
        if bytes.len() > most {
            return Err(damaged(&format!(
                "it has {} bytes, {most} are allowed",
                bytes.len()
            )));
        }
        let count = header.sections.get() as usize;
        if count > limits::SECTIONS {
            return Err(damaged("it states too many sections"));
        }
        let (rows, _) = <[Row]>::ref_from_prefix_with_elems(rest, count)
            .map_err(|_| damaged("the section table is cut"))?;
        if check(header, rows.as_bytes()) != header.check.get() {
            return Err(damaged("the checksum of the header is wrong"));
        }
        Ok(Container { kind, bytes, rows })
    }

    /// An error about this file.
    pub fn damaged(&self, what: impl Into<String>) -> FormatError {
        FormatError::Damaged {
            kind: self.kind.name(),
            what: what.into(),
        }
    }

    /// The tags of its sections, in order.
    pub fn tags(&self) -> impl Iterator<Item = [u8; 4]> + use<'a> {
        self.rows.iter().map(|row| row.tag)
    }

    /// Whether it has a section.
    pub fn has(&self, tag: &[u8; 4]) -> bool {
        self.row(tag).is_some()
    }

    fn row(&self, tag: &[u8; 4]) -> Option<&'a Row> {
        self.rows.iter().find(|row| row.tag == *tag)
    }

    fn stored(&self, row: &Row) -> Result<&'a [u8], FormatError> {
        let name = name(&row.tag);
        let bytes = usize::try_from(row.offset.get())
            .ok()
            .zip(usize::try_from(row.stored.get()).ok())
            .and_then(|(offset, stored)| self.bytes.get(offset..offset.checked_add(stored)?))
            .ok_or_else(|| self.damaged(format!("section {name} lies outside the file")))?;
        if crc32fast::hash(bytes) != row.check.get() {
            return Err(self.damaged(format!("the checksum of section {name} is wrong")));
        }
        Ok(bytes)
    }

    fn wanted(&self, tag: &[u8; 4]) -> Result<&'a Row, FormatError> {
        self.row(tag)
            .ok_or_else(|| self.damaged(format!("section {} is missing", name(tag))))
    }

    /// A section stored as it is, without copying.
    pub fn raw(&self, tag: &[u8; 4]) -> Result<&'a [u8], FormatError> {
        let row = self.wanted(tag)?;
        if row.encoding.get() != RAW {
            return Err(self.damaged(format!("section {} has an encoding it may not have", name(tag))));
        }
        self.stored(row)
    }

    /// A section of at most `most` bytes, decoded.
    pub fn section(&self, tag: &[u8; 4], most: usize) -> Result<Vec<u8>, FormatError> {
        let row = self.wanted(tag)?;
        let damaged = |what: String| self.damaged(format!("section {} {what}", name(tag)));
        let stored = self.stored(row)?;
        let plain = match row.encoding.get() {
            RAW => stored.len(),
            ZSTD => usize::try_from(row.plain.get()).unwrap_or(usize::MAX),
            other => return Err(damaged(format!("has the unknown encoding {other}"))),
        };
        if plain > most {
            return Err(damaged(format!(
                "has {plain} bytes when decoded, {most} are allowed"
            )));
        }
        if row.encoding.get() == RAW {
            return Ok(stored.to_vec());
        }
        // In one go into memory of the size stated: what is decoded as a stream takes a window besides, as
        // large as the frame says.
        let bytes =
            zstd::bulk::decompress(stored, plain).map_err(|e| damaged(format!("cannot be decoded: {e}")))?;
        match bytes.len() == plain {
            true => Ok(bytes),
            false => Err(damaged("has not the length it states".into())),
        }
    }

    /// Reads values off a section of at most `most` bytes.
    pub(super) fn values<T>(
        &self,
        tag: &[u8; 4],
        most: usize,
        read: impl FnOnce(&mut Values<'_>) -> Result<T, String>,
    ) -> Result<T, FormatError> {
        let bytes = self.section(tag, most)?;
        read(&mut Values::new(&bytes)).map_err(|what| self.damaged(format!("section {}: {what}", name(tag))))
    }
}
