//! This program's own file, asked for in one go.
//!
//! A cold program comes as it is needed: a major fault for each window of 128 KiB, and each waits for the one before. Asked
//! for at once they come in one sweep.

use crate::residency;
use std::fs::File;
use std::io;

/// The device serves no more than this from one call, at least.
const CHUNK: u64 = 128 << 10;
/// A file that is larger was not made to be installed, and is left to come as it is needed.
const MOST: u64 = 64 << 20;

/// Asks for all of this program, unless half of it is in memory: then it was used of late, and what is missing is what nobody
/// uses. Waits for nothing but the file's extent map. What cannot be asked for comes as it is needed.
pub fn read_ahead() {
    let _ = File::open("/proc/self/exe").and_then(|program| ask_for(&program));
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
