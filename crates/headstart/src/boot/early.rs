//! The first and the last thing that others want of this process: to be in memory, and to tell when they may go on.

use super::last::Place;
use super::{gate, init, install};
use crate::context::store;
use headstart_system::launch::Tell;
use headstart_system::residency::fadvise_willneed;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};

/// Less than any device's request limit, beyond which an advice is cut off silently.
const CHUNK: u64 = 128 << 10;

/// What comes before anything of `boot run` is parsed or read; false if this boot is left alone.
pub fn begin() -> bool {
    let named = std::env::var_os(headstart_store::ENVIRONMENT).map(PathBuf::from);
    if store(named).is_ok_and(|store| gate::is_shut(&store, place())) {
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
    Init(Tell),
    /// Nobody.
    Nobody,
}

impl Waiting {
    /// Lets them go.
    pub fn let_go(self) {
        match self {
            Waiting::Units => ready(),
            Waiting::Init(tell) => tell.go(),
            Waiting::Nobody => {}
        }
    }
}

/// For whom a replay that begins only when systemd has made the root writable holds the units that come then: until this is
/// dropped, or the process ends, `headstart-hold.service` waits.
pub struct Hold {
    _locked: File,
}

impl Hold {
    /// Takes the lock that is waited for, of a file in `run`.
    pub fn take(run: &Path) -> io::Result<Hold> {
        let file = File::create(run.join("hold"))?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Hold { _locked: file })
    }
}

fn ready() {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let bytes = path.as_encoded_bytes();
    let address = match bytes.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    // If it cannot be told, systemd goes on after the unit's time-out.
    let _ = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(b"READY=1", &address));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_that_waits_for_a_hold_goes_on_when_it_is_dropped() {
        let run = tempfile::tempdir().unwrap();
        let held = Hold::take(run.path()).unwrap();
        let unit = include_str!("../../../../packaging/systemd/headstart-hold.service");
        let waits = unit
            .lines()
            .find_map(|line| line.strip_prefix("ExecStart=-"))
            .unwrap();
        let waits = waits.replace("/run/headstart", run.path().to_str().unwrap());
        let words: Vec<&str> = waits.split(' ').collect();
        let mut waiting = std::process::Command::new(words[0])
            .args(&words[1..])
            .spawn()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(300));
        assert!(waiting.try_wait().unwrap().is_none(), "it waits");
        drop(held);
        assert!(waiting.wait().unwrap().success());
    }
}
