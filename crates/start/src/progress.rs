//! What is being done, for whoever waits at a terminal: one line that is written over, and taken away in the
//! end. Elsewhere nothing is written. The line has no colours; a terminal that is gone is no reason to end.

use headstart_model::human::printable;
use std::io::{IsTerminal, Write, stderr};
use std::sync::atomic::{AtomicBool, Ordering};

/// Columns of the narrowest terminal, but one: a line that reaches the edge cannot be written over.
const COLUMNS: usize = 79;

/// Whether a line is there now.
static SHOWN: AtomicBool = AtomicBool::new(false);

/// The line; it goes when this is dropped.
pub struct Progress {
    terminal: bool,
}

impl Progress {
    /// A line that shows nothing yet.
    pub fn for_terminal() -> Progress {
        let dumb = std::env::var_os("TERM").is_none_or(|name| name == "dumb");
        Progress {
            terminal: stderr().is_terminal() && !dumb,
        }
    }

    /// Shows what is being done now.
    pub fn show(&self, what: &str) {
        if self.terminal {
            SHOWN.store(true, Ordering::Relaxed);
            let _ = stderr().write_all(line(what).as_bytes());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        clear();
    }
}

/// Takes the line away, so that another can be written there.
pub(crate) fn clear() {
    if SHOWN.swap(false, Ordering::Relaxed) {
        let _ = stderr().write_all(b"\r\x1b[K");
    }
}

/// Over what stands there, and nothing of that behind it.
fn line(what: &str) -> String {
    let what: String = printable(what).chars().take(COLUMNS).collect();
    format!("\r{what}\x1b[K")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_fits_a_terminal_and_moves_no_cursor() {
        assert_eq!(line("drawing"), "\rdrawing\x1b[K");
        let long = line(&"ä\u{1b}[2J\n".repeat(99));
        let text = long
            .strip_prefix('\r')
            .and_then(|line| line.strip_suffix("\x1b[K"))
            .unwrap();
        assert_eq!(text.chars().count(), COLUMNS);
        assert!(!text.contains(['\u{1b}', '\n']), "{text:?}");
    }
}
