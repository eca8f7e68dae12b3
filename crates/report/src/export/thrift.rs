//! Thrift's compact protocol, as far as the footer of a Parquet file needs it: structures of numbers, texts, lists and
//! structures (thrift-compact-protocol.md of Apache Thrift).

const I32: u8 = 5;
const I64: u8 = 6;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

/// A structure in the making: its fields in ascending order.
#[derive(Default)]
pub(super) struct Struct {
    bytes: Vec<u8>,
    last: u8,
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

impl Struct {
    /// Field numbers grow by less than 16 here, so that a field's head is one byte.
    fn field(&mut self, number: u8, kind: u8) {
        self.bytes.push((number - self.last) << 4 | kind);
        self.last = number;
    }

    /// A number of 32 bits.
    pub fn i32(mut self, number: u8, value: i32) -> Struct {
        self.field(number, I32);
        varint(&mut self.bytes, zigzag(value.into()));
        self
    }

    /// A number of 64 bits.
    pub fn i64(mut self, number: u8, value: i64) -> Struct {
        self.field(number, I64);
        varint(&mut self.bytes, zigzag(value));
        self
    }

    /// A text.
    pub fn text(mut self, number: u8, text: &str) -> Struct {
        self.field(number, BINARY);
        put_text(&mut self.bytes, text);
        self
    }

    /// A structure within.
    pub fn inner(mut self, number: u8, inner: Struct) -> Struct {
        self.field(number, STRUCT);
        self.bytes.extend(inner.end());
        self
    }

    /// A list of structures.
    pub fn structs(mut self, number: u8, list: Vec<Struct>) -> Struct {
        self.list(number, list.len(), STRUCT);
        for one in list {
            self.bytes.extend(one.end());
        }
        self
    }

    /// A list of numbers of 32 bits.
    pub fn i32s(mut self, number: u8, list: &[i32]) -> Struct {
        self.list(number, list.len(), I32);
        for value in list {
            varint(&mut self.bytes, zigzag((*value).into()));
        }
        self
    }

    /// A list of texts.
    pub fn texts(mut self, number: u8, list: &[&str]) -> Struct {
        self.list(number, list.len(), BINARY);
        for text in list {
            put_text(&mut self.bytes, text);
        }
        self
    }

    fn list(&mut self, number: u8, length: usize, kind: u8) {
        self.field(number, LIST);
        match length {
            0..=14 => self.bytes.push((length as u8) << 4 | kind),
            _ => {
                self.bytes.push(0xf0 | kind);
                varint(&mut self.bytes, length as u64);
            }
        }
    }

    /// Its bytes, with the stop that ends it.
    pub fn end(mut self) -> Vec<u8> {
        self.bytes.push(0);
        self.bytes
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    varint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}
