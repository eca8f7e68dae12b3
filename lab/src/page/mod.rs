//! The project's pages of figures: made of templates and of what was kept of experiments, so that no figure is typed by hand.
//!
//! `docs/measurements.in.md` is the page's prose, with places for figures in double braces: `{{speed NAME SETUP}}` and
//! `{{setups NAME}}`, `{{cost NAME SETUP}}` (tables of `docs/results/NAME.toml`), `{{picture NAME SETUP}}` (bars of the same, in `docs/results/NAME.svg`),
//! `{{missed}}` (the goals missed in all of those), `{{commit}}`,
//! `{{earlier}}`, `{{date}}`, `{{host}}`. In `README.md` two parts between comments are the demo's picture and output.

mod bars;
mod demo;
mod kept;
mod tables;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

pub use demo::short;
pub use kept::Kept;

/// The kept demo, which the README shows.
const DEMO: &str = "demo";

/// A file that is made, and its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Where it belongs.
    pub path: PathBuf,
    /// What it should hold.
    pub text: String,
}

impl Page {
    /// Whether the file holds something else, or is not there.
    pub fn stale(&self) -> bool {
        fs::read(&self.path).map_or(true, |text| text != self.text.as_bytes())
    }

    /// Writes the file.
    pub fn write(&self) -> Result<()> {
        fs::write(&self.path, &self.text).with_context(|| format!("writing {}", self.path.display()))
    }
}

/// All pages of the project at `root`, as its templates and kept results make them.
pub fn pages(root: &Path) -> Result<Vec<Page>> {
    let docs = root.join("docs");
    let results = docs.join("results");
    let template = docs.join("measurements.in.md");
    let text = read(&template)?;
    let kept = |name: &str| match results.join(format!("{name}.toml")).exists() {
        true => Kept::load(&results, name).map(Some),
        false => Ok(None),
    };
    let Filled {
        text: measurements,
        commit,
        pictures,
    } = fill(&text, &kept).with_context(|| template.display().to_string())?;
    let demo = Kept::load(&results, DEMO)?.without_earlier();
    ensure!(
        demo.commit == commit,
        "the demo was measured of {}, the programs of {commit}: measure both again (make measure)",
        demo.commit
    );
    let readme = root.join("README.md");
    let picture = format!("![{}](docs/demo.svg)\n", demo::words(&demo)?);
    let output = format!("```\n{}```\n", short(&demo)?);
    let mut text = read(&readme)?;
    for (name, part) in [("picture", picture), ("output", output)] {
        text = between(&text, name, &part).with_context(|| readme.display().to_string())?;
    }
    let mut pages = vec![
        Page {
            path: docs.join("measurements.md"),
            text: measurements,
        },
        Page {
            path: docs.join("demo.svg"),
            text: demo::picture(&demo)?,
        },
        Page { path: readme, text },
    ];
    pages.extend(pictures.into_iter().map(|(name, text)| Page {
        path: results.join(name),
        text,
    }));
    Ok(pages)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

/// What stands in double braces.
fn places(template: &str) -> Vec<&str> {
    let parts = template.split("{{").skip(1);
    parts.filter_map(|part| Some(part.split_once("}}")?.0)).collect()
}

/// In the place of a table of which nothing is kept.
const NOT_MEASURED: &str = "Not measured of this build: `make measure` does it.";

/// What stands above a table: which build it is of, and which it is compared with, where the page's are others.
fn of_build(kept: &Kept, page: &Kept) -> String {
    let earlier = kept.earlier.as_ref().filter(|_| kept.earlier != page.earlier);
    let earlier = earlier.map_or_else(String::new, |earlier| format!("; the build before is {earlier}"));
    match kept.commit == page.commit && earlier.is_empty() {
        true => String::new(),
        false => format!("Measured of build {} on {}{earlier}.\n\n", kept.commit, kept.date),
    }
}

/// A template with its figures.
struct Filled {
    text: String,
    /// What the figures of the first table are of, and all others that do not say otherwise.
    commit: String,
    /// Names and texts of the pictures that belong beside the results.
    pictures: Vec<(String, String)>,
}

/// Fills a template; `load` gives what was kept under a name, if anything was.
fn fill(template: &str, load: &dyn Fn(&str) -> Result<Option<Kept>>) -> Result<Filled> {
    let places = places(template);
    let mut all: Vec<Kept> = Vec::new();
    for place in &places {
        if let ["speed" | "cost" | "picture", name, _] | ["setups", name] =
            place.split_whitespace().collect::<Vec<_>>()[..]
        {
            if !all.iter().any(|kept| kept.experiment == name) {
                all.extend(load(name)?);
            }
        }
    }
    let first = all.first().context("the template has no table")?;
    for other in &all {
        ensure!(
            other.host == first.host,
            "{} and {} were measured on two machines: one page, one machine; measure both again (make measure)",
            first.experiment,
            other.experiment
        );
    }
    let mut text = template.to_owned();
    let mut pictures = Vec::new();
    for place in places {
        let table = |name: &str, of: &dyn Fn(&Kept) -> String| {
            let kept = all.iter().find(|kept| kept.experiment == name);
            kept.map_or_else(
                || NOT_MEASURED.to_owned(),
                |kept| of_build(kept, first) + &of(kept),
            )
        };
        let value = match place.split_whitespace().collect::<Vec<_>>()[..] {
            ["speed", name, setup] => table(name, &|kept| tables::speed(kept, setup)),
            ["above", name, setup] => table(name, &|kept| tables::above(kept, setup)),
            ["cost", name, setup] => table(name, &|kept| tables::cost(kept, setup)),
            ["setups", name] => table(name, &tables::setups),
            ["picture", name, setup] => {
                let file = format!("{name}.svg");
                let kept = all.iter().find(|kept| kept.experiment == name);
                pictures.extend(kept.map(|kept| (file.clone(), bars::bars(kept, setup))));
                let shown = |kept: &Kept| format!("![{}](results/{file})", bars::words(kept, setup));
                kept.map_or_else(|| NOT_MEASURED.to_owned(), shown)
            }
            ["missed"] => tables::missed(&all.iter().collect::<Vec<_>>()),
            ["commit"] => first.commit.clone(),
            ["earlier"] => first.earlier.clone().unwrap_or_else(|| "none".to_owned()),
            ["date"] => all
                .iter()
                .map(|kept| kept.date.as_str())
                .max()
                .unwrap_or_default()
                .to_owned(),
            ["host"] => first.host.shown(),
            _ => bail!(
                "{{{{{place}}}}}: there are speed NAME SETUP, above NAME SETUP, setups NAME, cost NAME SETUP, picture NAME SETUP, missed, commit, earlier, date and host"
            ),
        };
        text = text.replacen(&format!("{{{{{place}}}}}"), value.trim_end(), 1);
    }
    Ok(Filled {
        text,
        commit: first.commit.clone(),
        pictures,
    })
}

/// `text` with `part` between the comments `<!-- NAME: … -->` and `<!-- /NAME -->`.
fn between(text: &str, name: &str, part: &str) -> Result<String> {
    let (open, close) = (format!("<!-- {name}:"), format!("<!-- /{name} -->"));
    let parts = || {
        let (before, rest) = text.split_once(&open)?;
        let (comment, rest) = rest.split_once("-->\n")?;
        let (_, after) = rest.split_once(&close)?;
        Some(format!("{before}{open}{comment}-->\n{part}{close}{after}"))
    };
    parts().with_context(|| format!("no {open} … --> on a line of its own, followed by {close}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_between_comments_is_exchanged_and_nothing_else() {
        let text = "a\n<!-- x: made -->\nold\nold\n<!-- /x -->\nb\n";
        let expected = "a\n<!-- x: made -->\nnew\n<!-- /x -->\nb\n";
        assert_eq!(between(text, "x", "new\n").unwrap(), expected);
        assert!(
            between(text, "y", "new\n")
                .unwrap_err()
                .to_string()
                .contains("<!-- y:")
        );
    }

    #[test]
    fn a_place_that_nobody_knows_is_an_error() {
        let filled = fill("{{sped a b}}", &|_| bail!("not asked"));
        let error = filled.err().unwrap().to_string();
        assert!(error.contains("no table"), "{error}");
    }
}
