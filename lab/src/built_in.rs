//! Files that ship with the lab (setups, images and models), by their names; or one's own by its path.

use anyhow::{Context, Result, bail};

/// The files `NAME.toml` of a directory of the lab, as pairs of name and text.
macro_rules! built_in {
    ($directory:literal, [$($name:literal),* $(,)?]) => {
        &[$((
            $name,
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/", $directory, "/", $name, ".toml")),
        )),*]
    };
}
pub(crate) use built_in;

/// The text of the file called `name` among those `built_in`, or of the file at a path ending in `.toml`.
/// `kind` says in errors what the file is.
pub(crate) fn text(kind: &str, built_in: &[(&str, &str)], name: &str) -> Result<String> {
    match built_in.iter().find(|(known, _)| *known == name) {
        Some((_, text)) => Ok((*text).to_owned()),
        None if name.ends_with(".toml") => {
            std::fs::read_to_string(name).with_context(|| format!("reading the {kind} {name}"))
        }
        None => {
            let known: Vec<&str> = built_in.iter().map(|(known, _)| *known).collect();
            bail!(
                "no {kind} {name:?}: built in are {}; a path ending in .toml loads your own",
                known.join(", ")
            );
        }
    }
}
