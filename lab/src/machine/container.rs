//! A Debian root booted by systemd-nspawn on the running kernel.
//!
//! The end of the boot is what the container's own service manager says (`READY=1`, see sd_notify(3)), passed
//! on by nspawn without anything being run inside; the beginning is what nspawn itself says there when it
//! executes process 1. What lies between is stamped by the lines that the service manager writes to its
//! console.

use std::fs::{self, File};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

use super::console::Marks;
use super::initramfs::Initramfs;
use super::running::{Running, Stop};
use super::{Mark, Spec};
use crate::cgroup::Cgroup;
use crate::image::Boot;
use crate::kind::{READY, ROOT};
use crate::registry::{Guard, Item, Registry};
use crate::setup::Setup;
use crate::tools;

/// Programs of the host that a container needs.
pub(super) const TOOLS: &[&str] = &[
    "systemd-nspawn",
    "unshare",
    "mount",
    "umount",
    "losetup",
    "fincore",
];

/// What nspawn says when it lets process 1 go: 0.05 ms after the execution, by strace.
const LET_GO: &str = "X_NSPAWN_LEADER_PID=";

/// What the BPF recorder, and opening files by handle, need beyond nspawn's defaults. The image is the lab's
/// own: it is not there to be kept in.
const CAPABILITIES: &str = "--capability=CAP_BPF,CAP_PERFMON,CAP_IPC_LOCK";
const SYSTEM_CALLS: &str = "--system-call-filter=bpf perf_event_open open_by_handle_at";

/// A container that has been started.
pub(super) struct Container {
    running: Running,
    socket: UnixDatagram,
    marks: Marks,
    limit: Duration,
    initramfs: Option<Initramfs>,
    /// What nspawn leaves when it is killed.
    _leftovers: Vec<Guard>,
}

impl Container {
    /// Starts the root mounted at `root`, whose disk is `device`; its marks count from `begin`.
    pub(super) fn start(
        spec: &Spec,
        boot: &Boot,
        root: &Path,
        device: &Path,
        setup: &Setup,
        (begin, initramfs): (Instant, Option<Initramfs>),
        registry: &Registry,
    ) -> Result<Container> {
        let name = format!("headstart-lab-{}", std::process::id());
        let socket_path = spec.base.join("notify");
        let mut leftovers = Vec::new();
        for path in [
            socket_path.clone(),
            PathBuf::from("/run/systemd/nspawn/propagate").join(&name),
            PathBuf::from("/run/systemd/nspawn/unix-export").join(&name),
        ] {
            leftovers.push(registry.guard(Item::Scratch { path })?);
        }
        let _ = fs::remove_file(&socket_path);
        let socket = UnixDatagram::bind(&socket_path)
            .with_context(|| format!("binding the socket {}", socket_path.display()))?;
        socket.set_read_timeout(Some(Duration::from_millis(50)))?;
        let log = File::options()
            .create(true)
            .append(true)
            .open(&spec.output)
            .with_context(|| format!("opening {}", spec.output.display()))?;
        let group = Cgroup::new(&name, registry)?;
        let mut command = group.command_alone(&device.to_string_lossy(), "systemd-nspawn");
        command
            .args(["--quiet", "--settings=no", "--keep-unit", "--register=no"])
            .args(["--notify-ready=yes", "--console=read-only", "--private-network"])
            .args([
                "--link-journal=no",
                "--resolv-conf=off",
                "--timezone=off",
                "--hostname=lab",
            ])
            .args([CAPABILITIES, SYSTEM_CALLS])
            .arg(format!("--machine={name}"))
            .arg(format!("--directory={}", root.display()))
            // For what is read through the block device.
            .arg(format!("--bind={}", device.display()))
            .args(match &setup.init {
                None => vec!["--boot"],
                // What --boot would tell a service manager to shut down by.
                Some(init) => vec!["--kill-signal=SIGRTMIN+3", init],
            })
            .args(["systemd.show_status=1", "systemd.status_unit_format=name"])
            .args(&boot.kernel)
            .args(&setup.kernel);
        command
            .env("NOTIFY_SOCKET", &socket_path)
            .env("TERM", "dumb")
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log.try_clone()?);
        let mut child = command
            .spawn()
            .map_err(|error| tools::explain("systemd-nspawn", &error))?;
        let console = child.stdout.take().context("a console")?;
        let marks = Marks::watch(console, log, &boot.marks, begin, spec.limit)?;
        Ok(Container {
            running: Running::new(child, group),
            socket,
            marks,
            limit: spec.limit,
            initramfs,
            _leftovers: leftovers,
        })
    }

    /// Waits for the mark `until`.
    pub(super) fn wait_for(&mut self, until: &str) -> Result<()> {
        let (socket, initramfs) = (&self.socket, &self.initramfs);
        let mut message = [0; 4096];
        self.marks.wait_for(until, |marks| {
            // Errors are time-outs.
            if let Ok(length) = socket.recv(&mut message) {
                let now = Instant::now();
                let text = String::from_utf8_lossy(&message[..length]);
                for line in text.lines() {
                    match line {
                        "READY=1" => marks.add(READY, now),
                        line if line.starts_with(LET_GO) => {
                            initramfs.iter().for_each(Initramfs::at_root);
                            marks.add(ROOT, now);
                        }
                        _ => {}
                    }
                }
            }
        })
    }

    /// All marks up to `until`, which has come.
    pub(super) fn marks(&mut self, until: &str) -> Vec<Mark> {
        self.marks.up_to(until)
    }

    /// Ends it, and everything in it. Fails, too, if what stands for an initramfs did not end as it was to.
    pub(super) fn stop(mut self, stop: Stop) -> Result<()> {
        if let Stop::Orderly = stop {
            if let Some(pid) = Pid::from_raw(self.running.id() as i32) {
                // nspawn tells the service manager inside to power off. An error means that it has just
                // ended.
                let _ = kill_process(pid, Signal::TERM);
            }
            // Told twice it would not wait for that.
            self.running.shut_down(self.limit, &mut || {})?;
        }
        self.running.end()?;
        self.initramfs.take().map_or(Ok(()), Initramfs::finish)
    }
}
