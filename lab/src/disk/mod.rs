//! A block device whose timing follows a model: backing image → model → FUSE file → loop device with direct
//! I/O.
//!
//! Data, ordering and concurrency are real, only the time an answer takes is modelled. [`Served`] is the
//! file, which a virtual machine can use as it is, [`Attached`] the whole chain; they come apart when
//! dropped, on a signal, or by `headstart-lab clean`.

mod backing;
mod block;
mod check;
mod clock;
mod cut;
mod delta;
mod serve;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::fs::OFlags;

pub use backing::{Backing, Writes};
pub use check::{Check, LATENCY_LIMIT_US, TOLERANCE, check};
pub use clock::{Clock, Entry};
pub use cut::Cut;
pub use serve::{FILE, Server};

use crate::model::{MAX_REQUEST, Model, Nanos};
use crate::registry::{Guard, Item, Registry};
use crate::tools;
use headstart_bench::statistics::Random;

/// Read-ahead of the device in KiB: what Linux sets for real disks. Loop devices start with more.
pub const READ_AHEAD_KB: u64 = 128;

/// What to serve.
#[derive(Debug, Clone)]
pub struct Options {
    /// The timing.
    pub model: Model,
    /// The bytes.
    pub image: PathBuf,
    /// Where the FUSE file is mounted; made when missing.
    pub directory: PathBuf,
    /// What becomes of the bytes written.
    pub writes: Writes,
}

/// A modelled disk as a file, for `losetup --direct-io=on` or for QEMU with `cache=none`.
#[derive(Debug)]
pub struct Served {
    // Dropped in this order: the mount goes with the server, the guard only makes sure.
    server: Server,
    _mount: Guard,
    clock: Arc<Clock>,
    backing: Arc<Backing>,
    model: Model,
    _awake: Option<File>,
}

/// A modelled disk as a block device.
#[derive(Debug)]
pub struct Attached {
    // Dropped in this order: the user of the file first.
    attachment: Option<Guard>,
    device: PathBuf,
    served: Served,
    registry: Registry,
}

/// While it lives, the disk has no delays; see [`Attached::at_once`].
#[derive(Debug)]
pub struct AtOnce<'a>(&'a Clock);

impl Drop for AtOnce<'_> {
    fn drop(&mut self) {
        self.0.at_once(false);
    }
}

/// What has been read from a device (`/sys/block/*/stat`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Read requests, after merging.
    pub reads: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Milliseconds in which a request was outstanding.
    pub busy_ms: u64,
}

impl Counters {
    /// The difference since `earlier`.
    pub fn since(&self, earlier: &Counters) -> Counters {
        Counters {
            reads: self.reads - earlier.reads,
            bytes: self.bytes - earlier.bytes,
            busy_ms: self.busy_ms - earlier.busy_ms,
        }
    }
}

impl Served {
    /// Serves the image as `DIRECTORY/disk`.
    pub fn new(options: &Options, registry: &Registry) -> Result<Served> {
        let backing = Backing::open(&options.image, &options.writes)?;
        backing
            .warm()
            .with_context(|| format!("reading disk image {}", options.image.display()))?;
        let backing = Arc::new(backing);
        let clock = Arc::new(Clock::start(&options.model, backing.size())?);
        fs::create_dir_all(&options.directory)
            .with_context(|| format!("creating {}", options.directory.display()))?;
        // As the mount table will name it.
        let directory = fs::canonicalize(&options.directory)
            .with_context(|| format!("resolving {}", options.directory.display()))?;
        let mount = registry.guard(Item::Fuse {
            target: directory.clone(),
        })?;
        let server = Server::start(&directory, Arc::clone(&backing), Arc::clone(&clock))?;
        // An answered question means that all threads are running.
        fs::metadata(server.file()).with_context(|| format!("asking for {}", server.file().display()))?;
        serve::raise_priority();
        let served = Served {
            server,
            _mount: mount,
            clock,
            backing,
            model: options.model.clone(),
            _awake: stay_awake(),
        };
        served.calibrate(served.file())?;
        Ok(served)
    }

    /// Measures the way to the disk and back by reads of `path`, which leads to it, and lets answers leave
    /// that much earlier.
    fn calibrate(&self, path: &Path) -> Result<Duration> {
        let file = File::options()
            .read(true)
            .custom_flags(OFlags::DIRECT.bits() as i32)
            .open(path)
            .with_context(|| format!("opening {} past the page cache", path.display()))?;
        // Direct I/O wants an aligned buffer.
        let mut buffer = vec![0; 8192];
        let start = buffer.as_ptr().align_offset(4096);
        let buffer = std::cell::RefCell::new(&mut buffer[start..start + 4096]);
        self.clock.calibrate(|| {
            let begin = Instant::now();
            file.read_exact_at(*buffer.borrow_mut(), 0)
                .with_context(|| format!("reading {}", path.display()))?;
            Ok(begin.elapsed())
        })
    }

    /// The file that is the disk.
    pub fn file(&self) -> &Path {
        self.server.file()
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Bytes of the disk.
    pub fn size(&self) -> u64 {
        self.backing.size()
    }

    /// The request log since the last call.
    pub fn take_log(&self) -> Vec<Entry> {
        self.clock.take_log()
    }

    /// How much earlier than the model says answers leave, to make up for the way to the disk and back;
    /// measured at every attach.
    pub fn lead(&self) -> Duration {
        self.clock.lead()
    }

    /// Forgets what was written since the last [`Served::commit`], and switches the device off and on again.
    /// Nobody may be using the file.
    pub fn reset(&self) -> Result<()> {
        self.clock.restart()?;
        self.backing.reset();
        Ok(())
    }

    /// Keeps what was written, for this process and later ones; see [`Writes`]. Call it when the user of the
    /// disk has ended and its run is known to be good: a lab killed before leaves the disk as it was before
    /// the run.
    pub fn commit(&self) -> Result<()> {
        self.backing.commit()
    }

    /// Unmounts the file, so that nothing more can come, then keeps what was written.
    pub fn commit_and_end(self) -> Result<()> {
        let Served { server, backing, .. } = self;
        drop(server);
        backing.commit()
    }
}

impl Attached {
    /// Serves the image, attaches a loop device to it and sets the device's queue.
    pub fn new(options: &Options, registry: &Registry) -> Result<Attached> {
        let served = Served::new(options, registry)?;
        let (device, attachment) = attach_free(served.file(), registry)?;
        let attached = Attached {
            attachment: Some(attachment),
            device,
            served,
            registry: registry.clone(),
        };
        attached.set_queue()?;
        attached.served.calibrate(&attached.device)?;
        Ok(attached)
    }

    /// The block device, such as `/dev/loop3`. It must not be mounted when this is dropped.
    pub fn device(&self) -> &Path {
        &self.device
    }

    /// The model.
    pub fn model(&self) -> &Model {
        self.served.model()
    }

    /// Bytes of the device.
    pub fn size(&self) -> u64 {
        self.served.size()
    }

    /// Keeps what was written to the device, which must not be mounted; see [`Served::commit`].
    pub fn commit(&self) -> Result<()> {
        // What was written through the device's page cache, by mkfs say, is on its way.
        File::open(&self.device)
            .and_then(|device| device.sync_all())
            .with_context(|| format!("syncing {}", self.device.display()))?;
        self.served.commit()
    }

    /// Keeps what a power cut at this instant would leave; see [`Backing::cut_power`].
    pub fn cut_power(&self, random: &mut Random, cut: Cut) -> Result<(usize, usize)> {
        self.served.backing.cut_power(random, cut)
    }

    /// Detaches and attaches the same device anew, with nothing cached and nothing written since the last
    /// [`Attached::commit`]: the same cold bytes every time.
    pub fn renew(&mut self) -> Result<()> {
        if let Some(guard) = self.attachment.take() {
            guard.undo()?;
        }
        self.served.reset()?;
        match attach(&self.device, self.served.file(), &self.registry) {
            Ok(guard) => self.attachment = Some(guard),
            // Somebody else took it meanwhile.
            Err(_) => {
                let (device, guard) = attach_free(self.served.file(), &self.registry)?;
                (self.device, self.attachment) = (device, Some(guard));
            }
        }
        self.set_queue()?;
        self.served.calibrate(&self.device)?;
        let resident = tools::run(
            "fincore",
            ["--bytes", "--raw", "--noheadings", "--output", "RES"]
                .map(Path::new)
                .into_iter()
                .chain([self.device()]),
        )?;
        // A file system probe by udev may have read the first and last few blocks.
        if resident.trim().parse::<u64>().unwrap_or(0) > 1 << 20 {
            bail!(
                "{} has {} bytes cached right after attaching",
                self.device.display(),
                resident.trim()
            );
        }
        self.take_log();
        Ok(())
    }

    /// Lets the disk answer at once until what is returned is dropped: what is read meanwhile is in memory
    /// sooner, and in no log.
    pub fn at_once(&self) -> AtOnce<'_> {
        self.served.clock.at_once(true);
        AtOnce(&self.served.clock)
    }

    /// The time by which its log counts, now.
    pub fn now(&self) -> Nanos {
        self.served.clock.now()
    }

    /// Reads the image anew where the machine's caches were dropped, so that no request waits for the disk
    /// below.
    pub fn warm_backing(&self) -> Result<()> {
        self.served.backing.warm().context("reading the disk image")
    }

    /// See [`Served::lead`].
    pub fn lead(&self) -> Duration {
        self.served.lead()
    }

    /// Read counters since the loop device was attached.
    pub fn counters(&self) -> Result<Counters> {
        let path = self.sysfs("stat")?;
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let fields: Vec<u64> = text.split_whitespace().filter_map(|f| f.parse().ok()).collect();
        match fields[..] {
            [reads, _, sectors, _, _, _, _, _, _, busy_ms, ..] => Ok(Counters {
                reads,
                bytes: sectors * 512,
                busy_ms,
            }),
            _ => bail!("{}: expected at least ten numbers, got {text:?}", path.display()),
        }
    }

    /// The request log since the last call.
    pub fn take_log(&self) -> Vec<Entry> {
        self.served.take_log()
    }

    fn sysfs(&self, file: &str) -> Result<PathBuf> {
        let name = self.device.file_name().context("device without a name")?;
        Ok(Path::new("/sys/block").join(name).join(file))
    }

    fn set_queue(&self) -> Result<()> {
        let set = |file: &str, value: &str| -> Result<()> {
            let path = self.sysfs(&format!("queue/{file}"))?;
            fs::write(&path, value).with_context(|| format!("writing {value} to {}", path.display()))?;
            let got = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            let got = got.trim();
            if got != value && !got.contains(&format!("[{value}]")) {
                bail!("{}: wrote {value}, it says {got}", path.display());
            }
            Ok(())
        };
        let queue = &self.model().queue;
        set("rotational", if queue.rotational { "1" } else { "0" })?;
        set("scheduler", &queue.scheduler)?;
        set("max_sectors_kb", &(MAX_REQUEST / 1024).to_string())?;
        // Last: changing the two above resets it.
        set("read_ahead_kb", &READ_AHEAD_KB.to_string())
    }
}

/// Keeps the processors out of deep sleep while the file is open
/// (`Documentation/power/pm_qos_interface.rst`): waking them costs 70 us a hop in a virtual machine, several
/// hops a request. `None` where the kernel has no such switch.
fn stay_awake() -> Option<File> {
    let mut file = OpenOptions::new().write(true).open("/dev/cpu_dma_latency").ok()?;
    file.write_all(&0i32.to_ne_bytes()).ok()?;
    Some(file)
}

/// Attaches `file` to a free loop device.
fn attach_free(file: &Path, registry: &Registry) -> Result<(PathBuf, Guard)> {
    // Another program may take the free device first: try again.
    let mut attempt = 0;
    loop {
        let device = PathBuf::from(tools::run("losetup", ["-f"])?.trim());
        match attach(&device, file, registry) {
            Ok(guard) => return Ok((device, guard)),
            Err(error) if attempt >= 4 => return Err(error),
            Err(_) => attempt += 1,
        }
    }
}

fn attach(device: &Path, file: &Path, registry: &Registry) -> Result<Guard> {
    let guard = registry.guard(Item::loop_device(device, file)?)?;
    tools::run("losetup", [Path::new("--direct-io=on"), device, file])?;
    Ok(guard)
}
