//! What setups say of themselves when they have learned, a line each: kept in `told.json` beside the runs,
//! for each case and setup. So a table can show beside a time whether headstart bypassed the start.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::progress::one_line;
use crate::machine::{Machine, Place};

/// By case and setup.
pub type Told = BTreeMap<String, BTreeMap<String, String>>;

/// The file.
pub(super) const FILE: &str = "told.json";

/// What the setups of an experiment's directory said; nothing where none said anything.
pub fn told(directory: &Path) -> Result<Told> {
    by_case(directory, FILE)
}

/// Asks a setup by its command, unless it was asked before an interruption, and keeps what it says.
pub(super) fn ask(
    machine: &mut dyn Machine,
    place: &Place,
    command: &[String],
    directory: &Path,
    names: [&str; 2],
) -> Result<()> {
    let known = told(directory)?;
    if known
        .get(names[0])
        .is_some_and(|setups| setups.contains_key(names[1]))
    {
        return Ok(());
    }
    let said = machine.inspect(place, &[command.to_vec()])?;
    keep(directory, FILE, names, one_line(said.trim()))
}

/// Reads a file of values by case and setup; empty where there is no file.
pub(super) fn by_case<T: DeserializeOwned>(
    directory: &Path,
    file: &str,
) -> Result<BTreeMap<String, BTreeMap<String, T>>> {
    let path = directory.join(file);
    match fs::read(&path) {
        Ok(text) => serde_json::from_slice(&text).with_context(|| path.display().to_string()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
    }
}

/// Adds the value of a case's setup to such a file, which is written whole.
pub(super) fn keep<T: DeserializeOwned + Serialize>(
    directory: &Path,
    file: &str,
    [case, setup]: [&str; 2],
    value: T,
) -> Result<()> {
    let mut all = by_case(directory, file)?;
    all.entry(case.to_owned())
        .or_default()
        .insert(setup.to_owned(), value);
    let (path, temporary) = (directory.join(file), directory.join(format!("{file}.tmp")));
    fs::write(&temporary, serde_json::to_vec_pretty(&all)?)
        .and_then(|()| fs::rename(&temporary, &path))
        .with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_is_kept_by_case_and_setup() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        assert_eq!(told(directory).unwrap(), Told::new());
        for (case, setup) in [("a", "x"), ("a", "y"), ("b", "x"), ("a", "x")] {
            keep(directory, FILE, [case, setup], format!("{case}{setup}")).unwrap();
        }
        let kept = told(directory).unwrap();
        assert_eq!(kept["a"]["y"], "ay");
        assert_eq!((kept.len(), kept["a"].len(), kept["b"].len()), (2, 2, 1));
        fs::write(directory.join(FILE), "[]").unwrap();
        assert!(format!("{:#}", told(directory).unwrap_err()).contains(FILE));
    }
}
