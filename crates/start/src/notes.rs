//! Lines for people: the first one is shown to the user, all of them go to the log.

use crate::{now_unix_ns, progress};
use headstart_model::human;
use std::io::Write;

/// A line of the log is no longer than this, bytes: the kernel's log (`/dev/kmsg`), where a boot writes,
/// refuses a line of more than 1 KiB minus its prefix (`LOG_LINE_MAX` in kernel/printk/printk.c).
const LONGEST: usize = 960;

/// Lines for the user. This process's standard error is the log.
#[derive(Default)]
pub struct Notes {
    first: Option<String>,
    all: Vec<String>,
}

impl Notes {
    /// Adds a line, and logs it.
    pub fn add(&mut self, line: String) {
        log(&line);
        self.all.push(line.clone());
        self.first.get_or_insert(line);
    }

    /// All lines that were told so far.
    pub fn all(&self) -> &[String] {
        &self.all
    }

    /// The first line since the last call.
    pub fn take(&mut self) -> String {
        self.first.take().unwrap_or_default()
    }
}

/// Writes a line to the log only.
pub fn log(line: &str) {
    write(&format!("{}: {line}", human::date(now_unix_ns())));
}

/// Says one line to the user.
pub fn complain(message: &str) {
    write(&format!("headstart: {message}"));
}

/// One line on standard error, in one write. Where it cannot be written (a full disk, a closed pipe) it is
/// lost: nobody can be told, and nothing else may fail for it.
fn write(text: &str) {
    let mut line = human::printable(&text.replace('\n', " "));
    if line.len() > LONGEST {
        let end = (0..=LONGEST).rev().find(|at| line.is_char_boundary(*at));
        line.truncate(end.unwrap_or(0));
        line.push_str("...");
    }
    line.push('\n');
    progress::clear();
    let _ = std::io::stderr().write_all(line.as_bytes());
}
