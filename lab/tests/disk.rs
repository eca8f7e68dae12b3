//! The disk as a whole, on this machine's kernel. A program of its own: machines that boot beside it would
//! change the times that it measures. Needs root, FUSE and loop devices.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

#[path = "lab/common.rs"]
mod common;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{attached, kill_and_clean, scratch};
use headstart_lab::disk::{Attached, Options, Served, Writes};
use headstart_lab::model::{Model, Op};
use headstart_lab::registry::Registry;
use headstart_system::device::{ProbeOptions, probe_node};
use headstart_system::testing::is_root;

const MIB: u64 = 1 << 20;

fn image(directory: &Path) -> (PathBuf, Vec<u8>) {
    let bytes: Vec<u8> = (0..16 * MIB / 8)
        .flat_map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
        .collect();
    let path = directory.join("image");
    fs::write(&path, &bytes).unwrap();
    (path, bytes)
}

/// The disk of an image, served below the scratch directory.
fn options(scratch: &Path, image: &Path, model: &str) -> Options {
    Options {
        model: Model::load(model).unwrap(),
        image: image.to_owned(),
        directory: scratch.join("fuse"),
        writes: Writes::Forget,
    }
}

fn lab(scratch: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart-lab"));
    command.env("HEADSTART_LAB_DIR", scratch);
    command
}

/// `disk serve` of an image, with more arguments, from when it says that it serves.
fn serve(scratch: &Path, image: &Path, more: &[&str]) -> Child {
    let mut server = lab(scratch)
        .args(["disk", "serve", "--model", "none", "--image"])
        .arg(image)
        .arg("--mount")
        .arg(scratch.join("fuse"))
        .args(more)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line.trim(), scratch.join("fuse/disk").to_str().unwrap());
    server
}

/// Tells a server to end, which it does in order.
fn end(mut server: Child) {
    let pid = rustix::process::Pid::from_child(&server);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(server.wait().unwrap().code(), Some(130));
}

fn mounted(path: &Path) -> bool {
    fs::read_to_string("/proc/self/mountinfo")
        .unwrap()
        .contains(&format!(" {} ", path.display()))
}

#[test]
fn flash4ms_delays_reads_and_keeps_the_bytes() {
    if !is_root() {
        return;
    }
    let scratch = scratch();
    let (image, bytes) = image(scratch.path());
    let registry = Registry::open(scratch.path()).unwrap();
    let options = options(scratch.path(), &image, "flash4ms");
    let mut disk = Attached::new(&options, &registry).unwrap();
    let queue = |file: &str| {
        let name = disk.device().file_name().unwrap().to_str().unwrap();
        fs::read_to_string(format!("/sys/block/{name}/queue/{file}"))
            .unwrap()
            .trim()
            .to_owned()
    };
    assert_eq!(
        (queue("read_ahead_kb"), queue("rotational")),
        ("128".into(), "0".into())
    );

    // Ten places far apart, one after the other: each waits for the device.
    disk.renew().unwrap();
    let device = File::open(disk.device()).unwrap();
    let mut block = [0; 4096];
    let begin = Instant::now();
    for place in 0..10 {
        device
            .read_exact_at(&mut block, (place * 3 % 10) * MIB + 64 * 1024)
            .unwrap();
    }
    let took = begin.elapsed();
    // Each answer leaves early for its way back, by 0.2 ms at most. How much later it comes is up to what
    // else runs here.
    assert!(took > Duration::from_millis(38), "{took:?}");
    let reads = disk.counters().unwrap().reads;
    assert!(reads >= 10, "{reads}");
    let log = disk.take_log();
    assert!(
        log.iter()
            .filter(|e| e.op == Op::Read && e.service == 4_008_192)
            .count()
            >= 10,
        "{log:?}"
    );
    drop(device);

    // Writes are seen, and forgotten by the next fresh attach.
    let writer = File::options().write(true).open(disk.device()).unwrap();
    writer.write_all_at(&[0xee; 8192], MIB).unwrap();
    writer.sync_all().unwrap();
    drop(writer);
    disk.renew().unwrap();
    assert!(
        fs::read(disk.device()).unwrap() == bytes,
        "the device holds other bytes than the image"
    );
    assert!(fs::read(&image).unwrap() == bytes, "the image was changed");

    drop(disk);
    assert_eq!(attached(scratch.path()), [""; 0]);
}

#[test]
fn a_volume_that_is_filled_as_it_is_read_is_told_from_all_others() {
    if !is_root() {
        return;
    }
    let scratch = scratch();
    let image = scratch.path().join("large");
    File::create(&image).unwrap().set_len(512 * MIB).unwrap();
    let registry = Registry::open(scratch.path()).unwrap();
    let measured = |model: &str| {
        let disk = Attached::new(&options(scratch.path(), &image, model), &registry).unwrap();
        let cost = probe_node(disk.device(), &ProbeOptions::default()).unwrap();
        (cost.first_touch, cost.cost)
    };
    let (lazy, cost) = measured("lazy");
    let first_touch = lazy.expect("it has granules");
    assert_eq!(first_touch.granule, 512 << 10);
    assert!(first_touch.latency > 0.03, "{first_touch:?}");
    // What was read before is a volume like any other.
    assert!(cost.latency < 0.01, "{cost:?}");
    for model in [
        "cloud",
        "flash4ms",
        "disk7200",
        "cdrom24x",
        "usb2-stick",
        "network-share",
    ] {
        assert_eq!(measured(model).0, None, "{model}");
    }

    // The first half was read before: that is quick, and does not make the volume one that fetches more at
    // once.
    let disk = Attached::new(&options(scratch.path(), &image, "lazy"), &registry).unwrap();
    let next = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| {
                let device = File::open(disk.device()).unwrap();
                rustix::fs::fadvise(&device, 0, None, rustix::fs::Advice::Random).unwrap();
                loop {
                    let granule = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if granule >= 512 {
                        break;
                    }
                    device
                        .read_exact_at(&mut [0; 512], granule * (512 << 10))
                        .unwrap();
                }
            });
        }
    });
    let found = probe_node(disk.device(), &ProbeOptions::default()).unwrap();
    let first_touch = found.first_touch.expect("it has granules still");
    // Ten; on a busy machine fewer, or some more, for one read at a time waits for processors as well. Were
    // the first half counted it would be twenty and more.
    assert!((6..=15).contains(&first_touch.depth), "{first_touch:?}");
}

#[test]
fn a_loop_device_is_left_as_it_was_found() {
    if !is_root() {
        return;
    }
    let scratch = scratch();
    let (image, _) = image(scratch.path());
    let registry = Registry::open(scratch.path()).unwrap();
    let options = options(scratch.path(), &image, "seek5ms");
    // Settings by device; a test beside this one may take ours as soon as it is free.
    let settings = || -> BTreeMap<String, [String; 2]> {
        let devices = fs::read_dir("/sys/block").unwrap().map(|entry| entry.unwrap());
        let free = devices.filter(|device| !device.path().join("loop/backing_file").exists());
        free.map(|device| {
            let read =
                |name: &str| fs::read_to_string(device.path().join("queue").join(name)).unwrap_or_default();
            let name = device.file_name().into_string().unwrap();
            (name, ["scheduler", "max_sectors_kb"].map(read))
        })
        .collect()
    };
    for _ in 0..10 {
        let before = settings();
        let mut disk = Attached::new(&options, &registry).unwrap();
        disk.renew().unwrap();
        let name = disk.device().file_name().unwrap().to_str().unwrap().to_owned();
        let used = fs::read_to_string(Path::new("/sys/block").join(&name).join("queue/scheduler")).unwrap();
        assert!(used.contains("[mq-deadline]"), "{used}");
        drop(disk);
        if let (Some(before), Some(after)) = (before.get(&name), settings().get(&name)) {
            assert_eq!(before, after, "{name}");
            return;
        }
    }
    panic!("other labs took the device ten times");
}

#[test]
fn clean_removes_what_a_killed_server_left() {
    if !is_root() {
        return;
    }
    let scratch = scratch();
    let (image, _) = image(scratch.path());
    let mount = scratch.path().join("fuse");
    let mut server = serve(scratch.path(), &image, &[]);
    let lab = || lab(scratch.path());
    let busy = lab().arg("clean").output().unwrap();
    assert!(
        String::from_utf8_lossy(&busy.stdout).contains("still running"),
        "a running lab is left alone"
    );
    assert!(mounted(&mount));
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(mounted(&mount), "a kill leaves the mount");
    let cleaned = lab().arg("clean").output().unwrap();
    assert!(cleaned.status.success(), "{cleaned:?}");
    assert!(!mounted(&mount));
    let again = lab().arg("clean").output().unwrap();
    assert!(String::from_utf8_lossy(&again.stdout).contains("nothing to clean"));
}

/// Its device is still there when a lab is killed after its mount has gone, and with it whatever waits for
/// the server.
#[test]
fn clean_ends_waiting_for_a_server_whose_mount_has_gone() {
    if !is_root() {
        return;
    }
    let scratch = scratch();
    let (image, _) = image(scratch.path());
    let (mount, dead) = (scratch.path().join("fuse"), scratch.path().join("dead"));
    let mut server = serve(scratch.path(), &image, &[]);
    let run = |program: &str, words: &[&std::ffi::OsStr]| {
        let output = Command::new(program).args(words).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let disk = mount.join("disk");
    let inode = std::os::unix::fs::MetadataExt::ino(&fs::metadata(&disk).unwrap());
    let device = run(
        "losetup",
        &["--find".as_ref(), "--show".as_ref(), disk.as_os_str()],
    );
    let device = PathBuf::from(device.trim());
    let scheduler = Path::new("/sys/block")
        .join(device.file_name().unwrap())
        .join("queue/scheduler");
    let before = fs::read_to_string(&scheduler).unwrap();
    let before = before.split(['[', ']']).nth(1).unwrap().to_owned();
    fs::write(&scheduler, if before == "none" { "mq-deadline" } else { "none" }).unwrap();
    run("umount", &["-l".as_ref(), mount.as_os_str()]);
    let pid = rustix::process::Pid::from_child(&server);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let mut reader = Command::new("dd")
        .args(["of=/dev/null", "bs=4096", "count=1", "iflag=direct"])
        .arg(format!("if={}", device.display()))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert!(reader.try_wait().unwrap().is_none(), "it waits for the server");
    let item = serde_json::json!({
        "kind": "loop", "device": device, "backing": disk, "inode": inode, "queue": [["scheduler", before]],
    });
    fs::create_dir_all(dead.join("registry")).unwrap();
    let record = serde_json::json!({ "pid": 1, "start": 0, "items": { "0": item } });
    fs::write(dead.join("registry/1-0.json"), record.to_string()).unwrap();
    let mut clean = lab(&dead).arg("clean").stdout(Stdio::null()).spawn().unwrap();
    let patience = Instant::now() + Duration::from_secs(30);
    let cleaned = loop {
        match clean.try_wait().unwrap() {
            None if Instant::now() < patience => std::thread::sleep(Duration::from_millis(20)),
            ended => break ended,
        }
    };
    // Whatever became of it: with the server's end all waiting ends.
    server.kill().unwrap();
    server.wait().unwrap();
    let read = reader.wait().unwrap();
    clean.wait().unwrap();
    lab(scratch.path()).arg("clean").output().unwrap();
    assert!(cleaned.is_some_and(|status| status.success()), "{cleaned:?}");
    assert!(!read.success(), "what waited has failed");
    assert!(
        fs::read_to_string(&scheduler)
            .unwrap()
            .contains(&format!("[{before}]"))
    );
    assert!(!scheduler.with_file_name("../loop").exists(), "it is detached");
}

#[test]
fn a_signal_takes_everything_along() {
    if !is_root() {
        return;
    }
    let scratch = scratch();
    let (image, _) = image(scratch.path());
    end(serve(scratch.path(), &image, &[]));
    assert!(!mounted(&scratch.path().join("fuse")));
}

/// Containers and other labs take copies of all mounts along when they begin.
#[test]
fn a_copy_of_the_mount_elsewhere_holds_nobody() {
    if !is_root() {
        return;
    }
    let scratch = scratch();
    let (image, _) = image(scratch.path());
    let registry = Registry::open(scratch.path()).unwrap();
    let options = options(scratch.path(), &image, "none");
    let served = Served::new(&options, &registry).unwrap();
    let mut holder = Command::new("unshare")
        .args(["--mount", "sh", "-c", "echo; exec sleep 60"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(holder.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let (ended, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        drop(served);
        ended.send(()).unwrap();
    });
    let result = told.recv_timeout(Duration::from_secs(20));
    holder.kill().unwrap();
    holder.wait().unwrap();
    result.expect("the server to end while a copy of its mount is there");
    assert!(!mounted(&scratch.path().join("fuse")));
}

/// What a killed run wrote is gone, what was kept before it is there, and the image is as it was.
#[test]
fn a_delta_survives_kill_and_keeps_no_half_run() {
    if !is_root() {
        return;
    }
    let scratch = scratch();
    let (image, bytes) = image(scratch.path());
    let delta = scratch.path().join("delta");
    let serve = || {
        let server = serve(scratch.path(), &image, &["--delta", delta.to_str().unwrap()]);
        let file = scratch.path().join("fuse/disk");
        (server, File::options().read(true).write(true).open(file).unwrap())
    };
    let read = |disk: &File, at: u64| {
        let mut block = [0; 4096];
        disk.read_exact_at(&mut block, at).unwrap();
        block
    };

    // A run that ends well keeps what it wrote.
    let (server, disk) = serve();
    disk.write_all_at(&[1; 4096], MIB).unwrap();
    drop(disk);
    end(server);

    // One that is killed keeps nothing of it.
    let (server, disk) = serve();
    assert_eq!(read(&disk, MIB), [1; 4096]);
    disk.write_all_at(&[2; 4096], MIB).unwrap();
    disk.write_all_at(&[2; 4096], 5 * MIB).unwrap();
    assert_eq!(read(&disk, MIB), [2; 4096]);
    kill_and_clean(server, || lab(scratch.path()));
    drop(disk);
    let (server, disk) = serve();
    assert_eq!(read(&disk, MIB), [1; 4096]);
    assert_eq!(read(&disk, 5 * MIB)[..], bytes[5 * MIB as usize..][..4096]);
    drop(disk);
    end(server);
    assert!(fs::read(&image).unwrap() == bytes, "the image was changed");
}

/// As QEMU uses it with cache=none: direct reads and writes on the file itself, no loop device, at the
/// model's pace.
#[test]
fn the_file_serves_direct_io_at_the_models_pace() {
    use std::os::unix::fs::OpenOptionsExt;
    if !is_root() {
        return;
    }
    let scratch = scratch();
    let (image, bytes) = image(scratch.path());
    let registry = Registry::open(scratch.path()).unwrap();
    let options = options(scratch.path(), &image, "flash4ms");
    let disk = Served::new(&options, &registry).unwrap();
    let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
    let file = File::options()
        .read(true)
        .write(true)
        .custom_flags(direct)
        .open(disk.file())
        .unwrap();
    let mut buffer = vec![0; 8192];
    let start = buffer.as_ptr().align_offset(4096);
    let block = &mut buffer[start..start + 4096];
    let begin = Instant::now();
    for place in [5, 3, 5, 1, 5] {
        file.read_exact_at(block, place * MIB).unwrap();
        assert!(
            block == &bytes[(place * MIB) as usize..][..4096],
            "the bytes of {place} MiB"
        );
    }
    let took = begin.elapsed();
    assert!(took > Duration::from_millis(19), "nothing is cached: {took:?}");
    block.fill(9);
    file.write_all_at(block, MIB).unwrap();
    file.sync_all().unwrap();
    let ops: Vec<Op> = disk.take_log().iter().map(|e| e.op).collect();
    assert_eq!(ops[..5], [Op::Read; 5]);
    assert_eq!(ops[5..], [Op::Write, Op::Flush]);
    disk.reset().unwrap();
    file.read_exact_at(block, MIB).unwrap();
    assert!(block == &bytes[MIB as usize..][..4096], "the write is forgotten");
}
