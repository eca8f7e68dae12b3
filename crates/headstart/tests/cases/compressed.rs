//! File systems that compress by blocks: a replay reads no block twice, and leaves a start next to nothing.

use crate::common::{Case, can_record, run_words};
use headstart_system::testing::{LoopFs, Reads, Spec, can_mount};
use std::path::Path;

/// As live systems, snaps and images of containers are made.
const IMAGES: [(&str, &[&str]); 6] = [
    ("squashfs", &["-comp", "gzip"]),
    ("squashfs", &["-comp", "zstd", "-b", "1M"]),
    ("squashfs", &["-comp", "xz", "-no-fragments"]),
    ("squashfs", &["-comp", "xz", "-b", "1M", "-always-use-fragments"]),
    ("erofs", &["-zlz4hc"]),
    ("erofs", &["-zlz4hc", "-C65536"]),
];

/// Three libraries, of which parts are needed, and modules in directories, of which an eighth is: more metadata
/// than the kernel keeps.
const LIBRARIES: usize = 3;
const MODULES: usize = 2000;

fn fill(root: &Path) -> std::io::Result<()> {
    // Numbers as text: half of it is left when it is compressed. No two files begin at the same place of it.
    let numbers = (0u64..400_000).map(|n| format!("{:x} ", n.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    let text: Vec<u8> = numbers.flat_map(String::into_bytes).collect();
    for n in 0..LIBRARIES {
        let library = format!("library{n}.so");
        std::fs::write(root.join(&library), &text[n * 300_001..][..5_000_000])?;
        std::os::unix::fs::symlink(&library, root.join(format!("link{n}.so")))?;
    }
    for n in 0..MODULES {
        let dir = root.join(format!("package{}", n % 20));
        std::fs::create_dir_all(&dir)?;
        let length = 300 + 37 * (n % 400);
        std::fs::write(dir.join(format!("module{n}.py")), &text[n * 2_999..][..length])?;
    }
    Ok(())
}

/// What starts do: directories are listed, modules looked up in several of them, small files read, libraries
/// mapped and touched here and there.
const START: &str = r#"
import mmap, os, sys
root = sys.argv[1]
for n in range(0, 2000, 8):
    for d in (3, n % 20):
        path = f"{root}/package{d}"
        os.listdir(path)
        try:
            with open(f"{path}/module{n}.py", "rb") as file:
                file.read()
        except FileNotFoundError:
            pass
for n in range(3):
    with open(f"{root}/link{n}.so", "rb") as file:
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as library:
            for at in range(n * 4096, len(library), 90_000 + n * 100_000):
                library[at]
"#;

#[test]
fn a_replay_reads_each_block_once_and_leaves_the_start_next_to_nothing() {
    if !can_record() || !can_mount() {
        return;
    }
    for (fstype, arguments) in IMAGES {
        let case = Case::new();
        let script = case.write("start.py", START);
        // What the device reads is counted, and not what lies in the image's cache.
        let spec = Spec {
            direct_io: true,
            ..Spec::new(fstype).mkfs(arguments)
        };
        let mut fs = LoopFs::create(&spec, fill).unwrap();
        let root = fs.mount_point();
        let words = ["python3", script.to_str().unwrap(), root.to_str().unwrap()];
        let start = || {
            let ran = std::process::Command::new(words[0]).args(&words[1..]).status();
            assert!(ran.unwrap().success());
        };
        let before = fs.reads();
        start();
        let cold = fs.reads() - before;
        for _ in 0..2 {
            fs.remount_cold().unwrap();
            let ran = case.headstart(&run_words(&["--wait"], "0", "s", &words));
            assert_eq!(ran.code(), 0, "{}", ran.err);
        }
        // Somebody may drop the machine's page cache in between.
        let is_served = (0..5).any(|_| {
            fs.remount_cold().unwrap();
            let before = fs.reads();
            let ran = case.headstart(&["replay", "s", "--wait"]);
            assert_eq!(ran.code(), 0, "{}", ran.err);
            let replayed = fs.reads() - before;
            let before = fs.reads();
            start();
            let left = fs.reads() - before;
            println!("{fstype} {arguments:?}: cold {cold:?}, replay {replayed:?}, left {left:?}");
            is_served(cold, replayed, left)
        });
        assert!(is_served, "{fstype} {arguments:?}");
    }
}

/// Whether a replay read no more than a start by itself, and left of its reads little: a SquashFS keeps the
/// lists of directories in no memory that a replay can fill.
fn is_served(cold: Reads, replayed: Reads, left: Reads) -> bool {
    replayed.requests <= cold.requests
        && replayed.bytes * 20 <= cold.bytes * 21
        && left.requests * 20 <= cold.requests
        && left.bytes * 50 <= cold.bytes
}
