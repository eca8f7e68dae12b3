//! How the file of a program is laid out (elf(5)).

/// So many bytes of a program's file have its headers, of all but odd ones.
pub const HEADERS: usize = 4096;

/// Where parts of a program are in its file, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its first instruction.
    pub first_instruction: u64,
    /// The end of what can be written. The kernel clears what follows in the same page, and reads it for
    /// that. Of headstart it is all that a start needs (`crates/headstart/first.ld`).
    pub data_end: u64,
}

impl Program {
    /// By the beginning of its file, [`HEADERS`] bytes at least; `None` where that is not the beginning of a
    /// program of 64 bits for this machine's order of bytes, or has nothing that can be written.
    pub fn parse(beginning: &[u8]) -> Option<Program> {
        let number = |at: u64, length: u64| -> Option<u64> {
            let at = usize::try_from(at).ok()?;
            let field = beginning.get(at..at.checked_add(length as usize)?)?;
            Some(
                field
                    .iter()
                    .rev()
                    .fold(0, |all, byte| all << 8 | u64::from(*byte)),
            )
        };
        // ELFMAG, ELFCLASS64, ELFDATA2LSB.
        if number(0, 6)? != u64::from_le_bytes(*b"\x7fELF\x02\x01\0\0") {
            return None;
        }
        // e_entry, e_phoff, e_phentsize, e_phnum; p_type, p_flags, p_offset, p_vaddr, p_filesz.
        let (entry, table) = (number(24, 8)?, number(32, 8)?);
        let (size, count) = (number(54, 2)?, number(56, 2)?);
        let (mut first, mut end) = (None, None);
        for index in 0..count {
            let at = table.checked_add(index * size)?;
            let field = |offset: u64, length| number(at.checked_add(offset)?, length);
            let (kind, flags) = (field(0, 4)?, field(4, 4)?);
            let (offset, address, length) = (field(8, 8)?, field(16, 8)?, field(32, 8)?);
            if kind != libc::PT_LOAD.into() {
                continue;
            }
            if (address..address.saturating_add(length)).contains(&entry) {
                first = (entry - address).checked_add(offset);
            }
            if flags & u64::from(libc::PF_W) != 0 {
                end = end.max(offset.checked_add(length));
            }
        }
        Some(Program {
            first_instruction: first?,
            data_end: end?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_told_by_its_beginning() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        let program = Program::parse(&own[..HEADERS]).unwrap();
        assert_eq!(Program::parse(&own), Some(program));
        let size = own.len() as u64;
        assert!(
            program.first_instruction < size && program.data_end <= size,
            "{program:?}"
        );
    }

    #[test]
    fn what_is_no_program_is_told_too() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        for end in [0, 5, 63, 64, 100] {
            assert_eq!(Program::parse(&own[..end]), None, "{end}");
        }
        assert_eq!(Program::parse(b"#!/bin/sh\n"), None);
        // No number of its headers makes it end otherwise.
        for at in 4..HEADERS {
            for byte in [0, 0xff] {
                let mut bad = own[..HEADERS].to_vec();
                bad[at] = byte;
                let _any = Program::parse(&bad);
                bad[at..(at + 8).min(HEADERS)].fill(byte);
                let _any = Program::parse(&bad);
            }
        }
    }
}
