//! How the file of a program is laid out (elf(5)).

use std::io;
use std::path::Path;

/// Where parts of a program are in its file, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its first instruction.
    pub first_instruction: u64,
    /// The end of what can be written: of headstart that is all that a start needs (`crates/headstart/first.ld`).
    pub data_end: u64,
}

impl Program {
    /// Reads the file. Fails where it is no program of 64 bits, or has nothing that can be written.
    pub fn of(file: &Path) -> io::Result<Program> {
        let bytes = std::fs::read(file)?;
        let wrong = || io::Error::other(format!("{} is not laid out as a program", file.display()));
        let number = |at: u64, length: u64| -> io::Result<u64> {
            let field = bytes.get(at as usize..(at + length) as usize).ok_or_else(wrong)?;
            let digits = field.iter().rev();
            Ok(digits.fold(0, |all, byte| all << 8 | u64::from(*byte)))
        };
        // e_entry, e_phoff, e_phentsize, e_phnum; p_type, p_flags, p_offset, p_vaddr, p_filesz.
        let (entry, table) = (number(24, 8)?, number(32, 8)?);
        let (size, count) = (number(54, 2)?, number(56, 2)?);
        let (mut first, mut end) = (None, None);
        for at in (0..count).map(|index| table + index * size) {
            let (kind, flags) = (number(at, 4)?, number(at + 4, 4)?);
            let (offset, address, length) = (number(at + 8, 8)?, number(at + 16, 8)?, number(at + 32, 8)?);
            if kind != libc::PT_LOAD.into() {
                continue;
            }
            if (address..address + length).contains(&entry) {
                first = Some(entry - address + offset);
            }
            if flags & u64::from(libc::PF_W) != 0 {
                end = end.max(Some(offset + length));
            }
        }
        Ok(Program {
            first_instruction: first.ok_or_else(wrong)?,
            data_end: end.ok_or_else(wrong)?,
        })
    }
}
