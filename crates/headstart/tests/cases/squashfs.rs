//! Small files of a SquashFS, read with a buffer larger than they are, are learned; so are those that lie in
//! an inode, as ext4 keeps them.

use crate::common::{Case, can_record, run_words};
use headstart_system::testing::{LoopFs, Mounted, Spec, can_mount};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Sizes around pages, the buffers that programs read by, and SquashFS's block of 128 KiB.
const SIZES: [usize; 10] = [
    1, 4095, 4096, 4097, 8192, 60_000, 65_536, 131_072, 131_077, 300_000,
];

fn fill(root: &Path) -> std::io::Result<()> {
    for (i, size) in SIZES.into_iter().enumerate() {
        // Contents of their own, so that no two are stored as one.
        let bytes: Vec<u8> = (0..size).map(|at| (at * 7 + i * 31 + at / 251) as u8).collect();
        std::fs::write(root.join(format!("f{size}")), bytes)?;
    }
    std::fs::create_dir(root.join("many"))?;
    for i in 0..200 {
        std::fs::write(
            root.join(format!("many/{i}")),
            format!("{i} ").repeat(200 + i * 13),
        )?;
    }
    Ok(())
}

/// The pages that a recording has of each file below a directory.
fn pages(case: &Case, backend: &str, below: &Path, command: &str) -> BTreeMap<String, Vec<u64>> {
    let ran = case.headstart(&[
        "record",
        "--backend",
        backend,
        "-o",
        "trace",
        "--",
        "sh",
        "-c",
        command,
    ]);
    assert_eq!(ran.code(), 0, "{}", ran.err);
    pages_of(&case.json(&["show", "trace", "--json"]), below)
}

fn pages_of(trace: &Value, below: &Path) -> BTreeMap<String, Vec<u64>> {
    assert_eq!(trace["lost"]["events"], 0);
    let mut by_name = BTreeMap::new();
    let files = trace["files"].as_array().unwrap();
    for used in trace["uses"].as_array().unwrap() {
        let file = &files[used["file"].as_u64().unwrap() as usize];
        let path = Path::new(file["path"].as_str().unwrap());
        let Ok(name) = path.strip_prefix(below) else {
            continue;
        };
        let start = used["start"].as_u64().unwrap();
        let pages: &mut Vec<u64> = by_name.entry(name.to_str().unwrap().to_owned()).or_default();
        pages.extend(start..start + used["pages"].as_u64().unwrap());
    }
    for pages in by_name.values_mut() {
        pages.sort_unstable();
        pages.dedup();
    }
    by_name
}

/// All pages of each of these files.
fn all(root: &Path, names: &[String]) -> BTreeMap<String, Vec<u64>> {
    let pages = |name: &String| std::fs::metadata(root.join(name)).unwrap().len().div_ceil(4096);
    names
        .iter()
        .map(|name| (name.clone(), (0..pages(name)).collect()))
        .collect()
}

fn sized() -> Vec<String> {
    SIZES.iter().map(|size| format!("f{size}")).collect()
}

fn everything() -> Vec<String> {
    let many = (0..200).map(|i| format!("many/{i}"));
    sized().into_iter().chain(many).collect()
}

/// A program in C that reads the files it is given in the way it is told to first.
fn reader(case: &Case) -> PathBuf {
    let source = case.write("reader.c", include_str!("reader.c"));
    let program = case.path("reader");
    let built = Command::new("cc")
        .args(["-w", "-o"])
        .arg(&program)
        .arg(source)
        .status();
    assert!(built.unwrap().success(), "cc");
    program
}

#[test]
fn all_pages_are_seen_cold_and_warm_as_on_erofs() {
    if !can_record() || !can_mount() {
        return;
    }
    for fstype in ["squashfs", "erofs"] {
        let case = Case::new();
        let fs = LoopFs::create(&Spec::new(fstype), fill).unwrap();
        let root = fs.mount_point();
        let command = format!("cd {} && find . -type f | xargs cat >/dev/null", root.display());
        for memory in ["cold", "warm"] {
            let seen = pages(&case, "bpf", &root, &command);
            assert_eq!(seen, all(&root, &everything()), "{fstype}, {memory}");
        }
    }
}

/// Without BPF the pages that a cold read brings into memory tell it: those of the file's blocks.
#[test]
fn a_cold_read_is_seen_by_tracefs() {
    if !can_record() || !can_mount() {
        return;
    }
    let case = Case::new();
    let fs = LoopFs::create(&Spec::new("squashfs"), fill).unwrap();
    let root = fs.mount_point();
    // tracefs asks for the files some milliseconds later.
    let command = format!(
        "cd {} && cat $(find . -type f) >/dev/null; sleep 1",
        root.display()
    );
    let seen = pages(&case, "tracefs", &root, &command);
    assert_eq!(seen, all(&root, &everything()));
}

#[test]
fn whatever_call_reads_to_the_end_is_seen() {
    if !can_record() || !can_mount() {
        return;
    }
    let case = Case::new();
    let program = reader(&case);
    let mut fs = LoopFs::create(&Spec::new("squashfs"), fill).unwrap();
    let root = fs.mount_point();
    let ways = [
        "read", "pread", "readv", "preadv", "preadv2", "sendfile", "splice", "uring", "threads", "mmap",
    ];
    for way in ways {
        for memory in ["cold", "warm"] {
            if memory == "cold" {
                fs.remount_cold().unwrap();
            }
            let command = format!("cd {} && {} {way} f*", root.display(), program.display());
            let seen = pages(&case, "bpf", &root, &command);
            assert_eq!(seen, all(&root, &sized()), "{way}, {memory}");
        }
    }
}

/// What is read of a file is its beginning: the pages behind are not told, on a file system where they could
/// be guessed.
#[test]
fn a_part_that_is_read_stays_a_part() {
    if !can_record() || !can_mount() {
        return;
    }
    let case = Case::new();
    let fs = LoopFs::create(&Spec::new("squashfs"), fill).unwrap();
    let root = fs.mount_point();
    let command = format!(
        "cd {} && head -c 8192 f300000 && dd if=f60000 bs=4096 count=3 status=none",
        root.display()
    );
    // The second time all pages are in memory.
    for _ in 0..2 {
        let seen = pages(&case, "bpf", &root, &format!("({command}) >/dev/null"));
        assert_eq!(seen["f60000"], [0, 1, 2]);
        assert!(seen["f300000"].len() <= 16, "{:?}", seen["f300000"]);
        assert_eq!(seen.len(), 2);
    }
}

/// As a live system has it.
#[test]
fn below_an_overlay_too() {
    if !can_record() || !can_mount() {
        return;
    }
    let case = Case::new();
    let fs = LoopFs::create(&Spec::new("squashfs"), fill).unwrap();
    let (lower, point) = (fs.mount_point(), fs.beside().join("live"));
    let dirs = ["upper", "work"].map(|name| case.path(name));
    for dir in dirs.iter().chain([&point]) {
        std::fs::create_dir(dir).unwrap();
    }
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        lower.display(),
        dirs[0].display(),
        dirs[1].display()
    );
    let words = ["-t", "overlay", "-o", &options, "overlay"];
    let live = Mounted::new(&words, &point).unwrap();
    let command = format!(
        "cd {} && find . -type f | xargs cat >/dev/null",
        live.path().display()
    );
    for memory in ["cold", "warm"] {
        let seen = pages(&case, "bpf", &lower, &command);
        assert_eq!(seen, all(&lower, &everything()), "{memory}");
    }
}

/// A start that is learned is read ahead: nothing of the files has to be read when the command runs.
#[test]
fn a_cold_start_is_read_ahead() {
    if !can_record() || !can_mount() {
        return;
    }
    let case = Case::new();
    let mut fs = LoopFs::create(&Spec::new("squashfs"), fill).unwrap();
    let root = fs.mount_point();
    let command = format!("cd {} && find . -type f | xargs cat >/dev/null", root.display());
    for _ in 0..2 {
        fs.remount_cold().unwrap();
        assert_eq!(case.run("s", &["sh", "-c", &command]).code(), 0);
    }
    for name in sized() {
        let path = root.join(&name);
        let known = case.json(&["explain", "--name", "s", "--json", path.to_str().unwrap()]);
        let ranges = known[0]["entry"]["ranges"].as_array().unwrap().iter();
        let pages: u64 = ranges.map(|range| range["pages"].as_u64().unwrap()).sum();
        let size = std::fs::metadata(&path).unwrap().len();
        assert_eq!(pages, size.div_ceil(4096), "{name}: {known}");
    }
    fs.remount_cold().unwrap();
    let ran = case.headstart(&run_words(
        &["--wait", "--json"],
        "0",
        "s",
        &["sh", "-c", &command],
    ));
    let outcome: Value = serde_json::from_str(
        ran.err
            .lines()
            .chain(ran.out.lines())
            .find(|line| line.starts_with("{\"key\""))
            .unwrap(),
    )
    .unwrap();
    let missed = outcome["stages"][0]["missed_pages"].as_u64().unwrap();
    let issued = outcome["stages"][0]["issued_pages"].as_u64().unwrap();
    assert!(issued > 300 && missed * 20 <= issued, "{outcome}");
}

/// ext4 reads nothing ahead of what lies in an inode: a read makes the page itself, and the kernel gives no
/// event of that.
#[test]
fn what_lies_in_an_inode_is_seen_whatever_call_reads_it() {
    if !can_record() || !can_mount() {
        return;
    }
    const SIZES: [usize; 9] = [1, 60, 100, 300, 600, 700, 1000, 4097, 20_000];
    let fill = |root: &Path| {
        let write = |size: usize| std::fs::write(root.join(format!("f{size}")), vec![7; size]);
        SIZES.into_iter().try_for_each(write)
    };
    let names: Vec<String> = SIZES.iter().map(|size| format!("f{size}")).collect();
    let case = Case::new();
    let program = reader(&case);
    let spec = Spec::new("ext4").mkfs(&["-I", "1024", "-O", "inline_data"]);
    let mut fs = LoopFs::create(&spec, fill).unwrap();
    let root = fs.mount_point();
    let ways = [
        "read", "pread", "readv", "preadv", "preadv2", "sendfile", "splice", "uring", "threads", "mmap",
    ];
    for way in ways {
        fs.remount_cold().unwrap();
        let command = format!("cd {} && {} {way} f*", root.display(), program.display());
        let seen = pages(&case, "bpf", &root, &command);
        assert_eq!(seen, all(&root, &names), "{way}");
    }
    // What is written is no use of it, and what is copied is one of what it is copied from.
    fs.remount_cold().unwrap();
    let command = format!("cd {} && echo new >new && cat f300 >f300.copy", root.display());
    let seen = pages(&case, "bpf", &root, &command);
    assert_eq!(seen, all(&root, &["f300".to_owned()]));
}
