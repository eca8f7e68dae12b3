//! Records → events: whose doing it was, and which file or device is meant.

use super::decode::{EventKind, Record};
use super::inodes::{Adds, Inodes};
use super::tasks::Tasks;
use crate::kernel::event::{Event, Exec, Fork, Location, LookupSeen, MetadataSeen, Place, UseSeen};
use headstart_model::trace::{Evidence, LookupKind, UseKind};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// What is known while the records of one recording are read.
pub(super) struct Interpreter {
    pub evidence: Evidence,
    pub tasks: Tasks,
    pub inodes: Inodes,
}

impl Interpreter {
    /// Reads a batch of records, in order of time.
    pub fn batch(&mut self, records: Vec<Record>, sink: &mut dyn FnMut(Event)) {
        self.inodes.start_batch();
        for record in records {
            self.interpret(record, sink);
        }
        self.inodes.end();
    }

    /// Notes what a process runs that was there before its exec could be seen.
    pub fn runs(&mut self, pid: u32) {
        if let Ok(path) = std::fs::read_link(format!("/proc/{pid}/exe")) {
            self.inodes.executed(path.as_os_str().as_bytes());
        }
    }

    fn interpret(&mut self, record: Record, sink: &mut dyn FnMut(Event)) {
        let Record { time_ns, tid, what } = record;
        match what {
            EventKind::Pages {
                dev,
                inode,
                start,
                last,
                kind,
            } => {
                let Some(pid) = self.tasks.process(tid) else {
                    return;
                };
                let mut most = u64::MAX;
                if kind == UseKind::Add {
                    if let Some(device) = self.inodes.block_device(dev, inode, start) {
                        let pages =
                            u32::try_from(last.saturating_sub(start).saturating_add(1)).unwrap_or(u32::MAX);
                        return sink(Event::Metadata(MetadataSeen {
                            time_ns,
                            dev: device,
                            start,
                            pages,
                        }));
                    }
                    if self.evidence == Evidence::Uses {
                        match self.inodes.adds(dev) {
                            Some(Adds::All) => {}
                            Some(Adds::OfOnePage) if last == 0 => most = rustix::param::page_size() as u64,
                            _ => return,
                        }
                    }
                }
                let file = self.inodes.identify(dev, inode, pid, sink);
                if let Some(file) = file.filter(|file| file.size <= most) {
                    sink(Event::Use(UseSeen {
                        time_ns,
                        pid,
                        file: file.id,
                        start,
                        last,
                        size: file.size,
                        user: 0,
                        kind,
                        touched: None,
                        mapped: None,
                    }));
                }
            }
            EventKind::NewTask { tid: new, thread } => {
                if let Some((parent, pid)) = self.tasks.fork(tid, new, thread) {
                    sink(Event::Fork(Fork { time_ns, parent, pid }));
                }
            }
            EventKind::Exec { pid, path } => {
                if self.tasks.process(pid).is_some() {
                    self.inodes.executed(&path);
                    exec(time_ns, pid, path, sink);
                }
            }
            EventKind::Exit { last } => {
                if let Some(pid) = self.tasks.process(tid) {
                    if last.unwrap_or(pid == tid) {
                        sink(Event::Exit { time_ns, pid });
                    }
                }
            }
        }
    }
}

/// A process runs another program: what /proc says of it while it lives (the interpreter of a script, the
/// place a symbolic link leads to), else the path it was executed by.
fn exec(time_ns: u64, pid: u32, path: Vec<u8>, sink: &mut dyn FnMut(Event)) {
    let link = |name: &str| {
        let target = std::fs::read_link(format!("/proc/{pid}/{name}")).ok()?;
        Some(target.into_os_string().into_vec())
    };
    // Only paths are meant, so the device does not matter.
    let place = |path| Place {
        dev: crate::kernel::event::Dev { major: 0, minor: 0 },
        location: Location::Absolute(path),
        mount: None,
    };
    let executable = link("exe").unwrap_or_else(|| path.clone());
    sink(Event::Exec(Exec {
        time_ns,
        pid,
        executable: place(executable),
    }));
    let absolute = path.starts_with(b"/");
    let base = if absolute { None } else { link("cwd").map(place) };
    let root = link("root").filter(|root| root != b"/").map(place);
    if absolute || base.is_some() {
        let kind = LookupKind::Open;
        sink(Event::Lookup(LookupSeen {
            time_ns,
            pid,
            path,
            base,
            root,
            kind,
            found: true,
            uid: 0,
        }));
    }
}
