//! What the running kernel has, from its BTF: tracepoints, functions that can be traced, and the few
//! structures that the programs read.
//!
//! libbpf could tell, but it would parse the five megabytes once more than it must, and search all of them
//! once for each structure, which takes it 20 ms. A walk over the types that looks at names only takes one or
//! two; what libbpf then gets to search is [small](Kernel::minimal).

mod extract;

use extract::Extract;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read};
use std::ops::Deref;

/// Where the kernel shows its BTF (5.4 and later, with CONFIG_DEBUG_INFO_BTF).
pub(crate) const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

/// The event of 6.12 that makes it needless to trace functions.
const USE_EVENT: &str = "mm_filemap_get_pages";

/// The types that kernel.h and compat.h name: what is missing here, libbpf does not find.
const STRUCTURES: &[&str] = &[
    "address_space",
    "atomic_t",
    "cgroup",
    "cgroup_subsys_state",
    "cred",
    "css_set",
    "dentry",
    "fdtable",
    "file",
    "files_struct",
    "folio",
    "fs_struct",
    "gendisk",
    "hlist_bl_node",
    "hlist_head",
    "hlist_node",
    "idr",
    "inode",
    "io_cqe",
    "io_kiocb",
    "io_rw",
    "iov_iter",
    "kernfs_node",
    "kiocb",
    "kuid_t",
    "linux_binprm",
    "memdesc_flags_t",
    "mm_struct",
    "mnt_namespace",
    "mount",
    "ns_common",
    "nsproxy",
    "ovl_file",
    "page",
    "pageflags",
    "path",
    "pid",
    "pid_namespace",
    "pt_regs",
    "qstr",
    "req_flag_bits",
    "request",
    "request_queue",
    "signal_struct",
    "super_block",
    "task_io_accounting",
    "task_struct",
    "thread_info",
    "timespec64",
    "upid",
    "user_namespace",
    "vfsmount",
    "vm_area_struct",
    "vm_fault",
    "xa_node",
    "xarray",
];

/// What a kernel has.
#[derive(Debug, Default)]
pub(crate) struct Kernel {
    /// By name, the structure that the first argument points to (`folio`, `task_struct`); empty if it is no
    /// pointer.
    tracepoints: HashMap<String, String>,
    functions: HashSet<String>,
    /// The numbers of [`STRUCTURES`].
    structures: HashMap<String, u32>,
    minimal: Vec<u8>,
}

impl Kernel {
    /// The running kernel. Where it has no use events, those of `functions` that it has are looked for.
    pub(crate) fn running(functions: &[&str]) -> io::Result<Kernel> {
        let bytes = read()?;
        Kernel::parse(&bytes, functions)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("{VMLINUX} is not BTF")))
    }

    pub(crate) fn has_tracepoint(&self, name: &str) -> bool {
        self.tracepoints.contains_key(name)
    }

    /// Whether the kernel tells what pages are asked for (6.12 and later).
    pub(crate) fn has_use_events(&self) -> bool {
        self.has_tracepoint(USE_EVENT)
    }

    /// Whether a tracepoint's first argument is a pointer to this structure.
    pub(crate) fn tracepoint_gives(&self, name: &str, structure: &str) -> bool {
        self.tracepoints.get(name).is_some_and(|s| s == structure)
    }

    pub(crate) fn has_function(&self, name: &str) -> bool {
        self.functions.contains(name)
    }

    /// A structure's number, of those that the programs read; 0 if there is none.
    pub(crate) fn number(&self, structure: &str) -> u32 {
        self.structures.get(structure).copied().unwrap_or(0)
    }

    /// BTF of nothing but the structures that the programs read, and what lies inside them.
    pub(crate) fn minimal(&self) -> &[u8] {
        &self.minimal
    }

    fn parse(bytes: &[u8], functions: &[&str]) -> Option<Kernel> {
        let btf = Btf::new(bytes)?;
        let structures: HashSet<&[u8]> = STRUCTURES.iter().map(|name| name.as_bytes()).collect();
        let mut kernel = Kernel::default();
        let mut extract = Extract::new(&btf);
        for (index, at) in btf.types.iter().enumerate() {
            let kind = btf.kind(*at)?;
            match kind {
                TYPEDEF | STRUCT | UNION | ENUM => {
                    let name = btf.name(*at)?;
                    if structures.contains(name) {
                        let number = index as u32 + 1;
                        extract.add(number)?;
                        if kind == STRUCT {
                            kernel.structures.insert(text(name), number);
                        }
                    } else if let (TYPEDEF, Some(name)) = (kind, name.strip_prefix(b"btf_trace_")) {
                        let structure = btf.first_argument(*at).unwrap_or_default();
                        kernel.tracepoints.insert(text(name), text(structure));
                    }
                }
                _ => {}
            }
        }
        kernel.minimal = extract.finish();
        if !kernel.has_use_events() {
            let functions: HashSet<&[u8]> = functions.iter().map(|name| name.as_bytes()).collect();
            for at in btf.types.iter().filter(|at| btf.kind(**at) == Some(FUNC)) {
                let name = btf.name(*at)?;
                if functions.contains(name) {
                    kernel.functions.insert(text(name));
                }
            }
        }
        Some(kernel)
    }
}

/// The kernel's BTF: mapped where that is possible (6.16 and later), for sysfs gives it away only a page at a
/// time.
fn read() -> io::Result<Bytes> {
    let mut file = File::open(VMLINUX)?;
    let length = usize::try_from(file.metadata()?.len()).unwrap_or(0);
    if let Some(mapped) = Mapped::new(&file, length) {
        return Ok(Bytes::Mapped(mapped));
    }
    let mut bytes = Vec::with_capacity(length + 1);
    file.read_to_end(&mut bytes)?;
    Ok(Bytes::Read(bytes))
}

enum Bytes {
    Mapped(Mapped),
    Read(Vec<u8>),
}

impl Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Mapped(mapped) => mapped,
            Bytes::Read(bytes) => bytes,
        }
    }
}

/// A file mapped for reading.
struct Mapped {
    start: *const u8,
    length: usize,
}

impl Mapped {
    fn new(file: &File, length: usize) -> Option<Mapped> {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        // SAFETY: a new mapping at a place of the kernel's choice touches no memory of ours.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ,
                MapFlags::PRIVATE,
                file,
                0,
            )
        };
        Some(Mapped {
            start: start.ok()?.cast(),
            length,
        })
    }
}

impl Deref for Mapped {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: mapped with this length as long as `self` lives, and the kernel's BTF never changes.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing borrowed from it outlives `self`. It cannot fail for a
        // whole mapping, and there is nothing to do if it did.
        let _ = unsafe { rustix::mm::munmap(self.start.cast_mut().cast(), self.length) };
    }
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

const INT: u32 = 1;
const PTR: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const TYPEDEF: u32 = 8;
const VOLATILE: u32 = 9;
const CONST: u32 = 10;
const RESTRICT: u32 = 11;
const FUNC: u32 = 12;
const FUNC_PROTO: u32 = 13;
const TYPE_TAG: u32 = 18;
const ENUM64: u32 = 19;

/// BTF as in the kernel's `include/uapi/linux/btf.h`.
struct Btf<'a> {
    bytes: &'a [u8],
    strings: &'a [u8],
    /// Offsets of the types, from type 1 on.
    types: Vec<usize>,
}

impl<'a> Btf<'a> {
    fn new(bytes: &'a [u8]) -> Option<Btf<'a>> {
        if bytes.get(..2)? != 0xeb9fu16.to_ne_bytes() {
            return None;
        }
        let header = u32_at(bytes, 4)? as usize;
        let field = |offset| u32_at(bytes, offset).map(|value| value as usize);
        let (type_start, type_length) = (header + field(8)?, field(12)?);
        let (string_start, string_length) = (header + field(16)?, field(20)?);
        let strings = bytes.get(string_start..string_start + string_length)?;
        let mut btf = Btf {
            bytes,
            strings,
            types: Vec::new(),
        };
        let mut at = type_start;
        while at < type_start + type_length {
            btf.types.push(at);
            let members = (u32_at(bytes, at + 4)? & 0xffff) as usize;
            // What follows the three words that all types have.
            at += 12
                + match btf.kind(at)? {
                    1 | 14 | 17 => 4,                // integer, variable, declaration tag
                    3 => 12,                         // array
                    4 | 5 | 15 | 19 => 12 * members, // struct, union, data section, 64-bit enumeration
                    6 | FUNC_PROTO => 8 * members,   // enumeration
                    2 | 7..=12 | 16 | 18 => 0,
                    _ => return None,
                };
        }
        Some(btf)
    }

    fn kind(&self, at: usize) -> Option<u32> {
        Some(u32_at(self.bytes, at + 4)? >> 24 & 0x1f)
    }

    fn members(&self, at: usize) -> Option<usize> {
        Some((u32_at(self.bytes, at + 4)? & 0xffff) as usize)
    }

    /// Bytes of a type: the three words that all have, and what its kind adds.
    fn length(&self, at: usize) -> Option<usize> {
        let members = self.members(at)?;
        Some(
            12 + match self.kind(at)? {
                // 14: variable, 17: declaration tag
                INT | 14 | 17 => 4,
                ARRAY => 12,
                // 15: data section
                STRUCT | UNION | 15 | ENUM64 => 12 * members,
                ENUM | FUNC_PROTO => 8 * members,
                // 7: forward declaration, 16: floating point
                PTR | 7 | TYPEDEF..=FUNC | 16 | TYPE_TAG => 0,
                _ => return None,
            },
        )
    }

    /// Empty for the many types that have none.
    fn name(&self, at: usize) -> Option<&'a [u8]> {
        self.string(u32_at(self.bytes, at)?)
    }

    fn string(&self, offset: u32) -> Option<&'a [u8]> {
        self.strings.get(offset as usize..)?.split(|b| *b == 0).next()
    }

    /// Offset of the type that this one refers to.
    fn refers(&self, at: usize) -> Option<usize> {
        let id = u32_at(self.bytes, at + 8)? as usize;
        self.types.get(id.checked_sub(1)?).copied()
    }

    /// `typedef void (*btf_trace_x)(void *, struct first *, …)`: the name of `first`.
    fn first_argument(&self, typedef: usize) -> Option<&'a [u8]> {
        let prototype = self.refers(self.refers(typedef)?)?;
        if self.kind(prototype)? != FUNC_PROTO {
            return None;
        }
        // Parameters are pairs of name and type; the first is the tracepoint's private data.
        let id = u32_at(self.bytes, prototype + 12 + 8 + 4)? as usize;
        let pointer = *self.types.get(id.checked_sub(1)?)?;
        if self.kind(pointer)? != PTR {
            return None;
        }
        let mut target = self.refers(pointer)?;
        while self.kind(target)? == CONST {
            target = self.refers(target)?;
        }
        self.name(target)
    }
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(
        bytes.get(offset..offset + 4)?.try_into().ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_model::testing::needs;

    /// The running kernel's BTF; `None` (and a line that says so) if it shows none.
    #[track_caller]
    fn whole() -> Option<Bytes> {
        let bytes = read();
        if let Err(e) = &bytes {
            needs(&format!("BTF ({VMLINUX}: {e})"), false);
        }
        bytes.ok()
    }

    #[test]
    fn the_running_kernel_has_what_every_kernel_has() {
        if whole().is_none() {
            return;
        }
        let kernel = Kernel::running(&["filemap_fault", "no_such_function"]).unwrap();
        assert!(kernel.tracepoint_gives("sched_process_fork", "task_struct"));
        assert!(kernel.has_tracepoint("mm_filemap_add_to_page_cache"));
        assert!(!kernel.has_tracepoint("no_such_tracepoint"));
        let functions = kernel.has_function("filemap_fault");
        assert_eq!(
            functions,
            !kernel.has_tracepoint(USE_EVENT),
            "every kernel has it, but it may not be looked for"
        );
        assert!(!kernel.has_function("no_such_function"));
    }

    #[test]
    fn an_extract_is_btf_itself_and_has_the_structures_whole() {
        let Some(whole) = whole() else { return };
        let kernel = Kernel::parse(&whole, &[]).unwrap();
        assert!(
            kernel.minimal().len() < 200_000,
            "{} bytes are not minimal",
            kernel.minimal().len()
        );
        let (from, to) = (Btf::new(&whole).unwrap(), Btf::new(kernel.minimal()).unwrap());
        let find = |btf: &Btf<'_>, name: &[u8]| {
            let is_it = |at: &&usize| btf.name(**at) == Some(name) && btf.kind(**at) == Some(STRUCT);
            *btf.types.iter().find(is_it).unwrap()
        };
        for name in [&b"inode"[..], b"dentry", b"task_struct"] {
            let (old, new) = (find(&from, name), find(&to, name));
            assert_eq!(from.members(old), to.members(new));
            assert_eq!(u32_at(from.bytes, old + 8), u32_at(to.bytes, new + 8), "size");
            for member in 0..from.members(old).unwrap() {
                let at = 12 + 12 * member;
                assert_eq!(from.name(old + at), to.name(new + at));
                assert_eq!(
                    u32_at(from.bytes, old + at + 8),
                    u32_at(to.bytes, new + at + 8),
                    "offset"
                );
            }
        }
    }

    #[test]
    fn damaged_btf_is_refused_or_read_but_never_a_panic() {
        let Some(whole) = whole() else { return };
        for length in [0, 1, 2, 23, 24, 100, whole.len() / 2] {
            Kernel::parse(&whole[..length], &[]);
        }
        let mut wild = whole[..4096].to_vec();
        for i in 0..24 {
            wild[i] = 0xff;
            Kernel::parse(&wild, &[]);
        }
    }
}
