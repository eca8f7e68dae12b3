//! What the kernel says about its own binary formats: `events/header_page` and `events/*/*/format`. Nothing
//! about the place of a field is assumed; kernels have moved and widened them.

use std::collections::HashMap;

/// Where a field is in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub offset: usize,
    pub size: usize,
}

impl Field {
    /// The field's bytes in `record`; `None` if the record is too short.
    pub fn bytes<'a>(&self, record: &'a [u8]) -> Option<&'a [u8]> {
        record.get(self.offset..self.offset.checked_add(self.size)?)
    }

    /// The field as an unsigned number of 1, 2, 4 or 8 bytes in the machine's own order.
    pub fn number(&self, record: &[u8]) -> Option<u64> {
        let bytes = self.bytes(record)?;
        Some(match *bytes {
            [a] => u64::from(a),
            [a, b] => u64::from(u16::from_ne_bytes([a, b])),
            [a, b, c, d] => u64::from(u32::from_ne_bytes([a, b, c, d])),
            [a, b, c, d, e, f, g, h] => u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
            _ => return None,
        })
    }

    /// The text a `__data_loc` field points to (offset in its low, length in its high 16 bits), without the
    /// NUL.
    pub fn text<'a>(&self, record: &'a [u8]) -> Option<&'a [u8]> {
        let at = self.number(record)? as usize;
        let text = record.get(at & 0xffff..)?.get(..at >> 16 & 0xffff)?;
        Some(text.split(|b| *b == 0).next().unwrap_or(text))
    }
}

/// The fields of a format file by name, in bytes, and the `ID:` line's number where there is one.
#[derive(Clone, Debug, Default)]
pub(super) struct Format {
    pub id: Option<u16>,
    fields: HashMap<String, Field>,
}

impl Format {
    /// Reads a format file. Lines that are not understood are passed over: what is needed and missing shows
    /// when it is asked for.
    pub fn parse(text: &str) -> Format {
        let mut format = Format::default();
        for line in text.lines().map(str::trim) {
            if let Some(id) = line.strip_prefix("ID:") {
                format.id = id.trim().parse().ok();
            } else if let Some(rest) = line.strip_prefix("field:") {
                if let Some((name, field)) = parse_field(rest) {
                    format.fields.insert(name, field);
                }
            }
        }
        format
    }

    /// Where a field is.
    pub fn field(&self, name: &str) -> Option<Field> {
        self.fields.get(name).copied()
    }
}

/// `char comm[16];  offset:8;  size:16;  signed:0;` → comm, 8, 16.
fn parse_field(text: &str) -> Option<(String, Field)> {
    let mut parts = text.split(';').map(str::trim);
    let declaration = parts.next()?;
    let name = declaration
        .rsplit(|c: char| c.is_whitespace() || c == '*')
        .next()?
        .split('[')
        .next()?;
    let (mut offset, mut size) = (None, None);
    for part in parts {
        match part.split_once(':') {
            Some(("offset", n)) => offset = n.parse().ok(),
            Some(("size", n)) => size = n.parse().ok(),
            _ => {}
        }
    }
    Some((
        name.to_owned(),
        Field {
            offset: offset?,
            size: size?,
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXEC: &str = "name: sched_process_exec\nID: 365\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
        \tfield:__data_loc char[] filename;\toffset:8;\tsize:4;\tsigned:0;\n\
        \tfield:pid_t pid;\toffset:12;\tsize:4;\tsigned:1;\n\
        \tfield:char comm[16];\toffset:16;\tsize:16;\tsigned:0;\n\nprint fmt: \"filename=%s\"\n";

    #[test]
    fn fields_are_found_by_name() {
        let format = Format::parse(EXEC);
        assert_eq!(format.id, Some(365));
        assert_eq!(format.field("filename"), Some(Field { offset: 8, size: 4 }));
        assert_eq!(format.field("comm"), Some(Field { offset: 16, size: 16 }));
        assert_eq!(format.field("last_index"), None);
    }

    #[test]
    fn values_outside_the_record_are_none() {
        let format = Format::parse(EXEC);
        let filename = format.field("filename").unwrap();
        let mut record = vec![0; 16];
        record[8..12].copy_from_slice(&(16u32 | 8 << 16).to_ne_bytes());
        assert_eq!(filename.text(&record), None);
        record.extend_from_slice(b"/bin/sh\0");
        assert_eq!(filename.text(&record), Some(&b"/bin/sh"[..]));
        assert_eq!(filename.number(&record[..10]), None);
        assert_eq!(
            format.field("comm").unwrap().number(&record),
            None,
            "no number has 16 bytes"
        );
        let far = Field {
            offset: usize::MAX,
            size: 8,
        };
        assert_eq!(far.number(&record), None);
    }

    #[test]
    fn nonsense_is_passed_over() {
        assert_eq!(
            Format::parse("field:;\nfield:int x;offset:-1;size:4\nID: many\n").field("x"),
            None
        );
        assert_eq!(Format::parse("").id, None);
    }
}
