//! What the steps of opening a file without harm cost, one by one and through io_uring: the measurement
//! behind `docs/decisions/0001-io-uring-for-opens.md`.
//!
//! ```text
//! cargo build --release -p headstart-system --example opens
//! target/release/examples/opens DIRECTORY [WORKERS [NODE|- [WAY]]]
//! ```
//!
//! Opens every file below DIRECTORY whose name is a number, in several ways in turn, five rounds. With NODE,
//! the file system mounted at DIRECTORY is unmounted and mounted again from that node before each: nothing is
//! in memory then. With WAY only that one is tried, for example under `strace -f -c`. Needs root.

use io_uring::{IoUring, opcode, types};
use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

type Failure = Box<dyn std::error::Error>;

const ROUNDS: usize = 5;
const ENTRIES: u32 = 32;
const FLAGS: i32 = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOATIME | libc::O_CLOEXEC | libc::O_NOCTTY;

/// Which steps go through the ring.
#[derive(Clone, Copy)]
struct Ring {
    stat: bool,
    reopen: bool,
    close: bool,
}

#[derive(Clone, Copy)]
enum Way {
    /// System calls by that many threads.
    Calls(usize),
    Ring(Ring),
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let directory = Path::new(
        arguments
            .first()
            .ok_or("opens DIRECTORY [WORKERS [NODE|- [WAY]]]")?,
    );
    let workers: usize = arguments.get(1).map_or(Ok(16), |n| n.parse())?;
    let node = arguments.get(2).filter(|node| *node != "-");
    let only = arguments.get(3);
    let mut paths = Vec::new();
    collect(directory, &mut paths)?;
    paths.sort();
    paths = spread(&paths, workers);
    let ring = Ring {
        stat: false,
        reopen: false,
        close: false,
    };
    let ways = [
        ("calls, one thread", Way::Calls(1)),
        ("calls, threads", Way::Calls(workers)),
        ("ring: pin", Way::Ring(ring)),
        ("ring: pin, close", Way::Ring(Ring { close: true, ..ring })),
        ("ring: pin, statx", Way::Ring(Ring { stat: true, ..ring })),
        ("ring: pin, reopen", Way::Ring(Ring { reopen: true, ..ring })),
        (
            "ring: all",
            Way::Ring(Ring {
                stat: true,
                reopen: true,
                close: true,
            }),
        ),
    ];
    let mut ways = ways.to_vec();
    ways.retain(|(name, _)| only.is_none_or(|only| only == name));
    println!("{} files; elapsed ms, CPU ms, context switches", paths.len());
    for (name, way) in ways.iter().cycle().take(ways.len() * ROUNDS) {
        match node {
            Some(node) => again(node, directory)?,
            None => drop(calls(&paths, 1)),
        }
        let (before, started) = (usage(), Instant::now());
        let opened = match way {
            Way::Calls(threads) => calls(&paths, *threads),
            Way::Ring(ring) => through(&paths, *ring, workers as u32)?,
        };
        let (elapsed, after) = (started.elapsed(), usage());
        if opened.len() != paths.len() {
            return Err(format!("{name}: {} of {} opened", opened.len(), paths.len()).into());
        }
        println!(
            "{name:20} {:8.1} {:8.1} {:6}",
            elapsed.as_secs_f64() * 1e3,
            (after.0 - before.0).as_secs_f64() * 1e3,
            after.1 - before.1
        );
    }
    Ok(())
}

fn collect(directory: &Path, paths: &mut Vec<CString>) -> Result<(), Failure> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        let numbered = path
            .file_name()
            .is_some_and(|n| n.as_bytes().iter().all(u8::is_ascii_digit));
        if path.is_dir() && numbered {
            collect(&path, paths)?;
        } else if numbered {
            paths.push(CString::new(path.as_os_str().as_bytes())?);
        }
    }
    Ok(())
}

/// Neighbours far apart: `parts` equal parts are walked through side by side, as a replay does. Neighbouring
/// inodes are read together, so whoever opens neighbours at once waits for one read.
fn spread(paths: &[CString], parts: usize) -> Vec<CString> {
    let parts: Vec<_> = paths.chunks(paths.len().div_ceil(parts).max(1)).collect();
    let longest = parts.first().map_or(0, |p| p.len());
    let rows = (0..longest).flat_map(|row| parts.iter().filter_map(move |p| p.get(row)));
    rows.cloned().collect()
}

fn again(node: &str, directory: &Path) -> Result<(), Failure> {
    for (program, arguments) in [
        ("umount", vec![directory.as_os_str()]),
        ("blockdev", vec!["--flushbufs".as_ref(), node.as_ref()]),
        (
            "mount",
            vec![
                "-o".as_ref(),
                "noatime".as_ref(),
                node.as_ref(),
                directory.as_os_str(),
            ],
        ),
    ] {
        if !std::process::Command::new(program)
            .args(arguments)
            .status()?
            .success()
        {
            return Err(format!("{program} failed").into());
        }
    }
    std::thread::sleep(Duration::from_millis(300));
    Ok(())
}

/// CPU time and context switches of this process, its kernel workers among them.
fn usage() -> (Duration, i64) {
    // SAFETY: all-zero bytes are a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes a struct rusage.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    (
        time(usage.ru_utime) + time(usage.ru_stime),
        usage.ru_nvcsw + usage.ru_nivcsw,
    )
}

fn how() -> libc::open_how {
    // SAFETY: all-zero bytes are a valid open_how.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC) as u64;
    how.resolve = libc::RESOLVE_NO_MAGICLINKS | libc::RESOLVE_NO_SYMLINKS;
    how
}

fn owned(fd: libc::c_long) -> Option<OwnedFd> {
    // SAFETY: what a successful open returned belongs to nobody else.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

fn pin(path: &CString) -> Option<OwnedFd> {
    // SAFETY: the path ends with a zero byte, `how` is an open_how of that size.
    owned(unsafe {
        libc::syscall(
            libc::SYS_openat2,
            libc::AT_FDCWD,
            path.as_ptr(),
            &how(),
            size_of::<libc::open_how>(),
        )
    })
}

fn stat(pin: RawFd) -> bool {
    // SAFETY: all-zero bytes are a valid statx.
    let mut facts: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: an empty path, and the kernel writes a struct statx.
    unsafe {
        libc::statx(
            pin,
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_BASIC_STATS,
            &raw mut facts,
        ) == 0
    }
}

fn link(pin: RawFd) -> CString {
    CString::new(format!("/proc/self/fd/{pin}")).unwrap_or_default()
}

fn reopen(pin: &OwnedFd) -> Option<OwnedFd> {
    // SAFETY: the path ends with a zero byte.
    owned(unsafe { libc::open(link(pin.as_raw_fd()).as_ptr(), FLAGS) }.into())
}

fn calls(paths: &[CString], threads: usize) -> Vec<OwnedFd> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut opened = Vec::new();
        while let Some(path) = paths.get(next.fetch_add(1, Ordering::Relaxed)) {
            let Some(pin) = pin(path) else { continue };
            if stat(pin.as_raw_fd()) {
                opened.extend(reopen(&pin));
            }
        }
        opened
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut opened = work();
        for other in others {
            opened.extend(other.join().unwrap_or_default());
        }
        opened
    })
}

/// A file under way: a step is in flight, named by the low bits of its request.
struct Slot {
    pin: RawFd,
    link: CString,
    found: Box<libc::statx>,
}

const PIN: u64 = 0;
const STAT: u64 = 1;
const OPEN: u64 = 2;
const CLOSE: u64 = 3;

fn through(paths: &[CString], steps: Ring, workers: u32) -> Result<Vec<OwnedFd>, Failure> {
    let mut ring: IoUring = IoUring::builder()
        .setup_coop_taskrun()
        .setup_single_issuer()
        .build(ENTRIES)?;
    ring.submitter().register_iowq_max_workers(&mut [workers, 0])?;
    let how = types::OpenHow::new()
        .flags((libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC) as u64)
        .resolve(libc::RESOLVE_NO_MAGICLINKS | libc::RESOLVE_NO_SYMLINKS);
    let cwd = types::Fd(libc::AT_FDCWD);
    let mut opened = Vec::new();
    let mut slots: Vec<Slot> = (0..ENTRIES)
        .map(|_| Slot {
            pin: -1,
            link: CString::default(),
            // SAFETY: all-zero bytes are a valid statx.
            found: Box::new(unsafe { std::mem::zeroed() }),
        })
        .collect();
    let mut free: Vec<usize> = (0..slots.len()).collect();
    let mut todo: Vec<(usize, u64)> = Vec::new();
    let mut next = paths.iter();
    let mut flying = 0;
    loop {
        while let (Some(slot), Some(path)) = (free.last().copied(), next.as_slice().first()) {
            let _ = next.next();
            free.pop();
            let entry = opcode::OpenAt2::new(cwd, path.as_ptr(), &how).build();
            // SAFETY: path and `how` outlive the loop, which ends when nothing is in flight.
            unsafe {
                ring.submission()
                    .push(&entry.user_data(PIN | (slot as u64) << 2))?
            };
            flying += 1;
        }
        for (slot, step) in std::mem::take(&mut todo) {
            let state = &mut slots[slot];
            let entry = match step {
                STAT => {
                    opcode::Statx::new(types::Fd(state.pin), c"".as_ptr(), (&raw mut *state.found).cast())
                        .flags(libc::AT_EMPTY_PATH)
                        .mask(libc::STATX_BASIC_STATS)
                        .build()
                }
                OPEN => {
                    state.link = link(state.pin);
                    opcode::OpenAt::new(cwd, state.link.as_ptr()).flags(FLAGS).build()
                }
                _ => opcode::Close::new(types::Fd(state.pin)).build(),
            };
            // SAFETY: the slot's buffers stay as they are while its step is in flight.
            unsafe {
                ring.submission()
                    .push(&entry.user_data(step | (slot as u64) << 2))?
            };
            flying += 1;
        }
        if flying == 0 {
            return Ok(opened);
        }
        ring.submit_and_wait(1)?;
        let done: Vec<(u64, i32)> = ring.completion().map(|c| (c.user_data(), c.result())).collect();
        for (which, result) in done {
            flying -= 1;
            let slot = (which >> 2) as usize;
            if result < 0 {
                return Err(std::io::Error::from_raw_os_error(-result).into());
            }
            let mut step = which & 3;
            if step == PIN {
                slots[slot].pin = result;
                if steps.stat {
                    todo.push((slot, STAT));
                    continue;
                }
                if !stat(result) {
                    return Err("no stat".into());
                }
                step = STAT;
            }
            if step == STAT {
                if steps.reopen {
                    todo.push((slot, OPEN));
                    continue;
                }
                // SAFETY: the path ends with a zero byte.
                opened.extend(owned(
                    unsafe { libc::open(link(slots[slot].pin).as_ptr(), FLAGS) }.into(),
                ));
                step = OPEN;
            } else if step == OPEN {
                opened.extend(owned(result.into()));
            }
            if step == OPEN {
                if steps.close {
                    todo.push((slot, CLOSE));
                    continue;
                }
                // SAFETY: the slot's own descriptor.
                unsafe { libc::close(slots[slot].pin) };
            }
            free.push(slot);
        }
    }
}
