//! A tree with one of everything that makes metadata interesting.

use crate::snapshot::{Need, Wanted};
use headstart_model::FilePath;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

/// Files in the large directory: enough for an index of two levels with 1 KiB blocks.
pub const MANY: usize = 6000;

/// The path of the `n`th of them.
pub fn many(n: usize) -> String {
    format!("many/a-name-that-takes-some-room-in-the-directory-{n:05}")
}

/// Makes the tree.
pub fn fill(root: &Path) -> io::Result<()> {
    fs::create_dir(root.join("many"))?;
    for n in 0..MANY {
        File::create(root.join(many(n)))?;
    }
    for d in 0..40 {
        let dir = root.join(format!("deep/{}/d{d}", d % 4));
        fs::create_dir_all(&dir)?;
        for f in 0..30 {
            fs::write(dir.join(format!("f{f}")), vec![d as u8; 100 + f * 700])?;
        }
    }
    // Blocks with holes between them: more extents than an inode holds, and indirect blocks on ext2 and ext3.
    let fragmented = File::create(root.join("fragmented"))?;
    for block in 0..1500u64 {
        fragmented.write_all_at(&[1; 4096], block * 8192)?;
    }
    fs::write(root.join("large"), vec![2; 20 << 20])?;
    fs::write(root.join("empty"), "")?;
    let sparse = File::create(root.join("sparse"))?;
    sparse.set_len(1 << 30)?;
    sparse.write_all_at(b"end", (1 << 30) - 3)?;
    symlink("deep/1/d1/f1", root.join("link"))?;
    let slow = format!("{}deep/1/d1", "./".repeat(60));
    symlink(slow, root.join("slow-link"))?;
    let _ = std::process::Command::new("mkfifo")
        .arg(root.join("fifo"))
        .status()?;
    Ok(())
}

/// A selection of the tree, and names that are not there.
pub fn wanted(root: &Path) -> Vec<Wanted> {
    let mut wanted = Vec::new();
    let mut want = |path: String, need| {
        wanted.push(Wanted {
            path: FilePath::from(root.join(path).as_path()),
            need,
        });
    };
    for n in (0..MANY).step_by(97) {
        want(many(n), Need::Stat);
    }
    for n in 0..20 {
        want(format!("many/not-there-{n}"), Need::Stat);
        want(format!("deep/2/d2/not-there-{n}/below"), Need::Stat);
    }
    for d in (0..40).step_by(3) {
        want(format!("deep/{}/d{d}", d % 4), Need::List);
        for f in (0..30).step_by(2) {
            want(format!("deep/{}/d{d}/f{f}", d % 4), Need::Data);
        }
    }
    for file in ["fragmented", "large", "empty", "sparse", "link", "slow-link/f3"] {
        want(file.into(), Need::Data);
    }
    want("fifo".into(), Need::Stat);
    wanted
}
