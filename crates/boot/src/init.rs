//! A boot served from before process 1 on: what a machine has not got yet that early. The program that stands
//! in the place of process 1 is in `crates/boot/init`.

use crate::boot_report::WayIn;
use crate::marks;
pub use crate::program::ahead::OF_HEADSTART;
use crate::wait::who::{Waiters, is_process_1_waiting};
use anyhow::{Context, Result};
use headstart_store::Store;
use headstart_system::launch::ReadyPipe;
use rustix::mount::{MountFlags, mount};
use std::fs::File;
use std::os::unix::fs::MetadataExt;

/// Serves this boot as the child of process 1, or of a generator of systemd, which waits for a word in the
/// pipe of this number. Mounts what is not there yet of `/proc`, `/sys`, `/dev` and `/run`, as systemd would,
/// which keeps what it finds. `began` is what it says of when it began itself.
pub fn run(store: &Store, pipe: i32, began: Option<&str>) -> Result<bool> {
    let ready = ReadyPipe::inherited(pipe).context("--init")?;
    let strict = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let timed = MountFlags::NOSUID | MountFlags::STRICTATIME;
    for (kind, target, options, data) in [
        ("proc", "/proc", strict, None),
        ("sysfs", "/sys", strict, None),
        ("devtmpfs", "/dev", timed, Some(c"mode=0755")),
        (
            "tmpfs",
            "/run",
            timed | MountFlags::NODEV,
            Some(c"mode=0755,size=20%,nr_inodes=800k"),
        ),
    ] {
        if !is_mounted(target)? {
            mount(kind, target, kind, options, data).with_context(|| format!("cannot mount {target}"))?;
        }
    }
    away_from_console();
    let place = match is_process_1_waiting() {
        true => WayIn::Init,
        false => WayIn::Generator,
    };
    let began_ns = began.and_then(|said| marks::handed_over(said, marks::monotonic_ns()));
    crate::run::run(store, place, Waiters::Process1(ready), began_ns)
}

/// Whether something is mounted at a directory of the root.
fn is_mounted(target: &str) -> Result<bool> {
    let device = |path: &str| {
        let facts = std::fs::metadata(path);
        facts
            .map(|facts| facts.dev())
            .with_context(|| format!("cannot look at {path}"))
    };
    Ok(device(target)? != device("/")?)
}

/// The console is the real init's: complaints go to the kernel's log, where there is one, and input comes
/// from nowhere.
fn away_from_console() {
    let nowhere = File::options().read(true).write(true).open("/dev/null");
    let Ok(nowhere) = nowhere else { return };
    let log = File::options().write(true).open("/dev/kmsg");
    // Where one stays as it is nothing is lost by it.
    let _ = rustix::stdio::dup2_stdin(&nowhere);
    let _ = rustix::stdio::dup2_stdout(&nowhere);
    let _ = rustix::stdio::dup2_stderr(log.as_ref().unwrap_or(&nowhere));
}
