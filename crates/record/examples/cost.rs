//! What recording costs: `cargo run --release -p headstart-record --example cost` (as root; about 40 s).
//!
//! The cost of calls is the difference in CPU time between runs with and without a recorder, taken in turns,
//! as the median of the turns with their quartiles; CPU time, so that other work on the machine counts
//! little. Prints whether the targets hold and fails if not: at most 300 ns an event, none lost at a million
//! events a second for 10 s, at most 35 ms to attach.

mod common;

use common::print;
use headstart_model::trace::EndReason;
use headstart_record::{BackendChoice, Options, Recorder};
use rustix::pipe::PipeFlags;
use std::fs::File;
use std::hint::black_box;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

type Failure = Box<dyn std::error::Error>;

const TURNS: usize = 15;
const CALLS: u32 = 100_000;
/// Pages of the file that is read: every read of a pass over it is a first use, and an event.
const PAGES: u64 = 400_000;

fn main() -> Result<(), Failure> {
    let mut good = true;
    let mut target = |name: &str, value: f64, limit: f64, unit: &str| {
        let holds = value <= limit;
        good &= holds;
        println!(
            "    target {name} ≤ {limit} {unit}: {}",
            if holds { "holds" } else { "MISSED" }
        );
    };

    let mut attach = Vec::new();
    let mut attach_cpu = Vec::new();
    for _ in 0..TURNS {
        let (begun, cpu) = (Instant::now(), cpu_time());
        let recorder = Recorder::start(&options())?;
        attach.push(begun.elapsed().as_secs_f64() * 1e3);
        attach_cpu.push((cpu_time() - cpu) * 1e3);
        recorder.finish(EndReason::Interrupted)?;
        std::thread::sleep(Duration::from_millis(100));
    }
    print("attach, CPU time", "ms", attach_cpu);
    let ms = print("attach", "ms", attach);
    target("attach", ms, 35.0, "ms");

    let dir = tempfile::Builder::new()
        .prefix("headstart-cost.")
        .tempdir_in("/var/tmp")?;
    let path = dir.path().join("file");
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path)?;
    file.set_len(PAGES * 4096)?;
    // A hole of 1.6 GB costs no disk; reading it once fills the cache, and from then on every read finds its
    // page.
    let mut page = [0; 4096];
    for i in 0..PAGES {
        file.read_exact_at(&mut page, i * 4096)?;
    }

    // This process must not be the recorder's, whose own reads are invisible: children do the calls.
    let names = [
        "first uses (an event each)",
        "uses again (no event)",
        "stat found (a look-up each)",
        "getppid",
    ];
    for (work, name) in names.into_iter().enumerate() {
        let mut costs = Vec::new();
        let mut strangers = Vec::new();
        for turn in 0..TURNS {
            let bare = child(&path, work, turn, None)?;
            costs.push(child(&path, work, turn, Some(true))? - bare);
            strangers.push(child(&path, work, turn, Some(false))? - bare);
        }
        let ns = print(&format!("recorded process, {name}"), "ns a call", costs);
        print(&format!("another process, {name}"), "ns a call", strangers);
        if work == 0 {
            target("an event", ns, 300.0, "ns");
        }
    }

    let (rate, events, lost) = flood(&path)?;
    println!(
        "flood: {:.2} million events a second for 10 s ({events} events), {lost} lost",
        rate / 1e6
    );
    target("lost", lost as f64, 0.0, "events");
    if rate < 1e6 {
        println!("    (this machine could not make a million events a second)");
    }
    if good {
        Ok(())
    } else {
        Err("a target was missed".into())
    }
}

fn options() -> Options {
    Options {
        backend: BackendChoice::Bpf,
        ..Options::tree(vec!["cost".into()])
    }
}

/// A pipe that no program started meanwhile gets.
fn pipe() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    rustix::pipe::pipe_with(PipeFlags::CLOEXEC)
}

/// Nanoseconds a call takes in a child process; recorded, a stranger beside a recording, or without any
/// recorder.
fn child(path: &std::path::Path, work: usize, turn: usize, recorded: Option<bool>) -> Result<f64, Failure> {
    let mut recorder = recorded.map(|_| Recorder::start(&options())).transpose()?;
    let (result, times) = pipe()?;
    let (wait, go) = pipe()?;
    // SAFETY: the child only makes system calls and ends with _exit; it takes no lock that another thread may
    // hold.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    if pid == 0 {
        drop((go, result));
        let mut byte = [0];
        let _ = rustix::io::read(&wait, &mut byte);
        let ns = measure(path, work, turn);
        let _ = rustix::io::write(&times, &ns.to_ne_bytes());
        // SAFETY: ends this process at once.
        unsafe { libc::_exit(0) };
    }
    if let (Some(recorder), Some(true)) = (&mut recorder, recorded) {
        recorder.add_root(u32::try_from(pid)?)?;
    }
    drop((times, wait));
    rustix::io::write(&go, b"g")?;
    let mut bytes = [0; 8];
    rustix::io::read(&result, &mut bytes)?;
    // SAFETY: waits for the child that was just made; the status is not wanted.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
    if let Some(recorder) = recorder {
        let trace = recorder.finish(EndReason::Exit(0))?;
        if trace.lost.events > 0 {
            return Err(format!("{} events lost", trace.lost.events).into());
        }
    }
    Ok(f64::from_ne_bytes(bytes))
}

fn measure(path: &std::path::Path, work: usize, turn: usize) -> f64 {
    let Ok(file) = File::open(path) else {
        return f64::NAN;
    };
    let Ok(name) = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()) else {
        return f64::NAN;
    };
    let mut byte = [0];
    let from = turn as u64 * 7919;
    if work == 1 {
        let _ = file.read_at(&mut byte, 0);
    }
    let begun = cpu_time();
    for call in 0..u64::from(CALLS) {
        match work {
            0 => drop(black_box(
                file.read_at(&mut byte, (from + call * 3) % PAGES * 4096),
            )),
            1 => drop(black_box(file.read_at(&mut byte, 0))),
            2 => drop(black_box(rustix::fs::stat(&name))),
            _ => drop(black_box(rustix::process::getppid())),
        }
    }
    (cpu_time() - begun) * 1e9 / f64::from(CALLS)
}

/// CPU time of this process so far, seconds.
fn cpu_time() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Two processes make events as fast as they can for 10 s. Gives events a second, events, and those lost.
fn flood(path: &std::path::Path) -> Result<(f64, u64, u64), Failure> {
    // Without what cuts repeated events, each read is one.
    let mut recorder = Recorder::start_unfiltered(&options())?;
    let length = Duration::from_secs(10);
    let (wait, go) = pipe()?;
    let (counted, counts) = pipe()?;
    let processors = std::thread::available_parallelism()?.get();
    let mut children = Vec::new();
    for _ in 0..processors {
        // SAFETY: as in `child`.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let mut byte = [0];
            let _ = rustix::io::read(&wait, &mut byte);
            let begun = Instant::now();
            let mut calls = 0u64;
            if let Ok(file) = File::open(path) {
                while begun.elapsed() < length {
                    for _ in 0..1000 {
                        let _ = black_box(file.read_at(&mut byte, calls * 12345 % PAGES * 4096));
                        calls += 1;
                    }
                }
            }
            let _ = rustix::io::write(&counts, &calls.to_ne_bytes());
            // SAFETY: ends this process at once.
            unsafe { libc::_exit(0) };
        }
        recorder.add_root(u32::try_from(pid)?)?;
        children.push(pid);
    }
    rustix::io::write(&go, &vec![b'g'; processors])?;
    let mut events = 0;
    for pid in children {
        let mut bytes = [0; 8];
        rustix::io::read(&counted, &mut bytes)?;
        events += u64::from_ne_bytes(bytes);
        // SAFETY: as in `child`.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
    }
    let trace = recorder.finish(EndReason::Exit(0))?;
    Ok((events as f64 / length.as_secs_f64(), events, trace.lost.events))
}
