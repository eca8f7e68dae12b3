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
//! All numbers are little-endian. A reader skips sections whose tag it does not know; a changed meaning gets a new tag.

use super::{Kind, MAX_FILE};
use serde::{Serialize, de::DeserializeOwned};
use std::cmp::Ordering;
use std::io::Read;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The minor version written.
pub const MINOR: u16 = 0;
/// The most sections a file may have.
const MAX_SECTIONS: u32 = 64;
/// The largest decoded section, bytes.
pub(super) const MAX_SECTION: u64 = 128 << 20;
/// The level of compressed sections. The trace of a boot takes some 3 ms; at 19 it takes 27, and is 4 to 8 % smaller.
const LEVEL: i32 = 9;

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
    sections: Vec<([u8; 4], u32, u64, Vec<u8>)>,
}

impl Writer {
    /// A file of the given kind without sections.
    pub fn new(kind: Kind) -> Writer {
        Writer {
            kind,
            sections: Vec::new(),
        }
    }

    /// Adds a section as it is.
    pub fn raw(&mut self, tag: &[u8; 4], bytes: &[u8]) {
        self.sections
            .push((*tag, RAW, bytes.len() as u64, bytes.to_vec()));
    }

    /// Adds a section compressed.
    pub fn compressed(&mut self, tag: &[u8; 4], bytes: &[u8]) -> Result<(), FormatError> {
        let too_large = |what: String| FormatError::TooLarge {
            kind: self.kind.name(),
            what,
        };
        if bytes.len() as u64 > MAX_SECTION {
            return Err(too_large(format!(
                "section {} has {} bytes, {MAX_SECTION} are allowed",
                String::from_utf8_lossy(tag),
                bytes.len()
            )));
        }
        let stored = zstd::bulk::compress(bytes, LEVEL).map_err(|e| too_large(format!("zstd: {e}")))?;
        self.sections.push((*tag, ZSTD, bytes.len() as u64, stored));
        Ok(())
    }

    /// Adds a section of a value, encoded by postcard and compressed.
    pub fn value<T: Serialize + ?Sized>(&mut self, tag: &[u8; 4], value: &T) -> Result<(), FormatError> {
        let bytes = postcard::to_stdvec(value).map_err(|e| FormatError::TooLarge {
            kind: self.kind.name(),
            what: e.to_string(),
        })?;
        self.compressed(tag, &bytes)
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
        if offset as u64 > MAX_FILE {
            let what = format!("it would have {offset} bytes, {MAX_FILE} are allowed");
            return Err(FormatError::TooLarge {
                kind: self.kind.name(),
                what,
            });
        }
        let mut header = Header {
            magic: *self.kind.magic(),
            major: U16::new(self.kind.major()),
            minor: U16::new(MINOR),
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
            let found = Kind::of(bytes)
                .map(|k| format!(", but with that of a {}", k.name()))
                .unwrap_or_default();
            return Err(FormatError::Magic {
                expected: kind.name(),
                found,
            });
        }
        let (header, rest) = Header::ref_from_prefix(bytes).map_err(|_| damaged("the header is cut"))?;
        let (kind_name, found, read) = (kind.name(), header.major.get(), kind.major());
        match found.cmp(&read) {
            Ordering::Equal => {}
            Ordering::Greater => {
                return Err(FormatError::Version {
                    kind: kind_name,
                    found,
                    read,
                });
            }
            Ordering::Less => {
                return Err(FormatError::Old {
                    kind: kind_name,
                    found,
                    read,
                });
            }
        }
        if header.length.get() != bytes.len() as u64 {
            return Err(damaged("its length is not the one it states"));
        }
        let count = header.sections.get();
        if count > MAX_SECTIONS {
            return Err(damaged("it states too many sections"));
        }
        let (rows, _) = <[Row]>::ref_from_prefix_with_elems(rest, count as usize)
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

    fn row(&self, tag: &[u8; 4]) -> Option<&'a Row> {
        self.rows.iter().find(|row| row.tag == *tag)
    }

    fn stored(&self, row: &Row) -> Result<&'a [u8], FormatError> {
        let name = String::from_utf8_lossy(&row.tag).into_owned();
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

    /// A section stored as it is, without copying.
    pub fn raw(&self, tag: &[u8; 4]) -> Result<&'a [u8], FormatError> {
        let name = String::from_utf8_lossy(tag);
        let row = self
            .row(tag)
            .ok_or_else(|| self.damaged(format!("section {name} is missing")))?;
        if row.encoding.get() != RAW {
            return Err(self.damaged(format!("section {name} has an encoding it may not have")));
        }
        self.stored(row)
    }

    /// A section, decoded; `None` if the file has none of that tag.
    pub fn optional(&self, tag: &[u8; 4]) -> Result<Option<Vec<u8>>, FormatError> {
        let Some(row) = self.row(tag) else { return Ok(None) };
        let name = String::from_utf8_lossy(tag);
        let stored = self.stored(row)?;
        match row.encoding.get() {
            RAW => Ok(Some(stored.to_vec())),
            ZSTD => {
                let plain = row.plain.get();
                if plain > MAX_SECTION {
                    return Err(self.damaged(format!("section {name} states {plain} bytes")));
                }
                // Grown while decoding: a small file cannot claim much memory.
                let mut bytes = Vec::new();
                let mut decoder = zstd::stream::read::Decoder::with_buffer(stored)
                    .map_err(|e| self.damaged(format!("section {name}: {e}")))?
                    .take(plain + 1);
                decoder
                    .read_to_end(&mut bytes)
                    .map_err(|e| self.damaged(format!("section {name}: {e}")))?;
                if bytes.len() as u64 != plain {
                    return Err(self.damaged(format!("section {name} has not the length it states")));
                }
                Ok(Some(bytes))
            }
            other => Err(self.damaged(format!("section {name} has the unknown encoding {other}"))),
        }
    }

    /// A section, decoded.
    pub fn section(&self, tag: &[u8; 4]) -> Result<Vec<u8>, FormatError> {
        self.optional(tag)?
            .ok_or_else(|| self.damaged(format!("section {} is missing", String::from_utf8_lossy(tag))))
    }

    /// A section of a value.
    pub fn value<T: DeserializeOwned>(&self, tag: &[u8; 4]) -> Result<T, FormatError> {
        let bytes = self.section(tag)?;
        postcard::from_bytes(&bytes)
            .map_err(|e| self.damaged(format!("section {}: {e}", String::from_utf8_lossy(tag))))
    }
}
