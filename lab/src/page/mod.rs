//! The project's pages of figures: made of templates and of what was kept of experiments, so that no figure
//! is typed by hand.
//!
//! `docs/measurements.in.md` makes `docs/measurements.md`, each `docs/measurements/NAME.in.md` a page behind
//! it, `docs/measurements/NAME.md`, and each other `docs/NAME.in.md` a page beside it; `template.rs` and
//! `comparisons.rs` have what a template may hold. In `README.md` two
//! parts between comments are the demo's picture and output.

mod bars;
mod comparisons;
mod days;
mod demo;
mod live;
mod missed;
mod published_result;
mod ratios;
mod rows;
mod tables;
mod template;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

pub use demo::short;
pub use published_result::PublishedResult;

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
    let templates = template::templates(&docs)?;
    let kept = template::kept(&templates, &results)?;
    let mut pages = Vec::new();
    let mut pictures = Vec::new();
    for template in &templates {
        let filled = template.filled(root, &kept);
        let filled = filled.with_context(|| format!("the template of {}", template.page.display()))?;
        pages.push(Page {
            path: template.page.clone(),
            text: filled.text,
        });
        pictures.extend(filled.pictures.into_iter().map(|(name, text)| Page {
            path: results.join(name),
            text,
        }));
    }
    linked(&docs, &pages)?;
    let first = templates
        .first()
        .and_then(|page| template::first(&page.text, &kept));
    let commit = &first.context("docs/measurements.in.md has no table")?.commit;
    let demo = PublishedResult::load(&results, DEMO)?.without_earlier();
    ensure!(
        demo.commit == *commit,
        "the demo was measured of {}, the programs of {commit}: measure both again (make measure)",
        demo.commit
    );
    pages.extend(pictures);
    pages.push(Page {
        path: docs.join("demo.svg"),
        text: demo::picture(&demo)?,
    });
    pages.push(readme(root.join("README.md"), &demo)?);
    Ok(pages)
}

/// The README, with the demo's picture and output.
fn readme(path: PathBuf, demo: &PublishedResult) -> Result<Page> {
    let picture = format!("![{}](docs/demo.svg)\n", demo::words(demo)?);
    let output = format!("```\n{}```\n", short(demo)?);
    let mut text = read(&path)?;
    for (name, part) in [("picture", picture), ("output", output)] {
        text = between(&text, name, &part).with_context(|| path.display().to_string())?;
    }
    Ok(Page { path, text })
}

/// Fails unless the first page has a link to each other page.
fn linked(docs: &Path, pages: &[Page]) -> Result<()> {
    let Some((front, behind)) = pages.split_first() else {
        return Ok(());
    };
    for page in behind {
        let way = page.path.strip_prefix(docs).unwrap_or(&page.path).display();
        ensure!(
            front.text.contains(&format!("({way})")),
            "{} has no link to {}: write one into its template",
            front.path.display(),
            page.path.display()
        );
    }
    Ok(())
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
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
}
