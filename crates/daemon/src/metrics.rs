//! What is told to those who watch machines: a file in the text format of Prometheus
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>), for the textfile collector of its node
//! exporter.
//!
//! Everybody may read it, so it holds sums and names no program. They are sums over the outcomes that are
//! kept, at most 200 of a program, so they are gauges: what is forgotten goes out of them.

use headstart_learn::verdict::{compare, saved_ns};
use headstart_model::Key;
use headstart_model::outcome::Mode;
use headstart_store::{KeyDir, Store, StoreError, write_whole_for};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::time::SystemTime;

/// The file's name in the directory that the configuration names.
pub const FILE: &str = "headstart.prom";

/// Sums over starts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    /// Programs of which a start is kept.
    pub programs: u64,
    /// Starts.
    pub starts: u64,
    /// Starts with a replay.
    pub hits: u64,
    /// What the replays of cold starts have saved, nanoseconds; below 0 where they lost.
    pub saved_ns: i64,
    /// Bytes that were read ahead and not used.
    pub wasted_bytes: u64,
}

impl Sums {
    fn read(kept: &KeyDir, page_size: u64) -> Sums {
        let outcomes = kept.outcomes(drop);
        let wasted: u64 = outcomes
            .iter()
            .flat_map(|outcome| &outcome.stages)
            .fold(0, |sum, stage| sum.saturating_add(stage.wasted_pages));
        let saved = saved_ns(&outcomes, &compare(&outcomes));
        Sums {
            programs: u64::from(!outcomes.is_empty()),
            starts: outcomes.len() as u64,
            hits: outcomes
                .iter()
                .filter(|outcome| outcome.mode == Mode::Replay)
                .count() as u64,
            saved_ns: saved.unwrap_or(0),
            wasted_bytes: wasted.saturating_mul(page_size),
        }
    }

    fn and(self, other: Sums) -> Sums {
        Sums {
            programs: self.programs + other.programs,
            starts: self.starts + other.starts,
            hits: self.hits + other.hits,
            saved_ns: self.saved_ns.saturating_add(other.saved_ns),
            wasted_bytes: self.wasted_bytes.saturating_add(other.wasted_bytes),
        }
    }

    /// The file's text.
    pub fn text(&self) -> String {
        let seconds = self.saved_ns as f64 / 1e9;
        let lines: [(&str, &str, &dyn std::fmt::Display); 5] = [
            ("programs", "Programs of which starts are kept.", &self.programs),
            ("starts", "Starts that are kept.", &self.starts),
            ("hits", "Kept starts that were read ahead for.", &self.hits),
            (
                "saved_seconds",
                "Seconds that kept cold starts with reading ahead took less than the median of those without.",
                &seconds,
            ),
            (
                "wasted_bytes",
                "Bytes read ahead that kept starts did not use.",
                &self.wasted_bytes,
            ),
        ];
        let mut text = String::new();
        for (name, help, value) in lines {
            let _ = write!(
                text,
                "# HELP headstart_{name} {help}\n# TYPE headstart_{name} gauge\nheadstart_{name} {value}\n"
            );
        }
        text
    }
}

/// The sums of a state directory; of a program whose directory has not changed they are not looked up again.
#[derive(Debug, Default)]
pub struct Metrics {
    known: BTreeMap<Key, (SystemTime, Sums)>,
}

impl Metrics {
    /// Sums up. Boots are no programs, and not among them.
    pub fn sums(&mut self, store: &Store) -> Result<Sums, StoreError> {
        let page_size = rustix::param::page_size() as u64;
        let mut before = std::mem::take(&mut self.known);
        for key in store.keys()?.into_iter().filter(|key| key.as_str() != "boot") {
            let kept = store.key(&key);
            // Forgotten meanwhile.
            let Ok(changed) = std::fs::metadata(kept.path()).and_then(|facts| facts.modified()) else {
                continue;
            };
            let same = before.remove(&key).filter(|(at, _)| *at == changed);
            let sums = same.map_or_else(|| Sums::read(&kept, page_size), |(_, sums)| sums);
            self.known.insert(key, (changed, sums));
        }
        Ok(self
            .known
            .values()
            .fold(Sums::default(), |sum, (_, one)| sum.and(*one)))
    }

    /// Writes [`FILE`] into a directory, whole, for everybody to read.
    pub fn write(&mut self, store: &Store, directory: &Path) -> Result<(), StoreError> {
        let text = self.sums(store)?.text();
        write_whole_for(&directory.join(FILE), text.as_bytes(), 0o644)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apps::tests::{add_start, with_starts};
    use std::os::unix::fs::PermissionsExt;

    /// Reads the text format: each metric has its help and its type before its value, and each is there once.
    fn parse(text: &str) -> BTreeMap<String, f64> {
        assert!(text.ends_with('\n'));
        let mut values = BTreeMap::new();
        let mut lines = text.lines();
        while let Some(help) = lines.next() {
            let (name, words) = help.strip_prefix("# HELP ").unwrap().split_once(' ').unwrap();
            assert!(words.ends_with('.') && !words.contains('\\'));
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'));
            assert_eq!(lines.next().unwrap(), format!("# TYPE {name} gauge"));
            let (of, value) = lines.next().unwrap().split_once(' ').unwrap();
            assert_eq!(of, name);
            assert_eq!(
                values.insert(name.to_string(), value.parse().unwrap()),
                None,
                "{name} twice"
            );
        }
        values
    }

    #[test]
    fn the_file_holds_the_sums_of_what_is_kept() {
        use Mode::{Control, Record, Replay};
        let (_dir, store, key) = with_starts(&[
            (Record, 9),
            (Replay, 2),
            (Control, 10),
            (Replay, 12),
            (Control, 10),
        ]);
        let y = Key::new("/usr/bin/y").unwrap();
        for turn in 0..12 {
            let (mode, seconds) = if turn % 2 == 0 { (Replay, 3) } else { (Control, 10) };
            add_start(&store.key(&y), turn, mode, seconds);
        }
        add_start(&store.key(&Key::new("boot").unwrap()), 1, Replay, 1);
        let to = tempfile::tempdir().unwrap();
        let mut metrics = Metrics::default();
        let read = |metrics: &mut Metrics| {
            metrics.write(&store, to.path()).unwrap();
            let file = to.path().join(FILE);
            assert_eq!(
                std::fs::metadata(&file).unwrap().permissions().mode() & 0o777,
                0o644
            );
            assert_eq!(
                std::fs::read_dir(to.path()).unwrap().count(),
                1,
                "no other file is left"
            );
            parse(&std::fs::read_to_string(file).unwrap())
        };
        let page = rustix::param::page_size() as f64;
        let values = read(&mut metrics);
        let expected = [
            ("headstart_hits", 8.0),
            ("headstart_programs", 2.0),
            // Of the first too few are known.
            ("headstart_saved_seconds", 6.0 * 7.0),
            ("headstart_starts", 17.0),
            ("headstart_wasted_bytes", 17.0 * 3.0 * page),
        ];
        assert_eq!(
            values,
            expected.map(|(name, value)| (name.to_string(), value)).into()
        );
        // What is new is seen, and what is forgotten goes.
        add_start(&store.key(&key), 9, Replay, 2);
        assert_eq!(read(&mut metrics)["headstart_starts"], 18.0);
        store.key(&key).forget().unwrap();
        assert_eq!(read(&mut metrics)["headstart_starts"], 12.0);
    }

    #[test]
    fn what_has_not_changed_is_not_read_again() {
        let (_dir, store, key) = with_starts(&[(Mode::Record, 9)]);
        let mut metrics = Metrics::default();
        let first = metrics.sums(&store).unwrap();
        let kept = store.key(&key);
        let changed = std::fs::metadata(kept.path()).unwrap().modified().unwrap();
        for entry in std::fs::read_dir(kept.path()).unwrap().flatten() {
            if entry
                .path()
                .extension()
                .is_some_and(|extension| extension == "outcome")
            {
                std::fs::remove_file(entry.path()).unwrap();
            }
        }
        std::fs::File::open(kept.path())
            .unwrap()
            .set_modified(changed)
            .unwrap();
        assert_eq!(metrics.sums(&store).unwrap(), first);
        assert_eq!(Metrics::default().sums(&store).unwrap().starts, 0);
    }
}
