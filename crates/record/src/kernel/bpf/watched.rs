//! Scope watch: the programs that notice starts and send what many of them do, and what is shared with them.

use super::btf::Kernel;
use super::load::{self, Plan};
use super::ring::{Mapping, Ring};
use super::wire::{self, Watched};
use super::{Missed, not_run, not_sent, running_kernel};
use crate::error::RecordError;
use crate::namespace;
use headstart_model::trace::{Evidence, Scope};
use headstart_system::thread::{self, StartedThread};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object};
use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};

/// Starts that are recorded at a time: `SLOTS` of common.h.
pub(crate) const SLOTS: usize = 32;

/// A slot that is not to be taken yet: `ENDED` of common.h.
const ENDED: u32 = u32::MAX;

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

/// `starts` of common.h.
pub(crate) struct Control(Mapping);

/// The words of it.
const ACTIVE: usize = 0;
const GENERATION: usize = 1;
const UNKNOWN_LEFT: usize = 2;
const NAMESPACES: usize = 3;
const WITHOUT_SLOT: usize = 5;
const WITHOUT_TURN: usize = 6;
const FOREIGN: usize = 7;
const NUMBERS: usize = 8;
const ANSWERED: usize = NUMBERS + SLOTS;
/// Two words each.
const CGROUPS: usize = ANSWERED + SLOTS;
const USERS: usize = CGROUPS + 2 * SLOTS;
const LEADERS: usize = USERS + SLOTS;
const GIVEN_LEFT: usize = LEADERS + SLOTS;
const CLAIMS: usize = GIVEN_LEFT + 1;

impl Control {
    fn word(&self, index: usize) -> &AtomicU32 {
        self.0.half_word(index * size_of::<u32>())
    }

    fn set_namespaces(&self) {
        let namespace_of =
            |process: &str| fs::metadata(format!("/proc/{process}/ns/mnt")).map_or(0, |ns| ns.ino());
        for (index, process) in ["self", "1"].iter().enumerate() {
            self.word(NAMESPACES + index)
                .store(namespace_of(process) as u32, Ordering::Relaxed);
        }
    }

    /// Takes a slot for a start that is recorded, and gives its number; `None` if all are taken.
    pub(crate) fn take(&self) -> Option<u32> {
        let generation = (self.word(GENERATION).fetch_add(1, Ordering::Relaxed) + 1) & 0x3ff_ffff;
        let slot = (0..SLOTS).find(|slot| self.claim(*slot))?;
        let number = (generation + 1) * SLOTS as u32 + slot as u32;
        self.word(ACTIVE).fetch_add(1, Ordering::Relaxed);
        for half in 0..2 {
            self.word(CGROUPS + 2 * slot + half).store(0, Ordering::Relaxed);
        }
        // Whoever asks for operations has a bound of its own.
        self.word(USERS + slot).store(0, Ordering::Relaxed);
        self.word(LEADERS + slot).store(0, Ordering::Relaxed);
        self.word(NUMBERS + slot).store(number, Ordering::Relaxed);
        self.record(number);
        Some(number)
    }

    /// Takes a free slot from all others: `claim` of common.h.
    fn claim(&self, slot: usize) -> bool {
        if self.word(NUMBERS + slot).load(Ordering::Relaxed) != 0 {
            return false;
        }
        let claims = self.word(CLAIMS + slot);
        let is_alone = claims.fetch_add(1, Ordering::AcqRel) == 0;
        if !is_alone {
            claims.fetch_sub(1, Ordering::Release);
        }
        is_alone
    }

    /// A user whose processes have executed something in the start in this slot: by `note_user` of watch.h.
    pub(crate) fn user(&self, slot: usize) -> u32 {
        self.word(USERS + slot).load(Ordering::Relaxed)
    }

    /// The start is recorded: what it executes is part of it.
    pub(crate) fn record(&self, number: u32) {
        self.word(ANSWERED + slot_of(number)).store(1, Ordering::Relaxed);
    }

    /// Nothing more of this start is sent; its slot stays taken.
    pub(crate) fn end(&self, number: u32) {
        let slot = self.word(NUMBERS + slot_of(number));
        let ended = slot.compare_exchange(number, ENDED, Ordering::Relaxed, Ordering::Relaxed);
        if ended.is_ok() {
            self.word(ACTIVE).fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Another start may have the slot.
    pub(crate) fn free(&self, slot: usize) {
        self.word(ANSWERED + slot).store(0, Ordering::Relaxed);
        let number = self.word(NUMBERS + slot);
        // Nobody but this process changes it from that.
        let freed = number.compare_exchange(ENDED, 0, Ordering::Release, Ordering::Relaxed);
        if freed.is_ok() {
            self.word(CLAIMS + slot).fetch_sub(1, Ordering::Release);
        }
    }

    /// So many more starts of programs of which nothing is known may begin, up to `most`; and of what
    /// interpreters are given that know some.
    pub(crate) fn add_unknown(&self, more: u32, most: u32) {
        for word in [UNKNOWN_LEFT, GIVEN_LEFT].map(|word| self.word(word)) {
            let room = i64::from(most) - i64::from(word.load(Ordering::Relaxed) as i32);
            let more = i64::from(more).min(room).max(0) as u32;
            word.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// None of them may begin for now.
    pub(crate) fn take_turns(&self) {
        for word in [UNKNOWN_LEFT, GIVEN_LEFT] {
            self.word(word).store(0, Ordering::Relaxed);
        }
    }

    /// How many of them may begin now: of those of which fewer may.
    pub(crate) fn unknown_left(&self) -> i32 {
        let left = [UNKNOWN_LEFT, GIVEN_LEFT].map(|word| self.word(word).load(Ordering::Relaxed) as i32);
        left[0].min(left[1])
    }

    /// Starts that were not recorded: for want of a slot, of a turn, and in another mount namespace.
    pub(crate) fn left_out(&self) -> [u32; 3] {
        [WITHOUT_SLOT, WITHOUT_TURN, FOREIGN].map(|word| self.word(word).load(Ordering::Relaxed))
    }
}

/// The slot of a start.
pub(crate) fn slot_of(number: u32) -> usize {
    number as usize % SLOTS
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
