//! What this lab process has put on the machine (mounts, loop devices, servers, processes), on record before it is made, so that
//! it can be taken away again: by the guard that made it, on SIGINT or SIGTERM, or by `headstart-lab clean` after a kill.
//!
//! One file per lab process, named by process id and start time, so a process id used again is never mistaken for the owner, and
//! only the lab's own things are ever touched.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};

use crate::machine::cgroup;
use crate::tools;

/// One thing that must not stay behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Item {
    /// A file system mounted at `target`.
    Mount {
        /// Mount point.
        target: PathBuf,
    },
    /// A FUSE server's mount: its connection is aborted when it does not go quietly.
    Fuse {
        /// Mount point.
        target: PathBuf,
    },
    /// A loop device, ours as long as it is backed by `backing`.
    Loop {
        /// Such as `/dev/loop3`.
        device: PathBuf,
        /// Backing file.
        backing: PathBuf,
    },
    /// A process group started by the lab; `start` tells its leader from a later namesake.
    Group {
        /// Process id of the leader.
        pid: i32,
        /// Its start time in clock ticks since boot.
        start: u64,
    },
    /// A control group of the lab's own: its processes, those of groups below it, and the groups.
    Cgroup {
        /// Its directory.
        path: PathBuf,
    },
    /// A scratch file or directory tree of the lab's own.
    Scratch {
        /// Path.
        path: PathBuf,
    },
}

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
            eprintln!("headstart-lab: {failure:#}");
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
            eprintln!("headstart-lab: {error:#}");
        }
    }
}

impl Registry {
    fn undo_one(&self, id: u64) -> Result<()> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(item) = inner.record.items.get(&id).cloned() else {
            return Ok(());
        };
        item.undo(false)?;
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
        let items: Vec<(u64, Item)> = self
            .record
            .items
            .iter()
            .rev()
            .map(|(i, x)| (*i, x.clone()))
            .collect();
        for (id, item) in items {
            match item.undo(owner_is_dead) {
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

impl Item {
    /// Takes the thing away if it is there; nothing to do is success.
    fn undo(&self, owner_is_dead: bool) -> Result<()> {
        match self {
            Item::Mount { target } => unmount(target),
            Item::Fuse { target } => {
                // A dead server never answers: without the abort, unmounting could wait for ever.
                if owner_is_dead {
                    abort_fuse(target)?;
                }
                unmount(target)
            }
            Item::Loop { device, backing } => detach(device, backing),
            Item::Group { pid, start } => end_group(*pid, *start),
            Item::Cgroup { path } => cgroup::remove(path),
            Item::Scratch { path } => {
                if let Some(target) = mounted_below(path)? {
                    bail!("{} stays: {target} is mounted in it", path.display());
                }
                let result = if path.is_dir() {
                    fs::remove_dir_all(path)
                } else {
                    fs::remove_file(path)
                };
                match result {
                    Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                        Err(e).with_context(|| format!("removing {}", path.display()))
                    }
                    _ => Ok(()),
                }
            }
        }
    }
}

/// The start time of a process that has not ended, in clock ticks since boot (field 22 of proc_pid_stat(5)).
pub fn start_time(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command name may hold spaces and parentheses; the fields after the last one are plain.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let exiting = fields.get(6)?.parse::<u64>().ok()? & PF_EXITING != 0;
    if fields[0] == "Z" || exiting || killed(pid) {
        return None;
    }
    fields.get(19)?.parse().ok()
}

/// Flag of a task on its way out (`include/linux/sched.h`).
const PF_EXITING: u64 = 4;

/// Whether SIGKILL is pending. A lab killed while a thread of it waits for its own FUSE server cannot end before the connection is
/// aborted: it counts as ended, or nobody would abort it.
fn killed(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let pending = status
        .lines()
        .filter_map(|line| line.strip_prefix("SigPnd:").or(line.strip_prefix("ShdPnd:")));
    let mut masks = pending.filter_map(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // Signal 9 is bit 8.
    masks.any(|mask| mask & 0x100 != 0)
}

/// The device number of what is mounted at `target`, top mount last.
fn mounted(target: &Path) -> Result<Option<String>> {
    let text = fs::read_to_string("/proc/self/mountinfo").context("reading /proc/self/mountinfo")?;
    let wanted = target.to_string_lossy().replace(' ', "\\040");
    let mut found = None;
    for line in text.lines() {
        let mut fields = line.split(' ');
        let device = fields.nth(2);
        if fields.nth(1) == Some(wanted.as_str()) {
            found = device.map(str::to_owned);
        }
    }
    Ok(found)
}

/// A mount point at or below `path`.
fn mounted_below(path: &Path) -> Result<Option<String>> {
    let text = fs::read_to_string("/proc/self/mountinfo").context("reading /proc/self/mountinfo")?;
    let targets = text.lines().filter_map(|line| line.split(' ').nth(4));
    Ok(targets
        .map(|target| target.replace("\\040", " "))
        .find(|target| Path::new(target).starts_with(path)))
}

fn unmount(target: &Path) -> Result<()> {
    let patience = Instant::now() + Duration::from_secs(3);
    while mounted(target)?.is_some() {
        match tools::run("umount", [target]) {
            Ok(_) => {}
            Err(_) if Instant::now() < patience => std::thread::sleep(Duration::from_millis(50)),
            // Still busy: take it out of sight, the kernel frees it with its last user.
            Err(_) => {
                tools::run("umount", [Path::new("-l"), target])?;
            }
        }
    }
    Ok(())
}

/// Ends a FUSE server's connection and all waiting for it: forcing aborts the connection (umount2(2), MNT_FORCE), with or without a fusectl mount.
pub(crate) fn abort_fuse(target: &Path) -> Result<()> {
    if mounted(target)?.is_some() {
        // Busy, most likely, and aborted all the same; what is left is for `unmount` to take away.
        let _ = tools::run("umount", [Path::new("-f"), target]);
    }
    Ok(())
}

fn backing_of(device: &Path) -> Option<String> {
    let name = device.file_name()?.to_str()?;
    let file = fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).ok()?;
    Some(file.trim_end().trim_end_matches(" (deleted)").to_owned())
}

fn detach(device: &Path, backing: &Path) -> Result<()> {
    let ours = || backing_of(device).is_some_and(|file| Path::new(&file) == backing);
    if !ours() {
        return Ok(());
    }
    tools::run("losetup", [Path::new("-d"), device])?;
    // Detaching a device in use only marks it; wait for the last close.
    let patience = Instant::now() + Duration::from_secs(5);
    while ours() {
        if Instant::now() > patience {
            bail!(
                "{} is still in use after losetup -d; something holds it open",
                device.display()
            );
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

fn end_group(pid: i32, start: u64) -> Result<()> {
    let Some(group) = Pid::from_raw(pid) else {
        return Ok(());
    };
    let alive = || start_time(pid) == Some(start);
    if !alive() {
        return Ok(());
    }
    let patience = Instant::now() + Duration::from_secs(2);
    // An error means that it has just ended.
    let _ = rustix::process::kill_process_group(group, Signal::TERM);
    while alive() && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(20));
    }
    if alive() {
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    fn dead_record(base: &Path, items: Vec<Item>) {
        fs::create_dir_all(base.join("registry")).unwrap();
        // No process has start time 0 except those of the boot: this owner is dead.
        let record = Record {
            pid: 1,
            start: 0,
            items: (0..).zip(items).collect(),
        };
        fs::write(
            base.join("registry/1-0.json"),
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

    #[test]
    fn clean_reports_a_broken_record() {
        let base = tempfile::tempdir().unwrap();
        fs::create_dir_all(base.path().join("registry")).unwrap();
        fs::write(base.path().join("registry/9-9.json"), "{").unwrap();
        assert_eq!(clean(base.path()).unwrap().failures.len(), 1);
    }
}
