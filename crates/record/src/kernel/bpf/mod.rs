//! The BPF back-end: programs on the kernel's page cache, process and system call events, in record.bpf.c.

pub(crate) mod btf;
mod control;
pub(crate) mod load;
pub(crate) mod missing;
mod ring;
mod syscalls;
pub(crate) mod watched;
pub(crate) mod wire;

use crate::error::RecordError;
use crate::kernel::backend::{Backend, Missed};
use crate::kernel::clock::monotonic_ns;
use crate::kernel::event::Event;
use crate::namespace;
use crate::options::Options;
use headstart_model::trace::{Backend as BackendName, Evidence, Scope};
use libbpf_rs::{Link, Object};
use load::{Plan, Sends};
use ring::Ring;
use std::os::fd::AsFd;
use std::time::Duration;

/// How often the buffers are drained: see [`Options::TREE_BUFFER_BYTES`]. A drain without events takes 10 us,
/// and as much to wake up.
const DRAIN_EVERY: Duration = Duration::from_millis(10);

/// How often at least, in scope system on one processor, while little comes. As fast as one processor can
/// make events (950,000 a second of 64 bytes) they fill [`Options::SYSTEM_BUFFER_BYTES`] in 138 ms; so many
/// processors do in so much less.
const DRAIN_SELDOM: Duration = Duration::from_millis(100);

/// Where less than this share of every buffer is used, it is drained half as often; where more than the
/// other, as often as can be.
const LITTLE: f64 = 1.0 / 64.0;
const MUCH: f64 = 1.0 / 16.0;

/// The back-end, attached and running.
pub(crate) fn start(options: &Options) -> Result<Box<dyn Backend>, RecordError> {
    let kernel = running_kernel()?;
    let mut reason = None;
    for evidence in load::evidence(&kernel) {
        match Bpf::start_as_asked(&kernel, options, evidence) {
            Ok(bpf) => return Ok(Box::new(bpf)),
            // Some kernels have the functions but refuse to trace them.
            Err(error) => reason = reason.or(Some(error)),
        }
    }
    Err(reason.unwrap_or_else(|| RecordError::Unsupported {
        backend: "BPF",
        feature: "its BTF has no page cache event".into(),
        way_out: "use --backend tracefs",
    }))
}

/// What the running kernel has, or why it cannot be known.
pub(crate) fn running_kernel() -> Result<btf::Kernel, RecordError> {
    btf::Kernel::running(load::FUNCTIONS).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => RecordError::Unsupported {
            backend: "BPF",
            feature: format!("there is no {} (CONFIG_DEBUG_INFO_BTF)", btf::VMLINUX),
            way_out: "use --backend tracefs",
        },
        _ => RecordError::io(format!("read {}", btf::VMLINUX), error),
    })
}

/// Attached programs and their buffer.
struct Bpf {
    evidence: Evidence,
    scope: Scope,
    ring: Ring,
    lookups: Ring,
    links: Vec<Link>,
    object: Object,
    /// Whether the kernel tells when threads wait for block devices.
    sees_waits: bool,
    /// What threads and block devices do, where that is told.
    activity: Option<Ring>,
    /// Why that is not told although it was asked for.
    no_activity: Option<String>,
    /// Since when nothing more is seen, once that is so: what was under way then is still to be told.
    stopped_ns: Option<u64>,
    /// How long until the next drain, and at most.
    pause: Duration,
    longest_pause: Duration,
}

impl Bpf {
    /// With activity, if that is asked for and the kernel takes its programs; else without, and why.
    fn start_as_asked(
        kernel: &btf::Kernel,
        options: &Options,
        evidence: Evidence,
    ) -> Result<Bpf, RecordError> {
        if !options.activity {
            return Bpf::start(kernel, options, evidence, true, false);
        }
        let with = load::activity_programs(kernel)
            .map_err(|event| format!("this kernel has no event {event}"))
            .and_then(|_| {
                Bpf::start(kernel, options, evidence, true, true).map_err(|error| error.to_string())
            });
        with.or_else(|why| {
            let without = Bpf::start(kernel, options, evidence, true, false)?;
            Ok(Bpf {
                no_activity: Some(why),
                ..without
            })
        })
    }

    /// Without `filter` it sends also what it sent already.
    fn start(
        kernel: &btf::Kernel,
        options: &Options,
        evidence: Evidence,
        filter: bool,
        activity: bool,
    ) -> Result<Bpf, RecordError> {
        let buffer_bytes = u32::try_from(options.buffer_bytes.clamp(rustix::param::page_size(), 1 << 30))
            .unwrap_or(1 << 30)
            .next_power_of_two();
        let plan = Plan {
            scope: options.scope,
            evidence,
            buffer_bytes,
            filter,
            activity,
            watch: false,
        };
        let above = namespace::proc_above()?;
        let mut object = load::load(kernel, plan)?;
        load::about_self(&mut object, above)?;
        let ring = |name, bytes: u32| Ring::new(load::map(&object, name)?.as_fd(), bytes as usize);
        let mut bpf = Bpf {
            evidence,
            scope: options.scope,
            ring: ring("ring", buffer_bytes)?,
            lookups: ring("lookups", plan.lookup_bytes())?,
            links: vec![],
            activity: activity
                .then(|| ring("activity", plan.lookup_bytes()))
                .transpose()?,
            object,
            sees_waits: kernel.has_tracepoint(load::SWITCH),
            no_activity: None,
            stopped_ns: None,
            pause: DRAIN_EVERY,
            longest_pause: longest_pause(options.scope, activity),
        };
        if options.scope == Scope::System {
            for pid in options.exclude_pids.iter().copied().chain([std::process::id()]) {
                match load::list_process(&mut bpf.object, pid) {
                    // Who has ended does nothing any more.
                    Ok(_) | Err(RecordError::NoProcess { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        bpf.links = load::attach(&mut bpf.object, &[])?;
        Ok(bpf)
    }
}

impl Bpf {
    /// What threads did and devices were asked that had not come to its end at `now_ns`.
    fn send_unfinished(&self, now_ns: u64, sink: &mut dyn FnMut(Event)) -> Result<(), RecordError> {
        let threads = load::values(&self.object, "threads", load::THREADS)?;
        let requests = load::values(&self.object, "in_flight", load::IN_FLIGHT)?;
        threads
            .iter()
            .filter_map(|entry| wire::unfinished_thread(entry, now_ns))
            .chain(
                requests
                    .iter()
                    .filter_map(|entry| wire::unanswered_request(entry)),
            )
            .for_each(sink);
        Ok(())
    }
}

impl Backend for Bpf {
    fn name(&self) -> BackendName {
        BackendName::Bpf
    }

    fn evidence(&self) -> Evidence {
        self.evidence
    }

    fn drain_every(&self) -> Duration {
        self.pause
    }

    fn add_root(&mut self, pid: u32) -> Result<u32, RecordError> {
        match self.scope {
            Scope::Tree => load::list_process(&mut self.object, pid),
            // The list is of those to leave out.
            Scope::System => Ok(pid),
        }
    }

    fn drain(&mut self, sink: &mut dyn FnMut(Event)) -> Result<(), RecordError> {
        let mut take = |record: &[u8]| {
            if let Some(event) = wire::decode(record) {
                sink(event);
            }
        };
        // Whoever looked something up began before that: its beginning is told first.
        let lookups = self.lookups.written();
        let activity = self.activity.as_ref().map(Ring::written);
        let end = self.ring.written();
        let used = self.ring.used(end).max(self.lookups.used(lookups));
        self.pause = next_pause(self.pause, used, self.longest_pause);
        self.ring.drain(end, &mut take);
        self.lookups.drain(lookups, &mut take);
        if let (Some(ring), Some(end)) = (&mut self.activity, activity) {
            ring.drain(end, take);
            if let Some(now_ns) = self.stopped_ns.take() {
                self.send_unfinished(now_ns, sink)?;
            }
        }
        Ok(())
    }

    fn no_activity(&self) -> Option<&str> {
        self.no_activity.as_deref()
    }

    fn stop(&mut self) -> Result<(), RecordError> {
        load::set(&self.object, ".data.control", &1u32.to_ne_bytes())?;
        self.stopped_ns = Some(monotonic_ns());
        // A program that had passed the check may still be writing; it takes microseconds.
        std::thread::sleep(Duration::from_millis(1));
        Ok(())
    }

    fn blocked_ns(&mut self) -> Result<Option<u64>, RecordError> {
        self.sees_waits
            .then(|| load::sum(&self.object, "blocked"))
            .transpose()
    }

    fn missed(&mut self) -> Result<Missed, RecordError> {
        let not_sent = not_sent(&self.object, self.activity.is_some())?;
        Ok(not_sent + not_run(&self.object, self.scope == Scope::System))
    }
}

/// How long until the next drain, after one that found so large a share of a buffer used `before` after the
/// last.
fn next_pause(before: Duration, used: f64, longest: Duration) -> Duration {
    if used > MUCH {
        DRAIN_EVERY
    } else if used < LITTLE {
        (before * 2).min(longest)
    } else {
        before
    }
}

/// How long until a drain at most. A command is over soon, and its buffer is small; a chart has samples that
/// are taken between drains.
fn longest_pause(scope: Scope, activity: bool) -> Duration {
    let processors = headstart_system::process::processors().unwrap_or(u32::MAX);
    match scope {
        Scope::System if !activity => (DRAIN_SELDOM / processors).max(DRAIN_EVERY),
        Scope::System | Scope::Tree => DRAIN_EVERY,
    }
}

/// What the programs could not send so far.
fn not_sent(object: &Object, activity: bool) -> Result<Missed, RecordError> {
    Ok(Missed {
        events: load::sum(object, "lost")?,
        unseen_uses: 0,
        lookups: load::sum(object, "dropped")?,
        activity: match activity {
            true => load::sum(object, "unseen")?,
            false => 0,
        },
    })
}

/// What no program saw so far, of all that is done on the machine: the kernel does not run one that already
/// runs on the processor, and from 6.19 on it may have been put aside there for another thread. Where
/// `everybody` is recorded a process that was not seen to begin is recorded all the same.
fn not_run(object: &Object, everybody: bool) -> Missed {
    let mut missed = Missed::default();
    for program in object.progs().filter(|program| program.autoload()) {
        let runs = load::missed_runs(program.as_fd());
        match load::sends(program.name()) {
            Sends::Events if !everybody => missed.events += runs,
            Sends::Events | Sends::Uses => missed.unseen_uses += runs,
            Sends::Lookups => missed.lookups += runs,
            Sends::Activity => missed.activity += runs,
            Sends::Nothing => {}
        }
    }
    missed
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_model::testing::needs;
    use headstart_model::trace::UseKind;
    use std::io::Read;

    /// Pages that this process's `act` used by each kind, as the evidence has it, of a file of so many pages
    /// and a bit.
    fn used(
        pages: usize,
        evidence: Evidence,
        filter: bool,
        act: impl Fn(&std::path::Path),
    ) -> Option<Vec<(UseKind, u64)>> {
        let missing = missing_here();
        if !needs(&format!("recording with BPF: {missing:?}"), missing.is_empty()) {
            return None;
        }
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, vec![1; pages * 4096 + 5]).unwrap();
        let file = std::fs::File::open(&path).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let kernel = running_kernel().unwrap();
        let mut bpf = Bpf::start(&kernel, &Options::tree(vec![]), evidence, filter, false).unwrap();
        bpf.add_root(std::process::id()).unwrap();
        act(&path);
        bpf.stop().unwrap();
        let (mut id, mut found) = (None, Vec::new());
        bpf.drain(&mut |event| match event {
            Event::File(seen) => {
                let is_it =
                    |p: &[u8]| p.ends_with(path.strip_prefix("/var").unwrap().as_os_str().as_encoded_bytes());
                if matches!(&seen.place.location, crate::kernel::event::Location::Within(p) if is_it(p)) {
                    id = Some(seen.id);
                }
            }
            Event::Use(seen) if Some(seen.file) == id => {
                found.extend((seen.start..=seen.last).map(|page| (seen.kind, page)));
            }
            _ => {}
        })
        .unwrap();
        assert_eq!(bpf.missed().unwrap(), Missed::default());
        Some(found)
    }

    /// What recording with BPF needs and this process or kernel has not.
    fn missing_here() -> Vec<String> {
        let root = rustix::process::geteuid().is_root();
        let root = (!root).then(|| "root".to_owned());
        let capability = missing::capability().map(|(name, _)| name.to_owned());
        let kernel = running_kernel().err().map(|e| e.to_string());
        root.into_iter().chain(capability).chain(kernel).collect()
    }

    #[test]
    fn where_little_comes_it_is_drained_less_often_and_at_once_again_where_much_does() {
        let longest = Duration::from_millis(50);
        let mut pause = DRAIN_EVERY;
        let mut after = |used| {
            pause = next_pause(pause, used, longest);
            pause.as_millis()
        };
        let quiet = [after(0.0), after(0.0), after(0.001), after(0.0)];
        assert_eq!(quiet, [20, 40, 50, 50]);
        assert_eq!(after(0.03), 50, "neither little nor much");
        assert_eq!([after(0.1), after(0.03), after(0.0)], [10, 10, 20]);
        assert_eq!(longest_pause(Scope::Tree, false), DRAIN_EVERY);
        assert_eq!(longest_pause(Scope::System, true), DRAIN_EVERY);
        assert!((DRAIN_EVERY..=DRAIN_SELDOM).contains(&longest_pause(Scope::System, false)));
    }

    fn read_half(path: &std::path::Path) {
        let mut half = vec![0; 20 * 4096];
        std::fs::File::open(path).unwrap().read_exact(&mut half).unwrap();
    }

    #[test]
    fn additions_are_what_the_kernel_read_ahead_too() {
        if let Some(mut found) = used(40, Evidence::Adds, true, read_half) {
            found.sort_unstable();
            let pages: Vec<u64> = found.iter().map(|(_, page)| *page).collect();
            assert!(found.iter().all(|(kind, _)| *kind == UseKind::Add));
            assert!(
                pages.len() >= 20 && pages.iter().copied().eq(0..pages.len() as u64),
                "{pages:?}"
            );
        }
    }

    #[test]
    fn the_filter_drops_nothing_but_repetition() {
        let twice = |path: &std::path::Path| (read_half(path), read_half(path)).0;
        let Some(mut filtered) = used(40, Evidence::Uses, true, twice) else {
            return;
        };
        let mut names = used(40, Evidence::Uses, false, twice).unwrap();
        assert_eq!((filtered.len(), names.len()), (20, 40));
        filtered.sort_unstable();
        names.sort_unstable();
        names.dedup();
        assert_eq!(filtered, names);
    }

    /// The pages of a mapping that the kernel has mapped, by pagemap(5).
    fn mapped(start: usize, pages: usize) -> Vec<u64> {
        use std::os::unix::fs::FileExt;
        let mut entries = vec![0; pages * 8];
        let pagemap = std::fs::File::open("/proc/self/pagemap").unwrap();
        pagemap
            .read_exact_at(&mut entries, (start / rustix::param::page_size() * 8) as u64)
            .unwrap();
        let is_there = |entry: &[u8]| u64::from_ne_bytes(entry.try_into().unwrap()) >> 63 == 1;
        let chunks = (0..).zip(entries.chunks(8));
        chunks
            .filter(|(_, entry)| is_there(entry))
            .map(|(page, _)| page)
            .collect()
    }

    /// Newer kernels map a folio whole of which a page is touched: its pages beyond what is mapped around a
    /// fault, and where nothing is.
    #[test]
    fn all_that_a_fault_maps_is_told() {
        use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
        const PAGES: usize = 1000;
        let seen = std::cell::RefCell::new(Vec::new());
        let touched = |path: &std::path::Path| {
            let mut file = std::fs::File::options()
                .read(true)
                .write(true)
                .open(path)
                .unwrap();
            // Read ahead by the kernel, the more the further it goes: in larger and larger folios, where the
            // file system has them.
            for bytes in [1, 16, 64, 256] {
                file.read_exact(&mut vec![0; bytes * 4096]).unwrap();
            }
            let (length, protection) = (PAGES * 4096, ProtFlags::READ | ProtFlags::WRITE);
            // SAFETY: a new mapping at a place of the kernel's choice; the bytes that are used lie in it, and
            // nothing refers to it when it is gone.
            unsafe {
                let start = mmap(
                    std::ptr::null_mut(),
                    length,
                    protection,
                    MapFlags::SHARED,
                    &file,
                    0,
                );
                let start = start.unwrap().cast::<u8>();
                for page in [5, 40, 100, 260, 300] {
                    start.add(page * 4096 + 7).read_volatile();
                }
                // Around a fault that writes nothing is mapped.
                for page in [70, 200, 330] {
                    start.add(page * 4096 + 7).write_volatile(2);
                }
                *seen.borrow_mut() = mapped(start as usize, PAGES);
                munmap(start.cast(), length).unwrap();
            }
        };
        let Some(found) = used(PAGES, Evidence::Uses, false, touched) else {
            return;
        };
        let by_faults = found.iter().filter(|(kind, _)| *kind != UseKind::Read);
        let told: Vec<u64> = by_faults.map(|(_, page)| *page).collect();
        let seen = seen.into_inner();
        let missed: Vec<&u64> = seen.iter().filter(|page| !told.contains(page)).collect();
        assert!(seen.contains(&330) && missed.is_empty(), "{missed:?} of {seen:?}");
    }
}
