//! /etc/headstart/headstart.toml: what boots leave out and record, and what the daemon does for programs.
//! Everything has a default, and the file need not exist.
//!
//! Boots and the daemon have nobody to ask. So an error is reported and costs no more than its own key: a
//! value that is refused leaves that key its default, an unknown key is ignored, and all others count. In a
//! file that is no TOML nothing counts.

use headstart_model::FilePath;
use headstart_store::read_bounded;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// What a table of the file says.
type Table = serde_json::Map<String, Value>;

/// Where it is.
pub const FILE: &str = "/etc/headstart/headstart.toml";

/// The most bytes of it: a line for each of a thousand paths.
const MOST: u64 = 64 << 10;

/// The most brackets that are open at once: it has two tables and a list.
const MOST_BRACKETS: usize = 64;

/// The file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// `[boot]`: for boots.
    pub boot: Boot,
    /// `[programs]`: for the daemon.
    pub programs: Programs,
}

/// `[boot]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Boot {
    /// Nothing at or below these absolute paths is learned.
    pub exclude: Vec<String>,
    /// One boot in so many is a control; 0 for none.
    pub control_every: u32,
    /// Whether the recordings of boots hold what a chart shows beyond a trace.
    pub chart: bool,
    /// Whether some starts are recorded while the kernel maps one page around a fault, which tells exactly
    /// which pages they need: that is a setting of the whole machine (`docs/decisions/0014-exact-pages.md`).
    pub exact_pages: bool,
}

/// `[programs]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Programs {
    /// One cold start of a program in so many is a control; 0 for none.
    pub control_every: u32,
    /// Whether starts are recorded only, and nothing is read ahead: for `headstart estimate`.
    pub observe: bool,
    /// Whether some starts are recorded while the kernel maps one page around a fault, which tells exactly
    /// which pages they need: that is a setting of the whole machine (`docs/decisions/0014-exact-pages.md`).
    pub exact_pages: bool,
    /// The directory that the daemon writes its file of sums into; `None` for nowhere.
    pub metrics: Option<PathBuf>,
}

impl Default for Boot {
    fn default() -> Boot {
        // File systems of the kernel's; what is made anew at every boot; and where everybody may write.
        let exclude = ["/proc", "/sys", "/dev", "/run", "/tmp", "/var/tmp"];
        Boot {
            exclude: exclude.map(String::from).to_vec(),
            control_every: 10,
            chart: false,
            exact_pages: false,
        }
    }
}

impl Default for Programs {
    fn default() -> Programs {
        Programs {
            control_every: 10,
            observe: false,
            exact_pages: false,
            metrics: None,
        }
    }
}

impl Boot {
    /// The excluded paths, with headstart's own state among them: at boot only headstart reads that.
    pub fn excluded(&self, state: &Path) -> Vec<FilePath> {
        let mut paths: Vec<FilePath> = self.exclude.iter().map(|path| path.as_str().into()).collect();
        paths.push(state.into());
        paths
    }
}

/// Reads it from [`FILE`], or a file of a test. `tell` gets a line for each error, which names the file, the
/// key and what counts.
pub fn read(path: &Path, tell: &mut dyn FnMut(String)) -> Config {
    let text = match read_bounded(path, MOST) {
        Ok(Some(bytes)) => String::from_utf8(bytes).map_err(|error| error.to_string()),
        Ok(None) => return Config::default(),
        Err(error) => {
            // It names the file.
            tell(format!("{error}; the defaults hold"));
            return Config::default();
        }
    };
    let mut tell = |error: String| tell(format!("{}: {error}", path.display()));
    match text.and_then(|text| parse(&text, &mut tell)) {
        Ok(config) => config,
        Err(error) => {
            tell(format!("{error}; the defaults hold"));
            Config::default()
        }
    }
}

/// Errors are of a text that is no TOML; all others are told.
fn parse(text: &str, tell: &mut dyn FnMut(String)) -> Result<Config, String> {
    // The parser calls itself for each bracket in brackets, and has one stack.
    let mut depth = 0usize;
    for byte in text.bytes() {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MOST_BRACKETS {
            return Err(format!("more than {MOST_BRACKETS} brackets are open at once"));
        }
    }
    let values: Table = basic_toml::from_str(text).map_err(|error| error.to_string())?;
    let mut file = Keys::new("", values, tell);
    let (boot, programs) = (file.table("boot"), file.table("programs"));
    file.end();

    let mut keys = Keys::new("boot", boot, tell);
    let default = Boot::default();
    let boot = Boot {
        exclude: keys.value("exclude", default.exclude, |paths| {
            paths.iter().try_for_each(|path| absolute(Path::new(path)))
        }),
        control_every: keys.value("control_every", default.control_every, |_| Ok(())),
        chart: keys.value("chart", default.chart, |_| Ok(())),
        exact_pages: keys.value("exact_pages", default.exact_pages, |_| Ok(())),
    };
    keys.end();

    let mut keys = Keys::new("programs", programs, tell);
    let default = Programs::default();
    let programs = Programs {
        control_every: keys.value("control_every", default.control_every, |_| Ok(())),
        observe: keys.value("observe", default.observe, |_| Ok(())),
        exact_pages: keys.value("exact_pages", default.exact_pages, |_| Ok(())),
        metrics: keys.value("metrics", default.metrics, |path| {
            path.as_deref().map_or(Ok(()), absolute)
        }),
    };
    keys.end();
    Ok(Config { boot, programs })
}

fn absolute(path: &Path) -> Result<(), String> {
    match path.is_absolute() {
        true => Ok(()),
        false => Err(format!("{path:?} is no absolute path")),
    }
}

/// The keys of a table that are not read yet.
struct Keys<'a> {
    /// Empty for the file itself.
    table: &'static str,
    values: Table,
    /// The keys that there are.
    known: Vec<&'static str>,
    tell: &'a mut dyn FnMut(String),
}

impl<'a> Keys<'a> {
    fn new(table: &'static str, values: Table, tell: &'a mut dyn FnMut(String)) -> Keys<'a> {
        Keys {
            table,
            values,
            known: Vec::new(),
            tell,
        }
    }

    fn table(&mut self, key: &'static str) -> Table {
        self.value(key, Table::new(), |_| Ok(()))
    }

    /// The value of a key. If there is none, or if it is refused, the default.
    fn value<T: DeserializeOwned>(
        &mut self,
        key: &'static str,
        default: T,
        check: impl FnOnce(&T) -> Result<(), String>,
    ) -> T {
        self.known.push(key);
        let Some(value) = self.values.remove(key) else {
            return default;
        };
        let value = serde_json::from_value(value).map_err(|error| error.to_string());
        let checked = value.and_then(|value| check(&value).map(|()| value));
        checked.unwrap_or_else(|error| {
            let name = self.name(key);
            (self.tell)(format!("{name}: {error}; the default holds"));
            default
        })
    }

    /// Tells of the keys that nobody has read.
    fn end(self) {
        for key in self.values.keys() {
            let (name, known) = (self.name(key), self.known.join(", "));
            (self.tell)(format!("{name} is unknown and ignored; known are {known}"));
        }
    }

    fn name(&self, key: &str) -> String {
        match self.table {
            "" => key.to_owned(),
            table => format!("{table}.{key}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a text says, and what is told of it.
    fn read_text(text: &str) -> (Config, Vec<String>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("headstart.toml");
        std::fs::write(&path, text).unwrap();
        let mut told = Vec::new();
        let config = read(&path, &mut |line| told.push(line));
        assert!(told.iter().all(|line| line.starts_with(path.to_str().unwrap())));
        (config, told)
    }

    #[test]
    fn brackets_in_brackets_end_no_process() {
        for text in [
            "x=".to_owned() + &"[".repeat(30_000),
            "[boot]\nexclude=".to_owned() + &"[{".repeat(20_000),
        ] {
            let (config, told) = read_text(&text);
            assert_eq!(config, Config::default());
            assert_eq!(told.len(), 1, "{told:?}");
            assert!(
                told[0].contains("brackets are open at once; the defaults hold"),
                "{told:?}"
            );
        }
        // Those that are closed again are no depth.
        let paths = vec!["\"/a/[b]\""; 1000].join(", ");
        let (config, told) = read_text(&format!("[boot]\nexclude = [{paths}]"));
        assert_eq!((config.boot.exclude.len(), told.len()), (1000, 0), "{told:?}");
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named_once() {
        let dir = tempfile::tempdir().unwrap();
        let mut told = Vec::new();
        read(dir.path(), &mut |line| told.push(line));
        let name = dir.path().display().to_string();
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].matches(&name).count(), 1, "{told:?}");
    }

    #[test]
    fn the_file_that_packages_install_tells_the_defaults() {
        let text = include_str!("../../../packaging/headstart.toml");
        assert_eq!(read_text(text), (Config::default(), Vec::new()));
        let mut said = text.to_owned();
        for key in [
            "exclude",
            "control_every",
            "chart",
            "exact_pages",
            "observe",
            "metrics",
        ] {
            said = said.replace(&format!("# {key} ="), &format!("{key} ="));
        }
        let (mut config, told) = read_text(&said);
        let metrics = config.programs.metrics.take().unwrap();
        assert_eq!(metrics, Path::new("/var/lib/prometheus/node-exporter"));
        assert_eq!((config, told), (Config::default(), Vec::new()));
    }

    #[test]
    fn each_key_counts_and_what_is_not_said_has_its_default() {
        let text = "[boot]\nexclude = [\"/srv/cache\"]\nchart = true\nexact_pages = true\n\
                    [programs]\ncontrol_every = 0\nobserve = true\nexact_pages = true\nmetrics = \"/m\"\n";
        let (config, told) = read_text(text);
        assert!(told.is_empty(), "{told:?}");
        assert_eq!(config.boot.excluded(Path::new("/state")).len(), 2);
        let Boot {
            control_every,
            chart,
            exact_pages,
            ..
        } = config.boot;
        assert_eq!((control_every, chart, exact_pages), (10, true, true));
        let Programs {
            control_every,
            observe,
            exact_pages,
            ..
        } = config.programs;
        assert_eq!((control_every, observe, exact_pages), (0, true, true));
        assert_eq!(config.programs.metrics, Some("/m".into()));
    }

    #[test]
    fn an_unknown_key_is_told_once_and_all_known_ones_count() {
        let text = "[boot]\ncontrol_every = 3\nexcluded = []\n\
                    [programs]\ncontrol_every = 4\nhold = true\nmetrics = \"/m\"\n[program]\n";
        let (config, told) = read_text(text);
        assert_eq!(config.boot.control_every, 3);
        assert_eq!(config.programs.control_every, 4);
        assert_eq!(config.programs.metrics, Some("/m".into()));
        assert_eq!(told.len(), 3, "{told:?}");
        for (name, known) in [
            ("program", "boot, programs"),
            ("boot.excluded", "exclude, control_every, chart, exact_pages"),
            ("programs.hold", "control_every, observe, exact_pages, metrics"),
        ] {
            let line = format!(": {name} is unknown and ignored; known are {known}");
            assert!(told.iter().any(|said| said.ends_with(&line)), "{line}: {told:?}");
        }
    }

    #[test]
    fn a_value_that_is_refused_leaves_its_key_the_default() {
        let text =
            "[boot]\nexclude = [\"tmp\"]\ncontrol_every = -1\nchart = true\n[programs]\nmetrics = \"here\"\n";
        let (config, told) = read_text(text);
        let boot = Boot {
            chart: true,
            ..Boot::default()
        };
        assert_eq!(config.boot, boot);
        assert_eq!(config.programs, Programs::default());
        assert_eq!(told.len(), 3, "{told:?}");
        for (line, name) in
            told.iter()
                .zip(["boot.exclude: \"tmp\"", "boot.control_every", "programs.metrics"])
        {
            assert!(
                line.contains(name) && line.ends_with("; the default holds"),
                "{line}"
            );
        }
        let (config, told) = read_text("programs = 7\n[boot]\ncontrol_every = 5\n");
        assert_eq!((config.boot.control_every, told.len()), (5, 1), "{told:?}");
    }

    #[test]
    fn in_a_file_that_cannot_be_read_nothing_counts() {
        let dir = tempfile::tempdir().unwrap();
        let nothing = read(&dir.path().join("none"), &mut |line| {
            panic!("it need not exist: {line}")
        });
        assert_eq!(nothing, Config::default());
        for (text, word) in [("#".repeat(1 << 20), "65536"), ("[boot".into(), "line 1")] {
            let (config, told) = read_text(&text);
            assert_eq!(config, Config::default());
            assert!(told.len() == 1 && told[0].contains(word), "{told:?}");
            assert!(
                told[0].ends_with("; the defaults hold") && !told[0].contains('\n'),
                "{told:?}"
            );
        }
    }

    #[test]
    fn where_everybody_may_write_nothing_is_learned_and_at_home_it_is() {
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
}
