//! What the daemon takes: how soon it reads ahead for a program that starts, and what it costs a build and a
//! warm start. Needs root, and nothing else that runs.
//!
//! ```text
//! cargo run --release -p headstart-daemon --example latency -- soon  HEADSTART [KNOWN [STARTS]]
//! cargo run --release -p headstart-daemon --example latency -- build HEADSTART [PAIRS [EXECUTIONS]]
//! cargo run --release -p headstart-daemon --example latency -- exec  HEADSTART [PAIRS [EXECUTIONS]]
//! cargo run --release -p headstart-daemon --example latency -- warm  HEADSTART STARTS COMMAND...
//! ```
//!
//! `soon`: from a cold start's execution to the first request of its replay, with KNOWN known programs
//! (1,000) and all processors busy, over STARTS starts (100). `build`: the time of a build that executes
//! EXECUTIONS programs (10,000), with the daemon and without, in PAIRS pairs (20): make has small files
//! compiled by cc, on all processors. `exec`: the same of executions that do nothing, one after the other,
//! half of them `sh -c`. `warm`: the processor time that the daemon takes for each of STARTS starts (30) of a
//! command that it knows and that is in memory, six seconds apart: some it is not told of, and of those that
//! it looks at it records one in ten. The machine's caches are dropped before the start that it learns.

use anyhow::{Context as _, Result, bail, ensure};
use headstart_model::{Key, Outcome};
use headstart_store::{Loaded, Store};
use headstart_system::testing::{LoopFs, Spec, bpf_memory};
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Programs that are started; each is cold when its turn has come again.
const PROGRAMS: usize = 20;

/// Files of each, and their bytes.
const FILES: usize = 16;
const BYTES: usize = 256 << 10;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: usize| arguments.get(at).map_or(Ok(default), |text| text.parse());
    let headstart = Path::new(arguments.get(1).context("which headstart?")?);
    match arguments.first().map(String::as_str) {
        Some("soon") => soon(headstart, number(2, 1000)?, number(3, 100)?),
        Some("build") => {
            let sources = Sources::new()?;
            paired(headstart, number(2, 20)?, number(3, 10_000)?, &|count| {
                sources.build(count)
            })
        }
        Some("exec") => paired(headstart, number(2, 20)?, number(3, 10_000)?, &executions),
        Some("warm") => warm(headstart, number(2, 30)?, arguments.get(3..).unwrap_or_default()),
        _ => bail!("soon, build, exec or warm?"),
    }
}

/// A daemon with a state directory of its own; ended when dropped.
struct Daemon(Child);

impl Daemon {
    /// With one start in so many without a replay, to compare with; with 0 each has one, warm or not.
    fn start(headstart: &Path, state: &Path, control_every: &str) -> Result<Daemon> {
        let socket = state.with_extension("notify");
        let _ = fs::remove_file(&socket);
        let manager = UnixDatagram::bind(&socket)?;
        manager.set_read_timeout(Some(Duration::from_secs(60)))?;
        let child = Command::new(headstart)
            .args([
                "daemon",
                "--no-control",
                "--least-wait",
                "1",
                "--control-every",
                control_every,
            ])
            .env("HEADSTART_STATE", state)
            .env("HEADSTART_EVEN_WARM", "1")
            .env("NOTIFY_SOCKET", &socket)
            .spawn()?;
        let daemon = Daemon(child);
        manager.recv(&mut [0; 64]).context("the daemon was never ready")?;
        Ok(daemon)
    }

    /// Its processor time so far.
    fn cpu(&self) -> Result<Duration> {
        let of_thread = |path: PathBuf| -> Option<u64> {
            let text = fs::read_to_string(path.join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse().ok()
        };
        let threads = fs::read_dir(format!("/proc/{}/task", self.0.id()))?;
        let ns = threads
            .flatten()
            .filter_map(|thread| of_thread(thread.path()))
            .sum();
        Ok(Duration::from_nanos(ns))
    }

    /// Its memory: private, and of files; and what the kernel keeps for its BPF maps and rings, of which
    /// RssFile counts what is mapped, the pages of a ring twice.
    fn memory(&self) -> Result<String> {
        let process = PathBuf::from(format!("/proc/{}", self.0.id()));
        let status = fs::read_to_string(process.join("status"))?;
        let lines = status.lines().filter(|line| line.starts_with("Rss"));
        let mut words: Vec<String> = lines
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        words.push(format!("BPF maps: {} kB", bpf_memory(&process)?));
        Ok(words.join(", "))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.0.id() as i32) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.0.wait();
    }
}

/// Processes that do nothing but compute, one for each processor; ended when dropped.
struct Busy(Vec<Child>);

impl Busy {
    fn all() -> Result<Busy> {
        let one = |_| Command::new("sh").args(["-c", "while :; do :; done"]).spawn();
        let processors = std::thread::available_parallelism()?.get();
        Ok(Busy((0..processors).map(one).collect::<Result<_, _>>()?))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn name(program: usize) -> String {
    format!("program-{program}")
}

fn start(root: &Path, program: usize) -> Result<()> {
    let files = (0..FILES).map(|file| root.join(format!("{program}-{file}")));
    let status = Command::new(root.join(name(program)))
        .args(files)
        .stdout(Stdio::null())
        .status()?;
    ensure!(status.success(), "{status}");
    Ok(())
}

fn outcomes(store: &Store, key: &Key) -> Vec<Outcome> {
    store.key(key).outcomes(|line| eprintln!("{line}"))
}

/// Waits until so many starts are kept.
fn wait_kept(store: &Store, key: &Key, count: usize) -> Result<()> {
    let begun = Instant::now();
    while outcomes(store, key).len() < count {
        ensure!(
            begun.elapsed() < Duration::from_secs(60),
            "start {count} of {key} is not kept"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn soon(headstart: &Path, known: usize, starts: usize) -> Result<()> {
    let spec = Spec {
        direct_io: true,
        ..Spec::new("ext4")
    };
    let mut disk = LoopFs::create(&spec, |root| {
        for program in 0..PROGRAMS {
            fs::copy("/bin/cat", root.join(name(program)))?;
            for file in 0..FILES {
                fs::write(root.join(format!("{program}-{file}")), vec![1; BYTES])?;
            }
        }
        Ok(())
    })?;
    let root = disk.mount_point();
    let scratch = tempfile::tempdir_in("/var/tmp")?;
    let store = Store::new(scratch.path().join("state"));
    let keys: Vec<Key> = (0..PROGRAMS)
        .map(|program| Key::new(root.join(name(program)).to_string_lossy()))
        .collect::<Result<_, _>>()?;
    let daemon = Daemon::start(headstart, store.root(), "0")?;
    for (program, key) in keys.iter().enumerate() {
        start(&root, program)?;
        wait_kept(&store, key, 1)?;
    }
    // As many more as are to be known, which nobody starts.
    let (Some(profile), Loaded::Some(plan)) = (
        store.key(&keys[0]).profile().or_tell(drop),
        store.key(&keys[0]).plan(),
    ) else {
        bail!("nothing was learned");
    };
    for other in PROGRAMS..known {
        let kept = store.key(&Key::new(format!("/usr/bin/program-{other}"))?);
        kept.lock()?.save_profile(&profile)?;
        fs::write(kept.path().join("plan"), plan.bytes())?;
    }
    std::thread::sleep(Duration::from_secs(10));
    let before = daemon.cpu()?;
    std::thread::sleep(Duration::from_secs(20));
    let idle = (daemon.cpu()? - before).as_secs_f64() / 20.0;
    println!(
        "idle, {known} programs known: {:.3} % of a processor; {}",
        100.0 * idle,
        daemon.memory()?
    );
    let busy = Busy::all()?;
    let mut first = Vec::new();
    for turn in 0..starts {
        if turn % PROGRAMS == 0 {
            disk.remount_cold()?;
        }
        let program = turn % PROGRAMS;
        let count = outcomes(&store, &keys[program]).len() + 1;
        start(&root, program)?;
        wait_kept(&store, &keys[program], count)?;
        first.extend(
            outcomes(&store, &keys[program])
                .last()
                .and_then(|last| last.first_request_ns),
        );
    }
    drop(busy);
    first.sort_unstable();
    ensure!(
        !first.is_empty() && first.len() * 10 >= starts * 9,
        "{} of {starts} starts had a replay",
        first.len()
    );
    let at = |share: f64| first[((first.len() - 1) as f64 * share).round() as usize] as f64 / 1e6;
    println!(
        "from execution to first request, ms, {} starts, processors busy: median {:.2}, p90 {:.2}, p99 {:.2}, most {:.2}",
        first.len(),
        at(0.5),
        at(0.9),
        at(0.99),
        at(1.0)
    );
    Ok(())
}

fn warm(headstart: &Path, starts: usize, command: &[String]) -> Result<()> {
    let (program, arguments) = command.split_first().context("which command?")?;
    let finish = |command: &mut Command| -> Result<()> {
        let status = command.args(arguments).stdout(Stdio::null()).status()?;
        ensure!(status.success(), "{status}");
        Ok(())
    };
    let run = || finish(&mut Command::new(program));
    // With mounts of its own, so that the daemon leaves it alone.
    let use_memory = || finish(Command::new("unshare").arg("--mount").arg(program));
    let scratch = tempfile::tempdir_in("/var/tmp")?;
    let store = Store::new(scratch.path().join("state"));
    let daemon = Daemon::start(headstart, store.root(), "10")?;
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3")?;
    run()?;
    // What it has learned it tells some seconds later.
    std::thread::sleep(Duration::from_secs(15));
    let known = |key: &Key| matches!(store.key(key).plan(), Loaded::Some(_));
    let keys: Vec<Key> = store.keys()?.into_iter().filter(known).collect();
    ensure!(!keys.is_empty(), "nothing was learned of {command:?}");
    println!(
        "known: {}",
        keys.iter().map(Key::as_str).collect::<Vec<_>>().join(", ")
    );
    let mut spent = Vec::new();
    for _ in 0..starts {
        let before = daemon.cpu()?;
        run()?;
        std::thread::sleep(Duration::from_millis(100));
        spent.push((daemon.cpu()? - before).as_secs_f64() * 1e3);
        // Some kernels take memory back that nobody has used for seconds.
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(1500));
            use_memory()?;
        }
        std::thread::sleep(Duration::from_millis(1500));
    }
    ensure!(!spent.is_empty(), "no starts");
    spent.sort_by(f64::total_cmp);
    let told: Vec<f64> = spent.iter().copied().filter(|ms| *ms > 0.0).collect();
    let median = |of: &[f64]| of.get(of.len() / 2).copied().unwrap_or_default();
    println!(
        "the daemon's processor time for a warm start, ms, {} starts: median {:.3}, mean {:.3}; of the {} that it was told of: median {:.3}, most {:.3}",
        spent.len(),
        median(&spent),
        spent.iter().sum::<f64>() / spent.len() as f64,
        told.len(),
        median(&told),
        told.last().copied().unwrap_or_default()
    );
    Ok(())
}

/// Executes so many programs, half of them shells with a one-liner; how long that took.
fn executions(count: usize) -> Result<Duration> {
    let script = format!(
        "i=0; while [ $i -lt {} ]; do /bin/sh -c '/bin/true; :'; i=$((i+1)); done",
        count / 2
    );
    let begun = Instant::now();
    let status = Command::new("/bin/sh").args(["-c", &script]).status()?;
    ensure!(status.success(), "{status}");
    Ok(begun.elapsed())
}

/// What cc executes for one file, itself among it: the compiler and the assembler.
const EXECUTIONS_OF_CC: usize = 3;

/// A directory in which small files are compiled.
struct Sources(tempfile::TempDir);

impl Sources {
    fn new() -> Result<Sources> {
        let at = tempfile::tempdir_in("/var/tmp")?;
        fs::write(
            at.path().join("source.c"),
            "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\
             int twice(const char *of)\n{\n\tchar text[64];\n\n\
             \tsnprintf(text, sizeof(text), \"%s%s\", of, of);\n\treturn atoi(text) + (int)strlen(of);\n}\n",
        )?;
        fs::write(
            at.path().join("Makefile"),
            "all: $(addsuffix .o,$(shell seq $(FILES)))\n%.o: source.c\n\tcc -O2 -c -o $@ $<\n",
        )?;
        Ok(Sources(at))
    }

    /// Compiles as many files as execute so many programs, all anew; how long that took.
    fn build(&self, count: usize) -> Result<Duration> {
        let processors = std::thread::available_parallelism()?;
        let begun = Instant::now();
        let status = Command::new("make")
            .args(["--silent", "--always-make", "--no-builtin-rules"])
            .arg(format!("--jobs={processors}"))
            .arg(format!("FILES={}", count.div_ceil(EXECUTIONS_OF_CC)))
            .current_dir(self.0.path())
            .status()?;
        ensure!(status.success(), "{status}");
        Ok(begun.elapsed())
    }
}

/// The time of so many executions with the daemon and without, in pairs.
fn paired(
    headstart: &Path,
    pairs: usize,
    count: usize,
    executions: &dyn Fn(usize) -> Result<Duration>,
) -> Result<()> {
    let scratch = tempfile::tempdir_in("/var/tmp")?;
    let state = scratch.path().join("state");
    let with = || -> Result<(Duration, Duration)> {
        let daemon = Daemon::start(headstart, &state, "10")?;
        // It has run for long, and knows what a build is made of.
        executions(count / 20)?;
        std::thread::sleep(Duration::from_secs(4));
        let before = daemon.cpu()?;
        Ok((executions(count)?, daemon.cpu()? - before))
    };
    let without = || -> Result<Duration> {
        executions(count / 20)?;
        std::thread::sleep(Duration::from_secs(4));
        executions(count)
    };
    let mut ratios = Vec::new();
    for pair in 0..pairs {
        // By turns which one comes first.
        let ((a, cpu), b) = match pair % 2 {
            0 => {
                let with = with()?;
                (with, without()?)
            }
            _ => {
                let without = without()?;
                (with()?, without)
            }
        };
        println!(
            "with {:.3} s (daemon's processor time {:.1} ms), without {:.3} s",
            a.as_secs_f64(),
            cpu.as_secs_f64() * 1e3,
            b.as_secs_f64()
        );
        ratios.push(a.as_secs_f64() / b.as_secs_f64());
    }
    ratios.sort_by(f64::total_cmp);
    ensure!(!ratios.is_empty(), "no pairs");
    let percent = |ratio: f64| 100.0 * (ratio - 1.0);
    // The interval between these two has the median with more than 95 % (binomial distribution), from 6 pairs
    // on.
    let n = ratios.len() as f64;
    let low = (n / 2.0 - 0.98 * n.sqrt()).floor().max(1.0) as usize - 1;
    println!(
        "{count} executions, {} pairs: with the daemon {:+.2} % at the median, 95 %: {:+.2} to {:+.2} %",
        ratios.len(),
        percent(ratios[ratios.len() / 2]),
        percent(ratios[low]),
        percent(ratios[ratios.len() - 1 - low])
    );
    Ok(())
}
