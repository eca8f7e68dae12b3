//! What comes before anything of `boot run` is parsed or read.

use crate::{decision, waiters};
use headstart_session::store;
use headstart_system::residency::fadvise_willneed;
use std::fs::File;

/// Less than any device's request limit, beyond which an advice is cut off silently.
const CHUNK: u64 = 128 << 10;

/// Reads headstart itself; false if this boot is bypassed.
pub fn begin() -> bool {
    if store(None).is_ok_and(|store| decision::is_bypassed(&store, waiters::place())) {
        waiters::waiters().1.release();
        return false;
    }
    read_oneself();
    true
}

/// Reads the whole command from disk, in one go: page by page, amid all the others that start now, it took four seconds on a
/// 7200 rpm disk until it had recorded anything.
fn read_oneself() {
    // Without it the pages come as they are touched.
    let Ok(file) = File::open("/proc/self/exe") else {
        return;
    };
    let size = file.metadata().map_or(0, |facts| facts.len());
    for offset in (0..size).step_by(CHUNK as usize) {
        if fadvise_willneed(&file, offset, CHUNK.min(size - offset)).is_err() {
            return;
        }
    }
}
