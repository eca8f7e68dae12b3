//! This program's own file, asked for in one go.
//!
//! A cold program comes as it is needed: a major fault for each window of 128 KiB, and each waits for the one before. Asked
//! for at once they come in one sweep.

use crate::residency;
use rustix::fs::MemfdFlags;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The device serves no more than this from one call, at least.
const CHUNK: u64 = 128 << 10;
/// A file that is larger was not made to be installed, and is left to come as it is needed.
const MOST: u64 = 64 << 20;

/// Asks for all of this program, unless half of it is in memory: then it was used of late, and what is missing is what nobody
/// uses. Waits for nothing but the file's extent map. What cannot be asked for comes as it is needed.
pub fn read_ahead() {
    let _ = File::open("/proc/self/exe").and_then(|program| ask_for(&program));
}

/// What `/proc/self/exe` leads to when this program runs from memory.
const IN_MEMORY: &str = "/memfd:headstart (deleted)";

/// Where this program's file is, also when it runs from memory; `None` if that cannot be told.
pub fn path() -> Option<PathBuf> {
    match std::fs::read_link("/proc/self/exe").ok()? {
        copy if copy == Path::new(IN_MEMORY) => std::env::args_os().next().map(PathBuf::from),
        file => Some(file),
    }
}

/// Goes on from a copy of this program in memory, with the same arguments: its file is executed by nobody then. Returns where that
/// was done already, or cannot be.
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

fn ask_for(program: &File) -> io::Result<()> {
    let size = program.metadata()?.len();
    let pages = size.div_ceil(rustix::param::page_size() as u64);
    if size > MOST || 2 * residency::resident_pages(program, 0, size)? >= pages {
        return Ok(());
    }
    for chunk in 0..size.div_ceil(CHUNK) {
        residency::fadvise_willneed(program, chunk * CHUNK, CHUNK)?;
    }
    Ok(())
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use crate::testing::{LoopFs, Spec, can_mount, wait_resident};
    use std::fs;

    #[test]
    fn a_cold_program_is_asked_for_whole_and_one_in_use_is_left() {
        if !can_mount() {
            return;
        }
        const SIZE: u64 = 6 << 20;
        let mut disk = LoopFs::create(&Spec::new("ext4"), |root| {
            fs::write(root.join("program"), vec![7; SIZE as usize])?;
            File::create(root.join("large"))?.set_len(MOST + 1)
        })
        .unwrap();
        let open = |disk: &LoopFs, name: &str| File::open(disk.mount_point().join(name)).unwrap();
        let resident = |file: &File| residency::resident_pages(file, 0, SIZE).unwrap();
        let program = open(&disk, "program");
        assert_eq!(resident(&program), 0);
        ask_for(&program).unwrap();
        wait_resident(&program, SIZE).unwrap();
        assert_eq!(resident(&program), SIZE / rustix::param::page_size() as u64);

        let large = open(&disk, "large");
        ask_for(&large).unwrap();
        assert_eq!(resident(&large), 0, "it was not made to be installed");

        drop((program, large));
        disk.remount_cold().unwrap();
        let program = open(&disk, "program");
        for chunk in 0..SIZE / 2 / CHUNK {
            residency::fadvise_willneed(&program, chunk * CHUNK, CHUNK).unwrap();
        }
        let before = resident(&program);
        assert_eq!(before, SIZE / 2 / rustix::param::page_size() as u64);
        ask_for(&program).unwrap();
        assert_eq!(resident(&program), before, "what is missing is what nobody uses");
    }
}
