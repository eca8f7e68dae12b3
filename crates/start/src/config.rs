//! /etc/headstart/headstart.toml, a table of which is for each adapter: how the file is read.

use headstart_store::read_bounded;
use std::path::Path;

/// Where it is.
pub const FILE: &str = "/etc/headstart/headstart.toml";

/// The most bytes of it: a line for each of a thousand paths.
const MOST: u64 = 64 << 10;

/// Reads it. What is wrong with it is told, and the defaults hold: at boot there is nobody to ask.
pub fn read<T: Default>(
    path: &Path,
    tell: &mut dyn FnMut(String),
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> T {
    let mut wrong = |error: String| {
        tell(format!("{}: {error}; the defaults hold", path.display()));
        T::default()
    };
    let text = match read_bounded(path, MOST) {
        Ok(Some(bytes)) => String::from_utf8(bytes),
        Ok(None) => return T::default(),
        Err(error) => return wrong(error.to_string()),
    };
    match text {
        Ok(text) => parse(&text).unwrap_or_else(wrong),
        Err(error) => wrong(error.to_string()),
    }
}
