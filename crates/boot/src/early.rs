//! The first and the last thing that others want of this process: to be in memory, and to tell when they may go on.

use super::last::Place;
use super::{decision, init, install};
use headstart_session::store;
use headstart_system::launch::ReadyPipe;
use headstart_system::residency::fadvise_willneed;
use std::fs::File;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Less than any device's request limit, beyond which an advice is cut off silently.
const CHUNK: u64 = 128 << 10;

/// What comes before anything of `boot run` is parsed or read; false if this boot is bypassed.
pub fn begin() -> bool {
    if store(None).is_ok_and(|store| decision::is_bypassed(&store, place())) {
        waiting().1.let_go();
        return false;
    }
    read_oneself();
    true
}

/// Where this process was started, if not by process 1 itself.
fn place() -> Place {
    match std::env::var_os(install::FROM_INITRAMFS) {
        Some(_) => Place::Initramfs,
        None => Place::Unit,
    }
}

/// The same, and who waits for it. To be asked once.
pub fn waiting() -> (Place, Waiting) {
    let waiting = std::env::var(install::FROM_INITRAMFS).map(|number| init::waiting(&number));
    (place(), waiting.unwrap_or(Waiting::Units))
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

/// Who waits for this process before going on.
pub enum Waiting {
    /// The units ordered behind this one, until systemd is told that it has started (sd_notify(3)).
    Units,
    /// Process 1.
    Init(ReadyPipe),
    /// Nobody.
    Nobody,
}

impl Waiting {
    /// Has them wait on.
    pub fn still(&mut self) {
        match self {
            // As long as the unit gives it to start.
            Waiting::Units => notify(b"EXTEND_TIMEOUT_USEC=15000000"),
            Waiting::Init(ready) => ready.wait_on(),
            Waiting::Nobody => {}
        }
    }

    /// Lets them go.
    pub fn let_go(self) {
        match self {
            Waiting::Units => notify(b"READY=1"),
            Waiting::Init(ready) => ready.release(),
            Waiting::Nobody => {}
        }
    }
}

/// Tells systemd (sd_notify(3)).
fn notify(word: &[u8]) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let bytes = path.as_encoded_bytes();
    let address = match bytes.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    // If it cannot be told, systemd goes on after the unit's time-out.
    let _ = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(word, &address));
}
