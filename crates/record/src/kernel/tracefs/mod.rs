//! The tracefs back-end, for kernels without BPF or BTF: a trace instance of its own, read as raw per-CPU
//! pages.
//!
//! It sees the same page events as the BPF back-end where the kernel has them (6.12 and later) and adds to
//! the page cache elsewhere; process starts and ends; and metadata misses. What it cannot see:
//!
//! - paths looked up, but for those executed;
//! - reads of SquashFS that end where the file does (`bpf/reads.h`), if they find their pages in memory:
//!   those that do not are known by the pages added;
//! - by which of its names a file was used, if no process that still lives has it open or mapped;
//! - pages that a reader took while it waited for the next one: the kernel has no event for them
//!   (`bpf/filemap_events.h`);
//! - the path of a file that was removed within a drain interval (100 ms) of its use, or whose file system
//!   neither takes file handles by number nor has it open or mapped in a process that still lives;
//! - on btrfs, which of several subvolumes a file is in, if more than one is mounted (the first that fits is
//!   taken).
//!
//! It works in the initial pid namespace only: the events name threads as that has them.

mod buffers;
mod decode;
mod dir;
mod early;
mod format;
mod handle;
mod inode_location;
mod inodes;
mod interpret;
mod page;
mod procs;
mod tasks;

use crate::error::RecordError;
use crate::kernel::backend::{Backend, Missed};
use crate::kernel::clock::monotonic_ns;
use crate::kernel::event::{Dev, Event};
use crate::namespace;
use crate::options::Options;
use buffers::Buffers;
use decode::{Decoder, Record};
use dir::Instance;
pub(crate) use dir::remove_stale;
pub(crate) use early::{Early, NoEarly};
use headstart_model::sort::Sort;
use headstart_model::trace::{Backend as BackendName, Evidence, Scope};
use inodes::Inodes;
use interpret::Interpreter;
use std::collections::{BTreeSet, HashSet};
use std::time::Duration;
use tasks::Tasks;

/// How often the buffers are drained. It costs some hundred microseconds: a file is opened for each inode
/// that was used.
const DRAIN_EVERY: Duration = Duration::from_millis(100);

/// How much larger the buffers are than those of BPF programs, which send what is new only, and five times as
/// often.
const TIMES_LARGER: usize = 8;

/// The most bytes of all buffers.
const BUFFERS_MAX: usize = 16 << 20;

/// Why this process cannot open tracefs; `None` if it can.
pub(crate) fn cannot_open() -> Option<RecordError> {
    dir::open_root().err()
}

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
    reader: Interpreter,
    /// The file systems of whose pages it tells as they enter memory.
    told_by_adds: BTreeSet<Dev>,
    /// Threads that the kernel was told to leave out.
    told: HashSet<u32>,
    waiting: Vec<Record>,
    stopped: bool,
    /// Whether it was asked what threads and block devices do.
    activity: bool,
}

impl Tracefs {
    fn start(options: &Options) -> Result<Tracefs, RecordError> {
        if !namespace::is_initial()? {
            return Err(RecordError::Unsupported {
                backend: "tracefs",
                feature: "its events name threads as the initial pid namespace does, and this is another"
                    .into(),
                way_out: "record outside the container, or with --backend bpf",
            });
        }
        let instance = Instance::create(&dir::open_root()?)?;
        // Sized first, while the instance is still switched on, as it is when new: of one that is switched
        // off, the kernel waits for everybody to have left it, some 20 ms.
        let bytes = options.buffer_bytes.saturating_mul(TIMES_LARGER).min(BUFFERS_MAX);
        let each = Buffers::size(&instance, bytes)?;
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
        let inodes = Inodes::new(0)?;
        let told_by_adds = inodes.told_by_adds();
        let decoder = Decoder::enable(&instance, &told_by_adds)?;
        let mut tracefs = Tracefs {
            buffers: Buffers::open(&instance, &decoder, each)?,
            reader: Interpreter {
                evidence: decoder.evidence,
                tasks,
                inodes,
            },
            told_by_adds,
            instance,
            decoder,
            scope: options.scope,
            told: HashSet::new(),
            waiting: Vec::new(),
            stopped: false,
            activity: options.activity,
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
            .reader
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
}

impl Backend for Tracefs {
    fn name(&self) -> BackendName {
        BackendName::Tracefs
    }

    fn evidence(&self) -> Evidence {
        self.decoder.evidence
    }

    fn drain_every(&self) -> Duration {
        DRAIN_EVERY
    }

    fn add_root(&mut self, pid: u32) -> Result<u32, RecordError> {
        self.reader.tasks.add_root(pid);
        self.reader.runs(pid);
        if self.scope == Scope::Tree {
            self.instance.write("set_event_pid", &pid.to_string())?;
            self.instance.write("tracing_on", "1")?;
        }
        Ok(pid)
    }

    fn drain(&mut self, sink: &mut dyn FnMut(Event)) -> Result<(), RecordError> {
        if self.scope == Scope::System && !self.stopped {
            self.exclude_new_threads()?;
        }
        // What one processor wrote while another was read waits for the next time: only up to here all are
        // complete.
        let complete = if self.stopped { u64::MAX } else { monotonic_ns() };
        self.buffers.read(&self.decoder, &mut self.waiting)?;
        self.waiting.sort_small_by_key(|record| record.time_ns);
        let ready = self.waiting.partition_point(|record| record.time_ns <= complete);
        let later = self.waiting.split_off(ready);
        let records = std::mem::replace(&mut self.waiting, later);
        self.reader.batch(records, sink);
        let told_by_adds = self.reader.inodes.told_by_adds();
        if told_by_adds != self.told_by_adds && !self.stopped {
            self.decoder.filter(&self.instance, &told_by_adds)?;
            self.told_by_adds = told_by_adds;
        }
        Ok(())
    }

    fn stop(&mut self) -> Result<(), RecordError> {
        self.stopped = true;
        self.instance.write("tracing_on", "0")
    }

    fn no_activity(&self) -> Option<&str> {
        self.activity
            .then_some("tracefs records, and the switches of all tasks would fill its buffers")
    }

    /// The switches of all tasks would fill the buffers.
    fn blocked_ns(&mut self) -> Result<Option<u64>, RecordError> {
        Ok(None)
    }

    fn missed(&mut self) -> Result<Missed, RecordError> {
        Ok(Missed {
            events: self.buffers.lost(&self.instance)?,
            ..Missed::default()
        })
    }
}
