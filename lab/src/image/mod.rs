//! Root file systems with a program to start in them: Debian 12 from packages, built once and cached by the
//! recipe's content.

mod build;
mod pack;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use build::{build, cached};

use crate::built_in::{built_in, text};
use crate::kind::{Kind, READY};

/// Changes to how images are made that the recipe does not show; part of the hash.
const FORMAT: &str = "2";

/// The workloads that ship with the lab, by name.
pub const BUILT_IN: &[(&str, &str)] = built_in!(
    "images",
    [
        "libreoffice",
        "python",
        "jvm",
        "smallfiles",
        "git",
        "gpp",
        "gimp",
        "r",
        "inkscape",
        "git-large",
        "writer",
        "chromium",
        "firefox",
        "postgresql",
        "resume",
        "resume-qemu",
        "podman-python",
        "remote-python",
        "remote-node",
        "podman-jvm",
        "podman-nginx",
        "podman-postgresql",
        "true",
        "calibration",
        "container",
        "debian12",
        "debian13",
        "debian13-dracut",
        "desktop",
        "office",
    ]
);

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
    /// ext4 in use for years, 70 % full.
    #[serde(rename = "ext4-aged-70")]
    Aged70,
    /// The same, 90 % full.
    #[serde(rename = "ext4-aged-90")]
    Aged90,
}

impl Fs {
    /// All of them.
    pub const ALL: [Fs; 8] = [
        Fs::Ext4,
        Fs::Xfs,
        Fs::Btrfs,
        Fs::Squashfs,
        Fs::Erofs,
        Fs::Overlay,
        Fs::Aged70,
        Fs::Aged90,
    ];

    /// The name on the command line and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Fs::Ext4 => "ext4",
            Fs::Xfs => "xfs",
            Fs::Btrfs => "btrfs",
            Fs::Squashfs => "squashfs",
            Fs::Erofs => "erofs",
            Fs::Overlay => "overlay",
            Fs::Aged70 => "ext4-aged-70",
            Fs::Aged90 => "ext4-aged-90",
        }
    }

    /// The type of the file system on the device, as mount(8) is told.
    pub fn fstype(self) -> &'static str {
        match self {
            Fs::Overlay | Fs::Aged70 | Fs::Aged90 => Fs::Ext4.name(),
            other => other.name(),
        }
    }

    /// Whether nothing can be installed into an image of it.
    pub fn is_read_only(self) -> bool {
        matches!(self, Fs::Squashfs | Fs::Erofs | Fs::Overlay)
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
    /// Debian release.
    #[serde(default = "bookworm")]
    pub suite: String,
    /// Use the image of the recipe of this name; such a recipe says how to boot it, and nothing of what is in
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_of: Option<String>,
    /// Room that building takes in the cache, in MiB: the root directory and the image of it.
    #[serde(default = "room", skip_serializing)]
    pub room_mb: u64,
    /// Debian packages beyond the minimal base.
    #[serde(default)]
    pub packages: Vec<String>,
    /// Shell commands run inside when all files are there.
    #[serde(default)]
    pub setup: Vec<String>,
    /// The program; none when the image boots.
    #[serde(default, skip_serializing_if = "Start::is_none")]
    pub start: Start,
    /// How it boots, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<Boot>,
    /// Files put in.
    #[serde(default)]
    pub file: Vec<TextFile>,
    /// Generated trees of files.
    #[serde(default)]
    pub tree: Vec<Tree>,
}

/// The program of a workload, as seen inside the image.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Its environment beyond PATH, HOME and LANG.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// A file it leaves when it has done its work; a run without it counts as failed.
    pub produces: Option<PathBuf>,
    /// Whether it sees /sys, control groups and an empty /run, as right after a boot: engines of containers
    /// do.
    #[serde(default)]
    pub system: bool,
}

impl Start {
    fn is_none(&self) -> bool {
        self.command.is_empty()
    }
}

/// How an image boots, and by which signs one sees how far it has come.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Boot {
    /// The machine it is made for.
    pub machine: Kind,
    /// Moments in the order in which they come.
    pub marks: Vec<Sign>,
    /// The mark at which the boot has ended: one of `marks`, or `ready` of a container.
    pub until: String,
    /// How long a boot to learn from goes on after that, in seconds, before it shuts down.
    #[serde(default)]
    pub settle_seconds: f64,
    /// Words for the kernel command line, or a container's init.
    #[serde(default)]
    pub kernel: Vec<String>,
    /// Memory of a virtual machine unless the experiment says otherwise, in MiB.
    pub memory_mb: Option<u64>,
    /// A virtual machine has a screen.
    #[serde(default)]
    pub display: bool,
}

impl Boot {
    fn check(&self) -> Result<()> {
        let known: Vec<&str> = self.marks.iter().map(|sign| sign.mark.as_str()).collect();
        let until = self.until.as_str();
        let said = self.machine == Kind::Container && until == READY;
        if !said && !known.contains(&until) {
            bail!(
                "boot.until = {until:?} is none of its marks: {}",
                known.join(", ")
            );
        }
        if !(0.0..=600.0).contains(&self.settle_seconds) {
            bail!("boot.settle_seconds = {}: 0 to 600", self.settle_seconds);
        }
        Ok(())
    }
}

/// A line on the console that tells a moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sign {
    /// The moment's name.
    pub mark: String,
    /// A part of the line.
    pub line: String,
}

fn room() -> u64 {
    4096
}

fn bookworm() -> String {
    "bookworm".to_owned()
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
        let text = text("workload", BUILT_IN, name)?;
        let mut recipe: Recipe = toml::from_str(&text).with_context(|| format!("the recipe {name}"))?;
        let stem = std::path::Path::new(name).file_stem().unwrap_or_default();
        recipe.name = stem.to_string_lossy().into_owned();
        recipe.text = text;
        if let Some(base) = recipe.image_of.clone() {
            let own = !recipe.packages.is_empty() || !recipe.setup.is_empty() || !recipe.file.is_empty();
            if own || !recipe.tree.is_empty() {
                bail!(
                    "the recipe {name}: with image_of = {base:?} it says how to boot, not what is in the image"
                );
            }
            let base = Recipe::load(&base).with_context(|| format!("the recipe {name}, image_of"))?;
            if base.image_of.is_some() {
                bail!(
                    "the recipe {name}: image_of = {:?}, which has no image of its own",
                    base.name
                );
            }
            recipe = Recipe {
                image_of: Some(base.name.clone()),
                name: recipe.name,
                description: recipe.description,
                boot: recipe.boot,
                ..base
            };
        }
        match (&recipe.boot, recipe.start.command.first()) {
            (None, Some(program)) if program.starts_with('/') => {}
            (None, _) => {
                bail!("the recipe {name}: start.command must begin with an absolute path inside the image")
            }
            (Some(_), Some(_)) => bail!("the recipe {name}: an image has a [start] or a [boot], not both"),
            (Some(boot), None) => boot.check().with_context(|| format!("the recipe {name}"))?,
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

    /// The name of the image: most often the recipe's own.
    pub fn image_name(&self) -> &str {
        self.image_of.as_ref().unwrap_or(&self.name)
    }

    /// What the cache goes by: everything that makes a difference to the image, in 16 hexadecimal digits.
    pub fn hash(&self) -> String {
        let digest = Sha256::new()
            .chain_update(FORMAT)
            .chain_update(self.content().as_bytes())
            .finalize();
        digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    /// The recipe's text, but for how it boots: what to wait for on a console makes no other image.
    fn content(&self) -> Cow<'_, str> {
        if self.boot.is_none() {
            return Cow::Borrowed(&self.text);
        }
        let made_of = Recipe {
            description: String::new(),
            boot: None,
            image_of: None,
            ..self.clone()
        };
        // What was read from TOML can be written as TOML; the text would only make more images than need be.
        toml::to_string(&made_of).map_or(Cow::Borrowed(&self.text), Cow::Owned)
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
    fn what_a_boot_is_watched_for_makes_no_other_image() {
        let mut recipe = Recipe::load("container").unwrap();
        let before = recipe.hash();
        recipe.boot.as_mut().unwrap().settle_seconds += 1.0;
        recipe.text.push_str("# a comment");
        assert_eq!(recipe.hash(), before);
        recipe.packages.push("hello".into());
        assert_ne!(recipe.hash(), before);
    }

    #[test]
    fn office_and_desktop_share_their_image() {
        let (desktop, office) = (Recipe::load("desktop").unwrap(), Recipe::load("office").unwrap());
        assert_eq!(office.hash(), desktop.hash());
        assert_eq!((office.image_name(), office.name.as_str()), ("desktop", "office"));
        assert_eq!(office.boot.unwrap().until, "office");
        assert_eq!(desktop.boot.unwrap().until, "desktop");
    }

    #[test]
    fn a_boot_ends_at_one_of_its_marks() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.toml");
        let load = |boot: &str| {
            std::fs::write(&path, format!("description = 'x'\npackages = []\n{boot}")).unwrap();
            Recipe::load(path.to_str().unwrap())
        };
        let marks = "marks = [{ mark = 'up', line = 'Welcome' }]";
        let error = format!(
            "{:#}",
            load(&format!("[boot]\nmachine = 'container'\nuntil = 'down'\n{marks}")).unwrap_err()
        );
        assert!(error.contains("\"down\"") && error.contains("up"), "{error}");
        for until in ["up", "ready"] {
            load(&format!(
                "[boot]\nmachine = 'container'\nuntil = '{until}'\n{marks}"
            ))
            .unwrap();
        }
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
