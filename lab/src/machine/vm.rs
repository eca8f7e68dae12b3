//! A Debian system booted in QEMU, its processors emulated (TCG) so that it runs the same with and without
//! KVM.
//!
//! The root disk is the modelled block device itself, without a cache on the host. Kernel and initramfs are
//! read from it by the lab, in the boot loader's place. What the guest writes to its serial console stamps
//! the marks.

use std::fs::{self, File};
use std::num::NonZeroU8;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;

use super::console::Marks;
use super::qmp::Monitor;
use super::running::{Running, Stop};
use super::{Mark, Spec};
use crate::cgroup::Cgroup;
use crate::disk::Attached;
use crate::image::Boot;
use crate::registry::{Guard, Item, Registry};
use crate::setup::{Bus, Setup};
use crate::tools;

const QEMU: &str = "qemu-system-x86_64";

/// Programs of the host that a virtual machine needs.
pub(super) const TOOLS: &[&str] = &[QEMU, "mount", "umount", "losetup", "fincore"];

/// Memory of a guest whose recipe does not say, in MiB.
const MEMORY_MB: u64 = 1024;

/// What QEMU needs beyond the guest's memory, in MiB: translated code (TCG's default is up to 1 GiB, of which
/// boots here fill less than half), devices, the emulator.
const OVERHEAD_MB: u64 = 600;

/// Words that every guest gets: where its root is, and a console that tells how far it is, without colours.
/// One that panics ends. Without `no_timer_check` a kernel whose emulator is kept waiting takes the timer to
/// be broken, and panics.
const COMMAND_LINE: &str = "ro console=ttyS0 loglevel=3 panic=-1 no_timer_check mitigations=off TERM=dumb \
     systemd.show_status=1 systemd.status_unit_format=name";

/// Kernel and initramfs, read from the disk.
pub(super) struct Loaded {
    kernel: PathBuf,
    initramfs: PathBuf,
    _guards: Vec<Guard>,
}

/// Reads kernel and initramfs from the root mounted at `root` into `base`.
pub(super) fn load(root: &Path, base: &Path, registry: &Registry) -> Result<Loaded> {
    let mut guards = Vec::new();
    let mut copy = |from: &str, to: &str| -> Result<PathBuf> {
        let link = root.join(from);
        // Debian's links at the root are relative: /vmlinuz -> boot/vmlinuz-6.12...
        let data =
            fs::read(&link).with_context(|| format!("{} in the image: has it a kernel?", link.display()))?;
        let path = base.join(to);
        guards.push(registry.guard(Item::Scratch { path: path.clone() })?);
        fs::write(&path, data).with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    };
    Ok(Loaded {
        kernel: copy("vmlinuz", "vmlinuz")?,
        initramfs: copy("initrd.img", "initrd.img")?,
        _guards: guards,
    })
}

/// Memory of the guest in MiB.
pub(super) fn memory_mb(spec: &Spec, boot: &Boot) -> u64 {
    spec.memory_mb.or(boot.memory_mb).unwrap_or(MEMORY_MB)
}

/// Fails if the host has not the memory for the guest beside the disk's bytes.
pub(super) fn check_memory(spec: &Spec, boot: &Boot) -> Result<()> {
    let text = fs::read_to_string("/proc/meminfo").context("reading /proc/meminfo")?;
    let available = available_mb(&text).context("/proc/meminfo without MemAvailable")?;
    let guest = memory_mb(spec, boot);
    let needed = guest + OVERHEAD_MB;
    if available < needed {
        bail!(
            "a guest with memory_mb = {guest} needs {needed} MiB here and {available} MiB are available: end other programs, or give \
             it less (--memory)"
        );
    }
    Ok(())
}

fn available_mb(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find(|line| line.starts_with("MemAvailable:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? / 1024)
}

/// How this QEMU emulates processors. Version 7 offers more than it keeps (guests panic on anything newer
/// than this), and lets one processor run code that another is just patching, as attaching a tracepoint does.
/// The wide registers of anything newer are slow to emulate: a Debian 13 boots in 14.1 s with this one,
/// in 16.4 with all that there is.
fn processors(version: &str) -> [&'static str; 2] {
    match major(version) {
        Some(8..) => ["tcg,thread=multi", "Nehalem"],
        _ => ["tcg,thread=single", "Nehalem,-cx16"],
    }
}

fn major(version: &str) -> Option<u32> {
    version.split("version ").nth(1)?.split('.').next()?.parse().ok()
}

/// A guest that has been started.
pub(super) struct Vm {
    running: Running,
    marks: Marks,
    monitor: PathBuf,
    limit: Duration,
    _socket: Guard,
}

impl Vm {
    /// Switches the machine on; its marks count from `begin`.
    pub(super) fn start(
        spec: &Spec,
        boot: &Boot,
        disk: &Attached,
        loaded: &Loaded,
        setup: &Setup,
        begin: Instant,
        registry: &Registry,
    ) -> Result<Vm> {
        let monitor = spec.base.join("qmp");
        let socket = registry.guard(Item::Scratch {
            path: monitor.clone(),
        })?;
        let log = File::options()
            .create(true)
            .append(true)
            .open(&spec.output)
            .with_context(|| format!("opening {}", spec.output.display()))?;
        let [accelerator, processor] = processors(&tools::run(QEMU, ["--version"])?);
        let mut words: Vec<&str> = COMMAND_LINE.split_whitespace().collect();
        words.push(match setup.bus {
            Bus::Scsi => "root=/dev/sda",
            Bus::Nvme => "root=/dev/nvme0n1",
        });
        words.extend(boot.kernel.iter().chain(&setup.kernel).map(String::as_str));
        let file = format!(
            "driver=host_device,node-name=root,filename={},cache.direct=on,aio=threads,discard=ignore",
            disk.device().display()
        );
        let turns = if disk.model().queue.rotational { 7200 } else { 1 };
        let group = Cgroup::new(&format!("headstart-lab-{}", std::process::id()), registry)?;
        let mut command = group.command(QEMU);
        command
            .args([
                "-nodefaults",
                "-no-user-config",
                "-no-reboot",
                "-display",
                "none",
                "-machine",
                "q35",
            ])
            .args(["-accel", accelerator, "-cpu", processor])
            .args(["-smp", &spec.processors.map_or(2, NonZeroU8::get).to_string()])
            .args(["-m", &format!("{}M", memory_mb(spec, boot))])
            .args(["-serial", "file:/dev/stdout"])
            .args(["-qmp", &format!("unix:{},server=on,wait=off", monitor.display())])
            .args(["-device", "virtio-rng-pci"])
            .args(["-blockdev", &file])
            .arg("-kernel")
            .arg(&loaded.kernel)
            .arg("-initrd")
            .arg(&loaded.initramfs)
            .args(["-append", &words.join(" ")]);
        match setup.bus {
            // By ioeventfd a notification was lost once: twelve requests stood in the queue, and QEMU 10.0
            // did not look until it was stopped and continued.
            Bus::Scsi => command
                .args(["-device", "virtio-scsi-pci,num_queues=1,ioeventfd=off"])
                .args(["-device", &format!("scsi-hd,drive=root,rotation_rate={turns}")]),
            Bus::Nvme => command.args(["-device", "nvme,drive=root,serial=headstart-lab"]),
        };
        if boot.display {
            command.args(["-device", "VGA", "-device", "virtio-tablet-pci"]);
        }
        command
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log.try_clone()?);
        let mut child = command.spawn().map_err(|error| tools::explain(QEMU, &error))?;
        let console = child.stdout.take().context("a console")?;
        let marks = Marks::watch(console, log, &boot.marks, begin, spec.limit)?;
        Ok(Vm {
            running: Running::new(child, group),
            marks,
            monitor,
            limit: spec.limit,
            _socket: socket,
        })
    }

    /// Waits for the mark `until`.
    pub(super) fn wait_for(&mut self, until: &str) -> Result<()> {
        self.marks
            .wait_for(until, |_| std::thread::sleep(Duration::from_millis(2)))
    }

    /// All marks up to `until`, which has come.
    pub(super) fn marks(&mut self, until: &str) -> Vec<Mark> {
        self.marks.up_to(until)
    }

    /// Adds one of the lab's own.
    pub(super) fn mark(&mut self, name: &str, at: Instant) {
        self.marks.add(name, at);
    }

    /// A picture of the guest's screen, as PNG.
    pub(super) fn screenshot(&self, file: &Path) -> Result<()> {
        let file = std::path::absolute(file).with_context(|| format!("--screenshot {}", file.display()))?;
        let arguments = json!({ "filename": file, "format": "png" });
        Monitor::connect(&self.monitor)?.execute("screendump", &arguments)?;
        Ok(())
    }

    /// Ends it.
    pub(super) fn stop(mut self, stop: Stop) -> Result<()> {
        if let Stop::Orderly = stop {
            let monitor = self.monitor.clone();
            self.running.shut_down(self.limit, &mut || {
                // The power button. The guest may be gone, or not answer any more: then there is no need.
                let _ = Monitor::connect(&monitor)
                    .and_then(|mut monitor| monitor.execute("system_powerdown", &json!({})));
            })?;
        }
        self.running.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_emulators_get_the_processor_they_can_emulate() {
        assert_eq!(
            processors("QEMU emulator version 7.2.22 (Debian 1:7.2)")[1],
            "Nehalem,-cx16"
        );
        assert_eq!(
            processors("QEMU emulator version 10.0.2 (Debian)"),
            ["tcg,thread=multi", "Nehalem"]
        );
        assert_eq!(processors("something else")[1], "Nehalem,-cx16");
    }

    #[test]
    fn memory_is_what_is_available() {
        assert_eq!(
            available_mb("MemTotal: 9 kB\nMemAvailable:    2097152 kB\n"),
            Some(2048)
        );
        assert_eq!(available_mb("MemTotal: 9 kB\n"), None);
    }
}
