//! Root file systems with a program to start in them: Debian 12 from packages, built once and cached by the recipe's content.

mod build;
mod pack;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use build::build;

/// Changes to how images are made that the recipe does not show; part of the hash.
const FORMAT: &str = "1";

/// The workloads that ship with the lab, by name.
pub const BUILT_IN: &[(&str, &str)] = &[
    ("libreoffice", include_str!("../../images/libreoffice.toml")),
    ("python", include_str!("../../images/python.toml")),
    ("jvm", include_str!("../../images/jvm.toml")),
    ("smallfiles", include_str!("../../images/smallfiles.toml")),
    ("git", include_str!("../../images/git.toml")),
];

/// A file system to put an image into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fs {
    /// ext4, made by mke2fs.
    Ext4,
    /// XFS, filled through a mount.
    Xfs,
    /// Btrfs, filled through a mount.
    Btrfs,
    /// Squashfs, zstd.
    Squashfs,
    /// EROFS, lz4hc.
    Erofs,
    /// Overlayfs: the ext4 image below, a tmpfs above.
    Overlay,
}

impl Fs {
    /// All of them.
    pub const ALL: [Fs; 6] = [Fs::Ext4, Fs::Xfs, Fs::Btrfs, Fs::Squashfs, Fs::Erofs, Fs::Overlay];

    /// The name on the command line and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Fs::Ext4 => "ext4",
            Fs::Xfs => "xfs",
            Fs::Btrfs => "btrfs",
            Fs::Squashfs => "squashfs",
            Fs::Erofs => "erofs",
            Fs::Overlay => "overlay",
        }
    }

    /// What the device itself holds.
    pub fn on_disk(self) -> Fs {
        if self == Fs::Overlay { Fs::Ext4 } else { self }
    }
}

impl fmt::Display for Fs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Fs {
    type Err = String;

    fn from_str(name: &str) -> Result<Fs, String> {
        Fs::ALL.into_iter().find(|fs| fs.name() == name).ok_or_else(|| {
            let known: Vec<&str> = Fs::ALL.iter().map(|fs| fs.name()).collect();
            format!("no file system {name:?}: choose from {}", known.join(", "))
        })
    }
}

/// What an image holds and what is started in it: one file under `lab/images/`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// The file's stem.
    #[serde(skip)]
    pub name: String,
    /// The file's content, which the cache goes by.
    #[serde(skip)]
    text: String,
    /// One line for people.
    pub description: String,
    /// Debian packages beyond the minimal base.
    pub packages: Vec<String>,
    /// Shell commands run inside when all files are there.
    #[serde(default)]
    pub setup: Vec<String>,
    /// The program.
    pub start: Start,
    /// Files put in.
    #[serde(default)]
    pub file: Vec<TextFile>,
    /// Generated trees of files.
    #[serde(default)]
    pub tree: Vec<Tree>,
}

/// The program of a workload, as seen inside the image.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Its environment beyond PATH, HOME and LANG.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// A file it leaves when it has done its work; a run without it counts as failed.
    pub produces: Option<PathBuf>,
}

/// A file given as text.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TextFile {
    /// Path inside.
    pub path: String,
    /// Content; a first empty line is dropped.
    pub content: String,
}

/// A tree of generated files.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tree {
    /// Path inside.
    pub path: String,
    /// Number of files.
    pub files: usize,
    /// Files in a directory.
    pub per_directory: usize,
    /// Smallest and largest file.
    pub bytes: [usize; 2],
}

impl Recipe {
    /// A built-in recipe by name, or the TOML file at a path ending in `.toml`.
    pub fn load(name: &str) -> Result<Recipe> {
        let text = match BUILT_IN.iter().find(|(known, _)| *known == name) {
            Some((_, text)) => (*text).to_owned(),
            None if name.ends_with(".toml") => {
                std::fs::read_to_string(name).with_context(|| format!("reading the recipe {name}"))?
            }
            None => {
                let known: Vec<&str> = BUILT_IN.iter().map(|(known, _)| *known).collect();
                bail!(
                    "no workload {name:?}: built in are {}; a path ending in .toml loads your own",
                    known.join(", ")
                );
            }
        };
        let mut recipe: Recipe = toml::from_str(&text).with_context(|| format!("the recipe {name}"))?;
        let stem = std::path::Path::new(name).file_stem().unwrap_or_default();
        recipe.name = stem.to_string_lossy().into_owned();
        recipe.text = text;
        if recipe
            .start
            .command
            .first()
            .is_none_or(|program| !program.starts_with('/'))
        {
            bail!("the recipe {name}: start.command must begin with an absolute path inside the image");
        }
        if let Some(tree) = recipe
            .tree
            .iter()
            .find(|t| t.per_directory == 0 || t.bytes[0] > t.bytes[1])
        {
            bail!(
                "the recipe {name}: tree {}: per_directory above 0 and bytes = [least, most]",
                tree.path
            );
        }
        Ok(recipe)
    }

    /// What the cache goes by: everything that makes a difference to the image, in 16 hexadecimal digits.
    pub fn hash(&self) -> String {
        let digest = Sha256::new()
            .chain_update(FORMAT)
            .chain_update(&self.text)
            .finalize();
        digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    /// A UUID for the file system, from the hash, so that the same recipe gives the same one.
    fn uuid(&self, fs: Fs) -> String {
        let digest = Sha256::new()
            .chain_update(self.hash())
            .chain_update(fs.name())
            .finalize();
        let hex: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        // Version 8 (RFC 9562): made by a rule of one's own.
        format!(
            "{}-{}-8{}-a{}-{}",
            &hex[..8],
            &hex[8..12],
            &hex[13..16],
            &hex[17..20],
            &hex[20..32]
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_recipes_parse() {
        for (name, _) in BUILT_IN {
            let recipe = Recipe::load(name).unwrap();
            assert_eq!(recipe.hash().len(), 16, "{name}");
            assert_eq!(recipe.uuid(Fs::Ext4).len(), 36);
            assert_ne!(recipe.uuid(Fs::Ext4), recipe.uuid(Fs::Xfs));
        }
    }

    #[test]
    fn any_change_of_the_text_is_another_image() {
        let mut recipe = Recipe::load("python").unwrap();
        let before = recipe.hash();
        recipe.text.push(' ');
        assert_ne!(recipe.hash(), before);
    }

    #[test]
    fn unknown_names_list_the_known() {
        assert!(
            Recipe::load("doom")
                .unwrap_err()
                .to_string()
                .contains("libreoffice")
        );
        assert!("zfs".parse::<Fs>().unwrap_err().contains("erofs"));
    }

    #[test]
    fn a_relative_program_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.toml");
        std::fs::write(
            &path,
            "description = 'x'\npackages = []\n[start]\ncommand = ['ls']\n",
        )
        .unwrap();
        let error = Recipe::load(path.to_str().unwrap()).unwrap_err().to_string();
        assert!(error.contains("absolute"), "{error}");
    }
}
