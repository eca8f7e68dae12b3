//! What a setup has run in the place of an initramfs (`initramfs`), for a container has none: a command that
//! begins before the root is mounted.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use anyhow::{Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::service::in_a_group;
use crate::registry::{Guard, Registry};
use crate::setup::{self, Names};

/// The command, while it runs and after; ended when dropped.
pub(super) struct Initramfs {
    child: Child,
    guard: Option<Guard>,
    words: String,
    stops: bool,
    fails: bool,
}

impl Initramfs {
    /// Starts what `model` says of the root's `device`, and returns when that is to be mounted. What it
    /// prints goes to `output`.
    pub(super) fn start(
        model: &setup::Initramfs,
        names: &Names,
        device: &Path,
        output: &Path,
        registry: &Registry,
    ) -> Result<Initramfs> {
        let mut words = names.fill(&model.run)?;
        words.push(device.to_string_lossy().into_owned());
        let output = File::options().create(true).append(true).open(output)?;
        let (child, group) = in_a_group(&words, &[], &output, registry)?;
        let begun = Initramfs {
            child,
            guard: Some(group),
            words: words.join(" "),
            stops: model.stops,
            fails: model.fails,
        };
        std::thread::sleep(Duration::from_millis(model.milliseconds));
        Ok(begun)
    }

    /// Process 1 is executed: ends it, if it is to stop then.
    pub(super) fn at_root(&self) {
        if let Some(pid) = Pid::from_raw(self.child.id() as i32).filter(|_| self.stops) {
            // One that has ended was not waited for yet, so nobody else has its number.
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// Ends it after the boot, and fails if it did not end as the setup says.
    pub(super) fn finish(mut self) -> Result<()> {
        let ended = self.child.try_wait()?;
        let is_stopped =
            self.stops && ended.is_some_and(|status| status.signal() == Some(Signal::TERM.as_raw()));
        match ended {
            Some(status) if self.fails == status.success() && !is_stopped => {
                bail!("{}: {status}; output.log has what it said", self.words)
            }
            None if self.fails => bail!("{}: it was to fail, and goes on", self.words),
            _ => Ok(()),
        }
    }
}

impl Drop for Initramfs {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // What it has started ends with it.
        self.guard = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    /// What comes of a shell's script.
    fn run(script: &str, stops: bool, fails: bool) -> Result<()> {
        let dir = tempfile::tempdir().unwrap();
        let registry = Registry::open(dir.path()).unwrap();
        let model = setup::Initramfs {
            run: ["/bin/sh", "-c", script].map(String::from).to_vec(),
            milliseconds: 200,
            stops,
            fails,
        };
        let names = Names {
            values: Default::default(),
            program: Vec::new(),
        };
        let output = dir.path().join("output");
        let begun = Instant::now();
        let initramfs = Initramfs::start(&model, &names, Path::new("/dev/sdx"), &output, &registry)?;
        assert!(begun.elapsed() >= Duration::from_millis(200));
        assert_eq!(std::fs::read_to_string(output).unwrap(), "/dev/sdx\n");
        initramfs.at_root();
        std::thread::sleep(Duration::from_millis(200));
        let process = format!("/proc/{}", initramfs.child.id());
        let result = initramfs.finish();
        assert!(!Path::new(&process).exists(), "it goes on");
        result
    }

    #[test]
    fn the_command_is_told_the_device_and_ends_as_the_setup_says() {
        let [well, badly, never] =
            ["echo $0", "echo $0; exit 3", "echo $0; exec sleep 600"].map(|script| script.to_owned());
        run(&well, false, false).unwrap();
        run(&badly, false, true).unwrap();
        run(&never, false, false).unwrap();
        run(&never, true, false).unwrap();
        let said = |script: &str, fails| format!("{:#}", run(script, false, fails).unwrap_err());
        assert!(said(&badly, false).contains("exit status: 3"));
        assert!(said(&well, true).contains("exit status: 0"));
        assert!(said(&never, true).contains("goes on"));
    }
}
