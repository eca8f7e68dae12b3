//! Starts that the user names: the last one that is kept of a key, or a trace.

use crate::files;
use crate::floor::{KeptStart, Wanted, last_start};
use anyhow::{Result, bail};
use headstart_start::complain;
use headstart_start::keys::find_known;
use headstart_store::{KeyDir, Store};
use std::path::Path;

/// A start that was found.
pub struct FoundStart {
    /// Its key, or the name of its trace.
    pub name: String,
    /// The start.
    pub start: KeptStart,
    /// Where its key is kept.
    pub of: Option<KeyDir>,
}

/// The start that a user means. A trace comes before the key of a program, not before the key of that very
/// name: the path of a program is its key.
pub fn find(start: &Path, wanted: Wanted, store: &Store) -> Result<FoundStart> {
    let name = start.to_string_lossy();
    let file = start.symlink_metadata();
    let by_name = |kept: &KeyDir| {
        kept.key().as_str() == name || !file.as_ref().is_ok_and(|metadata| metadata.is_file())
    };
    if let Some(kept) = find_known(&name, store).ok().filter(by_name) {
        let Some(start) = last_start(&kept, wanted, &mut |line| complain(&line)) else {
            bail!(
                "no {}trace is kept of {}: it has one after the next start that is recorded",
                match wanted {
                    Wanted::Any => "",
                    Wanted::Replay => "whole ",
                },
                kept.key()
            );
        };
        return Ok(FoundStart {
            name: kept.key().to_string(),
            start,
            of: Some(kept),
        });
    }
    if file.is_err() {
        bail!(
            "{name:?} is neither a key nor a file: `headstart status` lists the keys, `headstart record` writes traces"
        );
    }
    let name = start.file_name().unwrap_or(start.as_os_str());
    Ok(FoundStart {
        name: name.to_string_lossy().into_owned(),
        start: KeptStart {
            trace: files::trace(start)?,
            outcome: None,
        },
        of: None,
    })
}
