//! The unit that moves programs at a shutdown, which wait in a file of the state: whoever finds that file
//! starts the unit.

use headstart_store::{Store, default_root};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Its name.
pub const NAME: &str = "headstart-layout.service";

/// How long systemd may take to answer.
const SYSTEMD_ANSWERS: Duration = Duration::from_secs(10);

/// The file that says whose programs wait.
pub fn path(store: &Store) -> PathBuf {
    store.root().join("layout.waiting")
}

/// Where programs wait since an earlier boot, which no shutdown has ended, has them moved at the next.
pub fn go_on(store: &Store) {
    if is_its(store) && path(store).exists() {
        // Where that fails they wait on.
        start();
    }
}

/// Whether there is a unit for this state directory: it knows of one.
pub fn is_its(store: &Store) -> bool {
    default_root().is_ok_and(|root| root == store.root()) && Path::new("/run/systemd/system").is_dir()
}

/// Starts the unit; whether systemd was told to.
pub fn start() -> bool {
    let started = Command::new("systemctl")
        .args(["--quiet", "--no-block", "start", NAME])
        .stdin(Stdio::null())
        .spawn();
    started.is_ok_and(|mut child| wait_for_status(&mut child).is_some_and(|status| status.success()))
}

/// The status of what asks systemd, if that answers within ten seconds.
pub fn wait_for_status(child: &mut Child) -> Option<ExitStatus> {
    let since = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if since.elapsed() < SYSTEMD_ANSWERS => std::thread::sleep(Duration::from_millis(5)),
            // It is not waited for.
            Ok(None) | Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
        }
    }
}
