//! What the running kernel has, from its BTF: tracepoints, and functions that can be traced.
//!
//! libbpf could tell, but it would parse the five megabytes once more than it must; a walk over the types that
//! looks at names only takes about a millisecond.

use std::collections::{HashMap, HashSet};
use std::io;

/// Where the kernel shows its BTF (5.4 and later, with CONFIG_DEBUG_INFO_BTF).
pub(crate) const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

/// Tracepoints and functions of a kernel.
#[derive(Debug, Default)]
pub(crate) struct Kernel {
    /// By name, the structure that the first argument points to (`folio`, `task_struct`); empty if it is no pointer.
    tracepoints: HashMap<String, String>,
    functions: HashSet<String>,
}

impl Kernel {
    /// The running kernel; of functions, those in `functions` are looked for.
    pub(crate) fn running(functions: &[&str]) -> io::Result<Kernel> {
        let bytes = std::fs::read(VMLINUX)?;
        Kernel::parse(&bytes, functions)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("{VMLINUX} is not BTF")))
    }

    pub(crate) fn has_tracepoint(&self, name: &str) -> bool {
        self.tracepoints.contains_key(name)
    }

    /// Whether a tracepoint's first argument is a pointer to this structure.
    pub(crate) fn tracepoint_gives(&self, name: &str, structure: &str) -> bool {
        self.tracepoints.get(name).is_some_and(|s| s == structure)
    }

    pub(crate) fn has_function(&self, name: &str) -> bool {
        self.functions.contains(name)
    }

    fn parse(bytes: &[u8], functions: &[&str]) -> Option<Kernel> {
        let btf = Btf::new(bytes)?;
        let mut kernel = Kernel::default();
        for at in &btf.types {
            let kind = btf.kind(*at)?;
            if kind == TYPEDEF {
                if let Some(name) = btf.name(*at)?.strip_prefix(b"btf_trace_") {
                    let structure = btf.first_argument(*at).unwrap_or_default();
                    kernel.tracepoints.insert(text(name), text(structure));
                }
            } else if kind == FUNC {
                let name = btf.name(*at)?;
                if functions.iter().any(|f| f.as_bytes() == name) {
                    kernel.functions.insert(text(name));
                }
            }
        }
        Some(kernel)
    }
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

const PTR: u32 = 2;
const TYPEDEF: u32 = 8;
const CONST: u32 = 10;
const FUNC: u32 = 12;
const FUNC_PROTO: u32 = 13;

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

    fn name(&self, at: usize) -> Option<&'a [u8]> {
        let rest = self.strings.get(u32_at(self.bytes, at)? as usize..)?;
        rest.split(|b| *b == 0).next()
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

    #[test]
    fn the_running_kernel_has_what_every_kernel_has() {
        let Ok(kernel) = Kernel::running(&["filemap_fault", "no_such_function"]) else {
            eprintln!("skipped: this kernel shows no BTF");
            return;
        };
        assert!(kernel.tracepoint_gives("sched_process_fork", "task_struct"));
        assert!(kernel.has_tracepoint("mm_filemap_add_to_page_cache"));
        assert!(!kernel.has_tracepoint("no_such_tracepoint"));
        assert!(kernel.has_function("filemap_fault") && !kernel.has_function("no_such_function"));
    }

    #[test]
    fn damaged_btf_is_refused_or_read_but_never_a_panic() {
        let Ok(whole) = std::fs::read(VMLINUX) else { return };
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
