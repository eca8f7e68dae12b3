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

mod buffers;
mod decode;
mod dir;
mod format;
mod found;
mod handle;
mod inodes;
mod page;
mod procs;
mod tasks;

use crate::backend::Backend;
use crate::error::RecordError;
use crate::event::{Event, Exec, Fork, Location, LookupSeen, MetadataSeen, Place, UseSeen};
use crate::options::Options;
use buffers::Buffers;
use decode::{Decoder, Record, What};
use dir::Instance;
use headstart_model::trace::{Backend as BackendName, Evidence, LookupKind, Scope, UseKind};
use inodes::Inodes;
use std::collections::HashSet;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use tasks::Tasks;

/// The inode number of the initial pid namespace (`PROC_PID_INIT_INO`, include/linux/proc_ns.h).
const INITIAL_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// The back-end, attached and running.
pub(crate) fn start(options: &Options) -> Result<Box<dyn Backend>, RecordError> {
    Ok(Box::new(Tracefs::start(options)?))
}

struct Tracefs {
    // Before the instance, which cannot be removed while they are open.
    buffers: Buffers,
    instance: Instance,
    decoder: Decoder,
    scope: Scope,
    tasks: Tasks,
    /// Threads that the kernel was told to leave out.
    told: HashSet<u32>,
    inodes: Inodes,
    waiting: Vec<Record>,
    stopped: bool,
}

impl Tracefs {
    fn start(options: &Options) -> Result<Tracefs, RecordError> {
        check_namespace()?;
        let instance = Instance::create(&dir::open_root()?)?;
        // Sized first, while the instance is still switched on, as it is when new: of one that is switched off, the
        // kernel waits for everybody to have left it, some 20 ms.
        let each = Buffers::size(&instance, options.buffer_bytes)?;
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
        let mut tracefs = Tracefs {
            buffers: Buffers::open(&instance, &decoder, each)?,
            instance,
            decoder,
            scope: options.scope,
            tasks,
            told: HashSet::new(),
            inodes: Inodes::new()?,
            waiting: Vec::new(),
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
                        let pages =
                            u32::try_from(last.saturating_sub(start).saturating_add(1)).unwrap_or(u32::MAX);
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
                        touched: None,
                        mapped: None,
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
        self.buffers.read(&self.decoder, &mut self.waiting)?;
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

    /// The switches of all tasks would fill the buffers.
    fn blocked_ns(&mut self) -> Result<Option<u64>, RecordError> {
        Ok(None)
    }

    fn lost(&mut self) -> Result<u64, RecordError> {
        self.buffers.lost(&self.instance)
    }
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
