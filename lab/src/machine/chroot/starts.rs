//! The starts of a setup on such a disk: what is in memory before, what runs beside, what is kept.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::Chroot;
use crate::disk::Entry;
use crate::image::{self, Fs};
use crate::machine::remote::Server;
use crate::machine::service::Service;
use crate::machine::{Machine, Measured, Place, Spec, Stage};
use crate::registry::Registry;
use crate::setup::{Cache, Names, Setup};
use crate::tools;

/// What a start may read whose rehearsal has left everything in memory: two starts of a program differ in a
/// few files.
const WARM_BYTES: u64 = 1 << 20;
/// One part of so many of what the rehearsal read, where that is more: so do two resumes in what they touch.
const WARM_SHARE: u64 = 20;

impl Chroot {
    /// See [`crate::machine::check`].
    pub(in crate::machine) fn check(spec: &Spec, setup: &Setup) -> Result<()> {
        if spec.recipe.start.command.is_empty() {
            bail!(
                "workload {} boots: it is not for machine \"chroot\"",
                spec.recipe.name
            );
        }
        tools::require(&["mount", "umount", "losetup", "fincore", "chroot"])?;
        let refused = [
            ("memory_mb", spec.memory_mb.is_some()),
            ("processors", spec.processors.is_some()),
            ("setup.kernel", !setup.kernel.is_empty()),
            ("setup.init", setup.init.is_some()),
            ("setup.initramfs", setup.initramfs.is_some()),
            (
                "answer_ms beside another file system than ext4",
                spec.answer.is_some() && spec.fs != Fs::Ext4,
            ),
            (
                "answer_ms beside install, keep, or cache other than cold or warm",
                spec.answer.is_some()
                    && (!setup.install.is_empty()
                        || setup.keep
                        || !matches!(setup.cache, Cache::Cold | Cache::Warm)),
            ),
            (
                "keep beside cache = \"kept\"",
                setup.keep && setup.cache == Cache::Kept,
            ),
        ];
        for (what, asked) in refused {
            if asked {
                bail!("setup {}: {what} is not for machine \"chroot\"", setup.name);
            }
        }
        Ok(())
    }

    /// Builds the image if need be and puts it on its disk.
    pub(in crate::machine) fn open(spec: &Spec, registry: &Registry, say: &dyn Fn(&str)) -> Result<Chroot> {
        let image = image::build(&spec.recipe, spec.fs, registry, say)?;
        let Spec {
            recipe,
            fs,
            model,
            base,
            output,
            ..
        } = spec;
        let mut machine = Chroot::new(recipe, &image, *fs, model, base, output, registry)?;
        machine.limit = spec.limit;
        machine.answer = spec.answer;
        Ok(machine)
    }

    /// Starts what is to run beside the start.
    fn begin_beside(&mut self, setup: &Setup, names: &Names) -> Result<()> {
        self.beside = Service::beside(setup, names, &self.output, &self.registry)?;
        Ok(())
    }

    /// The stages of one run, and the disk's request log of them; what is learned is waited for after them.
    fn stages(
        &mut self,
        setup: &Setup,
        names: &Names,
        command: &[String],
        learned: &[Vec<String>],
    ) -> Result<(Vec<Stage>, Vec<Entry>)> {
        self.take_log();
        let mut stages = Vec::new();
        for template in &setup.prepare {
            stages.push(self.stage("prepare", &names.fill(template)?)?);
        }
        stages.push(self.stage("start", &names.fill(command)?)?);
        self.check_product()?;
        let requests = self.take_log();
        for template in learned {
            self.stage("learned", &names.fill(template)?)?;
        }
        Ok((stages, requests))
    }

    /// Prepares, starts, and takes down one run on a fresh mount.
    fn start(
        &mut self,
        setup: &Setup,
        place: &Place,
        command: &[String],
        learned: &[Vec<String>],
    ) -> Result<Measured> {
        let keep = setup.keep;
        let names = place.names(&self.root(), self.program());
        // Only a setup with bytes of its own pays for an exchange of disks.
        let delta = Some(place.delta()).filter(|path| keep || path.exists());
        let last = self
            .kept
            .take()
            .filter(|_| setup.cache == Cache::Kept && self.delta == delta);
        let rehearsed = last.is_some();
        let mut warm_bytes = WARM_BYTES;
        let mounted = match last {
            Some(mounted) => mounted,
            None => {
                self.with_delta(delta)?;
                self.fresh()?
            }
        };
        if setup.cache == Cache::Running {
            let _at_once = self.disk()?.at_once();
            tools::run("chroot", [self.root().as_os_str(), "/bin/true".as_ref()])?;
        } else if setup.cache != Cache::Cold && !rehearsed {
            // What is dropped afterwards is read as the device would have it; else the device is not asked
            // again.
            let disk_at_once = match setup.cache {
                Cache::Warm | Cache::Kept => Some(self.disk()?.at_once()),
                _ => None,
            };
            let server_at_once = disk_at_once
                .as_ref()
                .and(self.server.clone())
                .map(Server::at_once);
            let rehearsal = self.stage("rehearsal", &names.program)?;
            warm_bytes = warm_bytes.max(rehearsal.bytes / WARM_SHARE);
            self.check_product()?;
            drop((disk_at_once, server_at_once));
        }
        if setup.cache == Cache::DropAll {
            // Dirty pages cannot be dropped.
            rustix::fs::sync();
            fs::write("/proc/sys/vm/drop_caches", "3").context("writing drop_caches")?;
            // The bytes behind the disk went with the rest; what they cost to read is not the model's.
            self.disk()?.warm_backing()?;
        }
        self.begin_beside(setup, &names)?;
        let started = self.stages(setup, &names, command, learned);
        // Also where that failed: the mount is not to be taken away under it.
        self.beside = None;
        let (stages, requests) = started?;
        let read: u64 = stages.iter().map(|stage| stage.bytes).sum();
        // What a tool reads by itself is its own; a bare start has been rehearsed.
        let bare = setup.prepare.is_empty() && setup.start == ["{program}"];
        if bare && matches!(setup.cache, Cache::Warm | Cache::Kept) && read > warm_bytes {
            bail!(
                "{:.1} MiB were read, though everything was in memory: another program has dropped the machine's caches",
                read as f64 / f64::from(1 << 20)
            );
        }
        if setup.cache == Cache::Kept {
            self.kept = Some(mounted);
        } else {
            drop(mounted);
        }
        if keep {
            self.disk()?.commit()?;
        }
        Ok(Measured {
            stages,
            marks: Vec::new(),
            requests,
        })
    }
}

impl Machine for Chroot {
    fn size(&self) -> u64 {
        Chroot::size(self)
    }

    fn install(&mut self, place: &Place, commands: &[Vec<String>]) -> Result<()> {
        anyhow::ensure!(
            !self.fs.is_read_only(),
            "nothing can be installed into {}: it cannot be written",
            self.fs
        );
        self.with_delta(Some(place.delta()))?;
        let mounted = self.fresh()?;
        let names = place.names(&self.root(), self.program());
        let disk = self.disk()?;
        let at_once = place.at_once.then(|| disk.at_once());
        for template in commands {
            self.stage("install", &names.fill(template)?)?;
        }
        drop(at_once);
        drop(mounted);
        disk.commit()
    }

    fn record(&mut self, setup: &Setup, place: &Place, command: Option<&[String]>) -> Result<Measured> {
        let cold = Setup {
            cache: Cache::Cold,
            prepare: Vec::new(),
            ..setup.clone()
        };
        self.start(&cold, place, command.unwrap_or(&setup.start), &setup.learned)
    }

    fn run(&mut self, setup: &Setup, place: &Place) -> Result<Measured> {
        self.start(setup, place, &setup.start, &[])
    }

    fn inspect(&mut self, place: &Place, commands: &[Vec<String>]) -> Result<String> {
        self.with_delta(Some(place.delta()).filter(|path| path.exists()))?;
        let _mounted = self.fresh()?;
        let names = place.names(&self.root(), self.program());
        let mut printed = String::new();
        for template in commands {
            let words = names.fill(template)?;
            let (program, arguments) = words.split_first().context("an empty command")?;
            let output = tools::output(Command::new(program).args(arguments))?;
            printed += &String::from_utf8_lossy(&output.stdout);
        }
        Ok(printed)
    }
}
