//! How near a replay comes to the best its device can do: 2,000 small files, cold, metadata included.
//!
//! ```text
//! cargo build --release -p headstart-lab && cargo build --release -p headstart-replay --example speed
//! target/release/examples/speed make /var/tmp/speed.img
//! target/release/headstart-lab disk serve --model flash4ms --image /var/tmp/speed.img --mount /var/tmp/speed &
//! target/release/examples/speed run /var/tmp/speed/disk flash 16 4000
//! ```
//!
//! Rounds with io_uring and without it take turns. `look` in place of `run` only looks the files up, without
//! reading them; make the image another file system's, with the same files, to see look-ups that have to
//! read.
//!
//! The ideal is (reads the device served) × (time of a read) / depth; "plain reads" is what the same number
//! of direct reads took on the same device right after, so what the machine allowed. Needs root.

use headstart_model::machine::{ByteRange, Cost, DeviceClass, PathKind};
use headstart_model::plan::{NO_FILE, PlanDevice, PlanDraft, PlanFile, PlanFileEntry, Request, RequestKind};
use headstart_model::{FilePath, Key};
use headstart_replay::{Options, Replay};
use headstart_system::snapshot::{Need, Wanted, snapshot};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

type Failure = Box<dyn std::error::Error>;

const FILES: usize = 2000;
const ROUNDS: usize = 5;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["make", image] => make(Path::new(image)),
        [
            what @ ("run" | "look"),
            disk,
            class,
            depth,
            latency_us,
            ref flying @ ..,
        ] => {
            let class = match class {
                "disk" => DeviceClass::Disk,
                "flash" => DeviceClass::Flash,
                "network" => DeviceClass::Network,
                _ => return Err(format!("no class {class}: disk, flash, network").into()),
            };
            let flying = flying.first().map(|n| n.parse()).transpose()?;
            run(
                what,
                Path::new(disk),
                class,
                depth.parse()?,
                latency_us.parse()?,
                flying,
            )
        }
        _ => Err("speed make IMAGE | speed run|look DISK CLASS DEPTH LATENCY_US [IN_FLIGHT]".into()),
    }
}

fn sh(program: &str, arguments: &[&str]) -> Result<String, Failure> {
    let output = Command::new(program).args(arguments).output()?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{program} {arguments:?}: {error}").into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_string())
}

/// A loop-mounted file system, taken apart when dropped.
struct Mounted {
    device: String,
    point: PathBuf,
}

impl Mounted {
    fn new(file: &Path) -> Result<Mounted, Failure> {
        let arguments = ["--find", "--show", "--direct-io=on", &file.to_string_lossy()];
        let mounted = Mounted {
            device: sh("losetup", &arguments)?,
            point: std::env::temp_dir().join(format!("headstart-speed-{}", std::process::id())),
        };
        std::fs::create_dir_all(&mounted.point)?;
        std::fs::write(mounted.sys("queue/rotational"), "0")?;
        std::fs::write(mounted.sys("queue/read_ahead_kb"), "128")?;
        sh(
            "mount",
            &["-o", "noatime", &mounted.device, &mounted.point.to_string_lossy()],
        )?;
        Ok(mounted)
    }

    fn sys(&self, file: &str) -> PathBuf {
        let name = self.device.trim_start_matches("/dev/");
        Path::new("/sys/block").join(name).join(file)
    }

    fn reads(&self) -> u64 {
        let stat = std::fs::read_to_string(self.sys("stat")).unwrap_or_default();
        let reads = stat.split_whitespace().next().map(str::parse);
        reads.and_then(Result::ok).unwrap_or(0)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.point).status();
        let _ = Command::new("losetup").args(["--detach", &self.device]).status();
        let _ = std::fs::remove_dir(&self.point);
    }
}

fn make(image: &Path) -> Result<(), Failure> {
    std::fs::File::create(image)?.set_len(512 << 20)?;
    sh("mkfs.ext4", &["-q", "-F", &image.to_string_lossy()])?;
    let mounted = Mounted::new(image)?;
    for n in 0..FILES {
        let directory = mounted.point.join(format!("{}", n / 100));
        std::fs::create_dir_all(&directory)?;
        // 4 to 12 KiB, and a gap after each, so that neighbours do not merge into one read.
        std::fs::write(directory.join(format!("{n}")), vec![n as u8; 4096 * (1 + n % 3)])?;
        std::fs::write(directory.join(format!("{n}.gap")), vec![0; 64 << 10])?;
    }
    Ok(())
}

fn run(
    what: &str,
    disk: &Path,
    class: DeviceClass,
    depth: u32,
    latency_us: u64,
    flying: Option<u32>,
) -> Result<(), Failure> {
    let cost = Cost {
        class,
        bandwidth: 1e9,
        latency: latency_us as f64 * 1e-6,
        depth,
    };
    let mut plan = plan(&Mounted::new(disk)?, cost)?;
    if what == "look" {
        look_ups_only(&mut plan);
    }
    println!("{} requests, {} files", plan.requests.len(), plan.files.len());
    // The first two are for what a first time costs, they are not printed.
    for round in 0..2 * (ROUNDS + 1) {
        let io_uring = round % 2 == 0;
        let mounted = Mounted::new(disk)?;
        // The mount's own late reads.
        std::thread::sleep(Duration::from_millis(200));
        let bytes = plan.to_bytes()?;
        let before = mounted.reads();
        let (cpu, origin) = (cpu_time(), Instant::now());
        let replay = Replay::start(
            PlanFile::new(bytes),
            Options {
                depth: flying,
                io_uring,
                ..Options::new(origin)
            },
        )?;
        let started = origin.elapsed();
        let report = replay.finish();
        let elapsed = origin.elapsed();
        let cpu = cpu_time() - cpu;
        let how = if io_uring { "ring" } else { "calls" };
        let reads = mounted.reads() - before;
        let took = Duration::from_nanos(report.replay_ns);
        let ideal = Duration::from_micros(reads * latency_us / u64::from(depth));
        let metadata = report.issued.iter().filter(|i| {
            let request = plan.requests.get(i.request as usize);
            request.is_some_and(|r| r.kind == RequestKind::Metadata)
        });
        let metadata = metadata.map(|i| i.done_ns).max().unwrap_or(0);
        let plain = plain_reads(&mounted, reads, depth)?;
        if round < 2 {
            continue;
        }
        println!(
            "{how}: {reads} reads: {took:.1?}, CPU {cpu:.1?}, ideal {ideal:.1?}, ratio {:.3}; plain reads {plain:.1?}; start {started:.1?}, first request {:.1?}, metadata {:.1?}, report {:.1?}, skipped {:?}",
            took.as_secs_f64() / ideal.as_secs_f64(),
            Duration::from_nanos(report.issued.first().map_or(0, |i| i.issued_ns)),
            Duration::from_nanos(metadata),
            elapsed - took,
            report.skipped
        );
    }
    Ok(())
}

/// CPU time of this process, the kernel's workers for it among its threads.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// How long as many reads of 4 KiB past the page cache take: what this machine, as busy as it is, makes of
/// the device.
fn plain_reads(mounted: &Mounted, reads: u64, depth: u32) -> Result<Duration, Failure> {
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECT;
    let device = rustix::fs::open(&mounted.device, flags, rustix::fs::Mode::empty())?;
    let next = AtomicU64::new(0);
    let before = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..depth {
            scope.spawn(|| {
                let mut buffer = vec![0u8; 8192];
                let aligned = buffer.as_ptr().align_offset(4096);
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    let page = &mut buffer[aligned..aligned + 4096];
                    if n >= reads || rustix::io::pread(&device, page, n * (128 << 10)).is_err() {
                        break;
                    }
                }
            });
        }
    });
    Ok(before.elapsed())
}

/// Files are looked up instead of read, by path as a plan has it.
fn look_ups_only(plan: &mut PlanDraft) {
    plan.requests.retain(|r| r.kind == RequestKind::Data);
    for request in &mut plan.requests {
        (request.kind, request.offset, request.length) = (RequestKind::Stat, 0, 0);
    }
    let path = |r: &Request| plan.files.get(r.file as usize).map(|f| f.path.clone());
    plan.requests.sort_by_key(path);
    plan.cut = plan.requests.len() as u32;
}

fn plan(mounted: &Mounted, cost: Cost) -> Result<PlanDraft, Failure> {
    let path = |n: usize| FilePath::from(mounted.point.join(format!("{}/{n}", n / 100)).as_path());
    let wanted: Vec<Wanted> = (0..FILES)
        .map(|n| Wanted {
            path: path(n),
            need: Need::Data,
        })
        .collect();
    let machine = snapshot(&wanted, &Default::default())?;
    // The directories on the way to the mount point are on another.
    let point = FilePath::from(mounted.point.as_path());
    let index = machine
        .devices
        .iter()
        .position(|d| d.mount_point == point)
        .ok_or("no device")?;
    let device = &machine.devices[index];
    let here: Vec<_> = machine
        .files
        .iter()
        .filter(|f| f.device == Some(index as u32))
        .collect();
    let mut draft = PlanDraft {
        budget: 1 << 30,
        devices: vec![PlanDevice {
            uuid: device.uuid,
            request_limit: device.request_limit,
            ..PlanDevice::new(device.mount_point.clone(), cost)
        }],
        ..PlanDraft::new(Key::new("speed")?, machine.page_size)
    };
    let request = |kind, file, at: ByteRange| Request {
        offset: at.start,
        ..Request::new(kind, file, at.length)
    };
    let mut metadata: Vec<ByteRange> = here.iter().flat_map(|f| f.metadata.clone()).collect();
    metadata.sort_unstable();
    let mut merged: Vec<ByteRange> = Vec::new();
    for range in metadata {
        match merged.last_mut() {
            Some(last) if range.start <= last.start + last.length => {
                last.length = last.length.max(range.start + range.length - last.start);
            }
            _ => merged.push(range),
        }
    }
    draft.requests.extend(
        merged
            .into_iter()
            .map(|r| request(RequestKind::Metadata, NO_FILE, r)),
    );
    let mut files: Vec<_> = here.into_iter().filter(|f| f.found == PathKind::File).collect();
    files.sort_by_key(|f| f.extents.first().map(|e| e.physical));
    for file in files {
        let whole = ByteRange {
            start: 0,
            length: file.size,
        };
        draft
            .requests
            .push(request(RequestKind::Data, draft.files.len() as u32, whole));
        draft.files.push(PlanFileEntry {
            path: file.path.clone(),
            device: 0,
            inode: file.inode,
            generation: file.generation,
            size: file.size,
            mtime_ns: file.mtime_ns,
        });
    }
    draft.cut = draft.requests.len() as u32;
    Ok(draft)
}
