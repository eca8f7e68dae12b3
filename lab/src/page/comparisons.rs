//! The places of a page that asks whether headstart slows a machine down. Each shows what was measured, or
//! one line that says that it was not: so the page is whole whatever was measured, and never says more.
//!
//! `{{ratios NAME SETUP…}}` is a table of these setups' times over the base's. `{{ratios of the page}}` is a
//! picture of all of them, `{{answer}}` says how many meet their goals. `{{live NAME}}`, `{{days NAME}}` and
//! `{{output NAME}}` show `docs/results/NAME`: boots of `lab/live` with a picture, starts of `lab/days`, and
//! what a command printed.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::published_result::PublishedResult;
use super::ratios::{self, Held};
use super::rows::Rows;
use super::{days, live};

/// What was published of KNOPPIX.
const PUBLISHED: &str = "knoppix.csv";

/// Where a page's figures are.
#[derive(Debug)]
pub struct Comparisons<'a> {
    /// The project.
    pub root: &'a Path,
    /// What is kept of experiments.
    pub kept: &'a [PublishedResult],
    /// The way from the page to the pictures.
    pub results: &'a str,
    /// The page's name without its ending: that of the picture of all ratios.
    pub page: &'a str,
}

/// What stands in the place.
#[derive(Debug, Default)]
pub struct Shown {
    /// For the page.
    pub text: String,
    /// A picture that the text shows: its name and text.
    pub picture: Option<(String, String)>,
}

impl Comparisons<'_> {
    /// What stands in a place of these words on a page with `places`; `None` where it is no place of these.
    pub fn shown(&self, words: &[&str], places: &[Vec<&str>]) -> Result<Option<Shown>> {
        let shown = match *words {
            ["ratios", "of", "the", "page"] => self.picture(places),
            ["ratios", name, ref setups @ ..] if !setups.is_empty() => match self.held(name, setups) {
                Some(held) => text(format!(
                    "Build {}, {}.\n\n{}",
                    held.kept.commit,
                    held.kept.date,
                    ratios::table(&held)
                )),
                None => text(not_yet(&self.question(name)?)),
            },
            ["answer"] => {
                let (measured, unmeasured) = self.all(places);
                text(ratios::answer(&measured, unmeasured))
            }
            ["live", name] => self.live(name)?,
            ["days", name] => match self.file(&format!("{name}.csv"))? {
                Some(rows) => text(days::table(&Rows::parse(&rows, days::COLUMNS)?)?),
                None => text(not_yet("Is a day of use slower with headstart's daemon?")),
            },
            ["output", name] => text(
                self.file(&format!("{name}.md"))?
                    .unwrap_or_else(|| not_yet(&format!("the simulation `{name}`."))),
            ),
            _ => return Ok(None),
        };
        Ok(Some(shown))
    }

    fn held<'a>(&'a self, name: &str, setups: &[&'a str]) -> Option<Held<'a>> {
        let kept = self.kept.iter().find(|kept| kept.experiment == name)?;
        Some(Held {
            kept,
            setups: setups.to_vec(),
        })
    }

    /// What of the page's experiments is kept, and how many are not.
    fn all<'a>(&'a self, places: &[Vec<&'a str>]) -> (Vec<Held<'a>>, usize) {
        let (mut measured, mut unmeasured) = (Vec::new(), 0);
        for place in places {
            match place[..] {
                ["ratios", "of", "the", "page"] => {}
                ["ratios", name, ref setups @ ..] => match self.held(name, setups) {
                    Some(held) => measured.push(held),
                    None => unmeasured += 1,
                },
                _ => {}
            }
        }
        (measured, unmeasured)
    }

    fn picture(&self, places: &[Vec<&str>]) -> Shown {
        let (measured, _) = self.all(places);
        if measured.is_empty() {
            return Shown::default();
        }
        let file = format!("{}.svg", self.page);
        Shown {
            text: format!(
                "![Time with headstart over time without, for each row of the tables below]({}/{file})",
                self.results
            ),
            picture: Some((file, ratios::picture(&measured))),
        }
    }

    fn live(&self, name: &str) -> Result<Shown> {
        let Some(boots) = self.file(&format!("{name}.csv"))? else {
            return Ok(text(not_yet(
                "Is the boot of a live desktop slower, from a CD-ROM and from a USB stick, with 256 to 1024 MiB?",
            )));
        };
        let published = self
            .file(PUBLISHED)?
            .with_context(|| format!("docs/results has no {PUBLISHED}"))?;
        let boots = Rows::parse(&boots, live::COLUMNS).with_context(|| name.to_owned())?;
        let published = Rows::parse(&published, live::PUBLISHED).context(PUBLISHED)?;
        let file = format!("{name}.svg");
        Ok(Shown {
            text: format!(
                "{}\n![A live desktop's boot over that without reading ahead, by memory, beside the published curve]({}/{file})",
                live::table(&boots)?,
                self.results
            ),
            picture: Some((file, live::picture(&boots, &published)?)),
        })
    }

    /// A file beside the kept results, if it is there.
    fn file(&self, name: &str) -> Result<Option<String>> {
        let path = self.root.join("docs/results").join(name);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
        }
    }

    /// What an experiment of the lab is to answer.
    fn question(&self, name: &str) -> Result<String> {
        let path: PathBuf = self.root.join("lab/experiments").join(format!("{name}.toml"));
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let table: toml::Table = toml::from_str(&text).with_context(|| path.display().to_string())?;
        let question = table.get("question").and_then(toml::Value::as_str);
        Ok(question
            .with_context(|| format!("{} asks no question", path.display()))?
            .trim()
            .to_owned())
    }
}

fn text(text: String) -> Shown {
    Shown { text, picture: None }
}

/// In the place of what was not measured.
fn not_yet(what: &str) -> String {
    format!("*Not measured yet:* {what}")
}
