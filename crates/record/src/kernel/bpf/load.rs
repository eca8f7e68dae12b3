//! Which programs a kernel can run, and their loading and attaching.

use super::btf::Kernel;
use super::syscalls;
use crate::error::RecordError;
use headstart_model::trace::{Evidence, Scope};
use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder, PrintLevel, ProgramInput};
use rustix::fs::{MemfdFlags, memfd_create};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use zerocopy::IntoBytes;

/// The compiled programs, packed: a boot reads all of headstart from disk, and both are half a megabyte as
/// they are.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/record.bpf.o.zst"));
/// The same for kernels that do not know bpf_loop, packed by the other as its dictionary.
static OLD_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/record-old.bpf.o.zst"));

/// More than either has when it is unpacked, bytes.
const MOST_OBJECT: usize = 1 << 20;

/// Functions that are traced where the kernel has no use events.
pub(crate) const FUNCTIONS: &[&str] = &[
    "filemap_read",
    "generic_file_buffered_read",
    "filemap_splice_read",
    "filemap_map_pages",
    "filemap_fault",
];

/// What the recorder itself runs, and nothing attaches.
const RECORDER: [&str; 2] = ["about_self", "list_process"];

/// The event that tells who waits for a block device.
pub(super) const SWITCH: &str = "sched_switch";

/// The event, and the program, that tells of reads by io_uring.
pub(super) const IO_URING: &str = "io_uring_complete";

/// What is loaded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub scope: Scope,
    pub evidence: Evidence,
    pub buffer_bytes: u32,
    /// Whether the programs drop what they sent already.
    pub filter: bool,
    /// Whether it is told what threads and block devices do.
    pub activity: bool,
    /// Whether starts are noticed, and many recorded at a time, instead of what `scope` says.
    pub watch: bool,
}

impl Plan {
    /// Bytes of the buffer for look-ups: half of the other. Those of 160 bytes that a second brings are 10
    /// times those of a desktop's whole boot.
    pub fn lookup_bytes(self) -> u32 {
        (self.buffer_bytes / 2).max(rustix::param::page_size() as u32)
    }
}

/// How many threads are known at a time: `THREADS` of sched_slices.h.
pub(super) const THREADS: u32 = 1 << 13;

/// How many requests are in flight: as block_rq.h says.
pub(super) const IN_FLIGHT: u32 = 8192;

/// The maps that are made only where activity is recorded.
const ACTIVITY_MAPS: [&str; 4] = ["activity", "unseen", "threads", "in_flight"];

/// The maps of what was found about programs, made only where starts are noticed.
pub(super) const STANDINGS: &str = "standings";
pub(super) const KNOWN: &str = "known";
pub(super) const WARM: &str = "warm";
const TURNS: &str = "turns";

/// The program that fills the last, run as those of [`RECORDER`].
pub(super) const KEEP_WARM: &str = "keep_warm";

/// The programs that tell what threads and block devices do, or the event that the kernel lacks for it.
pub(super) fn activity_programs(kernel: &Kernel) -> Result<[&'static str; 4], &'static str> {
    let issue = "block_rq_issue";
    for name in [SWITCH, "sched_process_exit", issue, "block_rq_complete"] {
        if !kernel.has_tracepoint(name) {
            return Err(name);
        }
    }
    let block_issue = match kernel.tracepoint_gives(issue, "request") {
        true => "block_issue",
        false => "block_issue_510",
    };
    Ok(["switch_slices", "thread_exit", block_issue, "block_complete"])
}

/// The switch of what the functions' tracing goes through. While it is off a program is attached to a
/// function and never called.
const FTRACE: &str = "/proc/sys/kernel/ftrace_enabled";

/// Whether functions that are traced call the programs attached to them.
pub(crate) fn functions_call() -> bool {
    is_on(Path::new(FTRACE))
}

/// A kernel without the switch has it on.
fn is_on(switch: &Path) -> bool {
    !std::fs::read_to_string(switch).is_ok_and(|value| value.trim() == "0")
}

/// The evidence a kernel can give, the best first.
pub(crate) fn evidence(kernel: &Kernel) -> Vec<Evidence> {
    let uses = ["mm_filemap_get_pages", "mm_filemap_map_pages", "mm_filemap_fault"];
    let reads = ["filemap_read", "generic_file_buffered_read"];
    let faults = ["filemap_map_pages", "filemap_fault"];
    let mut evidence = Vec::new();
    if uses.iter().all(|name| kernel.has_tracepoint(name)) {
        evidence.push(Evidence::Uses);
    } else if functions_call()
        && reads.iter().any(|f| kernel.has_function(f))
        && faults.iter().all(|f| kernel.has_function(f))
    {
        evidence.push(Evidence::Fentry);
    }
    if kernel.has_tracepoint("mm_filemap_add_to_page_cache") {
        evidence.push(Evidence::Adds);
    }
    evidence
}

/// The programs to load for a plan on this kernel.
fn programs(kernel: &Kernel, plan: Plan) -> Vec<&'static str> {
    let mut programs = RECORDER.to_vec();
    let tracepoints = [
        ("sched_process_fork", "process_fork"),
        (
            "sched_process_exec",
            match plan.watch {
                true => "notice_exec",
                false => "process_exec",
            },
        ),
        ("sched_process_exit", "process_exit"),
        ("sys_exit", "sys_exit"),
        (SWITCH, "sched_switch"),
    ];
    programs.extend(
        tracepoints
            .iter()
            .filter(|(name, _)| kernel.has_tracepoint(name))
            .map(|(_, program)| program),
    );
    let add = "mm_filemap_add_to_page_cache";
    if kernel.tracepoint_gives(add, "folio") {
        programs.push("add_folio");
    } else if kernel.tracepoint_gives(add, "page") {
        programs.push("add_page");
    }
    if plan.watch {
        programs.push(KEEP_WARM);
    }
    if plan.activity {
        programs.extend(activity_programs(kernel).into_iter().flatten());
    }
    match plan.evidence {
        Evidence::Uses => {
            programs.extend(["get_pages", "map_pages", "fault"]);
            // Not on arm64: there the pages that faults were for stay unknown.
            let faults = ["page_fault_user", "page_fault_kernel"];
            let more = faults.iter().chain([&IO_URING]);
            programs.extend(more.filter(|name| kernel.has_tracepoint(name)));
        }
        Evidence::Fentry => {
            let functions = [
                ("filemap_read", "enter_read"),
                ("generic_file_buffered_read", "enter_read_510"),
                ("filemap_splice_read", "enter_splice"),
                ("filemap_map_pages", "enter_map"),
                ("filemap_fault", "enter_fault"),
            ];
            programs.extend(
                functions
                    .iter()
                    .filter(|(name, _)| kernel.has_function(name))
                    .map(|(_, program)| program),
            );
        }
        Evidence::Adds => {}
    }
    programs
}

/// An object, and how many bytes of that it is. Words, for the ELF reader wants it aligned.
fn unpack(packed: &[u8], dictionary: &[u8]) -> Result<(Vec<u64>, usize), RecordError> {
    let mut words = vec![0u64; MOST_OBJECT / size_of::<u64>()];
    let unpacker = zstd::bulk::Decompressor::with_dictionary(dictionary);
    let length =
        unpacker.and_then(|mut unpacker| unpacker.decompress_to_buffer(packed, words.as_mut_bytes()));
    let length = length.map_err(|source| RecordError::io("unpack the BPF programs", source))?;
    Ok((words, length))
}

/// Loads the programs of a plan; nothing runs yet.
pub(super) fn load(kernel: &Kernel, plan: Plan) -> Result<Object, RecordError> {
    let failed = |step: &'static str| move |source| explain(step, source);
    listen_to_libbpf();
    // bpf_loop came with 5.17: whatever has the use events of 6.12 has it.
    let (mut words, mut length) = unpack(OBJECT, &[])?;
    if !kernel.has_use_events() {
        (words, length) = unpack(OLD_OBJECT, words.as_bytes().get(..length).unwrap_or_default())?;
    }
    let object = words.as_bytes().get(..length).unwrap_or_default();
    let (btf, path) = as_file(kernel.minimal())?;
    let mut open = ObjectBuilder::default()
        .name("headstart")
        .and_then(|builder| builder.btf_custom_path(&path))
        .and_then(|builder| builder.open_memory(object))
        .map_err(failed("open the BPF programs"))?;
    let wanted = programs(kernel, plan);
    for mut program in open.progs_mut() {
        let load = wanted.iter().any(|name| program.name() == OsStr::new(name));
        program.set_autoload(load);
    }
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        let bytes = match &*name {
            "ring" => Some(plan.buffer_bytes),
            "lookups" => Some(plan.lookup_bytes()),
            "activity" if plan.activity => Some(plan.lookup_bytes()),
            _ => None,
        };
        if (!plan.activity && ACTIVITY_MAPS.contains(&&*name))
            || (!plan.watch && [STANDINGS, KNOWN, WARM, TURNS].contains(&&*name))
        {
            map.set_autocreate(false).map_err(failed("leave out a BPF map"))?;
        }
        // A kernel before 6.1 warns of a tracing program that takes memory as it runs (check_map_prealloc in
        // kernel/bpf/verifier.c), and may hang for it. What has the events of 6.12 has an allocator for that.
        if name == "listed" && plan.evidence != Evidence::Uses {
            map.set_map_flags(0)
                .map_err(failed("have a BPF map take its memory beforehand"))?;
        }
        if let Some(bytes) = bytes {
            map.set_max_entries(bytes)
                .map_err(failed("size the ring buffers"))?;
        } else if name.ends_with(".rodata.config") {
            let config = config(kernel, plan);
            match map.initial_value_mut() {
                Some(value) if value.len() >= config.len() => value[..config.len()].copy_from_slice(&config),
                _ => return Err(wrong_object("its configuration has another size")),
            }
        }
    }
    let object = open.load().map_err(failed("load the BPF programs"));
    drop(btf);
    object
}

/// Bytes as a file in memory, for a library that wants a path.
fn as_file(bytes: &[u8]) -> Result<(File, String), RecordError> {
    let cannot = |source| RecordError::io("keep BTF in memory", source);
    let fd = memfd_create("headstart-btf", MemfdFlags::CLOEXEC).map_err(|e| cannot(e.into()))?;
    let mut file = File::from(fd);
    file.write_all(bytes).map_err(cannot)?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok((file, path))
}

/// Attaches everything but what the recorder itself runs, and what is to be attached `later`. Tracing begins.
pub(super) fn attach(object: &mut Object, later: &[&str]) -> Result<Vec<Link>, RecordError> {
    let mut links = Vec::new();
    for program in object.progs_mut() {
        let others = RECORDER.iter().chain([&KEEP_WARM]).chain(later);
        if program.autoload() && others.into_iter().all(|name| program.name() != OsStr::new(name)) {
            let step = || format!("attach {}", program.name().to_string_lossy());
            links.push(
                program
                    .attach()
                    .map_err(|source| RecordError::Bpf { step: step(), source })?,
            );
        }
    }
    Ok(links)
}

/// What a program sends.
pub(super) enum Sends {
    /// Processes, and pages where functions are traced.
    Events,
    /// Pages, and files at their first sight.
    Uses,
    /// Look-ups.
    Lookups,
    /// What threads and block devices do.
    Activity,
    /// Nothing: it adds to what others send, or to a sum.
    Nothing,
}

/// What a program sends, by its name.
pub(super) fn sends(program: &OsStr) -> Sends {
    match program.to_str() {
        Some("sys_exit") => Sends::Lookups,
        Some("get_pages" | "map_pages" | "fault" | "add_folio" | "add_page" | IO_URING) => Sends::Uses,
        Some("switch_slices" | "thread_exit" | "block_issue" | "block_issue_510" | "block_complete") => {
            Sends::Activity
        }
        Some("sched_switch" | "page_fault_user" | "page_fault_kernel") => Sends::Nothing,
        _ => Sends::Events,
    }
}

/// Tells the programs who the recorder is; `proc_above` is as [`crate::namespace::proc_above`] has it.
pub(super) fn about_self(object: &mut Object, proc_above: u64) -> Result<(), RecordError> {
    run(object, "about_self", &[proc_above]).map(|_| ())
}

/// Adds to the processes to record, or in scope system to those to leave out. `pid` is its number in this
/// process's pid namespace; the one that events will have is returned.
pub(super) fn list_process(object: &mut Object, pid: u32) -> Result<u32, RecordError> {
    list_process_as(object, pid, 1)
}

/// The same, with what `listed` has of it.
pub(super) fn list_process_as(object: &mut Object, pid: u32, mark: u64) -> Result<u32, RecordError> {
    match run(object, "list_process", &[pid.into(), mark])? {
        0 => Err(RecordError::NoProcess { pid }),
        u32::MAX => {
            let full = std::io::Error::other("too many processes are recorded or left out");
            Err(RecordError::io(format!("list process {pid}"), full))
        }
        number => Ok(number),
    }
}

/// Runs a program on this thread; what it returns.
pub(super) fn run(object: &mut Object, name: &str, arguments: &[u64]) -> Result<u32, RecordError> {
    let program = object
        .progs_mut()
        .find(|program| program.name() == OsStr::new(name))
        .ok_or_else(|| wrong_object("a program is missing"))?;
    // A name of its own: Rust 1.85 drops what is made inside `Some(…)` at the end of the statement.
    let mut context: Vec<u8> = arguments.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let input = ProgramInput {
        context_in: Some(&mut context),
        ..ProgramInput::default()
    };
    let output = program.test_run(input);
    Ok(output
        .map_err(|source| explain("run a BPF program", source))?
        .return_value)
}

/// A map by its name, or by the end of it that begins with a dot: those of the data sections have the
/// object's name before it.
pub(super) fn map<'a>(object: &'a Object, name: &'static str) -> Result<libbpf_rs::Map<'a>, RecordError> {
    let is_it = |found: &str| found == name || name.starts_with('.') && found.ends_with(name);
    object
        .maps()
        .find(|map| is_it(&map.name().to_string_lossy()))
        .ok_or_else(|| wrong_object("a map is missing"))
}

/// Writes the only entry of a data section.
pub(super) fn set(object: &Object, name: &'static str, value: &[u8]) -> Result<(), RecordError> {
    map(object, name)?
        .update(&0u32.to_ne_bytes(), value, MapFlags::ANY)
        .map_err(|source| explain("write to a BPF map", source))
}

/// The sum over all processors of the first entry of a map.
pub(super) fn sum(object: &Object, name: &'static str) -> Result<u64, RecordError> {
    sum_at(object, name, 0)
}

/// The sum over all processors of an entry of a map.
pub(super) fn sum_at(object: &Object, name: &'static str, index: u32) -> Result<u64, RecordError> {
    let counts = map(object, name)?
        .lookup_percpu(&index.to_ne_bytes(), MapFlags::ANY)
        .map_err(|source| explain("read a BPF map", source))?;
    let count = |bytes: &Vec<u8>| bytes.as_slice().try_into().map_or(0, u64::from_ne_bytes);
    Ok(counts.iter().flatten().map(count).sum())
}

/// The values of all entries of a map of at most `most`, read in one go (5.6 and later).
pub(super) fn values(object: &Object, name: &'static str, most: u32) -> Result<Vec<Vec<u8>>, RecordError> {
    let cannot = |source| explain("read a BPF map", source);
    let map = map(object, name)?;
    let entries = map
        .lookup_batch(most, MapFlags::ANY, MapFlags::ANY)
        .map_err(cannot)?;
    Ok(entries.map(|(_, value)| value).collect())
}

/// How often a program was not run because it ran on the processor already (5.12 and later tell).
pub(super) fn missed_runs(program: BorrowedFd<'_>) -> u64 {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut length = size_of_val(&info) as u32;
    // SAFETY: the kernel writes at most `length` bytes, the size of the structure; its pointers to buffers
    // are null, which says that there are none to fill.
    let result = unsafe {
        libbpf_sys::bpf_obj_get_info_by_fd(program.as_raw_fd(), (&raw mut info).cast(), &mut length)
    };
    if result == 0 { info.recursion_misses } else { 0 }
}

/// `config` of common.h.
fn config(kernel: &Kernel, plan: Plan) -> Vec<u8> {
    let page_shift = rustix::param::page_size().trailing_zeros() as u8;
    let mut bytes = vec![
        match plan.scope {
            _ if plan.watch => 2,
            Scope::Tree => 1,
            Scope::System => 0,
        },
        u8::from(plan.evidence == Evidence::Adds),
        u8::from(plan.filter),
        page_shift,
    ];
    for structure in ["address_space", "folio"] {
        bytes.extend(kernel.number(structure).to_ne_bytes());
    }
    bytes.extend(syscalls::native());
    bytes.extend(syscalls::compat());
    bytes
}

fn wrong_object(what: &str) -> RecordError {
    RecordError::io(
        "use the BPF programs",
        std::io::Error::other(format!("they do not fit this binary: {what}")),
    )
}

/// What libbpf said; its errors are often only "Operation not permitted".
static SAID: Mutex<String> = Mutex::new(String::new());

/// Keeps what libbpf says for [`explain`] instead of printing it.
fn listen_to_libbpf() {
    said().clear();
    libbpf_rs::set_print(Some((PrintLevel::Warn, |_, text| {
        let mut said = said();
        let more = text.strip_prefix("libbpf: ").unwrap_or(&text).trim_end();
        // The reason stands at the end of a verifier's log.
        let tail = more.len().saturating_sub(MUCH);
        said.push_str(more.get(tail..).unwrap_or(more));
        said.push_str("; ");
    })));
}

/// More than this of one message, a verifier's log, is too much for an error.
const MUCH: usize = 1000;

fn said() -> MutexGuard<'static, String> {
    SAID.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An error of libbpf with what it said, or with what is missing.
pub(super) fn explain(step: &str, source: libbpf_rs::Error) -> RecordError {
    if source.kind() == libbpf_rs::ErrorKind::PermissionDenied {
        if let Some((capability, what)) = super::missing::capability() {
            return RecordError::Capability {
                backend: "BPF",
                capability,
                what,
            };
        }
    }
    // Where the kernel may not be read, the verifier calls that an invalid argument.
    if let Some(feature) = super::missing::lockdown() {
        return RecordError::Unsupported {
            backend: "BPF",
            feature,
            way_out: "use --backend tracefs",
        };
    }
    let said = said();
    let step = if said.is_empty() {
        step.to_owned()
    } else {
        format!("{step} ({})", said.trim_end_matches("; "))
    };
    RecordError::Bpf { step, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_switch_that_is_off_keeps_functions_from_being_traced() {
        let dir = tempfile::tempdir().unwrap();
        let switch = dir.path().join("ftrace_enabled");
        assert!(is_on(&switch), "a kernel without it");
        for (value, on) in [("1\n", true), ("0\n", false), ("", true)] {
            std::fs::write(&switch, value).unwrap();
            assert_eq!(is_on(&switch), on, "{value:?}");
        }
    }
}
