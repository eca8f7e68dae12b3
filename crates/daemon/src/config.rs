//! The table `[programs]` of /etc/headstart/headstart.toml.

use headstart_start::config;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::path::{Path, PathBuf};

/// The file, as far as it is about programs.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct File {
    boot: IgnoredAny,
    programs: Config,
}

/// `[programs]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Every so many cold starts of a program one is not read ahead, to compare with; 0 for never.
    pub control_every: u32,
    /// The directory that [`crate::metrics::FILE`] is written into; `None` for nowhere.
    pub metrics: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            control_every: 10,
            metrics: None,
        }
    }
}

/// Reads it from [`config::FILE`], or a file of a test.
pub fn read(path: &Path, tell: &mut dyn FnMut(String)) -> Config {
    config::read(path, tell, parse)
}

fn parse(text: &str) -> Result<Config, String> {
    let file: File = toml::from_str(text).map_err(|error| error.to_string().replace('\n', " "))?;
    match &file.programs.metrics {
        Some(relative) if !relative.is_absolute() => {
            Err(format!("programs.metrics: {relative:?} is no absolute path"))
        }
        _ => Ok(file.programs),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_that_packages_install_tells_the_defaults() {
        let text = include_str!("../../../packaging/headstart.toml");
        assert_eq!(parse(text).unwrap(), Config::default());
        let told = text
            .replace("# metrics", "metrics")
            .replace("# control_every", "control_every");
        let all = Config {
            metrics: Some("/var/lib/prometheus/node-exporter".into()),
            ..Config::default()
        };
        assert_eq!(parse(&told).unwrap(), all);
    }

    #[test]
    fn what_is_about_boots_is_not_looked_at_and_what_is_wrong_is_told() {
        assert_eq!(parse("[boot]\nexclude = [\"/srv\"]\n"), Ok(Config::default()));
        assert_eq!(parse("[programs]\ncontrol_every = 0\n").unwrap().control_every, 0);
        for (wrong, word) in [
            ("[programs]\nmetrics = \"here\"\n", "absolute"),
            ("[programs]\nmetric = \"/here\"\n", "metric"),
            ("[program]\n", "program"),
        ] {
            assert!(parse(wrong).unwrap_err().contains(word), "{wrong}");
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("headstart.toml");
        std::fs::write(&path, "programs = 7").unwrap();
        let mut told = Vec::new();
        assert_eq!(read(&path, &mut |line| told.push(line)), Config::default());
        assert!(
            told.len() == 1 && told[0].contains("the defaults hold"),
            "{told:?}"
        );
    }
}
