//! The tracefs back-end, for kernels without BPF or BTF: a trace instance of its own, read as raw per-CPU pages.
//!
//! It sees the same page events as the BPF back-end where the kernel has them (6.12 and later) and adds to the page
//! cache elsewhere; process starts and ends; and metadata misses. What it cannot see:
//!
//! - paths looked up, but for those executed;
//! - the path of a file that was removed within a drain interval (100 ms) of its use, or whose file system neither
//!   takes file handles by number nor has it open or mapped in a process that still lives;
//! - on btrfs, which of several subvolumes a file is in, if more than one is mounted (the first that fits is taken).
//!
//! It works in the initial pid namespace only: the events name threads as that has them.

mod decode;
mod dir;
mod format;
mod handle;
mod inodes;
mod page;
mod procs;
mod tasks;

use crate::backend::Backend;
use crate::error::RecordError;
use crate::event::{Event, Exec, Fork, Location, LookupSeen, MetadataSeen, Place, UseSeen};
use crate::options::Options;
use decode::{Decoder, Record, What};
use dir::Instance;
use headstart_model::trace::{Backend as BackendName, Evidence, LookupKind, Scope, UseKind};
use inodes::Inodes;
use rustix::fs::OFlags;
use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use tasks::Tasks;

/// The least a processor's buffer holds. At 44 bytes an event it takes 240,000 events a second for a drain interval.
const CPU_BUFFER_MIN: usize = 1 << 20;

/// The inode number of the initial pid namespace (`PROC_PID_INIT_INO`, include/linux/proc_ns.h).
const INITIAL_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// The back-end, attached and running.
pub(crate) fn start(options: &Options) -> Result<Box<dyn Backend>, RecordError> {
    Ok(Box::new(Tracefs::start(options)?))
}

struct Tracefs {
    // Before the instance, which cannot be removed while they are open.
    cpus: Vec<Cpu>,
    instance: Instance,
    decoder: Decoder,
    scope: Scope,
    tasks: Tasks,
    /// Threads that the kernel was told to leave out.
    told: HashSet<u32>,
    inodes: Inodes,
    waiting: Vec<Record>,
    pages_at_once: usize,
    missed: u64,
    damaged: u64,
    stopped: bool,
}

/// One processor's buffer.
struct Cpu {
    name: String,
    pipe: OwnedFd,
}

impl Tracefs {
    fn start(options: &Options) -> Result<Tracefs, RecordError> {
        check_namespace()?;
        let instance = Instance::create(&dir::open_root()?)?;
        // Sized first, while the instance is still switched on, as it is when new: of one that is switched off, the
        // kernel waits for everybody to have left it, some 20 ms.
        let cpus: Vec<String> = instance.list("per_cpu")?;
        let bytes = (options.buffer_bytes / cpus.len().max(1)).max(CPU_BUFFER_MIN);
        instance.write("buffer_size_kb", &bytes.div_ceil(1024).to_string())?;
        instance.write("tracing_on", "0")?;
        // A full buffer keeps what it has: the beginning of a start is worth more than its end.
        instance.write("options/overwrite", "0")?;
        instance.write("trace_clock", "mono")?;
        let excluded = options.exclude_pids.iter().copied().chain([std::process::id()]);
        let tasks = match options.scope {
            Scope::Tree => {
                instance.write("options/event-fork", "1")?;
                Tasks::new(Scope::Tree, [])
            }
            Scope::System => Tasks::new(Scope::System, excluded),
        };
        let decoder = Decoder::enable(&instance)?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let cpus = cpus.into_iter().map(|name| {
            Ok(Cpu {
                pipe: instance.open(&format!("per_cpu/{name}/trace_pipe_raw"), flags)?,
                name,
            })
        });
        let cpus = cpus.collect::<Result<_, RecordError>>()?;
        let mut tracefs = Tracefs {
            cpus,
            pages_at_once: bytes / decoder.pages.page_bytes() + 2,
            instance,
            decoder,
            scope: options.scope,
            tasks,
            told: HashSet::new(),
            inodes: Inodes::new()?,
            waiting: Vec::new(),
            missed: 0,
            damaged: 0,
            stopped: false,
        };
        if tracefs.scope == Scope::System {
            tracefs.exclude_new_threads()?;
            tracefs.instance.write("tracing_on", "1")?;
        }
        Ok(tracefs)
    }

    /// Tells the kernel of threads that excluded processes began.
    fn exclude_new_threads(&mut self) -> Result<(), RecordError> {
        let new: Vec<String> = self
            .tasks
            .newly_excluded(&mut self.told)
            .iter()
            .map(u32::to_string)
            .collect();
        match new.is_empty() {
            true => Ok(()),
            false => self.instance.write("set_event_notrace_pid", &new.join(" ")),
        }
    }

    /// Reads what the processors' buffers hold.
    fn read(&mut self) -> Result<(), RecordError> {
        let mut buffer = vec![0; self.decoder.pages.page_bytes()];
        for cpu in &self.cpus {
            // Many small reads of one page after another say the same thing; the first says it all.
            let mut before: Option<(u32, What)> = None;
            // Bounded, so that one busy processor cannot keep the others waiting for ever.
            for _ in 0..self.pages_at_once {
                let bytes = match rustix::io::read(&cpu.pipe, &mut buffer[..]) {
                    Ok(0) | Err(rustix::io::Errno::AGAIN) => break,
                    Err(rustix::io::Errno::INTR) => continue,
                    Ok(length) => &buffer[..length],
                    Err(error) => {
                        return Err(RecordError::io(format!("read the events of {}", cpu.name), error));
                    }
                };
                let Ok(page) = self.decoder.pages.page(bytes) else {
                    self.damaged += 1;
                    continue;
                };
                self.missed += page.missed;
                for event in page.events {
                    match event {
                        Ok((time_ns, record)) => {
                            let Some(record) = self.decoder.record(time_ns, record) else {
                                continue;
                            };
                            let repeats = before.as_ref().is_some_and(|(tid, what)| {
                                *tid == record.tid
                                    && *what == record.what
                                    && matches!(what, What::Pages { .. })
                            });
                            if !repeats {
                                before = Some((record.tid, record.what.clone()));
                                self.waiting.push(record);
                            }
                        }
                        Err(page::Damaged) => self.damaged += 1,
                    }
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, record: Record, sink: &mut dyn FnMut(Event)) {
        let Record { time_ns, tid, what } = record;
        match what {
            What::Pages {
                dev,
                inode,
                start,
                last,
                kind,
            } => {
                let Some(pid) = self.tasks.process(tid) else {
                    return;
                };
                if kind == UseKind::Add {
                    if let Some(device) = self.inodes.block_device(dev, inode, start) {
                        let pages = u32::try_from(last.saturating_sub(start) + 1).unwrap_or(u32::MAX);
                        return sink(Event::Metadata(MetadataSeen {
                            time_ns,
                            dev: device,
                            start,
                            pages,
                        }));
                    }
                    if self.decoder.evidence == Evidence::Uses {
                        return;
                    }
                }
                if let Some(file) = self.inodes.see(dev, inode, pid, sink) {
                    sink(Event::Use(UseSeen {
                        time_ns,
                        pid,
                        file: file.id,
                        start,
                        last,
                        size: file.size,
                        kind,
                    }));
                }
            }
            What::NewTask { tid: new, thread } => {
                if let Some((parent, pid)) = self.tasks.begin(tid, new, thread) {
                    sink(Event::Fork(Fork { time_ns, parent, pid }));
                }
            }
            What::Exec { pid, path } => {
                if self.tasks.process(pid).is_some() {
                    self.inodes.executed(&path);
                    exec(time_ns, pid, path, sink);
                }
            }
            What::Exit { last } => {
                if let Some(pid) = self.tasks.process(tid) {
                    if last.unwrap_or(pid == tid) {
                        sink(Event::Exit { time_ns, pid });
                    }
                }
            }
        }
    }
}

impl Backend for Tracefs {
    fn name(&self) -> BackendName {
        BackendName::Tracefs
    }

    fn evidence(&self) -> Evidence {
        self.decoder.evidence
    }

    fn add_root(&mut self, pid: u32) -> Result<(), RecordError> {
        self.tasks.add_root(pid);
        // What it runs until its exec.
        if let Ok(path) = std::fs::read_link(format!("/proc/{pid}/exe")) {
            self.inodes.executed(path.as_os_str().as_bytes());
        }
        if self.scope == Scope::Tree {
            self.instance.write("set_event_pid", &pid.to_string())?;
            self.instance.write("tracing_on", "1")?;
        }
        Ok(())
    }

    fn drain(&mut self, sink: &mut dyn FnMut(Event)) -> Result<(), RecordError> {
        if self.scope == Scope::System && !self.stopped {
            self.exclude_new_threads()?;
        }
        // What one processor wrote while another was read waits for the next time: only up to here all are complete.
        let complete = if self.stopped {
            u64::MAX
        } else {
            crate::recorder::monotonic_ns()
        };
        self.read()?;
        self.waiting.sort_by_key(|record| record.time_ns);
        let ready = self.waiting.partition_point(|record| record.time_ns <= complete);
        let later = self.waiting.split_off(ready);
        self.inodes.begin();
        for record in std::mem::replace(&mut self.waiting, later) {
            self.take(record, sink);
        }
        self.inodes.end();
        Ok(())
    }

    fn stop(&mut self) -> Result<(), RecordError> {
        self.stopped = true;
        self.instance.write("tracing_on", "0")
    }

    fn lost(&mut self) -> Result<u64, RecordError> {
        let mut dropped = 0;
        for cpu in &self.cpus {
            dropped += dropped_events(&self.instance.read(&format!("per_cpu/{}/stats", cpu.name))?);
        }
        // The pages repeat what the counts say, as far as they say it.
        Ok(dropped.max(self.missed) + self.damaged)
    }
}

/// The events a processor's `stats` file counts as not written or written over.
fn dropped_events(stats: &str) -> u64 {
    let lines = stats.lines().filter_map(|line| line.split_once(':'));
    lines
        .filter(|(name, _)| matches!(*name, "overrun" | "commit overrun" | "dropped events"))
        .filter_map(|(_, count)| count.trim().parse::<u64>().ok())
        .sum()
}

/// A process runs another program: what /proc says of it while it lives (the interpreter of a script, the place a
/// symbolic link leads to), else the path it was executed by.
fn exec(time_ns: u64, pid: u32, path: Vec<u8>, sink: &mut dyn FnMut(Event)) {
    let link = |name: &str| {
        let target = std::fs::read_link(format!("/proc/{pid}/{name}")).ok()?;
        Some(target.into_os_string().into_vec())
    };
    // Only paths are meant, so the device does not matter.
    let place = |path| Place {
        dev: crate::event::Dev { major: 0, minor: 0 },
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
        }));
    }
}

fn check_namespace() -> Result<(), RecordError> {
    use std::os::unix::fs::MetadataExt;
    match std::fs::metadata("/proc/self/ns/pid") {
        Ok(namespace) if namespace.ino() != INITIAL_PID_NAMESPACE => Err(RecordError::Unsupported {
            backend: "tracefs",
            feature: "this is not the initial pid namespace".into(),
            way_out: "record outside the container, or with --backend bpf",
        }),
        Ok(_) => Ok(()),
        Err(error) => Err(RecordError::io("look at /proc/self/ns/pid", error)),
    }
}

#[cfg(test)]
mod tests {
    use super::dropped_events;

    #[test]
    fn every_way_to_lose_an_event_counts() {
        let stats = "entries: 10\noverrun: 3\ncommit overrun: 1\nbytes: 99\noldest event ts: 5.1\nnow ts: 6.0\n\
            dropped events: 5\nread events: 7\n";
        assert_eq!(dropped_events(stats), 9);
        assert_eq!(dropped_events(""), 0);
    }
}
