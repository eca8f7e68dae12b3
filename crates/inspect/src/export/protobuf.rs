//! Protocol buffers, as far as a Perfetto trace needs them: numbers, texts and messages.

/// A message in the making.
#[derive(Clone, Default)]
pub(super) struct Message(Vec<u8>);

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

impl Message {
    /// A number, an enumeration or a truth.
    pub fn number(mut self, field: u32, value: u64) -> Message {
        varint(&mut self.0, u64::from(field) << 3);
        varint(&mut self.0, value);
        self
    }

    /// A text.
    pub fn text(self, field: u32, text: &str) -> Message {
        self.bytes(field, text.as_bytes())
    }

    /// A message within.
    pub fn inner(self, field: u32, inner: &Message) -> Message {
        self.bytes(field, &inner.0)
    }

    fn bytes(mut self, field: u32, bytes: &[u8]) -> Message {
        varint(&mut self.0, u64::from(field) << 3 | 2);
        varint(&mut self.0, bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}
