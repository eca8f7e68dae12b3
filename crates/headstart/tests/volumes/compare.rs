//! What `headstart compare` finds of the blocks that a device read, on real file systems. Needs root, loop
//! devices and BPF.

use crate::common::{Case, can_record};
use headstart_system::testing::{LoopFs, Spec, can_mount, undisturbed};
use serde_json::Value;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program of many files; what it imports is a third of its library.
const PROGRAM: &[&str] = &[
    "/usr/bin/python3",
    "-S",
    "-c",
    "import asyncio, ctypes, email.mime.multipart, http.client, json, multiprocessing, sqlite3, ssl, unittest, xml.dom.minidom",
];

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Copies python3, its library and the shared libraries of both to a root of their own.
fn python(root: &Path) -> io::Result<()> {
    let library = output(
        "/usr/bin/python3",
        &["-c", "import os; print(os.path.dirname(os.__file__))"],
    );
    let library = PathBuf::from(library.trim());
    let mut files = vec![PathBuf::from("/usr/bin/python3")];
    let mut waiting = vec![library];
    while let Some(directory) = waiting.pop() {
        for entry in std::fs::read_dir(&directory)? {
            let path = entry?.path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && !matches!(name.as_str(), "test" | "dist-packages" | "site-packages") {
                waiting.push(path);
            } else if path.is_file() {
                files.push(path);
            }
        }
    }
    let mut shared = HashMap::new();
    for path in files
        .iter()
        .filter(|path| path.ends_with("python3") || path.extension().is_some_and(|e| e == "so"))
    {
        // Absolute paths among what ldd says.
        let text = output("ldd", &[path.to_str().unwrap()]);
        let words = text.split_whitespace().filter(|word| word.starts_with('/'));
        shared.extend(words.map(|word| (PathBuf::from(word), ())));
    }
    for path in files.iter().chain(shared.keys()) {
        let copy = root.join(path.strip_prefix("/").unwrap());
        std::fs::create_dir_all(copy.parent().unwrap())?;
        std::fs::copy(path, copy)?;
    }
    Ok(())
}

/// A cold start on that file system, compared with what was learned of another: the document, what the device
/// counted itself (bytes), and the mount point.
fn compared(case: &Case, spec: &Spec, words: &[&str]) -> (Value, u64, PathBuf) {
    let mut fs = LoopFs::create(spec, python).unwrap();
    let mount = fs.mount_point();
    let point = mount.to_str().unwrap().to_string();
    let start: Vec<&str> = ["chroot", &point]
        .into_iter()
        .chain(PROGRAM.iter().copied())
        .collect();
    let mut record = vec!["record", "-o", "t.trace", "--"];
    record.extend(&start);
    assert_eq!(case.headstart(&record).code(), 0);
    for (program, arguments) in [
        ("learn", ["t.trace", "-o", "t.profile"]),
        ("plan", ["t.profile", "-o", "t.plan"]),
    ] {
        let ran = case.headstart(&[&[program][..], &arguments].concat());
        assert_eq!(ran.code(), 0, "{}", ran.err);
    }
    let mut cold = vec!["record", "--chart", "-o", "cold.trace", "--"];
    cold.extend(&start);
    let (document, counted) = complete(case, &mut fs, &cold, &[&["cold.trace"][..], words].concat());
    (document, counted, mount)
}

/// Records a cold start and compares it, until a recording says that it has everything: the kernel does not
/// run a program that already runs on the processor, which happens where another disk answers at that moment.
fn complete(case: &Case, fs: &mut LoopFs, record: &[&str], compare: &[&str]) -> (Value, u64) {
    for _ in 0..5 {
        fs.remount_cold().unwrap();
        let before = fs.reads();
        assert_eq!(case.headstart(record).code(), 0);
        let counted = fs.reads() - before;
        let document = case.json(&[&["compare", "--json"], compare].concat());
        if document["lost"] == 0 {
            return (document, counted.bytes);
        }
        println!("{} events were lost: recorded anew", document["lost"]);
    }
    panic!("events were lost in each of five recordings");
}

/// At most 0.5 % apart. A last read-ahead may be given to the device when the start has just ended: the
/// device counts it, and the document has it among what was read outside.
fn is_what_the_device_counted(document: &Value, bytes: u64, counted: u64) {
    let outside = document["outside"]["bytes"].as_u64().unwrap();
    let least = bytes - bytes / 200;
    let most = bytes + bytes / 200 + outside;
    assert!(
        (least..=most).contains(&counted),
        "{bytes} and {outside} outside, counted {counted}"
    );
}

fn part<'a>(document: &'a Value, mount: &Path) -> &'a Value {
    let parts = document["parts"].as_array().unwrap();
    let is = |part: &&Value| part["mount_point"].as_str() == mount.to_str();
    parts.iter().find(is).unwrap_or_else(|| panic!("{parts:?}"))
}

/// On the file systems of the first argument at least this share is explained, and all that the device read
/// is there.
fn explains(name: &str, spec: &Spec, least: f64) {
    if !can_mount() || !can_record() {
        return;
    }
    let case = Case::new();
    let (document, counted, mount) = compared(&case, spec, &["--plan", "t.plan"]);
    let part = part(&document, &mount);
    let (bytes, explained) = (
        part["bytes"].as_u64().unwrap(),
        part["explained"].as_u64().unwrap(),
    );
    let share = explained as f64 / bytes as f64;
    println!(
        "{name}: {explained} of {bytes} bytes explained, {:.3} %; the device counted {counted}",
        100.0 * share
    );
    println!("{name}: {} unexplained {}", part, document["unexplained"]);
    println!("{name}: {}", document["kinds"]);
    assert!(bytes > 5 << 20, "{bytes} bytes are no cold start");
    assert!(share >= least, "{name}: {share}");
    is_what_the_device_counted(&document, bytes, counted);

    // What was learned of the start covers what it reads.
    let kinds = document["kinds"].as_array().unwrap();
    let data = kinds.iter().find(|kind| kind["kind"] == "data").unwrap();
    let share = data["found"].as_u64().unwrap() as f64 / data["bytes"].as_u64().unwrap() as f64;
    assert!(share > 0.5, "{name}: of the data the plan has {share}");
    let files = document["files"].as_array().unwrap();
    let python = mount.join("usr/bin/python3");
    assert!(
        files
            .iter()
            .any(|file| file["path"].as_str() == python.to_str() && file["data"].as_u64() > Some(1 << 20)),
        "{name}: {}",
        files[0]
    );
    // Nearly all files have their names.
    let named = files.iter().filter(|file| file["path"].is_string()).count();
    println!("{name}: {named} of {} files named", files.len());
    assert!(named * 10 > files.len() * 9, "{name}: {named} of {}", files.len());
}

#[test]
fn blocks_of_ext4_are_explained() {
    explains("ext4, 4 KiB", &Spec::new("ext4").mkfs(&["-b", "4096"]), 0.99);
}

#[test]
fn blocks_of_ext4_with_small_blocks_are_explained() {
    explains("ext4, 1 KiB", &Spec::new("ext4").mkfs(&["-b", "1024"]), 0.99);
}

#[test]
fn blocks_of_ext2_are_explained() {
    explains("ext2", &Spec::new("ext2"), 0.99);
}

#[test]
fn blocks_of_xfs_are_explained() {
    explains("xfs", &Spec::new("xfs"), 0.95);
}

#[test]
fn blocks_of_btrfs_are_explained() {
    explains("btrfs", &Spec::new("btrfs"), 0.95);
}

#[test]
fn blocks_of_compressed_btrfs_are_explained() {
    let spec = Spec {
        options: "compress=zstd".into(),
        ..Spec::new("btrfs")
    };
    explains("btrfs, compressed", &spec, 0.95);
}

/// Each piece that is said to be of a file holds what the file has there.
#[test]
fn a_block_of_a_file_holds_its_bytes() {
    if !can_mount() || !can_record() {
        return;
    }
    for fstype in ["ext4", "xfs", "btrfs"] {
        let case = Case::new();
        let contents = |root: &Path| {
            for (file, size) in [("small", 5000), ("large", 3 << 20)] {
                let bytes: Vec<u8> = (0..size / 4u32).flat_map(|n| (n ^ size).to_le_bytes()).collect();
                std::fs::write(root.join(file), bytes)?;
            }
            std::fs::create_dir(root.join("directory"))?;
            std::fs::write(root.join("directory/in \"<it>\"\n\u{202e}"), vec![7; 9000])
        };
        let mut fs = LoopFs::create(&Spec::new(fstype), contents).unwrap();
        let point = fs.mount_point().to_str().unwrap().to_string();
        let script = format!("cat {point}/small {point}/large {point}/directory/in* | cksum > /dev/null");
        fs.remount_cold().unwrap();
        let record = ["record", "--chart", "-o", "t.trace", "--", "sh", "-c", &script];
        assert_eq!(case.headstart(&record).code(), 0);
        let document = case.json(&["compare", "t.trace", "--json"]);
        let image = std::fs::read(fs.image()).unwrap();
        let mut checked = HashMap::new();
        let own = fs.node().file_name().unwrap().to_str().unwrap()[4..]
            .parse::<u64>()
            .unwrap();
        for block in document["blocks"].as_array().unwrap() {
            let (Some("data"), Some(file)) = (block["kind"].as_str(), block["file"].as_u64()) else {
                continue;
            };
            let path = document["files"][file as usize]["path"].as_str().unwrap();
            if !path.starts_with(&point) || block["minor"].as_u64() != Some(own) {
                continue;
            }
            let number = |name: &str| block[name].as_u64().unwrap() as usize;
            let bytes = &image[number("sector") * 512..][..number("bytes")];
            let contents = std::fs::read(path).unwrap();
            let there = contents.get(number("offset")..).unwrap_or_default();
            let length = there.len().min(bytes.len());
            assert_eq!(bytes[..length], there[..length], "{fstype} {path} {block}");
            *checked.entry(path.to_string()).or_insert(0) += length;
        }
        println!("{fstype}: {checked:?}");
        assert!(checked[&format!("{point}/large")] == 3 << 20, "{checked:?}");
        assert_eq!(checked.len(), 3, "{fstype}: {checked:?}");
        let text = case.headstart(&["compare", "t.trace"]);
        assert!(
            text.out.lines().all(|line| line.chars().count() <= 80),
            "{}",
            text.out
        );
    }
}

#[test]
fn what_cannot_be_compared_is_said_with_the_way_out() {
    let case = Case::new();
    if !can_record() {
        return;
    }
    assert_eq!(
        case.headstart(&["record", "-o", "t.trace", "--", "true"]).code(),
        0
    );
    case.headstart(&["compare", "t.trace"])
        .refused(&["record --chart"]);
    case.write("text", "some text");
    case.headstart(&["compare", "t.trace", "--plan", "text"])
        .refused(&["text", "no file of headstart's"]);
    case.headstart(&["compare", "t.trace", "--name", "nobody"])
        .refused(&["nobody", "headstart status"]);
}

/// A trace that was recorded with what block devices did needs nothing else.
#[test]
fn a_trace_tells_itself_what_was_read() {
    if !can_mount() || !can_record() {
        return;
    }
    let case = Case::new();
    let mut fs = LoopFs::create(&Spec::new("ext4"), python).unwrap();
    let mount = fs.mount_point();
    let mut words = vec![
        "record",
        "--chart",
        "-o",
        "t.trace",
        "--",
        "chroot",
        mount.to_str().unwrap(),
    ];
    words.extend(PROGRAM);
    let (document, counted) = complete(&case, &mut fs, &words, &["t.trace"]);
    let part = part(&document, &mount);
    let (bytes, explained) = (
        part["bytes"].as_u64().unwrap(),
        part["explained"].as_u64().unwrap(),
    );
    println!("{bytes} bytes, {explained} explained; the device counted {counted}");
    assert!(
        bytes > 5 << 20 && explained * 100 >= bytes * 99,
        "{explained} of {bytes}"
    );
    is_what_the_device_counted(&document, bytes, counted);
    let blocks = document["blocks"].as_array().unwrap();
    assert!(blocks.iter().all(|block| block["time_ns"].as_i64() >= Some(0)));
}

/// A trace from anywhere: files that must not be opened, requests that no device has.
#[test]
fn a_hostile_trace_is_compared_without_harm() {
    use headstart_model::activity::{BlockDevice, BlockRequest, RequestKind};
    use headstart_model::{FilePath, Trace};

    if !can_mount() || !can_record() {
        return;
    }
    let case = Case::new();
    let fs = LoopFs::create(&Spec::new("xfs"), |root| {
        std::fs::write(root.join("file"), vec![1; 100_000])?;
        std::os::unix::fs::symlink("/etc/passwd", root.join("link"))?;
        output("mkfifo", &[root.join("fifo").to_str().unwrap()]);
        Ok(())
    })
    .unwrap();
    let file = fs.mount_point().join("file");
    let words = [
        "record",
        "--chart",
        "-o",
        "t.trace",
        "--",
        "cat",
        file.to_str().unwrap(),
    ];
    assert_eq!(case.headstart(&words).code(), 0);
    let mut trace = Trace::from_bytes(&std::fs::read(case.path("t.trace")).unwrap()).unwrap();
    let one = trace
        .files
        .iter()
        .find(|recorded| recorded.path.as_path() == file)
        .unwrap()
        .clone();
    let long = format!(
        "{}/{}",
        fs.mount_point().display(),
        "<\"'>/\u{1b}[2J\n".repeat(200)
    );
    let hostile =
        ["fifo", "link", "missing", "../../../../etc/shadow"].map(|name| fs.mount_point().join(name));
    for path in hostile.iter().map(|path| FilePath::from(path.as_path())) {
        // Without components that a trace may not hold.
        if path.check().is_ok() {
            trace
                .files
                .push(headstart_model::trace::File { path, ..one.clone() });
        }
    }
    for path in ["/dev/zero", "/proc/kmsg", long.as_str()] {
        trace.files.push(headstart_model::trace::File {
            path: path.into(),
            inode: 131,
            ..one.clone()
        });
    }
    let number = std::fs::read_to_string(format!(
        "/sys/block/{}/dev",
        fs.node().file_name().unwrap().to_str().unwrap()
    ));
    let number = number.unwrap();
    let (major, minor) = number.trim().split_once(':').unwrap();
    let activity = trace.activity.as_mut().unwrap();
    activity.devices = vec![BlockDevice {
        major: major.parse().unwrap(),
        minor: minor.parse().unwrap(),
        name: "\u{1b}[31m".into(),
        sectors: 0,
    }];
    let request = |sector, sectors| BlockRequest {
        issued_ns: 1,
        completed_ns: None,
        device: 0,
        sector,
        sectors,
        kind: RequestKind::Read,
        metadata: false,
        ahead: false,
        process: None,
    };
    activity.requests = vec![request(0, 1 << 20), request(1 << 40, 8), request(7, 1)];
    case.write("hostile", trace.to_bytes().unwrap());
    let ran = case.headstart(&["compare", "hostile", "--blocks"]);
    assert_eq!(ran.code(), 0, "{}", ran.err);
    assert!(
        ran.out.contains("super block") && !ran.out.contains('\u{1b}'),
        "{}",
        ran.out
    );
    assert!(
        !ran.out.contains("kmsg") && !ran.out.contains("passwd"),
        "{}",
        ran.out
    );
    let document = case.json(&["compare", "hostile", "--json", "--limit", "1"]);
    assert_eq!(document["read"]["requests"], 3);
}

/// The same files of a SquashFS, read in the order of their places and in another: as before and after an
/// order is given to an image.
#[test]
fn what_a_medium_read_in_two_orders_is_set_side_by_side() {
    if !can_mount() || !can_record() {
        return;
    }
    undisturbed(|| {
        let case = Case::new();
        let fill = |root: &Path| {
            let contents =
                |i: u32| (0..60_000u32).map(move |at| (at.wrapping_mul(2_654_435_761 + i) >> 24) as u8);
            (0..64).try_for_each(|i| {
                std::fs::write(root.join(format!("f{i:02}")), contents(i).collect::<Vec<u8>>())
            })
        };
        let spec = Spec::new("squashfs").mkfs(&["-noD", "-no-fragments"]);
        let mut fs = LoopFs::create(&spec, fill).unwrap();
        let root = fs.mount_point();
        // There and back: each file far from the one before.
        let there_and_back = (0..32).flat_map(|i| [i, 63 - i]).map(|i| format!("f{i:02} "));
        for (trace, names) in [("before", there_and_back.collect()), ("after", "f*".to_string())] {
            fs.remount_cold().unwrap();
            let command = format!("cd {} && cat {names} >/dev/null", root.display());
            let record = ["record", "--chart", "-o", trace, "--", "sh", "-c", &command];
            let ran = case.headstart(&record);
            assert_eq!(ran.code(), 0, "{}", ran.err);
        }
        let document = case.json(&["compare", "before", "--after", "after", "--json"]);
        let [before, after] = ["before", "after"].map(|order| &document[order]);
        let number = |order: &Value, name: &str| order[name].as_f64().unwrap();
        assert!(
            number(before, "travel") > 10.0 * number(after, "travel"),
            "{document}"
        );
        assert!(
            number(before, "optical_seconds") > number(after, "optical_seconds"),
            "{document}"
        );
        let ran = case.headstart(&["compare", "after", "--after", "before"]);
        assert_eq!(ran.code(), 0, "{}", ran.err);
        assert!(ran.out.contains("CD-ROM"), "{}", ran.out);
        assert!(
            ran.out.contains("does not pay: leave the files as they were"),
            "{}",
            ran.out
        );
    });
}
