//! Scope watch: the programs that notice starts and send what many of them do.

use super::btf::Kernel;
pub(crate) use super::control::{Control, SLOTS, slot_of};
use super::load::{self, Plan};
use super::ring::{Mapping, Ring};
use super::wire::{self, Watched};
use super::{Missed, not_run, not_sent, running_kernel};
use crate::error::RecordError;
use crate::namespace;
use headstart_model::trace::{Evidence, Scope};
use headstart_system::thread::{self, StartedThread};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

/// What standings about programs are, of whichever user: as watch.h has them.
pub(crate) const KNOWN: u64 = 0;
pub(crate) const BY_ARGUMENTS: u64 = 1;

/// By so many files and names it is told whether a start is warm, `LOOKED_AT` of watch.h; so many of them are
/// names.
const LOOKED_AT: usize = 8;
const NAMES: usize = 3;

/// What marks a descriptor of a name: as recorder.h has it.
const NAME_ALONE: u64 = 1 << 32;

/// What belongs to the recorder itself: `OURS` of common.h.
const OURS: u64 = 1 << 32;

/// Bytes of the ring for pages and processes; half as much is for look-ups.
const BUFFER: u32 = 1 << 20;

/// What costs everybody a little of each system call, or of each fault, and is attached only while something
/// is recorded: it tells which paths are looked up, and which page of a window a fault was for.
const LATER: [&str; 4] = ["sys_exit", "page_fault_user", "page_fault_kernel", load::IO_URING];

/// The programs, attached, and their buffers.
pub(crate) struct Programs {
    ring: Ring,
    lookups: Ring,
    object: Object,
    standings: MapHandle,
    known: MapHandle,
    warm: MapHandle,
    /// By slot, how long all starts before waited.
    blocked_ns: [u64; SLOTS],
    /// What a page used means.
    pub(crate) evidence: Evidence,
    _links: Vec<Link>,
}

/// What the kernel tells of its types and of pages used, if it tells of starts.
fn look_at_kernel() -> Result<(Kernel, Evidence), RecordError> {
    let kernel = running_kernel()?;
    if let Some(feature) = super::missing::lockdown() {
        return Err(RecordError::Unsupported {
            backend: "the daemon",
            feature,
            way_out: "`headstart run` records with tracefs",
        });
    }
    // Additions are not enough: those of a start are not told from those of its replay.
    match load::evidence(&kernel).first() {
        Some(evidence @ (Evidence::Uses | Evidence::Fentry)) => Ok((kernel, *evidence)),
        Some(Evidence::Adds) | None => Err(RecordError::Unsupported {
            backend: "the daemon",
            feature: match load::functions_call() {
                true => {
                    "its BTF has neither the event mm_filemap_get_pages nor the function filemap_read".into()
                }
                false => {
                    "kernel.ftrace_enabled is 0, and functions that are traced are not called then".into()
                }
            },
            way_out: "`headstart run` records what enters memory",
        }),
    }
}

/// Whether this kernel tells of starts, as far as can be said without trying: who asks may lack the rights.
pub fn tells_of_starts() -> Result<(), RecordError> {
    look_at_kernel().map(drop)
}

impl Programs {
    /// Attaches. Programs of the mount namespace of this process, and of process 1, are noticed.
    pub(crate) fn start() -> Result<(Programs, Arc<Control>, Later), RecordError> {
        if let Some((capability, what)) = super::missing::capability() {
            return Err(RecordError::Capability {
                backend: "BPF",
                capability,
                what,
            });
        }
        let (kernel, evidence) = look_at_kernel()?;
        let plan = Plan {
            scope: Scope::Tree,
            evidence,
            buffer_bytes: BUFFER,
            filter: true,
            activity: false,
            watch: true,
        };
        let above = namespace::proc_above()?;
        let mut object = load::load(&kernel, plan)?;
        load::about_self(&mut object, above)?;
        let ring = |name, bytes: u32| Ring::new(load::map(&object, name)?.as_fd(), bytes as usize);
        let (pages, lookups) = (ring("ring", BUFFER)?, ring("lookups", plan.lookup_bytes())?);
        let page = rustix::param::page_size();
        let starts = load::map(&object, ".data.starts")?;
        let control = Control(Mapping::new(
            starts.as_fd(),
            page,
            0,
            libc::PROT_READ | libc::PROT_WRITE,
        )?);
        control.set_namespaces();
        // A user's flood of look-ups is not what they are for here: each start keeps as many as it keeps.
        let many = (i64::MAX / 2).to_ne_bytes();
        load::set(&object, ".data.budget", &[many, many, many].concat())?;
        let handle = |name| {
            let handle = MapHandle::try_from(&load::map(&object, name)?);
            handle.map_err(|source| load::explain("use a BPF map", source))
        };
        let (standings, known, warm) = (
            handle(load::STANDINGS)?,
            handle(load::KNOWN)?,
            handle(load::WARM)?,
        );
        let later = Later::new(&object)?;
        let links = load::attach(&mut object, &LATER)?;
        let programs = Programs {
            ring: pages,
            lookups,
            object,
            standings,
            known,
            warm,
            blocked_ns: [0; SLOTS],
            evidence,
            _links: links,
        };
        Ok((programs, Arc::new(control), later))
    }

    /// What becomes readable when a start begins.
    pub(crate) fn ring_fd(&self) -> Result<OwnedFd, RecordError> {
        let map = load::map(&self.object, "ring")?;
        map.as_fd()
            .try_clone_to_owned()
            .map_err(|source| RecordError::io("use a BPF map", source))
    }

    /// Hands over what was seen up to now; false if some of it is still being written.
    pub(crate) fn drain(&mut self, sink: &mut dyn FnMut(Watched)) -> bool {
        let mut take = |record: &[u8]| {
            if let Some(seen) = wire::decode_watched(record) {
                sink(seen);
            }
        };
        let lookups = self.lookups.written();
        let end = self.ring.written();
        let whole = self.ring.drain(end, &mut take);
        self.lookups.drain(lookups, take) && whole
    }

    /// What could not be sent so far, and what no program saw.
    pub(crate) fn missed(&self) -> Result<(Missed, Missed), RecordError> {
        Ok((not_sent(&self.object, false)?, not_run(&self.object, false)))
    }

    /// Whether functions are traced and somebody has switched that off: they tell of nothing since then.
    pub(crate) fn are_not_called(&self) -> bool {
        self.evidence == Evidence::Fentry && !load::functions_call()
    }

    /// How long the threads of the start in this slot have waited for block devices, nanoseconds, since that
    /// was last taken.
    pub(crate) fn blocked_ns(&self, slot: usize) -> Result<u64, RecordError> {
        let now = load::sum_at(&self.object, "blocked", slot as u32)?;
        Ok(now.saturating_sub(self.blocked_ns[slot]))
    }

    /// The same, which is no other start's then.
    pub(crate) fn take_blocked_ns(&mut self, slot: usize) -> Result<u64, RecordError> {
        let taken = self.blocked_ns(slot)?;
        self.blocked_ns[slot] += taken;
        Ok(taken)
    }

    /// [`KNOWN`] or [`BY_ARGUMENTS`] of a program, or until when a user's executions of it begin no start.
    pub(crate) fn set_standing(&self, program: u64, until: u64) -> Result<(), RecordError> {
        self.standings
            .update(&program.to_ne_bytes(), &until.to_ne_bytes(), MapFlags::ANY)
            .map_err(|source| load::explain("keep a standing", source))
    }

    /// No standing is kept under this any more.
    pub(crate) fn forget_standing(&self, program: u64) -> Result<(), RecordError> {
        forget(&self.standings, program)
    }

    /// A user's executions of a program begin no start until then, nanoseconds of CLOCK_MONOTONIC, as long as
    /// the pages of these files and these names are in memory as they are now; of the first of each that
    /// there is room for. False if of one of the files nothing is.
    pub(crate) fn keep_warm(
        &mut self,
        program: u64,
        until: u64,
        files: &[OwnedFd],
        names: &[OwnedFd],
    ) -> Result<bool, RecordError> {
        let names = names
            .iter()
            .take(NAMES)
            .map(|name| NAME_ALONE | name.as_raw_fd() as u64);
        let files = files
            .iter()
            .take(LOOKED_AT - NAMES)
            .map(|file| file.as_raw_fd() as u64);
        let mut arguments = [u64::from(u32::MAX); 2 + LOOKED_AT];
        arguments[..2].copy_from_slice(&[program, until]);
        for (argument, open) in arguments[2..].iter_mut().zip(files.chain(names)) {
            *argument = open;
        }
        load::run(&mut self.object, load::KEEP_WARM, &arguments).map(|count| count > 0)
    }

    /// Its executions begin starts again, whatever is in memory.
    pub(crate) fn forget_warm(&self, program: u64) -> Result<(), RecordError> {
        forget(&self.warm, program)
    }

    /// Executions of this file are of a known program as long as it exists.
    pub(crate) fn know(&self, file: u64, is_interpreter: bool) -> Result<(), RecordError> {
        // PROGRAM and INTERPRETER of watch.h. What is a program by itself stays one.
        let (value, flags) = match is_interpreter {
            false => (1, MapFlags::ANY),
            true => (2, MapFlags::NO_EXIST),
        };
        match self.known.update(&file.to_ne_bytes(), &[value], flags) {
            Err(error) if error.kind() == libbpf_rs::ErrorKind::AlreadyExists => Ok(()),
            kept => kept.map_err(|source| load::explain("keep a known program", source)),
        }
    }

    /// They are those of any program again.
    pub(crate) fn forget_known(&self, file: u64) -> Result<(), RecordError> {
        forget(&self.known, file)
    }

    /// Has this process, by its number in this process's pid namespace, and what it will fork, belong to
    /// nobody.
    pub(crate) fn list_as_ours(&mut self, pid: u32) -> Result<u32, RecordError> {
        load::list_process_as(&mut self.object, pid, OURS)
    }

    /// Has it belong to a start; the number that events will have is returned.
    pub(crate) fn list_as_of(&mut self, pid: u32, start: u32) -> Result<u32, RecordError> {
        load::list_process_as(&mut self.object, pid, start.into())
    }
}

fn forget(map: &MapHandle, program: u64) -> Result<(), RecordError> {
    match map.delete(&program.to_ne_bytes()) {
        Err(source) if source.kind() != libbpf_rs::ErrorKind::NotFound => {
            Err(load::explain("forget a standing", source))
        }
        _ => Ok(()),
    }
}

/// The thread that attaches and detaches what is attached only while something is recorded: the kernel takes
/// milliseconds for it, and who answers a start has no time for that.
pub(crate) struct Later {
    asked: Option<Sender<bool>>,
    thread: StartedThread,
}

impl Later {
    fn new(object: &Object) -> Result<Later, RecordError> {
        let own = |fd: BorrowedFd<'_>| fd.try_clone_to_owned();
        let programs: Result<Vec<OwnedFd>, _> = object
            .progs()
            .filter(|program| program.autoload() && LATER.iter().any(|name| program.name() == *name))
            .map(|program| own(program.as_fd()))
            .collect();
        let programs = programs.map_err(|source| RecordError::io("use a BPF program", source))?;
        let (asked, wanted) = channel::<bool>();
        let attach = move || {
            let mut links: Vec<OwnedFd> = Vec::new();
            while let Ok(mut attach) = wanted.recv() {
                while let Ok(later) = wanted.try_recv() {
                    attach = later;
                }
                if !attach {
                    links.clear();
                } else if links.is_empty() {
                    links.extend(programs.iter().filter_map(|program| attach_raw(program.as_fd())));
                }
            }
        };
        let thread = thread::spawn_small("attach", Box::new(attach))
            .map_err(|source| RecordError::io("start a thread", source))?;
        Ok(Later {
            asked: Some(asked),
            thread,
        })
    }

    /// Attaches, or detaches, soon.
    pub(crate) fn attach(&self, attach: bool) {
        if let Some(asked) = &self.asked {
            // The thread lives as long as this.
            let _ = asked.send(attach);
        }
    }
}

/// The kernel waits until nobody runs a program any more: some tens of milliseconds each.
const DETACHES_WITHIN: std::time::Duration = std::time::Duration::from_secs(60);

impl Drop for Later {
    fn drop(&mut self) {
        self.asked = None;
        self.thread.wait(DETACHES_WITHIN);
    }
}

/// The link of a program that is attached to its event; without it a recording tells less.
fn attach_raw(program: BorrowedFd<'_>) -> Option<OwnedFd> {
    // SAFETY: a program on a BTF tracepoint needs no name, and no memory of ours is touched.
    let link = unsafe { libbpf_sys::bpf_raw_tracepoint_open(std::ptr::null(), program.as_raw_fd()) };
    // SAFETY: a number that is not negative is a new descriptor that nobody else has.
    (link >= 0).then(|| unsafe { OwnedFd::from_raw_fd(link) })
}
