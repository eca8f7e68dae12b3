//! One program in an image on a modelled disk, mounted fresh and cold for every run, on the running kernel.

mod starts;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{WaitOptions, set_child_subreaper, wait};

use super::Stage;
use super::remote::{Remote, Server};
use super::service::{Service, only_child_is};
use crate::disk::{Attached, Counters, Entry, Options, Writes};
use crate::image::{Fs, Recipe};
use crate::model::Model;
use crate::mounts;
use crate::registry::{Guard, Item, Registry, start_time};
use crate::tools;

/// A run that takes longer is ended and fails, unless the experiment says otherwise.
pub const LIMIT: Duration = Duration::from_secs(300);

/// The disk, and where its file system goes.
#[derive(Debug)]
pub struct Chroot {
    /// The mount of the run before, for setups whose cache is kept. Taken away before the disk.
    kept: Option<Mounted>,
    /// What runs beside a start.
    beside: Option<Service>,
    /// The disk's file system as the server has it; taken away before the disk.
    served: Option<Guard>,
    /// `None` only while one is exchanged for another, or after that failed.
    disk: Option<Attached>,
    /// Where the writes of the attached disk are kept.
    delta: Option<PathBuf>,
    options: Options,
    fs: Fs,
    recipe: Recipe,
    base: PathBuf,
    output: PathBuf,
    limit: Duration,
    /// How long the server needs for an answer, where the root comes from one.
    answer: Option<Duration>,
    /// The server of the newest mount.
    server: Option<Arc<Server>>,
    registry: Registry,
}

/// A fresh mount; unmounted when dropped.
#[derive(Debug)]
pub struct Mounted {
    /// Newest last; taken away from the end.
    guards: Vec<Guard>,
    /// The root, where it comes from a server; taken away after what is mounted on it.
    _remote: Option<Remote>,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        while self.guards.pop().is_some() {}
    }
}

impl Chroot {
    /// Puts `image` on a disk of `model`. What programs print goes to `output`.
    pub fn new(
        recipe: &Recipe,
        image: &Path,
        fs: Fs,
        model: &Model,
        base: &Path,
        output: &Path,
        registry: &Registry,
    ) -> Result<Chroot> {
        tools::require(&["mount", "umount", "losetup", "fincore", "chroot"])?;
        let mut machine = Chroot {
            kept: None,
            beside: None,
            disk: None,
            delta: None,
            options: Options {
                model: model.clone(),
                image: image.to_owned(),
                directory: base.join("disk"),
                writes: Writes::Forget,
            },
            fs,
            recipe: recipe.clone(),
            base: base.to_owned(),
            output: output.to_owned(),
            limit: LIMIT,
            answer: None,
            server: None,
            served: None,
            registry: registry.clone(),
        };
        machine.with_delta(None)?;
        // What programs leave in the background becomes this process's child: see `settle`.
        set_child_subreaper(Some(rustix::process::getpid())).context("becoming a subreaper")?;
        let log = File::options().create(true).append(true).open(output);
        log.with_context(|| format!("creating {}", output.display()))?;
        Ok(machine)
    }

    /// Attaches the disk with what is kept in the file `delta`, or with the image's own bytes.
    fn with_delta(&mut self, delta: Option<PathBuf>) -> Result<&mut Attached> {
        self.kept = None;
        if self.disk.is_none() || self.delta != delta {
            // The old one first: both have the same mount point.
            self.served = None;
            self.disk = None;
            self.options.writes = delta.clone().map_or(Writes::Forget, Writes::Delta);
            self.delta = delta;
            self.disk = Some(Attached::new(&self.options, &self.registry)?);
        }
        self.disk.as_mut().context("no disk")
    }

    fn disk(&self) -> Result<&Attached> {
        self.disk.as_ref().context("no disk is attached")
    }

    /// Where the image's root is, the same for every run.
    pub fn root(&self) -> PathBuf {
        self.base.join("mnt")
    }

    /// Bytes of the disk.
    pub fn size(&self) -> u64 {
        self.disk.as_ref().map_or(0, Attached::size)
    }

    /// The program's command line, from outside: a chroot, whose own files are the host's and warm.
    pub fn program(&self) -> Vec<String> {
        let mut words = vec![
            "/usr/sbin/chroot".to_owned(),
            self.root().to_string_lossy().into_owned(),
        ];
        words.extend(self.recipe.start.command.iter().cloned());
        words
    }

    /// A newly attached disk with its file system newly mounted: nothing of it is cached but what mounting
    /// reads.
    pub fn fresh(&mut self) -> Result<Mounted> {
        self.kept = None;
        let root = self.root();
        let remote = match self.answer {
            Some(answer) => Some(Remote::mount(&self.serve()?, &root, answer, &self.registry)?),
            None => {
                self.disk.as_mut().context("no disk is attached")?.renew()?;
                None
            }
        };
        self.server = remote.as_ref().map(Remote::server);
        let mut mounted = Mounted {
            guards: Vec::new(),
            _remote: remote,
        };
        let device = self.disk()?.device();
        let mut mount = |target: &Path, options: &[&str], source: &Path| -> Result<()> {
            fs::create_dir_all(target).with_context(|| format!("creating {}", target.display()))?;
            mounted.guards.push(self.registry.guard(Item::Mount {
                target: target.to_owned(),
            })?);
            let words = options
                .iter()
                .map(|o| o.as_ref())
                .chain([source.as_os_str(), target.as_os_str()]);
            tools::run("mount", words)?;
            Ok(())
        };
        match self.fs {
            _ if self.answer.is_some() => {}
            Fs::Overlay => {
                let (lower, upper) = (self.base.join("lower"), self.base.join("upper"));
                mount(&lower, &["-t", "ext4", "-o", "ro,noatime"], device)?;
                mount(&upper, &["-t", "tmpfs"], Path::new("upper"))?;
                for name in ["data", "work"] {
                    fs::create_dir_all(upper.join(name))?;
                }
                let (lower, upper) = (lower.display(), upper.display());
                let layers = format!("lowerdir={lower},upperdir={upper}/data,workdir={upper}/work");
                mount(
                    &root,
                    &["-t", "overlay", "-o", &layers],
                    Path::new(mounts::OVERLAY),
                )?;
            }
            Fs::Squashfs | Fs::Erofs => {
                mount(&root, &["-t", self.fs.fstype(), "-o", "ro,noatime"], device)?;
            }
            _ => mount(&root, &["-t", self.fs.fstype(), "-o", "rw,noatime"], device)?,
        }
        mount(&root.join("proc"), &["-t", "proc"], Path::new("proc"))?;
        mount(&root.join("dev"), &["--bind"], Path::new("/dev"))?;
        mount(&root.join("tmp"), &["-t", "tmpfs"], Path::new("tmp"))?;
        fs::create_dir_all(root.join("tmp/home"))?;
        if self.recipe.start.system {
            let sys = root.join("sys");
            mount(&sys, &["-t", "sysfs"], Path::new("sys"))?;
            mount(&sys.join("fs/cgroup"), &["-t", "cgroup2"], Path::new("cgroup2"))?;
            mount(&root.join("run"), &["-t", "tmpfs"], Path::new("run"))?;
        }
        Ok(mounted)
    }

    /// Runs a command line to its end, timed and counted.
    pub fn stage(&self, name: &str, words: &[String]) -> Result<Stage> {
        let (program, arguments) = words.split_first().context("an empty command")?;
        let output = File::options().append(true).open(&self.output)?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        command
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", "/tmp/home");
        command
            .env("LANG", "C.UTF-8")
            .envs(&self.recipe.start.environment);
        // A group of its own, to be ended as one.
        command.process_group(0).current_dir("/");
        let (before, stalled) = (self.counters()?, stalled());
        let begin = Instant::now();
        let mut child = command.spawn().map_err(|error| tools::explain(program, &error))?;
        let pid = child.id() as i32;
        let group = Item::Group {
            pid,
            start: start_time(pid).unwrap_or_default(),
        };
        let guard = self.registry.guard(group)?;
        let timer = end_after(self.limit, pid);
        let status = child.wait().with_context(|| format!("waiting for {program}"))?;
        let seconds = begin.elapsed().as_secs_f64();
        let stalled_seconds = stalled.and_then(|before| Some(self::stalled()? - before));
        let counted = self.counters()?;
        drop(timer);
        settle(self.limit, self.beside.as_ref().map(Service::pid))?;
        drop(guard);
        if !status.success() {
            bail!(
                "{} ended with {status}; its last words:\n{}",
                words.join(" "),
                self.last_words()
            );
        }
        let Counters {
            reads,
            bytes,
            busy_ms,
        } = counted.since(&before);
        Ok(Stage {
            name: name.to_owned(),
            seconds,
            reads,
            bytes,
            busy_seconds: busy_ms as f64 / 1e3,
            stalled_seconds,
        })
    }

    /// Fails if the program has not left what it is there to make; removes it for the next run.
    pub fn check_product(&self) -> Result<()> {
        let Some(product) = &self.recipe.start.produces else {
            return Ok(());
        };
        let path = self.root().join(product.strip_prefix("/").unwrap_or(product));
        match fs::metadata(&path) {
            Ok(metadata) if metadata.len() > 0 => {
                // Everything of the run is on this tmpfs: as if it had never been.
                let temporary = self.root().join("tmp");
                for entry in fs::read_dir(&temporary)? {
                    let entry = entry?.path();
                    if entry.is_dir() {
                        fs::remove_dir_all(&entry)?
                    } else {
                        fs::remove_file(&entry)?
                    }
                }
                fs::create_dir_all(temporary.join("home")).context("renewing the home directory")
            }
            _ => bail!(
                "the program left no {}; its last words:\n{}",
                product.display(),
                self.last_words()
            ),
        }
    }

    /// The disk's request log since the last call; empty where a server reads it.
    pub fn take_log(&self) -> Vec<Entry> {
        let disk = self.disk.as_ref().filter(|_| self.answer.is_none());
        disk.map_or_else(Vec::new, Attached::take_log)
    }

    /// The directory that is served: the disk's file system, mounted once, for a server has in memory what it
    /// is asked for again and again.
    fn serve(&mut self) -> Result<PathBuf> {
        let directory = self.base.join("served");
        if self.served.is_none() {
            fs::create_dir_all(&directory).with_context(|| format!("creating {}", directory.display()))?;
            let guard = self.registry.guard(Item::Mount {
                target: directory.clone(),
            })?;
            let device = self.disk()?.device().as_os_str();
            let words = ["-t", "ext4", "-o", "ro,noatime"].map(OsStr::new);
            tools::run("mount", words.into_iter().chain([device, directory.as_os_str()]))?;
            self.served = Some(guard);
        }
        Ok(directory)
    }

    /// What was asked of the disk, or of the server.
    fn counters(&self) -> Result<Counters> {
        match &self.server {
            Some(server) => Ok(server.counters()),
            None => self.disk()?.counters(),
        }
    }

    fn last_words(&self) -> String {
        let text = fs::read(&self.output).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }
}

/// Seconds in which some task of the machine waited for I/O, since boot.
pub(super) fn stalled() -> Option<f64> {
    let text = fs::read_to_string("/proc/pressure/io").ok()?;
    let some = text.lines().find(|line| line.starts_with("some"))?;
    let total = some.split("total=").nth(1)?.trim().parse::<f64>().ok()?;
    Some(total / 1e6)
}

/// Waits, untimed, until what the command left running in the background has ended: a tool may learn then,
/// and the mount must not be taken away under it. What runs `beside` goes on.
fn settle(patience: Duration, beside: Option<u32>) -> Result<()> {
    let limit = Instant::now() + patience;
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => continue,
            Ok(None) if beside.is_some_and(only_child_is) => return Ok(()),
            Ok(None) if Instant::now() < limit => std::thread::sleep(Duration::from_millis(2)),
            Ok(None) => bail!("the command left something running for {} s", patience.as_secs()),
            // No child is left.
            Err(_) => return Ok(()),
        }
    }
}

/// Ends a process group unless dropped in time.
fn end_after(limit: Duration, pid: i32) -> std::sync::mpsc::Sender<()> {
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        if receiver.recv_timeout(limit) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            // An error means that it has just ended.
            let _ = rustix::process::Pid::from_raw(pid)
                .map(|group| rustix::process::kill_process_group(group, rustix::process::Signal::KILL));
        }
    });
    sender
}
