//! More at once than the daemon can serve.

use crate::common::{Case, eventually, is_root};
use crate::harness::*;
use headstart_model::Key;
use headstart_model::outcome::Mode;
use headstart_store::Store;
use headstart_system::testing::Process;
use serde_json::json;
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

#[test]
fn a_storm_of_executions_leaves_it_as_it_was() {
    if !can_watch() {
        return;
    }
    let case = Case::new();
    let fs = disk(&["one"]);
    let daemon = Daemon::start(&case);
    // Programs without a name in any directory, and many that have one.
    let memory = rustix::fs::memfd_create("program", rustix::fs::MemfdFlags::empty()).unwrap();
    File::from(memory.try_clone().unwrap())
        .write_all(&fs::read("/bin/true").unwrap())
        .unwrap();
    let path = format!(
        "/proc/{}/fd/{}",
        std::process::id(),
        std::os::fd::AsRawFd::as_raw_fd(&memory)
    );
    for _ in 0..100 {
        assert!(Command::new(&path).status().unwrap().success());
    }
    let programs = case.path("programs");
    fs::create_dir(&programs).unwrap();
    let script = "i=0; while [ $i -lt 300 ]; do cp /bin/true $1/$i; $1/$i; $1/$i; rm $1/$i; i=$((i+1)); done; \
                  while [ $i -lt 2000 ]; do /bin/true; i=$((i+1)); done";
    let mut storms: Vec<Child> = (0..4)
        .map(|turn| {
            let own = programs.join(turn.to_string());
            fs::create_dir(&own).unwrap();
            Command::new("sh")
                .args(["-c", script, "storm"])
                .arg(&own)
                .spawn()
                .unwrap()
        })
        .collect();
    for storm in &mut storms {
        assert!(storm.wait().unwrap().success());
    }
    assert!(daemon.memory() < 64 << 10, "{} KiB", daemon.memory());
    // Slots and turns are there again.
    let one = key(&fs, "one");
    eventually("a start is recorded again", || {
        evict(&files(&fs, "one"));
        assert!(command(&fs, "one").status().unwrap().success());
        std::thread::sleep(Duration::from_millis(100));
        !outcomes(&case, &one).is_empty()
    });
    daemon.stop();
}

/// A program as small as one can be, so that little but executions takes time: these instructions of x86-64,
/// behind the headers of an executable of one segment.
#[cfg(target_arch = "x86_64")]
fn assembled(path: &Path, code: &[u8]) {
    let (base, headers) = (0x40_0000u64, 120u64);
    let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
    elf.resize(16, 0);
    let words: [&[u8]; 8] = [
        &2u16.to_le_bytes(),
        &62u16.to_le_bytes(),
        &1u32.to_le_bytes(),
        &(base + headers).to_le_bytes(),
        &64u64.to_le_bytes(),
        &[0; 12],
        &[64, 0, 56, 0, 1, 0, 0, 0, 0, 0, 0, 0],
        &[1, 0, 0, 0, 5, 0, 0, 0],
    ];
    elf.extend(words.concat());
    let size = headers + code.len() as u64;
    for word in [0, base, base, size, size, 4096] {
        elf.extend(word.to_le_bytes());
    }
    elf.extend(code);
    fs::write(path, elf).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
}

/// A program that ends at once.
fn tiny(path: &Path) {
    #[cfg(target_arch = "x86_64")]
    assembled(path, &[0x31, 0xff, 0xb8, 60, 0, 0, 0, 0x0f, 0x05]); // exit(0)
    #[cfg(not(target_arch = "x86_64"))]
    fs::copy("/bin/true", path).unwrap();
}

/// What [`Chain`] executes; with one argument of two bytes it counts so far.
#[cfg(not(target_arch = "x86_64"))]
const CHAINED: u64 = 254 * 254;

/// A process that executes itself over and over, without a fork between, 254 times 254 times: so many in a
/// second nobody else manages.
struct Chain(Process);

impl Chain {
    fn start(program: &Path) -> Chain {
        #[cfg(target_arch = "x86_64")]
        assembled(
            program,
            &[
                0x48, 0x8b, 0x4c, 0x24, 0x10, // rcx = argv[1], whose bytes count down to 1
                0xfe, 0x09, 0x80, 0x39, 0x01, 0x75,
                0x0c, // its first; until that is 1, on to the execution
                0xc6, 0x01, 0xff, 0xfe, 0x49, 0x01, // it begins anew, and the second counts
                0x80, 0x79, 0x01, 0x01, 0x74, 0x13, // until that is 1, too
                0x48, 0x8b, 0x7c, 0x24, 0x08, // argv[0]
                0x48, 0x8d, 0x74, 0x24, 0x08, 0x31, 0xd2, // argv, and no environment
                0xb8, 59, 0, 0, 0, 0x0f, 0x05, // execve
                0x31, 0xff, 0xb8, 60, 0, 0, 0, 0x0f, 0x05, // exit(0)
            ],
        );
        #[cfg(not(target_arch = "x86_64"))]
        {
            let text = format!("#!/bin/sh\n[ $1 -gt {CHAINED} ] || exec \"$0\" $(($1 + 1))\n");
            fs::write(program, text).unwrap();
            fs::set_permissions(program, Permissions::from_mode(0o755)).unwrap();
        }
        let mut command = Command::new(program);
        #[cfg(target_arch = "x86_64")]
        command.arg(std::ffi::OsStr::from_bytes(b"\xff\xff"));
        #[cfg(not(target_arch = "x86_64"))]
        command.arg("1");
        Chain(Process(command.spawn().unwrap()))
    }

    /// Whether it has come to its end, which must be a good one.
    fn is_over(&mut self) -> bool {
        let status = self.0.try_wait().unwrap();
        assert!(status.is_none_or(|status| status.success()), "{status:?}");
        status.is_some()
    }
}

/// Executes these by turns from four threads, each of which pauses so long after each, until it is ended.
struct Storm {
    done: Arc<AtomicBool>,
    threads: Vec<JoinHandle<u64>>,
}

impl Storm {
    fn start(programs: &[PathBuf], pause: Duration) -> Storm {
        let done = Arc::new(AtomicBool::new(false));
        let thread = |turn: usize| {
            let (done, programs) = (Arc::clone(&done), programs.to_vec());
            std::thread::spawn(move || {
                let mut executions = 0;
                for program in programs.iter().cycle().skip(turn * 7) {
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                    assert!(Command::new(program).status().unwrap().success());
                    executions += 1;
                    std::thread::sleep(pause);
                }
                executions
            })
        };
        let threads = (0..4).map(thread).collect();
        Storm { done, threads }
    }

    /// Ends it; gives how many executions there were.
    fn end(self) -> u64 {
        self.done.store(true, Ordering::Relaxed);
        self.threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    }
}

/// A group of processes that may not be more than so many; they are ended with the value.
struct Bounded(PathBuf);

impl Bounded {
    fn new(most: u32) -> Bounded {
        // The hierarchy of that controller, or the one of all.
        let hierarchies = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"];
        let made = hierarchies.iter().find_map(|hierarchy| {
            let group = Path::new(hierarchy).join(format!("headstart-test-{}", std::process::id()));
            fs::create_dir(&group).ok()?;
            let bounded = Bounded(group);
            fs::write(bounded.0.join("pids.max"), most.to_string()).ok()?;
            Some(bounded)
        });
        made.expect("a control group with the controller pids: this test needs one")
    }

    fn processes(&self) -> Vec<u32> {
        let text = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }
}

impl Drop for Bounded {
    fn drop(&mut self) {
        // None may be made any more, or those that come would outrun the signals.
        let _ = fs::write(self.0.join("pids.max"), "0");
        let until = Instant::now() + Duration::from_secs(30);
        while !self.processes().is_empty() && Instant::now() < until {
            for pid in self.processes() {
                let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = fs::remove_dir(&self.0);
    }
}

/// A state directory with so many programs that nobody starts.
fn know_many(case: &Case, count: usize) {
    let store = Store::new(case.state());
    for number in 0..count {
        let key = Key::new(format!("/usr/bin/program-{number:05}")).unwrap();
        let directory = store.key(&key).path().to_owned();
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("key"), key.as_str()).unwrap();
    }
}

#[test]
fn a_storm_beside_a_fork_bomb_and_thousands_of_keys_is_lived_through() {
    if !can_watch() || !is_root() {
        return;
    }
    let keys = rounds(1000, 10_000) as usize;
    let case = Case::new();
    let fs = disk(&["one"]);
    know_many(&case, keys);
    let (daemon, mut control) = Daemon::start_with_control(&case);
    start_until_kept(&case, &fs, "one");
    let programs: Vec<PathBuf> = (0..64).map(|n| case.path(&format!("program-{n}"))).collect();
    for program in &programs {
        tiny(program);
    }
    // One in no directory any more: its descriptor is what is left.
    let gone = case.path("gone");
    tiny(&gone);
    let held = File::open(&gone).unwrap();
    fs::remove_file(&gone).unwrap();
    let by_descriptor = format!("/proc/{}/fd/{}", std::process::id(), held.as_raw_fd());
    let paths: Vec<PathBuf> = programs.into_iter().chain([by_descriptor.into()]).collect();
    let bomb = case.program("bomb", "#!/bin/sh\n$0 & $0 &\n");
    let group = Bounded::new(48);
    let mut fuse = Command::new("sh");
    fuse.args(["-c", "echo $$ > \"$0\"/cgroup.procs && exec \"$1\" 2>/dev/null"]);
    fuse.arg(&group.0).arg(&bomb);
    let storm = Storm::start(&paths, Duration::ZERO);
    run(fuse);
    let begun = Instant::now();
    let seconds = rounds(2, 10);
    let mut most = 0;
    let beside = |begun: Instant, most: &mut u64, goes_on: &mut dyn FnMut() -> bool| {
        while goes_on() {
            *most = (*most).max(daemon.memory());
            std::thread::sleep(Duration::from_millis(50));
        }
        begun.elapsed().as_secs_f64()
    };
    let took = beside(begun, &mut most, &mut || begun.elapsed().as_secs() < seconds);
    drop(group);
    let executions = storm.end();
    // Beside the bomb, too, each program was executed again and again.
    assert!(
        executions > 5 * paths.len() as u64,
        "{executions} in {took:.1} s are no storm"
    );
    // Without forks there are more.
    let begun = Instant::now();
    for _ in 0..rounds(1, 6) {
        let mut chains = [0, 1].map(|n| Chain::start(&case.path(&format!("chain-{n}"))));
        beside(begun, &mut most, &mut || !chains.iter_mut().all(Chain::is_over));
    }
    assert!(most < 64 << 10, "{most} KiB");
    // All programs are listed, page by page, and slots are there again.
    let (mut listed, mut after) = (0, json!(null));
    loop {
        let page = call(&mut control, "List", json!({ "after": after }));
        listed += page["apps"].as_array().unwrap().len();
        after = page["next"].clone();
        if after.is_null() {
            break;
        }
    }
    assert!(listed > keys, "{listed}");
    assert_eq!(start_until_kept(&case, &fs, "one").mode, Mode::Replay);
    daemon.stop();
}

#[test]
fn no_start_of_a_known_program_is_missed_in_a_storm() {
    if !can_watch() {
        return;
    }
    let case = Case::new();
    let fs = disk(&["one"]);
    let daemon = Daemon::start(&case);
    start_until_kept(&case, &fs, "one");
    let one = key(&fs, "one");
    let before = outcomes(&case, &one).len();
    let programs: Vec<PathBuf> = (0..64).map(|n| case.path(&format!("program-{n}"))).collect();
    for program in &programs {
        tiny(program);
    }
    // Some thousand executions a second. Without a pause those who finish starts, after everybody else, would
    // hardly have a turn.
    let storm = Storm::start(&programs, Duration::from_millis(2));
    for turn in 1..=rounds(5, 100) as usize {
        evict(&files(&fs, "one"));
        run(command(&fs, "one"));
        let last = kept(&case, &one, before + turn).pop().unwrap();
        assert_eq!(last.mode, Mode::Replay);
    }
    let executions = storm.end();
    assert!(
        executions > 5 * programs.len() as u64,
        "{executions} beside are no storm"
    );
    daemon.stop();
}

/// Asks for two gigabytes at a time, from one page on and then from the next, to be read to where no memory
/// is: each fails at its first byte. For four seconds.
const READS: &str = "
import ctypes, os, sys, time
read, nowhere, most = ctypes.CDLL(None, use_errno=True).pread, ctypes.c_void_p(8), ctypes.c_size_t(0x7ffff000)
large = os.open(sys.argv[1], os.O_RDONLY)
until, page = time.monotonic() + 4, 0
while time.monotonic() < until:
    for _ in range(100):
        page = (page + 1) % (1 << 14)
        assert read(large, nowhere, most, ctypes.c_long(page << 12)) == -1
";

#[test]
fn reads_of_gigabytes_that_come_to_nothing_do_not_end_it() {
    if !can_watch() || !is_root() {
        return;
    }
    let case = Case::new();
    let fs = disk(&["one"]);
    let (script, large) = (fs.mount_point().join("reads"), fs.mount_point().join("large"));
    fs::write(&script, READS).unwrap();
    File::create(&large).unwrap().set_len(1 << 40).unwrap();
    let_all_into(&fs.mount_point());
    let daemon = Daemon::start(&case);
    start_until_kept(&case, &fs, "one");
    // On a busy machine one start may not be noticed.
    for _ in 0..3 {
        let mut reads = Command::new("python3");
        reads.arg(&script).arg(&large);
        run(by_nobody(reads));
    }
    assert!(daemon.memory() < 128 << 10, "{} KiB", daemon.memory());
    assert_eq!(start_until_kept(&case, &fs, "one").mode, Mode::Replay);
    daemon.stop();
}
