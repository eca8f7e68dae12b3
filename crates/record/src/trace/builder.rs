//! Events → [`Trace`]: keeps first uses only, names processes and files, and finds out at the end what became
//! of them. It keeps no more than [`crate::limits`] says.

mod activity;
mod fate;
mod files;
mod images;
mod lookups;
mod pages;
mod processes;
mod shares;
mod windows;

use crate::error::RecordError;
use crate::kernel::clock::{monotonic_ns, unix_ns_of};
use crate::kernel::event::{Dev, Event, LookupSeen, Place, UseSeen};
use crate::limits::MISSES;
use crate::options::Options;
use crate::trace::mounts::{Mounts, is_whole};
use crate::trace::places::absolute;
use activity::Recording;
use files::{Files, Named};
use headstart_model::sort::Sort;
use headstart_model::trace::{
    Backend, End, EndReason, Evidence, Lookup, Lost, Meta, MetadataMiss, Scope, Trace, Use, UseKind,
};
use headstart_model::{FilePath, limits};
use headstart_system::secrets::Secrets;
use lookups::Lookups;
use processes::Processes;
use shares::{Shares, Taken};
use std::collections::HashSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use windows::Uses;

/// A trace in the making.
pub(crate) struct Builder {
    meta: Meta,
    started_ns: u64,
    // Times in all below are the events' own until the trace is made.
    mounts: Mounts,
    secrets: Secrets,
    processes: Processes,
    files: Files,
    uses: Uses,
    shares: Shares,
    lookups: Lookups,
    metadata: Vec<MetadataMiss>,
    /// Events taken in.
    events: u64,
    /// Events with uses for which there was no room.
    lost: u64,
    /// Metadata misses for which there was no room, and uses beyond their user's share.
    dropped: u64,
    activity: Option<Recording>,
    patience: Duration,
}

/// Where one use in so many was not seen, or more, the trace is not whole. Fewer teach the less by so much:
/// the next start shows them.
const UNSEEN: u64 = 50;

/// How often it is looked whether what was used is unmounted.
const LOOK_FOR_UNMOUNTS: Duration = Duration::from_millis(10);

/// What the back-end says at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ended {
    /// When, on the clock of the events.
    pub at_ns: u64,
    /// How long its processes waited for block devices, if that is known.
    pub blocked_ns: Option<u64>,
    /// Events that were lost before they could be taken in.
    pub lost: u64,
    /// Uses of pages that were not seen.
    pub unseen_uses: u64,
    /// Look-ups that were not sent.
    pub dropped: u64,
    /// Activity that was not sent.
    pub unseen: u64,
}

impl Builder {
    /// Nothing seen yet. `started_ns` is now, on the clock of the events.
    pub(crate) fn new(
        options: &Options,
        backend: Backend,
        evidence: Evidence,
        started_ns: u64,
    ) -> Result<Builder, RecordError> {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let page_size = rustix::param::page_size();
        Ok(Builder {
            meta: Meta {
                started_unix_ns: u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX),
                kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
                page_size: u32::try_from(page_size).unwrap_or(4096),
                backend,
                evidence,
                scope: options.scope,
                command: options.command.clone(),
                recorder: concat!("headstart ", env!("CARGO_PKG_VERSION")).into(),
                replayed: options.replayed,
            },
            started_ns,
            mounts: Mounts::read()?,
            secrets: Secrets::new(),
            processes: Processes::default(),
            files: Files::new(page_size as u64),
            uses: Uses::default(),
            shares: Shares::new(),
            lookups: Lookups::new(options.scope == Scope::System),
            metadata: Vec::new(),
            events: 0,
            lost: 0,
            dropped: 0,
            activity: None,
            patience: options.patience,
        })
    }

    /// What threads, block devices and memory do is kept, too.
    pub(crate) fn record_activity(&mut self) {
        self.activity = Some(Recording::default());
    }

    /// A process is recorded from now on. In scope tree the start begins with the first.
    pub(crate) fn add_root(&mut self, pid: u32) {
        let now = monotonic_ns();
        if self.meta.scope == Scope::Tree && self.processes.is_empty() {
            let waited = now.saturating_sub(self.started_ns);
            self.started_ns = now;
            self.meta.started_unix_ns = self.meta.started_unix_ns.saturating_add(waited);
        }
        self.processes.index(pid, now);
    }

    /// A process belongs to the start, which began with it.
    pub(crate) fn add_process(&mut self, pid: u32, time_ns: u64) {
        self.processes.start(pid, time_ns);
    }

    /// Pages used for the first time so far.
    pub(crate) fn pages(&self) -> u64 {
        self.files.pages()
    }

    /// About how much memory it takes, bytes; as `crates/record/src/limits.rs` reckons.
    pub(crate) fn bytes(&self) -> usize {
        let uses = self.uses.bytes() + self.metadata.len() * 48;
        uses + self.files.bytes() + self.lookups.bytes() + self.processes.bytes()
    }

    /// The recorded processes that live.
    pub(crate) fn living(&self) -> impl Iterator<Item = u32> {
        self.processes.living()
    }

    /// Before a batch of events: sees what was mounted since the last.
    pub(crate) fn refresh(&mut self) {
        self.mounts.refresh_in_time();
        if let Some(activity) = &mut self.activity {
            activity.sample(monotonic_ns());
        }
    }

    /// Takes an event in.
    pub(crate) fn push(&mut self, event: Event) {
        if let Event::Ran(_) | Event::Request(_) = event {
            if let Some(activity) = &mut self.activity {
                activity.push(&event, &mut self.processes);
            }
            return;
        }
        self.events += 1;
        match event {
            Event::File(seen) => {
                self.within_share(seen.user, |builder| {
                    builder.files.add(seen, &builder.mounts, &mut builder.secrets)
                });
            }
            Event::Use(seen) => {
                let whole = self.within_share(seen.user, |builder| builder.use_pages(&seen));
                match (whole, seen.user) {
                    (Some(true), _) => {}
                    (_, 0) => self.lost += 1,
                    // Beyond the share, or of a file whose first sight was.
                    (_, _) => self.dropped += 1,
                }
            }
            Event::Fork(fork) => self.processes.fork(fork.parent, fork.pid, fork.time_ns),
            Event::Exec(exec) => {
                let path = self.path_of(&exec.executable);
                self.processes.exec(exec.pid, path, exec.time_ns);
            }
            Event::Exit { pid, .. } => self.processes.exit(pid),
            Event::Lookup(seen) => self.look_up(&seen),
            Event::Metadata(_) if self.metadata.len() >= MISSES => self.dropped += 1,
            Event::Metadata(seen) => self.metadata.push(MetadataMiss {
                time_ns: seen.time_ns,
                major: seen.dev.major,
                minor: seen.dev.minor,
                start: seen.start,
                pages: seen.pages,
            }),
            Event::Ran(_) | Event::Request(_) => {}
        }
    }

    /// Does something for a user who may still take some of the room, and notes what that took; `None` if
    /// that was not done.
    fn within_share<T>(&mut self, user: u8, act: impl FnOnce(&mut Builder) -> T) -> Option<T> {
        if !self.shares.has_room(user) {
            return None;
        }
        let before = self.taken();
        let result = act(self);
        self.shares.charge(user, self.taken() - before);
        Some(result)
    }

    fn taken(&self) -> Taken {
        Taken {
            uses: self.uses.added(),
            ..self.files.taken()
        }
    }

    /// Whether there was room for all of it.
    fn use_pages(&mut self, seen: &UseSeen) -> bool {
        let time_ns = seen.time_ns;
        // What the kernel's own threads read counts as the first process's.
        let process = match seen.pid {
            0 => 0,
            pid => self.processes.index(pid, time_ns),
        };
        let touched = seen.touched.map(|page| UseSeen {
            start: page,
            last: page,
            kind: UseKind::Fault,
            ..*seen
        });
        let around = match touched {
            Some(_) => UseSeen {
                kind: UseKind::Around,
                ..*seen
            },
            None => *seen,
        };
        let mut whole = true;
        for seen in [Some(around), touched].into_iter().flatten() {
            let uses = &mut self.uses;
            let mut has_room = true;
            whole &= self.files.use_pages(&seen, |file, start, pages| {
                has_room = uses.add(Use {
                    time_ns,
                    process,
                    file,
                    start,
                    pages,
                    kind: seen.kind,
                });
            });
            whole &= has_room;
        }
        whole
    }

    fn look_up(&mut self, seen: &LookupSeen) {
        // A path on a file system that the recorder does not see names nothing here, nor does one that is too
        // long.
        let paths = absolute(&self.mounts, &seen.path, seen.base.as_ref(), seen.root.as_ref());
        let Some((path, real)) = paths else { return };
        if self.secrets.is_secret(Some(&|| self.mounts.table()), &path) {
            return;
        }
        let time_ns = seen.time_ns;
        let lookup = Lookup {
            time_ns,
            process: self.processes.index(seen.pid, time_ns),
            path: path.into(),
            kind: seen.kind,
            found: seen.found,
        };
        self.lookups.add(lookup, real, seen.uid);
    }

    fn path_of(&mut self, place: &Place) -> Option<FilePath> {
        let best = crate::trace::places::resolve(&self.mounts, place, 1)
            .into_iter()
            .next()?;
        let secret = self.secrets.is_secret(Some(&|| self.mounts.table()), &best.path);
        Some(if secret {
            FilePath::default()
        } else {
            best.path.into()
        })
    }

    /// The start began at `time_ns`, before this was made: events from then on are still to come.
    pub(crate) fn set_began(&mut self, time_ns: u64) {
        let earlier = self.started_ns.saturating_sub(time_ns);
        self.started_ns -= earlier;
        self.meta.started_unix_ns = self.meta.started_unix_ns.saturating_sub(earlier);
    }

    /// Waits until what was used is unmounted, or the [patience](Options::patience) is over.
    fn wait_for_unmounts(&mut self, ended_ns: u64) {
        self.mounts.refresh();
        let until_ns = ended_ns.saturating_add(u64::try_from(self.patience.as_nanos()).unwrap_or(u64::MAX));
        if monotonic_ns() >= until_ns {
            return;
        }
        let devices = self.files.devices();
        while devices.iter().any(|dev| self.mounts.may_be_unmounted(*dev)) && monotonic_ns() < until_ns {
            std::thread::sleep(LOOK_FOR_UNMOUNTS);
            self.mounts.refresh();
        }
    }

    /// The trace.
    pub(crate) fn finish(mut self, reason: EndReason, ended: Ended) -> Result<Trace, RecordError> {
        self.wait_for_unmounts(ended.at_ns);
        let started_ns = self.started_ns;
        let since_start = |time_ns: u64| time_ns.saturating_sub(started_ns);
        let everybody = self.meta.scope == Scope::System;
        let recorded = unix_ns_of(started_ns)..=unix_ns_of(monotonic_ns());
        let named = self
            .files
            .name(&mut self.mounts, &mut self.secrets, everybody, recorded);
        self.processes
            .forget(|path| self.secrets.is_secret(Some(&|| self.mounts.table()), path));
        // A word may be a path from wherever the command worked.
        let hidden = self.secrets.were_seen();
        for (number, word) in self.meta.command.iter_mut().enumerate() {
            let table = || self.mounts.table();
            if hidden && number > 0 || self.secrets.are_in(Some(&table), word.as_bytes(), None) {
                *word = "…".to_owned();
            }
        }
        if everybody {
            let visible = |miss: &MetadataMiss| {
                let dev = Dev {
                    major: miss.major,
                    minor: miss.minor,
                };
                self.mounts.of_device(dev).any(is_whole)
            };
            self.metadata.retain(visible);
        }
        let (mut uses, mut windows) = self.uses.finish(&named.index);
        let dropped = self.dropped + self.lookups.dropped();
        let (lost, dropped) = match ended.unseen_uses.saturating_mul(UNSEEN) < self.events {
            true => (ended.lost, dropped + ended.unseen_uses),
            false => (ended.lost + ended.unseen_uses, dropped),
        };
        let directories = directories(&named);
        let mut lookups = self.lookups.finish(|path| directories.contains(path));
        drop(directories);
        lookups.sort_small_by_key(|one| one.time_ns);
        self.metadata.sort_small_by_key(|one| one.time_ns);
        let mut processes = self.processes.into_list();
        let times = uses.iter_mut().map(|one| &mut one.time_ns);
        let times = times.chain(windows.iter_mut().map(|one| &mut one.time_ns));
        let times = times.chain(lookups.iter_mut().map(|one| &mut one.time_ns));
        let times = times.chain(self.metadata.iter_mut().map(|one| &mut one.time_ns));
        for time_ns in times.chain(processes.iter_mut().map(|one| &mut one.start_ns)) {
            *time_ns = since_start(*time_ns);
        }
        let mut trace = Trace {
            meta: self.meta,
            end: End {
                reason,
                elapsed_ns: since_start(ended.at_ns),
                cpu_ns: None,
                events: self.events,
                blocked_ns: ended.blocked_ns,
            },
            lost: Lost {
                events: lost + self.lost + named.without_room,
                paths: named.lost,
                dropped: ended.dropped + dropped,
                late: false,
            },
            processes,
            filesystems: named.filesystems,
            files: named.files,
            mappings: named.mappings,
            uses,
            windows,
            lookups,
            metadata: self.metadata,
            marks: Vec::new(),
            activity: None,
            ahead: None,
        };
        // Beside uses in very many places there is no room for it.
        if let Some(room) = limits::ROWS.checked_sub(trace.rows()) {
            let activity = self.activity;
            trace.activity = activity.map(|activity| activity.finish(started_ns, ended.unseen, room));
        }
        Ok(trace)
    }
}

/// The directories that the files are in. Their names came from the kernel, component by component: none is a
/// symbolic link.
fn directories(named: &Named) -> HashSet<&[u8]> {
    let mut paths = HashSet::new();
    for file in &named.files {
        let mut path = file.path.as_bytes();
        while let Some(slash) = path.iter().rposition(|byte| *byte == b'/') {
            path = &path[..slash];
            if !paths.insert(path) {
                break;
            }
        }
    }
    paths
}

#[cfg(test)]
mod tests;
