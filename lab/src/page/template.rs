//! Templates: the prose of a page, with places in double braces for what was kept of experiments.
//!
//! The places: `{{brief NAME SETUP}}`, `{{speed NAME SETUP}}`, `{{above NAME SETUP}}`, `{{setups NAME}}`,
//! `{{cost NAME SETUP}}`, `{{shares NAME SETUP}}` (tables of `docs/results/NAME.toml`),
//! `{{judged NAME SETUP CASE}}` (three cells of a row: a figure that has a goal, the goal, the build),
//! `{{picture NAME SETUP}}` (bars, in `docs/results/NAME.svg`), `{{figures NAME}}` (a link to what is kept),
//! `{{measured}}` (build and day of the page's first experiment), `{{host}}` (the machine), `{{missed}}` (the
//! goals missed on all pages) and `{{missed furthest}}` (the same in short).
//! `comparisons.rs` has more.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::comparisons::Comparisons;
use super::published_result::PublishedResult;
use super::{bars, missed, read, tables};

/// The end of a template's name. The page has the rest of it, and lies beside it.
const IN: &str = ".in.md";
/// In the place of a table of which nothing is kept.
const NOT_MEASURED: &str = "Not measured: `make measure` does it.";
/// The same in the place of three cells.
const NO_CELLS: &str = "– | – | –";

/// The prose of one page.
#[derive(Debug)]
pub struct Template {
    /// The page that it makes.
    pub page: PathBuf,
    /// Prose and places.
    pub text: String,
    /// The way from the page to the pictures.
    pub results: &'static str,
}

/// A page, and the names and texts of the pictures that it shows.
#[derive(Debug)]
pub struct Filled {
    /// The page.
    pub text: String,
    /// They belong beside the results.
    pub pictures: Vec<(String, String)>,
}

/// The templates of the project whose documents are in `docs`: the page of measurements, then those beside it
/// and behind it by name. A page behind it that has no template is an error.
pub fn templates(docs: &Path) -> Result<Vec<Template>> {
    let behind = docs.join("measurements");
    let files = files(&behind)?;
    const FIRST: &str = "measurements";
    let mut templates = vec![Template::read(docs, FIRST, "results")?];
    let beside = self::files(docs)?;
    for name in beside
        .iter()
        .filter_map(|file| file.strip_suffix(IN))
        .filter(|name| *name != FIRST)
    {
        templates.push(Template::read(docs, name, "results")?);
    }
    for file in &files {
        if let Some(name) = file.strip_suffix(IN) {
            templates.push(Template::read(&behind, name, "../results")?);
        } else if let Some(name) = file.strip_suffix(".md") {
            ensure!(
                files.contains(&format!("{name}{IN}")),
                "{} has no template {name}{IN} beside it: write one, or remove the page",
                behind.join(file).display()
            );
        }
    }
    Ok(templates)
}

/// The names of the files in `directory`, sorted; none where there is no directory.
fn files(directory: &Path) -> Result<Vec<String>> {
    if !directory.exists() {
        return Ok(Vec::new());
    }
    let context = || format!("reading {}", directory.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).with_context(context)? {
        let name = entry.with_context(context)?.file_name();
        names.push(name.to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// What is kept in `results` of the experiments that the templates name, in their order. All were measured on
/// one machine.
pub fn kept(templates: &[Template], results: &Path) -> Result<Vec<PublishedResult>> {
    let mut kept: Vec<PublishedResult> = Vec::new();
    for name in templates.iter().flat_map(|template| named(&template.text)) {
        let there = results.join(format!("{name}.toml")).exists();
        if there && find(&kept, name).is_none() {
            kept.push(PublishedResult::load(results, name)?);
        }
    }
    if let Some((first, others)) = kept.split_first() {
        for other in others {
            ensure!(
                other.host == first.host,
                "{} and {} were measured on two machines, and the pages are of one: measure both again (make measure)",
                first.experiment,
                other.experiment
            );
        }
    }
    Ok(kept)
}

/// The first experiment that `template` names and of which something is kept: the page is of its build, where
/// a table says nothing else.
pub fn first<'a>(template: &str, results: &'a [PublishedResult]) -> Option<&'a PublishedResult> {
    named(template).into_iter().find_map(|name| find(results, name))
}

fn find<'a>(results: &'a [PublishedResult], name: &str) -> Option<&'a PublishedResult> {
    results.iter().find(|kept| kept.experiment == name)
}

/// What stands in double braces.
fn places(template: &str) -> Vec<&str> {
    let parts = template.split("{{").skip(1);
    parts.filter_map(|part| Some(part.split_once("}}")?.0)).collect()
}

/// The words of a place.
fn words(place: &str) -> Vec<&str> {
    place.split_whitespace().collect()
}

/// The experiment of which a place shows something.
fn experiment(place: &str) -> Option<&str> {
    match words(place)[..] {
        ["ratios", "of", "the", "page"] => None,
        [
            "brief" | "speed" | "above" | "cost" | "shares" | "picture",
            name,
            _,
        ]
        | ["setups" | "figures", name]
        | ["ratios", name, _, ..]
        | ["judged", name, _, _, ..] => Some(name),
        _ => None,
    }
}

/// The experiments of which `template` shows something, in its order.
fn named(template: &str) -> Vec<&str> {
    places(template).into_iter().filter_map(experiment).collect()
}

/// Which build was measured, on which day, and which build beside it.
fn build(kept: &PublishedResult) -> String {
    let earlier = kept.earlier.as_ref();
    let earlier = earlier.map_or_else(String::new, |earlier| format!("; the earlier build is {earlier}"));
    format!("Measured with build {} on {}{earlier}.", kept.commit, kept.date)
}

impl Template {
    /// Reads the one called `name` in `directory`.
    fn read(directory: &Path, name: &str, results: &'static str) -> Result<Template> {
        Ok(Template {
            page: directory.join(format!("{name}.md")),
            text: read(&directory.join(format!("{name}{IN}")))?,
            results,
        })
    }

    /// The page of the project at `root`, from all that is kept.
    pub fn filled(&self, root: &Path, results: &[PublishedResult]) -> Result<Filled> {
        let first = || {
            first(&self.text, results).context("the template shows no experiment of which something is kept")
        };
        // Above a table: its build, where the page's is another.
        let of_build = |kept: &PublishedResult| match first() {
            Ok(page) if (&page.commit, &page.earlier) == (&kept.commit, &kept.earlier) => String::new(),
            _ => format!("{}\n\n", build(kept)),
        };
        let table = |name: &str, make: &dyn Fn(&PublishedResult) -> String| {
            let kept = find(results, name);
            kept.map_or_else(|| NOT_MEASURED.to_owned(), |kept| of_build(kept) + &make(kept))
        };
        let name = self.page.file_stem().unwrap_or_default().to_string_lossy();
        let comparisons = Comparisons {
            root,
            kept: results,
            results: self.results,
            page: &name,
        };
        let all: Vec<Vec<&str>> = places(&self.text).into_iter().map(words).collect();
        let mut text = self.text.clone();
        let mut pictures = Vec::new();
        for place in places(&self.text) {
            if let Some(shown) = comparisons.shown(&words(place), &all)? {
                text = text.replacen(&format!("{{{{{place}}}}}"), shown.text.trim_end(), 1);
                pictures.extend(shown.picture);
                continue;
            }
            let value = match words(place)[..] {
                ["brief", name, setup] => table(name, &|kept| tables::brief(kept, setup)),
                ["speed", name, setup] => table(name, &|kept| tables::speed(kept, setup)),
                ["above", name, setup] => table(name, &|kept| tables::above(kept, setup)),
                ["cost", name, setup] => table(name, &|kept| tables::cost(kept, setup)),
                ["shares", name, of] => table(name, &|kept| tables::shares(kept, of)),
                ["setups", name] => table(name, &tables::setups),
                ["judged", name, setup, ref case @ ..] if !case.is_empty() => match find(results, name) {
                    Some(kept) => tables::judged(kept, setup, &case.join(" "))?,
                    None => NO_CELLS.to_owned(),
                },
                ["picture", name, setup] => {
                    let file = format!("{name}.svg");
                    let kept = find(results, name);
                    pictures.extend(kept.map(|kept| (file.clone(), bars::bars(kept, setup))));
                    let shown = |kept| format!("![{}]({}/{file})", bars::words(kept, setup), self.results);
                    kept.map_or_else(|| NOT_MEASURED.to_owned(), shown)
                }
                ["missed"] => missed::missed(results),
                ["missed", "furthest"] => missed::furthest(results),
                ["measured"] => match first() {
                    Ok(kept) => build(kept),
                    Err(_) if !named(&self.text).is_empty() => NOT_MEASURED.to_owned(),
                    Err(error) => return Err(error),
                },
                ["figures", name] => match find(results, name) {
                    Some(_) => format!("[Figures]({}/{name}.toml)", self.results),
                    None => "No figures are kept yet".to_owned(),
                },
                ["host"] => first()?.host.shown(),
                _ => bail!(
                    "{{{{{place}}}}}: there are brief NAME SETUP, speed NAME SETUP, above NAME SETUP, setups NAME, cost NAME SETUP, shares NAME SETUP, \
                     figures NAME, judged NAME SETUP CASE, picture NAME SETUP, measured, host, missed, missed furthest, ratios NAME SETUP…, \
                     ratios of the page, answer, live NAME, days NAME and output NAME"
                ),
            };
            text = text.replacen(&format!("{{{{{place}}}}}"), value.trim_end(), 1);
        }
        Ok(Filled { text, pictures })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_nobody_knows_is_an_error() {
        for place in ["sped a b", "judged a b", "missed most"] {
            let template = Template {
                page: PathBuf::new(),
                text: format!("{{{{{place}}}}}"),
                results: "results",
            };
            let error = template.filled(Path::new("."), &[]).unwrap_err().to_string();
            assert!(
                error.contains(place) && error.contains("speed NAME SETUP"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_page_of_what_nobody_measured_says_so_and_links_to_nothing() {
        let filled = |text: &str| {
            let template = Template {
                page: PathBuf::new(),
                text: text.to_owned(),
                results: "results",
            };
            template.filled(Path::new("."), &[])
        };
        let page = filled("{{measured}} {{figures one}}.\n\n{{setups one}}\n{{speed one tool}}\n");
        let page = page.unwrap().text;
        assert_eq!(page.matches(NOT_MEASURED).count(), 3, "{page}");
        assert!(!page.contains("]("), "{page}");
        let error = filled("{{measured}}").unwrap_err().to_string();
        assert!(error.contains("no experiment"), "{error}");
    }

    #[test]
    fn the_experiments_of_a_template_are_named_in_its_order() {
        let text = "{{setups b}} x {{missed}}\n| {{judged a tool one case}} |\n{{speed b tool}}";
        assert_eq!(named(text), ["b", "a", "b"]);
    }
}
