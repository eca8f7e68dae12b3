//! What the service manager is told, as sd_notify(3) tells it: a datagram to the socket that the environment
//! names.

use std::cell::Cell;
use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

/// The service manager, if there is one that listens.
pub(super) struct Manager {
    socket: Option<UnixDatagram>,
    every: Option<Duration>,
    last: Cell<Instant>,
}

impl Manager {
    /// The one that started this process.
    pub(super) fn of_environment() -> Manager {
        let path = std::env::var_os("NOTIFY_SOCKET");
        let own = |pid: String| pid.parse() == Ok(std::process::id());
        let mine = std::env::var("WATCHDOG_PID").map_or(true, own);
        let interval = std::env::var("WATCHDOG_USEC").ok().filter(|_| mine);
        let interval = interval.and_then(|us| us.parse().ok()).filter(|us| *us > 0);
        Manager {
            socket: path.and_then(|path| connect(&path)),
            // Twice in the time after which it would be ended.
            every: interval.map(|us| Duration::from_micros(us) / 2),
            last: Cell::new(Instant::now()),
        }
    }

    /// Whether there is one.
    pub(super) fn listens(&self) -> bool {
        self.socket.is_some()
    }

    /// Starts cannot be noticed here, and for what reason: it ends, and has not failed.
    pub(super) fn cannot(&self, why: &str) {
        self.notify(&format!(
            "READY=1\nSTATUS=Starts cannot be noticed: {}",
            why.replace('\n', " ")
        ));
        self.stopping();
    }

    /// Starts are noticed from now on.
    pub(super) fn ready(&self) {
        self.notify("READY=1\nSTATUS=Notices every start");
    }

    /// The machine has come to rest, and so many programs are known.
    pub(super) fn notify_known(&self, programs: usize) {
        self.notify(&format!(
            "STATUS=Notices every start; programs known when it began: {programs}"
        ));
    }

    /// It ends.
    pub(super) fn stopping(&self) {
        self.notify("STOPPING=1");
    }

    /// How often it wants to hear that this process is [alive](Manager::alive).
    pub(super) fn alive_every(&self) -> Option<Duration> {
        self.every
    }

    /// The thread that calls this still works.
    pub(super) fn alive(&self) {
        let due = |every: Duration| self.last.get().elapsed() * 2 >= every;
        if self.every.is_some_and(due) {
            self.last.set(Instant::now());
            self.notify("WATCHDOG=1");
        }
    }

    fn notify(&self, what: &str) {
        if let Some(socket) = &self.socket {
            // A manager that does not listen any more needs no word.
            let _ = socket.send(what.as_bytes());
        }
    }
}

fn connect(path: &OsStr) -> Option<UnixDatagram> {
    let address = match path.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name).ok()?,
        _ => SocketAddr::from_pathname(path).ok()?,
    };
    let socket = UnixDatagram::unbound().ok()?;
    socket.connect_addr(&address).ok()?;
    // Nobody waits for a manager that is slow.
    socket.set_nonblocking(true).ok()?;
    Some(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_hears_what_it_is_told_by_either_kind_of_address() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let listener = UnixDatagram::bind(&path).unwrap();
        let name = format!("headstart-test-{}", std::process::id());
        let hidden = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        for (address, listener) in [
            (path.into_os_string(), listener),
            (format!("@{name}").into(), hidden),
        ] {
            let manager = Manager {
                socket: connect(&address),
                every: Some(Duration::ZERO),
                last: Cell::new(Instant::now()),
            };
            manager.ready();
            manager.alive();
            manager.notify_known(3);
            manager.cannot("no\nBPF");
            manager.stopping();
            let mut heard = [0; 128];
            let known = "STATUS=Notices every start; programs known when it began: 3";
            for what in [
                "READY=1\nSTATUS=Notices every start",
                "WATCHDOG=1",
                known,
                "READY=1\nSTATUS=Starts cannot be noticed: no BPF",
                "STOPPING=1",
                "STOPPING=1",
            ] {
                let length = listener.recv(&mut heard).unwrap();
                assert_eq!(std::str::from_utf8(&heard[..length]), Ok(what));
            }
        }
    }

    #[test]
    fn without_a_manager_nothing_is_told() {
        assert!(connect(OsStr::new("")).is_none());
        assert!(connect(OsStr::new("/nowhere/at/all")).is_none());
    }
}
