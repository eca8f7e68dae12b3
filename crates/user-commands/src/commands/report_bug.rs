//! `headstart report-bug`: what somebody needs to know who is to find a fault, in one file.

use super::{doctor, status};
use crate::privacy::{homes, leave_out};
use anyhow::Result;
use headstart_start_commands::context::Output;
use headstart_store::{Store, write_output};
use serde_json::{Value, json};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Write a file for a bug report: what doctor and status print, and the last lines of the log.
///
/// The file is JSON text: look at it before you give it to anybody. From each text everything behind the
/// first path below a home directory is removed, with that path; other paths stay and show which programs
/// were started. Nothing is sent anywhere.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The file.
    #[arg(short, long, value_name = "FILE", default_value = "headstart-report.json")]
    output: PathBuf,
    #[command(flatten)]
    output_form: Output,
}

/// So many keys are told of, the first in order, and of each so many of the last outcomes.
const MOST_KEYS: usize = 100;
const MOST_OUTCOMES: usize = 10;

/// So much of the log's end, bytes.
const MOST_LOG: u64 = 64 << 10;

pub fn run(args: Args, store: &Store) -> Result<()> {
    let mut report = gather(store)?;
    leave_out(&mut report, &homes());
    let text = serde_json::to_string_pretty(&report)? + "\n";
    write_output(&args.output, text.as_bytes())?;
    let path = args.output.display().to_string();
    let document = json!({ "file": path, "bytes": text.len() });
    args.output_form.print(&document, || {
        format!("{path} is written: look at it, and add it to your report\n")
    })
}

fn gather(store: &Store) -> Result<Value> {
    let keys = store.keys().unwrap_or_default();
    let mut known = Vec::new();
    for key in keys.iter().take(MOST_KEYS) {
        let mut status = status::read_status(&store.key(key));
        let excess = status.outcomes.len().saturating_sub(MOST_OUTCOMES);
        status.outcomes.drain(..excess);
        known.push(serde_json::to_value(status)?);
    }
    let log = end_of(store.log().path());
    Ok(json!({
        "headstart": env!("CARGO_PKG_VERSION"),
        "doctor": doctor::examine(store)?,
        "keys": keys.len(),
        "status": known,
        "log": log.lines().collect::<Vec<_>>(),
    }))
}

/// The last lines of a file; nothing where it cannot be read.
fn end_of(path: &Path) -> String {
    let mut bytes = Vec::new();
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let mut options = std::fs::File::options();
    let read = options
        .read(true)
        .custom_flags(flags.bits() as i32)
        .open(path)
        .and_then(|mut file| {
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(MOST_LOG)))?;
            file.take(MOST_LOG).read_to_end(&mut bytes)?;
            Ok(length)
        });
    let text = String::from_utf8_lossy(&bytes).into_owned();
    match read {
        // The first line may be the end of one.
        Ok(length) if length > MOST_LOG => text
            .split_once('\n')
            .map_or(String::new(), |(_, rest)| rest.into()),
        Ok(_) => text,
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_of_a_long_log_is_told_and_whole_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        assert_eq!(end_of(&path), "");
        std::fs::write(&path, "one\ntwo\n").unwrap();
        assert_eq!(end_of(&path), "one\ntwo\n");
        std::fs::write(&path, "a line\n".repeat(20_000)).unwrap();
        let end = end_of(&path);
        assert!(end.len() < MOST_LOG as usize && end.lines().all(|line| line == "a line"));
    }
}
