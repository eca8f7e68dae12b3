//! This program's own file: asked for in one go at its first instruction (`first`), with what leads to its
//! state (`way`), and put aside for work that is done with it.

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod bare;
mod command;
mod first;
mod note;
mod risk;
mod way;
mod words;

pub use note::{note_way, note_way_to_itself};
use rustix::fs::MemfdFlags;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Nothing forbids this process anything, as far as is known.
const ORDINARY: u8 = 0;
/// A process that tries what the supervisor of a command calls, and may be killed for it.
const SCOUT: u8 = 1;
/// A process whose scout was not killed, and which calls what that has called, and no more.
const CAREFUL: u8 = 2;
/// The exit status of a scout that came to its end.
pub const REHEARSED: u8 = 42;

/// What a process of `headstart run` may do (decision 21). Where a filter of system calls may kill it, or its
/// limits are low, its first instructions fork a scout. Where that does not come to its end, they become the
/// command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// What it likes.
    Ordinary,
    /// It rehearses, and ends with [`REHEARSED`].
    Scout,
    /// What was rehearsed; all else is done by another process.
    Careful,
}

/// What this process may do.
pub fn role() -> Role {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    let role = first::role();
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let role = ORDINARY;
    match role {
        SCOUT => Role::Scout,
        CAREFUL => Role::Careful,
        _ => Role::Ordinary,
    }
}

/// Where packages install what people do not call by its name, below what has `sbin`.
const PARTS: &str = "libexec/headstart";
/// What `/proc/self/exe` leads to when this program runs from memory.
const IN_MEMORY: &str = "/memfd:headstart (deleted)";

/// Where this program's file is, also when it runs from memory; `None` if that cannot be told.
pub fn path() -> Option<PathBuf> {
    match std::fs::read_link("/proc/self/exe").ok()? {
        copy if copy == Path::new(IN_MEMORY) => std::env::args_os().next().map(PathBuf::from),
        file => Some(file),
    }
}

/// Where another program of the package may be: beside this one, as in a build directory, and where packages
/// install it. Never in `$PATH` or the working directory, which a caller may have made. `None` if
/// `/proc/self/exe` cannot be read.
pub fn beside(name: &OsStr) -> Option<[PathBuf; 2]> {
    let program = std::fs::read_link("/proc/self/exe").ok()?;
    let directory = program.parent()?;
    let installed = directory.parent().unwrap_or(directory).join(PARTS).join(name);
    Some([directory.join(name), installed])
}

/// Goes on from a copy of this program in memory, with the same arguments: its file is executed by nobody
/// then. Returns where that was done already, or cannot be.
pub fn run_from_memory() {
    let program = std::fs::read_link("/proc/self/exe");
    if let Some(program) = program.ok().filter(|program| program != Path::new(IN_MEMORY)) {
        let _failed = execute_copy(&program);
    }
}

fn execute_copy(program: &Path) -> io::Result<std::convert::Infallible> {
    let copy = File::from(rustix::fs::memfd_create("headstart", MemfdFlags::CLOEXEC)?);
    io::copy(&mut File::open("/proc/self/exe")?, &mut &copy)?;
    // What is open for writing cannot be executed.
    let executed = File::open(format!("/proc/self/fd/{}", copy.as_raw_fd()))?;
    drop(copy);
    let mut command = Command::new(format!("/proc/self/fd/{}", executed.as_raw_fd()));
    Err(command.arg0(program).args(std::env::args_os().skip(1)).exec())
}
