//! Setups: what is done around a program's start. Three hooks (record, prepare, start), so that any tool can be one.
//!
//! The command lines of headstart are here and nowhere else.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

/// How a tool is put to work. Commands are lists of words; `{program}` as a word of its own stands for the program's own
/// command line, and within words `{workload}`, `{state}` (a directory kept between runs, outside the image), `{mount}` (the
/// image) and `{headstart}` (the binary) are filled in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// Name in tables.
    #[serde(default)]
    pub name: String,
    /// Runs before the first round, each on a fresh cold mount: what the tool learns from.
    #[serde(default)]
    pub record: Vec<Vec<String>>,
    /// Before each start, on its fresh cold mount; timed and counted with the start.
    #[serde(default)]
    pub prepare: Vec<Vec<String>>,
    /// The start.
    pub start: Vec<String>,
    /// The program runs once, untimed, on the same mount first.
    #[serde(default)]
    pub warm: bool,
    /// Share the state directory (and what was recorded) of the setup of this name.
    #[serde(default)]
    pub state_of: Option<String>,
}

/// Times headstart sees the program before it is measured: once would do, a second one settles what a single odd start adds.
const LEARNING_RUNS: usize = 2;

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

impl Setup {
    /// Names of the built-in setups.
    pub const BUILT_IN: [&str; 4] = ["cold", "headstart", "before", "warm"];

    /// A built-in setup by name, or the TOML file at a path ending in `.toml`.
    pub fn load(name: &str) -> Result<Setup> {
        let plain = Setup {
            name: name.to_owned(),
            record: Vec::new(),
            prepare: Vec::new(),
            start: words("{program}"),
            warm: false,
            state_of: None,
        };
        let run = words("{headstart} --state {state} run --name {workload} -- {program}");
        Ok(match name {
            "cold" => plain,
            "warm" => Setup { warm: true, ..plain },
            "headstart" => Setup {
                record: vec![run.clone(); LEARNING_RUNS],
                start: run,
                ..plain
            },
            "before" => Setup {
                record: vec![run; LEARNING_RUNS],
                prepare: vec![words("{headstart} --state {state} replay {workload} --wait")],
                ..plain
            },
            path if path.ends_with(".toml") => {
                let text =
                    std::fs::read_to_string(path).with_context(|| format!("reading the setup {path}"))?;
                let mut setup: Setup = toml::from_str(&text).with_context(|| format!("the setup {path}"))?;
                if setup.name.is_empty() {
                    setup.name = Path::new(path)
                        .file_stem()
                        .unwrap_or_default()
                        .to_string_lossy()
                        .into_owned();
                }
                setup
            }
            _ => bail!(
                "no setup {name:?}: built in are {}; a path ending in .toml loads your own",
                Setup::BUILT_IN.join(", ")
            ),
        })
    }

    /// Whether any hook calls headstart.
    pub fn needs_headstart(&self) -> bool {
        let all = self.record.iter().chain(&self.prepare).chain([&self.start]);
        all.flatten().any(|word| word.contains("{headstart}"))
    }
}

/// What the placeholders stand for.
#[derive(Debug, Clone)]
pub struct Names {
    /// Placeholder (without braces) and value.
    pub values: BTreeMap<&'static str, String>,
    /// The program's own command line.
    pub program: Vec<String>,
}

impl Names {
    /// Fills a command in; an unknown placeholder is an error.
    pub fn fill(&self, template: &[String]) -> Result<Vec<String>> {
        let mut words = Vec::with_capacity(template.len() + self.program.len());
        for word in template {
            if word == "{program}" {
                words.extend(self.program.iter().cloned());
                continue;
            }
            let mut filled = word.clone();
            for (name, value) in &self.values {
                filled = filled.replace(&format!("{{{name}}}"), value);
            }
            if let Some((_, rest)) = filled.split_once('{').filter(|(_, rest)| rest.contains('}')) {
                let known: Vec<&str> = self.values.keys().copied().collect();
                let name = rest.split('}').next().unwrap_or_default();
                bail!(
                    "{word:?}: no placeholder {{{name}}}; there are program, {}",
                    known.join(", ")
                );
            }
            words.push(filled);
        }
        Ok(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        let values = [
            ("state", "/s"),
            ("headstart", "/bin/hs"),
            ("workload", "w"),
            ("mount", "/m"),
        ];
        Names {
            values: values.map(|(k, v)| (k, v.to_owned())).into(),
            program: vec!["chroot".into(), "/m".into(), "/bin/true".into()],
        }
    }

    #[test]
    fn headstart_wraps_the_program() {
        let setup = Setup::load("headstart").unwrap();
        let line = names().fill(&setup.start).unwrap().join(" ");
        assert_eq!(line, "/bin/hs --state /s run --name w -- chroot /m /bin/true");
        assert!(setup.needs_headstart() && !Setup::load("cold").unwrap().needs_headstart());
    }

    #[test]
    fn before_replays_then_starts_plainly() {
        let setup = Setup::load("before").unwrap();
        assert_eq!(
            names().fill(&setup.prepare[0]).unwrap().join(" "),
            "/bin/hs --state /s replay w --wait"
        );
        assert_eq!(names().fill(&setup.start).unwrap(), names().program);
    }

    #[test]
    fn a_peer_is_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vmtouch.toml");
        std::fs::write(
            &path,
            "prepare = [['vmtouch', '-t', '{mount}/usr']]\nstart = ['{program}']\n",
        )
        .unwrap();
        let setup = Setup::load(path.to_str().unwrap()).unwrap();
        assert_eq!(setup.name, "vmtouch");
        assert_eq!(names().fill(&setup.prepare[0]).unwrap()[2], "/m/usr");
    }

    #[test]
    fn misspelt_placeholder_is_named() {
        let error = names().fill(&["{stat}/x".into()]).unwrap_err().to_string();
        assert!(error.contains("{stat}") && error.contains("state"), "{error}");
        assert!(Setup::load("hot").unwrap_err().to_string().contains("before"));
    }
}
