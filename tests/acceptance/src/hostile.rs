//! An unprivileged user who does everything that could hurt a recorder, and how much memory headstart takes
//! beside that user.

use crate::boots::Boots;
use anyhow::{Context, Result, bail, ensure};
use headstart_bench::statistics::median;
use headstart_lab::machine::Machine;
use headstart_system::testing::bpf_memory;
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// What the user does, for Debian's perl-base; its head says how it is called and what it prints.
const SCRIPT: &str = include_str!("../hostile.pl");

/// The user: `nobody`, who may do nothing.
const NOBODY: u32 = 65534;

/// The most that headstart may take beside that user, KiB: issue 13, "must show" 4.
pub const MOST_KIB: u64 = 256 << 10;

/// What the user did.
#[derive(Debug, Default)]
pub struct HostileReport {
    /// How often, by kind of work.
    pub did: BTreeMap<String, u64>,
    /// What the machine does not let the user do, and why.
    pub refused: BTreeMap<String, String>,
    /// Attacks that succeeded.
    pub broke: Vec<String>,
}

impl HostileReport {
    /// Parses what the user printed, amid other lines of a console.
    pub fn parse(said: &str) -> HostileReport {
        let mut deeds = HostileReport::default();
        for line in said.lines() {
            // A lab's console has the seconds before each line.
            let line = line.trim();
            let line = match line.split_once(' ') {
                Some((seconds, rest)) if seconds.parse::<f64>().is_ok() => rest,
                _ => line,
            };
            let mut words = line.splitn(3, ' ');
            let (Some(verb), Some(kind), Some(rest)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            match verb {
                // Some kinds are done by two processes.
                "did" => *deeds.did.entry(kind.into()).or_default() += rest.parse().unwrap_or(0),
                "refused" => drop(deeds.refused.insert(kind.into(), rest.into())),
                "broke" => deeds.broke.push(rest.into()),
                _ => {}
            }
        }
        deeds
    }

    /// Fails if an attack succeeded, or if the user did not do all that any machine permits.
    pub fn check(&self) -> Result<()> {
        ensure!(self.broke.is_empty(), "the user {:?}", self.broke);
        // Mounts of users are an option of the kernel and of the machine.
        for kind in [
            "missing", "files", "forks", "pages", "mapped", "giants", "renames", "deep", "links", "fifos",
            "names", "attacks",
        ] {
            // Who has filled the disk has done all that it permits.
            let filled = self
                .refused
                .get(kind)
                .is_some_and(|why| why.contains("No space left"));
            ensure!(
                filled || self.did.get(kind).is_some_and(|count| *count > 0),
                "nothing was done of {kind}: {self:?}"
            );
        }
        Ok(())
    }
}

/// The user at work.
pub struct User {
    child: Child,
    said: Receiver<String>,
    directory: tempfile::TempDir,
}

impl User {
    /// Lets the user work for so many seconds, with so many files, against headstart's files `guarded`.
    pub fn start(seconds: u64, files: u32, guarded: &[&Path]) -> Result<User> {
        let directory = tempfile::tempdir_in("/var/tmp")?;
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755))?;
        let home = directory.path().join("home");
        fs::create_dir(&home)?;
        chown(&home, Some(NOBODY), Some(NOBODY))?;
        let script = directory.path().join("hostile.pl");
        fs::write(&script, SCRIPT)?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o644))?;
        let mut child = Command::new("perl")
            .arg(&script)
            .arg(&home)
            .args([seconds.to_string(), files.to_string()])
            .args(guarded)
            .uid(NOBODY)
            .gid(NOBODY)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting perl as an unprivileged user: this test needs root and perl-base")?;
        let mut output = child.stdout.take().context("an output")?;
        let (tell, said) = channel();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            // Of an error nothing more could be told than that the end is missing, and that is noticed.
            let _ = output.read_to_end(&mut bytes);
            let _ = tell.send(String::from_utf8_lossy(&bytes).into_owned());
        });
        Ok(User {
            child,
            said,
            directory,
        })
    }

    /// Whether the user is still at work.
    pub fn works(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Waits until the user is done, at most `limit`, and tells what was done.
    pub fn finish(self, limit: Duration) -> Result<HostileReport> {
        let said = self
            .said
            .recv_timeout(limit)
            .context("the user does not come to an end")?;
        ensure!(
            said.lines().any(|line| line == "done"),
            "the user ended early: {said}"
        );
        Ok(HostileReport::parse(&said))
    }
}

impl Drop for User {
    fn drop(&mut self) {
        if let Some(group) = Pid::from_raw(self.child.id() as i32) {
            // At the end the group has killed itself.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
        // A FUSE mount that nobody serves any more, if there is one.
        let dead = self.directory.path().join("home/dead");
        let _ = rustix::mount::unmount(&dead, rustix::mount::UnmountFlags::DETACH);
    }
}

/// What memory processes took at the most, KiB.
#[derive(Clone, Copy, Debug, Default)]
pub struct Peak {
    /// One process, with the BPF maps and rings that it has open.
    pub one: u64,
    /// All that lived at the same time.
    pub all: u64,
    /// How many processes were seen.
    pub processes: usize,
}

/// Looks at the memory of processes again and again.
pub struct Sampler {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Peak>,
}

impl Sampler {
    /// Of the processes that `is_one` picks by their directories in /proc.
    pub fn start(is_one: impl Fn(&Path) -> bool + Send + 'static) -> Sampler {
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let stop = Arc::clone(&stop);
            move || {
                let (mut peak, mut seen) = (Peak::default(), BTreeSet::new());
                while !stop.load(Ordering::Relaxed) {
                    let mut sum = 0;
                    for process in processes().filter(|process| is_one(process)) {
                        let Some(memory) = memory(&process) else { continue };
                        peak.one = peak.one.max(memory);
                        sum += memory;
                        seen.insert(process);
                    }
                    peak.all = peak.all.max(sum);
                    peak.processes = seen.len();
                    std::thread::sleep(Duration::from_millis(20));
                }
                peak
            }
        });
        Sampler { stop, thread }
    }

    /// Samples the processes that run this executable, which nobody else runs.
    pub fn new(executable: PathBuf) -> Sampler {
        Sampler::start(move |process| fs::read_link(process.join("exe")).is_ok_and(|exe| exe == executable))
    }

    /// Of the headstart that serves boots inside this process' machines; not of those that only tell of them.
    pub fn of_machines() -> Sampler {
        // The control group of a lab's container; those of its services are within it.
        let group = format!("/headstart-lab-{}", std::process::id());
        Sampler::start(move |process| {
            fs::read_link(process.join("exe")).is_ok_and(|exe| exe.ends_with("headstart"))
                && fs::read(process.join("cmdline"))
                    .is_ok_and(|words| words.split(|byte| *byte == 0).nth(2) == Some(b"run"))
                && fs::read_to_string(process.join("cgroup")).is_ok_and(|groups| groups.contains(&group))
        })
    }

    /// What was seen.
    pub fn finish(self) -> Result<Peak> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread
            .join()
            .map_err(|_| anyhow::anyhow!("the sampler panicked"))
    }
}

fn processes() -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok())
        .map(|entry| entry.path())
}

/// The peak of a process' resident memory and what the kernel keeps for its BPF maps, KiB; a ring that it
/// maps counts twice. `None` if it has ended.
fn memory(process: &Path) -> Option<u64> {
    let status = fs::read_to_string(process.join("status")).ok()?;
    let peak = field(&status, "VmHWM:")?;
    Some(peak + bpf_memory(process).ok()?)
}

fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Has every boot decided about as it is by default: [`Boots`] has all of them read ahead.
pub fn decide_as_usual(boots: &mut Boots) -> Result<()> {
    boots.shell("rm $R/etc/headstart/headstart.toml")
}

/// Has the user at work from the first unit of each boot on, for so many seconds with so many files. What the
/// user did is on the console.
pub fn join_boots(boots: &mut Boots, seconds: u64, files: u32) -> Result<()> {
    let unit = format!(
        "[Unit]\nDefaultDependencies=no\nConflicts=shutdown.target\n[Service]\nUser={NOBODY}\nGroup={NOBODY}\n\
         StandardOutput=file:/dev/console\n\
         ExecStart=/usr/bin/perl /usr/local/lib/hostile.pl /var/hostile {seconds} {files} /var/lib/headstart /run/headstart\n"
    );
    boots.shell(&format!(
        "cat >$R/usr/local/lib/hostile.pl <<'END-OF-SCRIPT'\n{SCRIPT}END-OF-SCRIPT\n\
         cat >$R/etc/systemd/system/hostile.service <<'END'\n{unit}END\n\
         rm -rf $R/var/hostile; mkdir $R/var/hostile; chown {NOBODY}:{NOBODY} $R/var/hostile\n\
         mkdir -p $R/etc/systemd/system/sysinit.target.wants\n\
         ln -sf ../hostile.service $R/etc/systemd/system/sysinit.target.wants/hostile.service"
    ))
}

/// Boots beside the user in turn with headstart and without (its unit masked); what they write is forgotten.
#[derive(Debug, Default)]
pub struct Pairs {
    /// Seconds from power-on to the mark `multi-user`, with headstart.
    pub with: Vec<f64>,
    /// The same without.
    pub without: Vec<f64>,
    /// What headstart took in those with it: nothing where they are bypassed.
    pub peak: Peak,
}

impl Pairs {
    /// So many rounds of one boot each; which comes first changes from round to round.
    pub fn boot(boots: &mut Boots, rounds: usize) -> Result<Pairs> {
        let mut pairs = Pairs::default();
        for turn in 0..2 * rounds {
            let on = (turn / 2 + turn) % 2 == 0;
            let mut setup = boots.setup.clone();
            if !on {
                setup.kernel.push("systemd.mask=headstart-boot.service".into());
            }
            let sampler = Sampler::of_machines();
            let measured = boots.machine.run(&setup, &boots.place);
            let peak = sampler.finish()?;
            let measured = measured?;
            let up = measured.marks.iter().find(|mark| mark.name == "multi-user");
            let up = up.context("the mark multi-user")?.seconds;
            if on {
                pairs.with.push(up);
                pairs.peak = Peak {
                    one: pairs.peak.one.max(peak.one),
                    all: pairs.peak.all.max(peak.all),
                    processes: pairs.peak.processes + peak.processes,
                };
            } else {
                ensure!(peak.all == 0, "headstart ran in a boot without it");
                pairs.without.push(up);
            }
        }
        if pairs.with.is_empty() {
            bail!("no rounds");
        }
        Ok(pairs)
    }

    /// The median with headstart over that without.
    pub fn ratio(&self) -> f64 {
        median(&self.with) / median(&self.without)
    }
}

impl std::fmt::Display for Pairs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (name, runs) in [("with", &self.with), ("without", &self.without)] {
            let least = runs.iter().copied().fold(f64::INFINITY, f64::min);
            let most = runs.iter().copied().fold(0.0, f64::max);
            let middle = median(runs);
            writeln!(
                f,
                "{name}: median {middle:.3} s of {} boots, {least:.3} to {most:.3}",
                runs.len()
            )?;
        }
        write!(
            f,
            "ratio {:.3}; memory {} KiB in one process, {} in all",
            self.ratio(),
            self.peak.one,
            self.peak.all
        )
    }
}
