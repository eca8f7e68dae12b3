//! What a setup has running beside a start (`beside`): a service that says when it is ready, and is ended
//! after the start.

use std::fs::File;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::registry::{Guard, Item, Registry, start_time};
use crate::setup::{Names, Setup};
use crate::tools;

/// A service has to be ready within this time, and to have ended; else it has failed, or is killed.
const PATIENCE: Duration = Duration::from_secs(30);

/// Services that this process has begun.
static SERVICES: AtomicU64 = AtomicU64::new(0);

/// Starts a command with this environment alone, in a process group of its own, which ends with the guard.
/// What it prints goes to `output`.
pub(super) fn in_a_group(
    words: &[String],
    environment: &[(&str, String)],
    output: &File,
    registry: &Registry,
) -> Result<(Child, Guard)> {
    let (program, arguments) = words.split_first().context("an empty command")?;
    let child = Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output.try_clone()?)
        .process_group(0)
        .current_dir("/")
        .spawn()
        .map_err(|error| tools::explain(program, &error))?;
    let pid = child.id() as i32;
    let start = start_time(pid).unwrap_or_default();
    let guard = registry.guard(Item::Group { pid, start })?;
    Ok((child, guard))
}

/// A service that runs; ended when dropped.
#[derive(Debug)]
pub(super) struct Service {
    child: Child,
    _group: Guard,
}

impl Service {
    /// Starts what a setup has run beside a start, if anything; what it prints goes to `output`.
    pub(super) fn beside(
        setup: &Setup,
        names: &Names,
        output: &Path,
        registry: &Registry,
    ) -> Result<Option<Service>> {
        if setup.beside.is_empty() {
            return Ok(None);
        }
        let output = File::options().create(true).append(true).open(output)?;
        Service::start(&names.fill(&setup.beside)?, &setup.ready, &output, registry).map(Some)
    }

    /// Starts it, and waits until it says that it is ready: by a line that begins so.
    pub(super) fn start(
        words: &[String],
        ready: &str,
        output: &File,
        registry: &Registry,
    ) -> Result<Service> {
        // A name of no file: a path may be longer than a socket's may be.
        let turn = SERVICES.fetch_add(1, Ordering::Relaxed);
        let name = format!("headstart-lab-{}-{turn}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name)?;
        let hears =
            UnixDatagram::bind_addr(&address).with_context(|| format!("creating a socket @{name}"))?;
        hears.set_read_timeout(Some(Duration::from_millis(20)))?;
        let environment = [
            ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin".to_owned()),
            ("NOTIFY_SOCKET", format!("@{name}")),
        ];
        let (child, group) = in_a_group(words, &environment, output, registry)?;
        let mut service = Service { child, _group: group };
        service
            .wait_ready(&hears, ready)
            .with_context(|| words.join(" "))?;
        Ok(service)
    }

    fn wait_ready(&mut self, hears: &UnixDatagram, ready: &str) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        let mut heard = [0; 1024];
        while Instant::now() < until {
            if let Ok(length) = hears.recv(&mut heard) {
                if heard[..length]
                    .split(|byte| *byte == b'\n')
                    .any(|line| line.starts_with(ready.as_bytes()))
                {
                    return Ok(());
                }
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("the service ended with {status} and was never ready");
            }
        }
        bail!("the service was not ready within {} s", PATIENCE.as_secs())
    }

    /// Its process.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Some(pid) = Pid::from_raw(self.child.id() as i32) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let until = Instant::now() + PATIENCE;
        // What does not end is killed, and with it what it has started: the guard does that.
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() >= until {
                let _ = self.child.kill();
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Whether this process has no child but that one.
pub(super) fn only_child_is(pid: u32) -> bool {
    let threads = std::fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten();
    let of_thread = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("children"));
    let children: String = threads.filter_map(|thread| of_thread(thread).ok()).collect();
    children
        .split_ascii_whitespace()
        .all(|child| child == pid.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(script: &str) -> Result<Service> {
        let dir = tempfile::tempdir().unwrap();
        let registry = Registry::open(dir.path()).unwrap();
        let output = File::create(dir.path().join("output")).unwrap();
        let words = ["python3", "-c", script].map(String::from);
        Service::start(&words, "STATUS=x", &output, &registry)
    }

    const READY: &str = "
import os, socket, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.sendto(b'READY=1\\nSTATUS=xyz', os.environ['NOTIFY_SOCKET'].replace('@', '\\0', 1))
time.sleep(1000)
";

    #[test]
    fn a_service_runs_until_it_is_dropped() {
        let service = service(READY).unwrap();
        let process = format!("/proc/{}", service.pid());
        assert!(Path::new(&process).exists());
        drop(service);
        assert!(!Path::new(&process).exists());
    }

    #[test]
    fn one_that_ends_before_it_is_ready_has_failed() {
        let error = format!("{:#}", service("exit(3)").unwrap_err());
        assert!(error.contains("never ready") && error.contains("3"), "{error}");
    }
}
