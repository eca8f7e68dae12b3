//! /etc/headstart/headstart.toml: what boots leave out and record. Everything has a default, and the file need not exist.

use headstart_model::FilePath;
use headstart_start::config;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::path::Path;

pub use config::FILE;

/// The file.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// What is about boots.
    pub boot: Boot,
    /// What is about programs, the daemon looks at.
    programs: IgnoredAny,
}

/// `[boot]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Boot {
    /// Nothing at or below these absolute paths is learned.
    pub exclude: Vec<String>,
    /// Every so many boots one is not read ahead, to compare with; 0 for never.
    pub control_every: u32,
    /// Whether what a chart needs beyond a trace is recorded, too.
    pub chart: bool,
}

impl Default for Boot {
    fn default() -> Boot {
        // File systems of the kernel's; what is made anew at every boot; and where everybody may write.
        let exclude = ["/proc", "/sys", "/dev", "/run", "/tmp", "/var/tmp"];
        Boot {
            exclude: exclude.map(String::from).to_vec(),
            control_every: 10,
            chart: false,
        }
    }
}

impl Boot {
    /// The excluded paths, with headstart's own state among them: at boot only headstart reads that.
    pub fn excluded(&self, state: &Path) -> Vec<FilePath> {
        let mut all: Vec<FilePath> = self.exclude.iter().map(|path| path.as_str().into()).collect();
        all.push(state.into());
        all
    }
}

/// Reads it. What is wrong with it is told, and the defaults hold: a boot has nobody to ask.
pub fn read(path: &Path, tell: &mut dyn FnMut(String)) -> Config {
    config::read(path, tell, parse)
}

fn parse(text: &str) -> Result<Config, String> {
    let config: Config = toml::from_str(text).map_err(|error| error.to_string().replace('\n', " "))?;
    match config.boot.exclude.iter().find(|path| !path.starts_with('/')) {
        Some(relative) => Err(format!("boot.exclude: {relative:?} is no absolute path")),
        None => Ok(config),
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
            .replace("# exclude", "exclude")
            .replace("# control_every", "control_every")
            .replace("# chart", "chart");
        assert_ne!(told, text);
        assert_eq!(parse(&told).unwrap(), Config::default());
    }

    #[test]
    fn what_is_not_said_has_its_default() {
        assert_eq!(parse(""), Ok(Config::default()));
        assert_eq!(parse("[programs]\nmetrics = 7"), Ok(Config::default()));
        let it = parse("[boot]\nexclude = [\"/srv/cache\"]\n").unwrap().boot;
        assert_eq!((it.exclude.len(), it.control_every), (1, 10));
        assert_eq!(it.excluded(Path::new("/state")).len(), 2);
        assert!(!it.chart);
        assert_eq!(parse("[boot]\ncontrol_every = 0").unwrap().boot.control_every, 0);
        assert!(parse("[boot]\nchart = true").unwrap().boot.chart);
    }

    #[test]
    fn audit_08_where_everybody_may_write_nothing_is_learned_and_at_home_it_is() {
        let exclude = Boot::default().exclude;
        assert!(exclude.iter().any(|path| path == "/var/tmp"));
        assert!(!exclude.iter().any(|path| path == "/home"));
    }

    #[test]
    fn the_journal_is_learned() {
        let left_out = Boot::default().excluded(Path::new("/var/lib/headstart"));
        let journal = Path::new("/var/log/journal/0/system.journal");
        let above = |path: &FilePath| journal.starts_with(path.as_path());
        assert!(!left_out.iter().any(above), "{left_out:?}");
    }

    #[test]
    fn what_is_wrong_is_told_and_the_defaults_hold() {
        assert!(
            parse("[boot]\nexclude = [\"tmp\"]")
                .unwrap_err()
                .contains("absolute")
        );
        assert!(parse("[boot]\nexcluded = []").unwrap_err().contains("excluded"));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("headstart.toml");
        let mut told = Vec::new();
        assert_eq!(read(&path, &mut |line| told.push(line)), Config::default());
        assert!(told.is_empty(), "it need not exist");
        std::fs::write(&path, "#".repeat(1 << 20)).unwrap();
        assert_eq!(read(&path, &mut |line| told.push(line)), Config::default());
        assert!(told.pop().is_some_and(|line| line.contains("65536")), "{told:?}");
        std::fs::write(&path, "boot = 7").unwrap();
        assert_eq!(read(&path, &mut |line| told.push(line)), Config::default());
        assert!(
            told.len() == 1 && told[0].contains("the defaults hold"),
            "{told:?}"
        );
    }
}
