//! What `headstart compare` reads of blktrace is counted as blkparse and the device count it.

use crate::common::{Case, can_record, needs};
use crate::compare::{PROGRAM, part, python};
use headstart_system::testing::{LoopFs, Spec, can_mount};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The kernel's tracer of block devices, which writes what blktrace would: there is one, and it is given back when dropped.
struct Tracer<'a> {
    root: &'a Path,
    enable: PathBuf,
    reader: std::process::Child,
}

const TRACER: [(&str, &str, &str); 4] = [
    ("trace_clock", "mono", "local"),
    ("trace_options", "nocontext-info", "context-info"),
    ("trace_options", "bin", "nobin"),
    ("current_tracer", "blk", "nop"),
];

impl<'a> Tracer<'a> {
    fn start(root: &'a Path, node: &Path, output: &Path) -> Tracer<'a> {
        for (file, value, _) in TRACER {
            std::fs::write(root.join(file), value).unwrap();
        }
        let enable = Path::new("/sys/block")
            .join(node.file_name().unwrap())
            .join("trace/enable");
        std::fs::write(&enable, "1").unwrap();
        let reader = Command::new("cat")
            .arg(root.join("trace_pipe"))
            .stdout(std::fs::File::create(output).unwrap())
            .spawn()
            .unwrap();
        Tracer { root, enable, reader }
    }
}

impl Drop for Tracer<'_> {
    fn drop(&mut self) {
        // What is in the buffer is read a few times a second.
        std::thread::sleep(std::time::Duration::from_secs(1));
        let _ = std::fs::write(&self.enable, "0");
        let _ = self.reader.kill();
        let _ = self.reader.wait();
        for (file, _, value) in TRACER.iter().rev() {
            let _ = std::fs::write(self.root.join(file), value);
        }
    }
}

/// The tracer's one stream as blktrace has it: a file for each processor.
fn split(case: &Case) -> Vec<String> {
    let stream = std::fs::read(case.path("stream")).unwrap();
    let mut files = vec![Vec::new(); 2];
    let mut rest = stream.as_slice();
    while let Some(event) = rest.get(..48) {
        let length = 48 + usize::from(u16::from_ne_bytes([event[46], event[47]]));
        let cpu = u32::from_ne_bytes([event[40], event[41], event[42], event[43]]) as usize;
        files.resize(files.len().max(cpu + 1), Vec::new());
        files[cpu].extend(&rest[..length]);
        rest = &rest[length..];
    }
    let write = |(cpu, bytes): (usize, &Vec<u8>)| {
        let name = format!("t.blktrace.{cpu}");
        case.write(&name, bytes);
        name
    };
    files.iter().enumerate().map(write).collect()
}

/// What the kernel writes for blktrace is counted as blkparse counts it, and as the device does.
#[test]
fn the_count_is_blktraces_own() {
    if !can_mount() || !can_record() {
        return;
    }
    let case = Case::new();
    let mut fs = LoopFs::create(&Spec::new("ext4"), python).unwrap();
    let tracefs =
        headstart_system::testing::Mounted::new(&["-t", "tracefs", "tracefs"], &fs.beside().join("tracefs"));
    let tracefs = tracefs.unwrap();
    let tracers = std::fs::read_to_string(tracefs.path().join("available_tracers")).unwrap();
    let current = std::fs::read_to_string(tracefs.path().join("current_tracer")).unwrap();
    let free = tracers.split_whitespace().any(|name| name == "blk") && current.trim() == "nop";
    let parses = Command::new("blkparse").arg("-V").output().is_ok();
    if !needs(
        "a kernel whose tracer of block devices nobody uses, and blkparse",
        free && parses,
    ) {
        return;
    }
    fs.remount_cold().unwrap();
    let before = fs.reads();
    {
        let _tracer = Tracer::start(tracefs.path(), &fs.node(), &case.path("stream"));
        let mount = fs.mount_point();
        let mut words = vec!["record", "-o", "t.trace", "--", "chroot", mount.to_str().unwrap()];
        words.extend(PROGRAM);
        assert_eq!(case.headstart(&words).code(), 0);
    }
    let counted = fs.reads() - before;
    let files = split(&case);
    let mut words = vec!["compare", "t.trace", "--json", "--blktrace"];
    words.extend(files.iter().map(String::as_str));
    let document = case.json(&words);
    let part = part(&document, &fs.mount_point());
    let (bytes, explained) = (
        part["bytes"].as_u64().unwrap(),
        part["explained"].as_u64().unwrap(),
    );
    assert_eq!(bytes, counted.bytes, "the device's own count");
    assert_eq!(document["read"]["requests"].as_u64(), Some(counted.requests));
    assert!(explained * 100 >= bytes * 99, "{explained} of {bytes}");

    // ` Read Dispatches:      753,    10549KiB`
    let mut parse = Command::new("blkparse");
    let parsed = parse
        .args(["-i", "t", "-d", "/dev/null"])
        .current_dir(case.path("."));
    let text = String::from_utf8_lossy(&parsed.output().unwrap().stdout).into_owned();
    // The sum over processors comes last.
    let line = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Read Dispatches:"))
        .next_back();
    let line = line.unwrap_or_else(|| panic!("{text}"));
    let (requests, size) = line.split_once(',').unwrap();
    let size: u64 = size.trim().split("KiB").next().unwrap().parse().unwrap();
    println!(
        "blkparse: {requests} requests, {size} KiB; here {} requests, {bytes} bytes",
        counted.requests
    );
    assert_eq!(requests.trim().parse(), Ok(counted.requests));
    assert!(
        bytes.abs_diff(size * 1024) * 200 <= bytes,
        "{bytes} bytes and {size} KiB"
    );
}
