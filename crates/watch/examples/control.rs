//! The control socket without a daemon behind it, to try clients on: `control SOCKET STATE` answers from a state directory, and
//! operations get numbers and nothing else.

use headstart_model::Key;
use headstart_store::Store;
use headstart_watch::apps::Apps;
use headstart_watch::control::serve;
use headstart_watch::service::{App, Peer, Reading, Service, ServiceError};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

struct Answers {
    apps: Apps,
    begun: AtomicU64,
}

impl Service for Answers {
    fn apps(&self, user: Option<u32>, after: Option<&str>, most: usize) -> Result<Vec<App>, ServiceError> {
        self.apps.list(user, after, most)
    }

    fn app(&self, key: &Key) -> Result<App, ServiceError> {
        self.apps.app(key)
    }

    fn set_enabled(&self, key: &Key, on: bool) -> Result<(), ServiceError> {
        self.apps.set_enabled(key, on)
    }

    fn forget(&self, key: &Key) -> Result<(), ServiceError> {
        self.apps.forget(key)
    }

    fn now(&self, key: &Key) -> Result<Reading, ServiceError> {
        self.apps.app(key).map(|_| Reading::default())
    }

    fn begin_operation(&self, _: &Peer, _: &str) -> Result<u64, ServiceError> {
        Ok(self.begun.fetch_add(1, Ordering::Relaxed))
    }

    fn end_operation(&self, _: &Peer, id: u64) -> Result<(), ServiceError> {
        match id < self.begun.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err(ServiceError::UnknownOperation(id)),
        }
    }
}

fn main() -> std::io::Result<()> {
    let mut words = std::env::args().skip(1);
    let (Some(socket), Some(state)) = (words.next(), words.next()) else {
        return Err(std::io::Error::other(
            "give the socket's path and a state directory",
        ));
    };
    let listener = UnixListener::bind(&socket)?;
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o666))?;
    let answers = Answers {
        apps: Apps::of(Store::new(state)),
        begun: AtomicU64::new(1),
    };
    // Nobody stops it but a signal.
    let (stop, _kept) = UnixStream::pair()?;
    serve(listener, Arc::new(answers), stop)
}
