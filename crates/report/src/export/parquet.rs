//! Accesses as a Parquet file.
//!
//! Of the format no more than a table needs: one data page for each column of a row group, values as they are (PLAIN), the
//! presence of values as run lengths (RLE), pages compressed by zstd. The crate `parquet` would add a fifth to the binary,
//! which is read from a cold disk at each boot.

use super::access::{COLUMNS, Row, Type, Value, rows};
use super::thrift::Struct;
use headstart_model::Trace;
use std::io::{self, Write};

/// Rows of a row group: what is in memory at a time is below some tens of megabytes, whatever the paths are.
const GROUP: usize = 8 << 10;

/// The level of compression: a quick one.
const LEVEL: i32 = 3;

// Numbers of parquet.thrift.
const BOOLEAN: i32 = 0;
const INT32: i32 = 1;
const INT64: i32 = 2;
const BYTE_ARRAY: i32 = 6;
const REQUIRED: i32 = 0;
const OPTIONAL: i32 = 1;
const UTF8: i32 = 0;
const UINT_32: i32 = 13;
const UINT_64: i32 = 14;
const PLAIN: i32 = 0;
const RLE: i32 = 3;
const ZSTD: i32 = 6;
const DATA_PAGE: i32 = 0;
const VERSION: i32 = 1;

const MAGIC: &[u8; 4] = b"PAR1";

/// The physical type of a column, and what it stands for.
fn types(of: Type) -> (i32, Option<i32>) {
    match of {
        Type::Text => (BYTE_ARRAY, Some(UTF8)),
        Type::U64 => (INT64, Some(UINT_64)),
        Type::U32 => (INT32, Some(UINT_32)),
        Type::Bool => (BOOLEAN, None),
    }
}

/// Writes the accesses of a trace.
pub fn parquet(trace: &Trace, out: &mut dyn Write) -> io::Result<()> {
    let mut file = File { out, written: 0 };
    file.put(MAGIC)?;
    let (mut groups, mut total) = (Vec::new(), 0);
    let mut rows = rows(trace);
    loop {
        let group: Vec<Row<'_>> = rows.by_ref().take(GROUP).collect();
        if group.is_empty() {
            break;
        }
        total += group.len() as i64;
        groups.push(file.group(&group)?);
    }
    let root = Struct::default().text(4, "accesses").i32(5, COLUMNS.len() as i32);
    let columns = COLUMNS.map(|(name, of, optional)| {
        let (physical, stands_for) = types(of);
        let element = Struct::default()
            .i32(1, physical)
            .i32(3, if optional { OPTIONAL } else { REQUIRED })
            .text(4, name);
        match stands_for {
            Some(converted) => element.i32(6, converted),
            None => element,
        }
    });
    let footer = Struct::default()
        .i32(1, VERSION)
        .structs(2, [root].into_iter().chain(columns).collect())
        .i64(3, total)
        .structs(4, groups)
        .text(6, concat!("headstart ", env!("CARGO_PKG_VERSION")))
        .end();
    file.put(&footer)?;
    file.put(&(footer.len() as u32).to_le_bytes())?;
    file.put(MAGIC)
}

/// What is written to, and how much was.
struct File<'a> {
    out: &'a mut dyn Write,
    written: i64,
}

impl File<'_> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written += bytes.len() as i64;
        self.out.write_all(bytes)
    }

    /// Writes a row group; what the footer says of it.
    fn group(&mut self, rows: &[Row<'_>]) -> io::Result<Struct> {
        let (mut chunks, mut bytes) = (Vec::new(), 0);
        for (index, (name, of, optional)) in COLUMNS.into_iter().enumerate() {
            let page = page(rows, index, optional);
            let packed = zstd::bulk::compress(&page, LEVEL)?;
            let size = |bytes: &[u8]| i32::try_from(bytes.len()).map_err(io::Error::other);
            let about = Struct::default()
                .i32(1, rows.len() as i32)
                .i32(2, PLAIN)
                .i32(3, RLE)
                .i32(4, RLE);
            let head = Struct::default()
                .i32(1, DATA_PAGE)
                .i32(2, size(&page)?)
                .i32(3, size(&packed)?)
                .inner(5, about)
                .end();
            let at = self.written;
            self.put(&head)?;
            self.put(&packed)?;
            let plain = (head.len() + page.len()) as i64;
            bytes += plain;
            let column = Struct::default()
                .i32(1, types(of).0)
                .i32s(2, &[PLAIN, RLE])
                .texts(3, &[name])
                .i32(4, ZSTD)
                .i64(5, rows.len() as i64)
                .i64(6, plain)
                .i64(7, self.written - at)
                .i64(9, at);
            chunks.push(Struct::default().i64(2, at).inner(3, column));
        }
        Ok(Struct::default()
            .structs(1, chunks)
            .i64(2, bytes)
            .i64(3, rows.len() as i64))
    }
}

/// A column of some rows: which have a value, if they may be without, and the values.
fn page(rows: &[Row<'_>], index: usize, optional: bool) -> Vec<u8> {
    let mut out = Vec::new();
    if optional {
        let levels = levels(rows.iter().map(|row| row[index] != Value::None));
        out.extend((levels.len() as u32).to_le_bytes());
        out.extend(levels);
    }
    let (mut bits, mut count) = (0u8, 0);
    for row in rows {
        match &row[index] {
            Value::None => {}
            Value::Text(text) => {
                out.extend((text.len() as u32).to_le_bytes());
                out.extend(text.as_bytes());
            }
            Value::U64(number) => out.extend(number.to_le_bytes()),
            Value::U32(number) => out.extend(number.to_le_bytes()),
            Value::Bool(truth) => {
                bits |= u8::from(*truth) << (count % 8);
                count += 1;
                if count % 8 == 0 {
                    out.push(std::mem::take(&mut bits));
                }
            }
        }
    }
    if count % 8 != 0 {
        out.push(bits);
    }
    out
}

/// Ones and zeros as run lengths: twice the length as a varint, then the value in a byte.
fn levels(present: impl Iterator<Item = bool>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut run = |length: u32, value: bool| {
        let mut left = length << 1;
        while left >= 0x80 {
            out.push(left as u8 | 0x80);
            left >>= 7;
        }
        out.extend([left as u8, u8::from(value)]);
    };
    let mut current: Option<(u32, bool)> = None;
    for value in present {
        current = match current {
            Some((length, same)) if same == value => Some((length + 1, same)),
            Some((length, other)) => {
                run(length, other);
                Some((1, value))
            }
            None => Some((1, value)),
        };
    }
    if let Some((length, value)) = current {
        run(length, value);
    }
    out
}
