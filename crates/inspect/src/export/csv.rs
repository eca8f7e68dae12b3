//! Accesses as comma-separated values (RFC 4180, with a line feed at the end of a line).

use super::access::{COLUMNS, Value, bounded, rows};
use headstart_model::Trace;
use std::io::{self, Write};

/// Writes the accesses of a trace, after a line of column names. What a row is without is empty.
pub fn csv(trace: &Trace, out: &mut dyn Write) -> io::Result<()> {
    bounded(trace)?;
    writeln!(out, "{}", COLUMNS.join(","))?;
    for row in rows(trace) {
        for (index, value) in row.iter().enumerate() {
            if index > 0 {
                out.write_all(b",")?;
            }
            match value {
                Value::None => {}
                Value::Text(text) => field(text, out)?,
                Value::U64(number) => write!(out, "{number}")?,
                Value::U32(number) => write!(out, "{number}")?,
                Value::Bool(truth) => write!(out, "{truth}")?,
            }
        }
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// A text, in quotes where it would be taken for more than one field or row, or for nothing.
fn field(text: &str, out: &mut dyn Write) -> io::Result<()> {
    match text.is_empty() || text.contains(['"', ',', '\n', '\r']) {
        true => write!(out, "\"{}\"", text.replace('"', "\"\"")),
        false => out.write_all(text.as_bytes()),
    }
}
