//! What this lab process has put on the machine (mounts, loop devices, servers, processes), on record before
//! it is made, so that it can be taken away again: by the guard that made it, on SIGINT or SIGTERM, or by
//! `headstart-lab clean` after a kill.
//!
//! One file per lab process, named by process id and start time, so a process id used again is never mistaken
//! for the owner, and only the lab's own things are ever touched.

mod item;
mod process;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

pub use item::Item;
pub(crate) use item::abort_fuse;
pub use process::start_time;

use crate::print;

#[derive(Debug, Serialize, Deserialize)]
struct Record {
    pid: i32,
    start: u64,
    items: BTreeMap<u64, Item>,
}

/// The record of this process. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Registry {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    file: PathBuf,
    record: Record,
    next: u64,
}

/// Takes its item away when dropped.
#[derive(Debug)]
pub struct Guard {
    registry: Registry,
    id: u64,
}

impl Registry {
    /// Opens a record for this process below `base`.
    pub fn open(base: &Path) -> Result<Registry> {
        let directory = base.join("registry");
        fs::create_dir_all(&directory).with_context(|| format!("creating {}", directory.display()))?;
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        let start = start_time(pid).context("reading this process's start time from /proc")?;
        let record = Record {
            pid,
            start,
            items: BTreeMap::new(),
        };
        let file = directory.join(format!("{pid}-{start}.json"));
        process::wear_badge(pid, start)?;
        Ok(Registry {
            inner: Arc::new(Mutex::new(Inner {
                file,
                record,
                next: 0,
            })),
        })
    }

    /// Puts an item on record; call it before making the thing itself.
    pub fn guard(&self, item: Item) -> Result<Guard> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let id = inner.next;
        inner.next += 1;
        inner.record.items.insert(id, item);
        inner.save()?;
        Ok(Guard {
            registry: self.clone(),
            id,
        })
    }

    /// Undoes everything, newest first, and never lets go of the record again: for a process about to exit.
    pub fn close(&self) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        for failure in inner.undo_all(false) {
            print::note(format_args!("headstart-lab: {failure:#}"));
        }
        std::mem::forget(inner);
    }

    /// On SIGINT, SIGTERM and SIGHUP: undo everything, then exit with status 130.
    pub fn undo_on_signals(&self) -> Result<()> {
        let registry = self.clone();
        ctrlc::set_handler(move || {
            registry.close();
            std::process::exit(130);
        })
        .context("installing the signal handler")
    }
}

impl Guard {
    /// Takes the item away now and says how it went.
    pub fn undo(self) -> Result<()> {
        let result = self.registry.undo_one(self.id);
        std::mem::forget(self);
        result
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Err(error) = self.registry.undo_one(self.id) {
            print::note(format_args!("headstart-lab: {error:#}"));
        }
    }
}

impl Registry {
    fn undo_one(&self, id: u64) -> Result<()> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(item) = inner.record.items.get(&id).cloned() else {
            return Ok(());
        };
        item.undo()?;
        inner.record.items.remove(&id);
        inner.save()
    }
}

impl Inner {
    fn save(&self) -> Result<()> {
        if self.record.items.is_empty() {
            return match fs::remove_file(&self.file) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    Err(e).with_context(|| format!("removing {}", self.file.display()))
                }
                _ => Ok(()),
            };
        }
        let text = serde_json::to_vec_pretty(&self.record)?;
        let temporary = self.file.with_extension("tmp");
        fs::write(&temporary, text)
            .and_then(|()| fs::rename(&temporary, &self.file))
            .with_context(|| format!("writing {}", self.file.display()))
    }

    /// What could not be undone stays on record.
    fn undo_all(&mut self, owner_is_dead: bool) -> Vec<anyhow::Error> {
        let mut failures = Vec::new();
        if owner_is_dead {
            let (pid, start) = (self.record.pid, self.record.start);
            let ending = Some(pid).filter(|pid| process::began(*pid) == Some(start));
            // Before anything that may wait for an answer of its servers.
            let items = self.record.items.values();
            failures.extend(items.filter_map(|item| item.abort(ending).err()));
            failures.extend(process::end_children(pid, start).err());
        }
        let items: Vec<(u64, Item)> = self
            .record
            .items
            .iter()
            .rev()
            .map(|(i, x)| (*i, x.clone()))
            .collect();
        for (id, item) in items {
            match item.undo() {
                Ok(()) => {
                    self.record.items.remove(&id);
                }
                Err(error) => failures.push(error),
            }
        }
        failures.extend(self.save().err());
        failures
    }
}

/// What [`clean`] did.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Things removed.
    pub removed: Vec<Item>,
    /// Lab processes still running, whose things were left alone.
    pub running: Vec<i32>,
    /// What could not be removed, and why.
    pub failures: Vec<String>,
}

/// Removes what dead lab processes left below `base`.
pub fn clean(base: &Path) -> Result<Cleaned> {
    let mut cleaned = Cleaned::default();
    let directory = base.join("registry");
    let entries = match fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(cleaned),
        Err(e) => return Err(e).with_context(|| format!("reading {}", directory.display())),
    };
    for entry in entries {
        let file = entry?.path();
        if file.extension().is_none_or(|e| e != "json") {
            continue;
        }
        let text = fs::read(&file).with_context(|| format!("reading {}", file.display()))?;
        let record: Record = match serde_json::from_slice(&text) {
            Ok(record) => record,
            Err(error) => {
                cleaned.failures.push(format!("{}: {error}", file.display()));
                continue;
            }
        };
        if start_time(record.pid) == Some(record.start) {
            cleaned.running.push(record.pid);
            continue;
        }
        let before: Vec<Item> = record.items.values().cloned().collect();
        let mut inner = Inner {
            file,
            record,
            next: u64::MAX,
        };
        cleaned
            .failures
            .extend(inner.undo_all(true).iter().map(|e| format!("{e:#}")));
        let kept: Vec<&Item> = inner.record.items.values().collect();
        cleaned
            .removed
            .extend(before.into_iter().filter(|item| !kept.contains(&item)));
    }
    Ok(cleaned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    fn dead_record(base: &Path, items: Vec<Item>) {
        // No process has start time 0 except those of the boot: this owner is dead.
        dead_since(base, 0, items);
    }

    /// The record of a lab that was process 1 and has begun then, and is dead.
    fn dead_since(base: &Path, start: u64, items: Vec<Item>) {
        fs::create_dir_all(base.join("registry")).unwrap();
        let record = Record {
            pid: 1,
            start,
            items: (0..).zip(items).collect(),
        };
        fs::write(
            base.join(format!("registry/1-{start}.json")),
            serde_json::to_vec(&record).unwrap(),
        )
        .unwrap();
    }

    #[test]
    fn clean_ends_a_dead_labs_process_and_removes_its_scratch() {
        let base = tempfile::tempdir().unwrap();
        let scratch = base.path().join("copy.img");
        fs::write(&scratch, "x").unwrap();
        let mut child = Command::new("sleep").arg("600").process_group(0).spawn().unwrap();
        let pid = child.id() as i32;
        let items = vec![
            Item::Scratch {
                path: scratch.clone(),
            },
            Item::Group {
                pid,
                start: start_time(pid).unwrap(),
            },
        ];
        dead_record(base.path(), items);
        // A zombie keeps its start time: reap it while clean waits.
        let reaper = std::thread::spawn(move || child.wait().unwrap());
        let cleaned = clean(base.path()).unwrap();
        assert!(!reaper.join().unwrap().success());
        assert_eq!(cleaned.removed.len(), 2, "{cleaned:?}");
        assert!(!scratch.exists());
        assert_eq!(
            clean(base.path()).unwrap(),
            Cleaned::default(),
            "the record is gone"
        );
    }

    #[test]
    fn clean_spares_a_namesake_of_the_process() {
        let base = tempfile::tempdir().unwrap();
        let mut child = Command::new("sleep").arg("600").process_group(0).spawn().unwrap();
        let pid = child.id() as i32;
        dead_record(
            base.path(),
            vec![Item::Group {
                pid,
                start: start_time(pid).unwrap() + 1,
            }],
        );
        clean(base.path()).unwrap();
        assert!(
            child.try_wait().unwrap().is_none(),
            "another process with the same id was ended"
        );
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn clean_leaves_a_running_lab_alone() {
        let base = tempfile::tempdir().unwrap();
        let registry = Registry::open(base.path()).unwrap();
        let scratch = base.path().join("in-use");
        fs::write(&scratch, "x").unwrap();
        let guard = registry
            .guard(Item::Scratch {
                path: scratch.clone(),
            })
            .unwrap();
        assert_eq!(clean(base.path()).unwrap().running, [std::process::id() as i32]);
        assert!(scratch.exists());
        drop(guard);
        assert!(!scratch.exists(), "the guard removes it");
        assert_eq!(fs::read_dir(base.path().join("registry")).unwrap().count(), 0);
    }

    /// Such as a `losetup` that attaches a device when the record's loop device has been found unattached.
    #[test]
    fn clean_ends_what_a_dead_lab_had_only_just_started() {
        let base = tempfile::tempdir().unwrap();
        // Not when those of other tests have begun: they would end this process while it has the badge.
        let start = u64::MAX;
        dead_since(base.path(), start, Vec::new());
        // Children of other tests shall not inherit it.
        let badge = process::badge(1, start, rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut child = Command::new("sleep").arg("600").stdin(badge).spawn().unwrap();
        assert_eq!(clean(base.path()).unwrap(), Cleaned::default());
        assert!(!child.wait().unwrap().success());
    }

    #[test]
    fn clean_reports_a_broken_record() {
        let base = tempfile::tempdir().unwrap();
        fs::create_dir_all(base.path().join("registry")).unwrap();
        fs::write(base.path().join("registry/9-9.json"), "{").unwrap();
        assert_eq!(clean(base.path()).unwrap().failures.len(), 1);
    }
}
