//! Machines that boot from their own modelled disk: what containers and virtual machines have in common.
//!
//! Each setup has the image to itself: what it writes there lies in a delta beside its state, and only what
//! is to stay is kept.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::chroot::stalled;
use super::container::{self, Container};
use super::initramfs::Initramfs;
use super::running::Stop;
use super::service::Service;
use super::vm::{self, Vm};
use super::{Machine, Measured, Place, Spec, Stage};
use crate::disk::{Attached, Counters, Cut, Entry, Options, Writes};
use crate::image::{self, Boot, Fs};
use crate::kind::{Kind, LOADED};
use crate::model::{Model, Nanos};
use crate::registry::{Guard, Item, Registry};
use crate::setup::{Cache, Setup};
use crate::tools;
use headstart_bench::statistics::Random;

/// A machine that boots.
#[derive(Debug)]
pub struct Booting {
    spec: Spec,
    boot: Boot,
    image: PathBuf,
    size: u64,
    /// The disk of the place used last, and where its delta is.
    disk: Option<(PathBuf, Attached)>,
    registry: Registry,
    /// Where a picture of a virtual machine's screen at its last mark goes.
    screenshot: Option<PathBuf>,
}

/// Takes its mount away when dropped.
struct Mounted {
    root: PathBuf,
    guard: Option<Guard>,
}

impl Booting {
    /// See [`super::check`].
    pub(super) fn check(spec: &Spec, setup: &Setup) -> Result<()> {
        let name = &spec.recipe.name;
        let Some(boot) = &spec.recipe.boot else {
            bail!("workload {name} does not boot: it is for machine \"chroot\"");
        };
        if boot.machine != spec.kind {
            bail!(
                "workload {name} is for machine {:?}, not {:?}",
                boot.machine.name(),
                spec.kind.name()
            );
        }
        match spec.kind {
            Kind::Container => tools::require(container::TOOLS)?,
            Kind::Vm => {
                tools::require(vm::TOOLS)?;
                vm::check_memory(spec, boot)?;
            }
            Kind::Chroot => {}
        }
        let bootable: &[Fs] = match spec.kind {
            // What the recipe's /etc/fstab says.
            Kind::Vm => &[Fs::Ext4],
            _ => &[Fs::Ext4, Fs::Xfs, Fs::Btrfs, Fs::Aged70, Fs::Aged90],
        };
        if !bootable.contains(&spec.fs) {
            let names: Vec<&str> = bootable.iter().map(|fs| fs.name()).collect();
            bail!(
                "machine {:?} cannot boot from {}: choose {}",
                spec.kind.name(),
                spec.fs,
                names.join(", ")
            );
        }
        let refused = [
            ("answer_ms", spec.answer.is_some()),
            ("prepare", !setup.prepare.is_empty()),
            ("beside", spec.kind == Kind::Vm && !setup.beside.is_empty()),
            ("start", setup.start != ["{program}"]),
            (
                "record with commands",
                setup.record.commands().iter().any(Option::is_some),
            ),
            ("init", spec.kind != Kind::Container && setup.init.is_some()),
            (
                "initramfs, with anything but cache = \"cold\",",
                setup.initramfs.is_some() && (spec.kind != Kind::Container || setup.cache != Cache::Cold),
            ),
            (
                "cache = anything but \"cold\" or \"warm\"",
                !matches!(setup.cache, Cache::Cold | Cache::Warm),
            ),
            (
                "memory_mb",
                spec.kind == Kind::Container && spec.memory_mb.is_some(),
            ),
            (
                "processors",
                spec.kind == Kind::Container && spec.processors.is_some(),
            ),
        ];
        for (what, asked) in refused {
            if asked {
                bail!(
                    "setup {}: {what} is not for machine {:?}",
                    setup.name,
                    spec.kind.name()
                );
            }
        }
        Ok(())
    }

    /// Builds the image if need be.
    pub fn open(spec: &Spec, registry: &Registry, say: &dyn Fn(&str)) -> Result<Booting> {
        let image = image::build(&spec.recipe, spec.fs, registry, say)?;
        Booting::with_image(spec, &image, registry)
    }

    /// Boots `image`, which was built from the recipe of `spec`.
    pub fn with_image(spec: &Spec, image: &Path, registry: &Registry) -> Result<Booting> {
        let boot = spec.recipe.boot.clone().context("a recipe that boots")?;
        let size = fs::metadata(image)
            .with_context(|| format!("looking at {}", image.display()))?
            .len();
        Ok(Booting {
            spec: spec.clone(),
            boot,
            image: image.to_owned(),
            size,
            disk: None,
            registry: registry.clone(),
            screenshot: None,
        })
    }

    /// Gives up the disk until it is needed again: there is room for one that is attached.
    pub fn detach(&mut self) {
        self.disk = None;
    }

    /// Has a picture of the screen taken at the last mark of every run (virtual machines with a display).
    pub(super) fn take_screenshot(&mut self, file: &Path) -> Result<()> {
        if !self.boot.display {
            bail!("--screenshot {}: this machine has no display", file.display());
        }
        self.screenshot = Some(file.to_owned());
        Ok(())
    }

    /// The disk with what `place` has kept and nothing else, newly attached, with the timing of `model`.
    fn fresh(&mut self, place: &Place, model: &Model) -> Result<()> {
        let delta = place.delta();
        match &mut self.disk {
            Some((current, disk)) if *current == delta && disk.model() == model => return disk.renew(),
            _ => {}
        }
        self.disk = None;
        fs::create_dir_all(&place.state).with_context(|| format!("creating {}", place.state.display()))?;
        let options = Options {
            model: model.clone(),
            image: self.image.clone(),
            directory: self.spec.base.join("disk"),
            writes: Writes::Delta(delta.clone()),
        };
        let mut disk = Attached::new(&options, &self.registry)?;
        disk.renew()?;
        self.disk = Some((delta, disk));
        Ok(())
    }

    /// The disk's timing. No virtual machine has anything in memory when it is switched on: in place of that
    /// its disk has no delays.
    fn model(&self, setup: &Setup) -> Result<Model> {
        match (self.spec.kind, setup.cache) {
            (Kind::Vm, Cache::Warm) => Ok(Model::load("none")?),
            _ => Ok(self.spec.model.clone()),
        }
    }

    fn disk(&self) -> Result<&Attached> {
        Ok(&self.disk.as_ref().context("a disk that is attached")?.1)
    }

    fn mount_point(&self) -> PathBuf {
        self.spec.base.join("mnt")
    }

    /// Mounts the root on the host.
    fn mount(&self, options: &str) -> Result<Mounted> {
        let root = self.mount_point();
        fs::create_dir_all(&root).with_context(|| format!("creating {}", root.display()))?;
        let guard = self.registry.guard(Item::Mount { target: root.clone() })?;
        let words = ["-t", self.spec.fs.fstype(), "-o", options].map(Path::new);
        tools::run("mount", words.into_iter().chain([self.disk()?.device(), &root]))?;
        Ok(Mounted {
            root,
            guard: Some(guard),
        })
    }

    /// One boot from cold, kept or forgotten.
    fn start(&mut self, setup: &Setup, place: &Place, keep: bool) -> Result<Measured> {
        self.fresh(place, &self.model(setup)?)?;
        let measured = match self.spec.kind {
            Kind::Chroot => bail!("a chroot does not boot"),
            Kind::Container => self.container(setup, place, keep)?,
            Kind::Vm => self.vm(setup, keep)?,
        };
        if keep {
            self.disk()?.commit()?;
        }
        Ok(measured)
    }

    fn container(&mut self, setup: &Setup, place: &Place, keep: bool) -> Result<Measured> {
        let names = place.names(&self.mount_point(), Vec::new());
        let early = match &setup.initramfs {
            Some(model) => {
                let (begun, device) = (self.begin()?, self.disk()?.device());
                let output = &self.spec.output;
                let initramfs = Initramfs::start(model, &names, device, output, &self.registry)?;
                Some((begun, initramfs))
            }
            None => None,
        };
        let mut mounted = self.mount("rw,noatime")?;
        if setup.cache != Cache::Cold {
            let _at_once = self.disk()?.at_once();
            let mut rehearsal = self.start_container(&mounted, setup, (Instant::now(), None))?;
            rehearsal.wait_for(&self.boot.until)?;
            rehearsal.stop(Stop::Orderly)?;
        }
        let beside = Service::beside(setup, &names, &self.spec.output, &self.registry)?;
        let (begun, initramfs) = match early {
            Some((begun, initramfs)) => (begun, Some(initramfs)),
            None => (self.begin()?, None),
        };
        let mut container = self.start_container(&mounted, setup, (begun.at, initramfs))?;
        container.wait_for(&self.boot.until)?;
        let (mut stage, requests) = begun.watch.end(self.disk()?)?;
        let marks = container.marks(&self.boot.until);
        stage.seconds = marks.last().context("a last mark")?.seconds;
        if keep {
            std::thread::sleep(Duration::from_secs_f64(self.boot.settle_seconds));
        }
        container.stop(if keep { Stop::Orderly } else { Stop::Kill })?;
        drop(beside);
        mounted.unmount()?;
        Ok(Measured {
            stages: vec![stage],
            marks,
            requests: since(begun.power_on, requests),
        })
    }

    /// What is measured of a container begins.
    fn begin(&self) -> Result<Begun> {
        let disk = self.disk()?;
        disk.take_log();
        Ok(Begun {
            power_on: disk.now(),
            watch: Watch::start(disk, true)?,
            at: Instant::now(),
        })
    }

    fn vm(&mut self, setup: &Setup, keep: bool) -> Result<Measured> {
        self.disk()?.take_log();
        let (begin, power_on) = (Instant::now(), self.disk()?.now());
        let watch = Watch::start(self.disk()?, false)?;
        let mut mounted = self.mount("ro,noload")?;
        let loaded = vm::load(&mounted.root, &self.spec.base, &self.registry)?;
        mounted.unmount()?;
        let at_power_on = Instant::now();
        let (mut loader, mut requests) = watch.end(self.disk()?)?;
        loader.name = "loader".into();
        loader.seconds = at_power_on.duration_since(begin).as_secs_f64();

        let watch = Watch::start(self.disk()?, false)?;
        let mut vm = self.start_vm(setup, &loaded, begin)?;
        vm.mark(LOADED, at_power_on);
        vm.wait_for(&self.boot.until)?;
        let (mut stage, more) = watch.end(self.disk()?)?;
        if let Some(file) = &self.screenshot {
            vm.screenshot(file)?;
        }
        let marks = vm.marks(&self.boot.until);
        stage.seconds = marks.last().context("a last mark")?.seconds - loader.seconds;
        requests.extend(more);
        if keep {
            std::thread::sleep(Duration::from_secs_f64(self.boot.settle_seconds));
        }
        vm.stop(if keep { Stop::Orderly } else { Stop::Kill })?;
        Ok(Measured {
            stages: vec![loader, stage],
            marks,
            requests: since(power_on, requests),
        })
    }

    /// Starts the machine and cuts its power after so long: what it had not written, and in part what its
    /// disk had not flushed, is lost; what is on the disk then is kept. Returns how many blocks the disk
    /// lost, of how many in its write cache.
    pub fn cut(
        &mut self,
        setup: &Setup,
        place: &Place,
        after: Duration,
        random: &mut Random,
    ) -> Result<(usize, usize)> {
        self.fresh(place, &self.spec.model.clone())?;
        let begin = Instant::now();
        if self.spec.kind == Kind::Vm {
            let mut mounted = self.mount("ro,noload")?;
            let loaded = vm::load(&mounted.root, &self.spec.base, &self.registry)?;
            mounted.unmount()?;
            let vm = self.start_vm(setup, &loaded, begin)?;
            std::thread::sleep(after);
            let lost = self.disk()?.cut_power(random, Cut::Blocks);
            vm.stop(Stop::Kill)?;
            return lost;
        }
        let mut mounted = self.mount("rw,noatime")?;
        let container = self.start_container(&mounted, setup, (begin, None))?;
        std::thread::sleep(after);
        let lost = self.disk()?.cut_power(random, Cut::Blocks);
        // The host writes out what its kernel still has in memory, which is forgotten.
        container.stop(Stop::Kill)?;
        mounted.unmount()?;
        lost
    }

    /// Runs commands with the root mounted on the host; returns what they print.
    fn on_host(&self, place: &Place, commands: &[Vec<String>]) -> Result<String> {
        let mut printed = String::new();
        let mut mounted = self.mount("rw,noatime")?;
        let names = place.names(&mounted.root, Vec::new());
        for template in commands {
            let words = names.fill(template)?;
            let (program, arguments) = words.split_first().context("an empty command")?;
            let output = tools::output(Command::new(program).args(arguments))?;
            printed += &String::from_utf8_lossy(&output.stdout);
        }
        mounted.unmount()?;
        Ok(printed)
    }

    fn start_vm(&self, setup: &Setup, loaded: &vm::Loaded, begin: Instant) -> Result<Vm> {
        Vm::start(
            &self.spec,
            &self.boot,
            self.disk()?,
            loaded,
            setup,
            begin,
            &self.registry,
        )
    }

    fn start_container(
        &self,
        mounted: &Mounted,
        setup: &Setup,
        begun: (Instant, Option<Initramfs>),
    ) -> Result<Container> {
        Container::start(
            &self.spec,
            &self.boot,
            &mounted.root,
            self.disk()?.device(),
            setup,
            begun,
            &self.registry,
        )
    }
}

impl Mounted {
    /// Takes the mount away and says how it went.
    fn unmount(&mut self) -> Result<()> {
        // Where another namespace has a copy of the mount, taking this one away writes nothing.
        if self.guard.is_some() {
            let synced = fs::File::open(&self.root).and_then(|root| Ok(rustix::fs::syncfs(root)?));
            synced.with_context(|| format!("syncing {}", self.root.display()))?;
        }
        self.guard.take().map_or(Ok(()), Guard::undo)
    }
}

impl Machine for Booting {
    fn size(&self) -> u64 {
        self.size
    }

    fn install(&mut self, place: &Place, commands: &[Vec<String>]) -> Result<()> {
        self.fresh(place, &self.spec.model.clone())?;
        let disk = self.disk()?;
        let at_once = place.at_once.then(|| disk.at_once());
        self.on_host(place, commands)?;
        drop(at_once);
        disk.commit()
    }

    fn record(&mut self, setup: &Setup, place: &Place, command: Option<&[String]>) -> Result<Measured> {
        if let Some(words) = command {
            bail!(
                "{}: a machine that boots has no other start than the boot",
                words.join(" ")
            );
        }
        let cold = Setup {
            cache: Cache::Cold,
            initramfs: None,
            ..setup.clone()
        };
        self.start(&cold, place, true)
    }

    fn run(&mut self, setup: &Setup, place: &Place) -> Result<Measured> {
        self.start(setup, place, setup.keep)
    }

    fn inspect(&mut self, place: &Place, commands: &[Vec<String>]) -> Result<String> {
        self.fresh(place, &self.spec.model.clone())?;
        self.on_host(place, commands)
    }
}

/// A log whose times count from `power_on`, as marks do.
fn since(power_on: Nanos, mut log: Vec<Entry>) -> Vec<Entry> {
    for entry in &mut log {
        entry.at = entry.at.saturating_sub(power_on);
    }
    log
}

/// Since when a container's boot is measured.
struct Begun {
    at: Instant,
    power_on: Nanos,
    watch: Watch,
}

/// Counts what the disk does during a boot.
struct Watch {
    before: Counters,
    stalled: Option<f64>,
}

impl Watch {
    /// `here`: the boot's tasks are this kernel's own, so that its pressure counts.
    fn start(disk: &Attached, here: bool) -> Result<Watch> {
        Ok(Watch {
            before: disk.counters()?,
            stalled: if here { stalled() } else { None },
        })
    }

    /// Call it at once when the last mark has come: all but the seconds, and the requests.
    fn end(self, disk: &Attached) -> Result<(Stage, Vec<Entry>)> {
        let counted = disk.counters()?.since(&self.before);
        let requests = disk.take_log();
        let stage = Stage {
            name: "boot".into(),
            seconds: 0.0,
            reads: counted.reads,
            bytes: counted.bytes,
            busy_seconds: counted.busy_ms as f64 / 1e3,
            stalled_seconds: self.stalled.and_then(|before| Some(stalled()? - before)),
        };
        Ok((stage, requests))
    }
}
