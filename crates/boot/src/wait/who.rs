//! Who waits for headstart before going on, and the words by which they are told.

use crate::boot_report::WayIn;
use headstart_system::launch::ReadyPipe;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::time::{Duration, Instant};

/// Set for a process that comes from an initramfs: the descriptor by which process 1 is released, opened by
/// the hook, or nothing.
pub const FROM_INITRAMFS: &str = "HEADSTART_INITRAMFS";

/// The name of process 1 while it waits (`crates/boot/init`): what it becomes has another.
const WAITING_NAME: &str = "headstart-init";
const PROCESS_1_NAME: &str = "/proc/1/comm";
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Who waits for this process before going on.
pub enum Waiters {
    /// The units ordered behind this one, until systemd is told that it has started (sd_notify(3)).
    Units,
    /// Process 1.
    Process1(ReadyPipe),
    /// Nobody.
    Nobody,
}

/// Where this process was started, if not by process 1 itself.
pub fn place() -> WayIn {
    match std::env::var_os(FROM_INITRAMFS) {
        Some(_) => WayIn::Initramfs,
        None => WayIn::Unit,
    }
}

/// The same, and who waits for it. To be asked once.
pub fn waiters() -> (WayIn, Waiters) {
    let process_1 = |number: &String| ReadyPipe::inherited(number.parse().ok()?).ok();
    let waiters = match std::env::var(FROM_INITRAMFS) {
        Ok(number) => process_1(&number).map_or(Waiters::Nobody, Waiters::Process1),
        Err(_) => Waiters::Units,
    };
    (place(), waiters)
}

impl Waiters {
    /// Asks them to wait on.
    pub fn wait_on(&mut self) {
        match self {
            // As long as the unit gives it to start.
            Waiters::Units => notify(b"EXTEND_TIMEOUT_USEC=15000000"),
            Waiters::Process1(ready) => ready.wait_on(),
            Waiters::Nobody => {}
        }
    }

    /// Releases them.
    pub fn release(self) {
        match self {
            Waiters::Units => notify(b"READY=1"),
            Waiters::Process1(ready) => ready.release(),
            Waiters::Nobody => {}
        }
    }

    /// Whether process 1 waits, so that nothing runs but this process: it may have lost its patience, and
    /// then others may be checking the root. One that is still in the initramfs has `within` to begin. It is
    /// asked to wait on first, so that its patience lasts beyond the answer.
    pub fn process_1_waits(&mut self, within: Duration) -> bool {
        if !matches!(self, Waiters::Process1(_)) {
            return false;
        }
        self.wait_on();
        let begun = Instant::now();
        loop {
            if is_process_1_waiting() {
                return true;
            }
            if begun.elapsed() >= within {
                return false;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

/// Whether process 1 is `headstart-init` still, by its name.
pub fn is_process_1_waiting() -> bool {
    has_name(Path::new(PROCESS_1_NAME), WAITING_NAME)
}

/// Whether a process has this name, by its `comm` file (proc_pid_comm(5)).
fn has_name(comm: &Path, name: &str) -> bool {
    std::fs::read_to_string(comm).is_ok_and(|found| found.trim_end_matches('\n') == name)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_1_that_has_gone_on_does_not_wait() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let mut waiters = Waiters::Process1(ReadyPipe::new(write.into()).unwrap());
        // Whatever process 1 of the tests is, it is not headstart-init, though the pipe to it is open.
        assert!(!waiters.process_1_waits(Duration::ZERO));
        assert!(!Waiters::Units.process_1_waits(Duration::ZERO));
        let mut room = [0; 8];
        let told = rustix::io::read(&read, &mut room).unwrap();
        assert_eq!(
            &room[..told],
            b"w",
            "its patience is renewed before it is looked at"
        );
    }

    #[test]
    fn a_process_is_known_by_its_whole_name() {
        let dir = tempfile::tempdir().unwrap();
        let comm = dir.path().join("comm");
        for (name, is) in [
            ("headstart-init\n", true),
            ("systemd\n", false),
            ("headstart\n", false),
        ] {
            std::fs::write(&comm, name).unwrap();
            assert_eq!(has_name(&comm, WAITING_NAME), is, "{name}");
        }
        assert!(!has_name(Path::new("/proc/0/comm"), WAITING_NAME));
    }
}
