//! A root directory into an image file, by each file system's own tools.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{Fs, Recipe};
use crate::registry::{Item, Registry};
use crate::{paths, tools};

/// Timestamp of everything in an image that the lab makes and no package brings (2025-01-01), so that equal
/// recipes give equal images.
pub(super) const EPOCH: &str = "1735689600";

/// What makes a file system look as if it had been used for years.
const AGE: &str = include_str!("age.py");
/// An aged file system has room for so many times what is installed, and some more: most of it is taken by
/// other files.
const AGED_SIZE: u64 = 4;

/// The programs that packing into `fs` calls.
pub(super) fn tools(fs: Fs) -> &'static [&'static str] {
    match fs {
        Fs::Ext4 | Fs::Overlay => &["mkfs.ext4", "e2fsck", "dumpe2fs", "debugfs"],
        Fs::Xfs => &["mkfs.xfs", "mount", "cp"],
        Fs::Btrfs => &["mkfs.btrfs", "mount", "cp"],
        Fs::Squashfs => &["mksquashfs"],
        Fs::Erofs => &["mkfs.erofs"],
        Fs::Aged70 | Fs::Aged90 => &["mkfs.ext4", "mount", "cp", "python3", "e2fsck", "e2freefrag"],
    }
}

/// Writes the image of `root`; `say` is told what is worth telling of it.
pub(super) fn pack(
    recipe: &Recipe,
    root: &Path,
    fs: Fs,
    image: &Path,
    registry: &Registry,
    say: &dyn Fn(&str),
) -> Result<()> {
    let uuid = recipe.uuid(fs);
    let usage = usage(root)?;
    let size = usage.bytes + usage.bytes / 8 + (64 << 20);
    match fs {
        Fs::Ext4 | Fs::Overlay => pack_ext4(&uuid, &usage, size, root, image),
        Fs::Xfs => {
            // 300 MB is the least that mkfs.xfs accepts. Its log takes 64 MiB, and each file an inode and
            // what is left of its last block.
            let each = 5 << 10;
            sparse(image, (size + each * usage.files + (64 << 20)).max(320 << 20))?;
            let mut command = Command::new("mkfs.xfs");
            tools::output(
                command
                    .args(["-q", "-f", "-m", &format!("uuid={uuid}")])
                    .arg(image),
            )?;
            fill(image, root, registry)
        }
        Fs::Btrfs => {
            sparse(image, (size + usage.bytes / 8).max(256 << 20))?;
            let mut command = Command::new("mkfs.btrfs");
            tools::output(command.args(["-q", "-f", "-U", &uuid]).arg(image))?;
            fill(image, root, registry)
        }
        Fs::Squashfs => {
            let mut command = Command::new("mksquashfs");
            // The environment's epoch and -mkfs-time exclude each other.
            command.env_remove("SOURCE_DATE_EPOCH").arg(root).arg(image);
            command.args([
                "-comp",
                "zstd",
                "-noappend",
                "-quiet",
                "-no-progress",
                "-mkfs-time",
                EPOCH,
            ]);
            tools::output(&mut command)?;
            round_up(image)
        }
        Fs::Erofs => {
            let mut command = Command::new("mkfs.erofs");
            command
                .args(["-zlz4hc", "-U", &uuid, "-T", EPOCH])
                .arg(image)
                .arg(root);
            tools::output(&mut command)?;
            round_up(image)
        }
        Fs::Aged70 | Fs::Aged90 => {
            let full = if fs == Fs::Aged70 { "70" } else { "90" };
            say(&format!(
                "using {} for years, until it is {full} % full",
                recipe.name
            ));
            pack_aged(&uuid, &usage, full, root, image, registry, say)
        }
    }
}

fn pack_ext4(uuid: &str, usage: &Usage, size: u64, root: &Path, image: &Path) -> Result<()> {
    sparse(image, size + 600 * usage.files)?;
    let mut command = Command::new("mkfs.ext4");
    command.env("E2FSPROGS_FAKE_TIME", EPOCH).arg("-q").arg("-F");
    // As on any system of a size to be installed; below 512 MiB mke2fs would choose 1 KiB.
    command.args(["-b", "4096"]);
    // Nothing is left for a background thread to write after the first mount.
    let extended = format!("hash_seed={uuid},lazy_itable_init=0,lazy_journal_init=0");
    command.args(["-U", uuid, "-E", &extended, "-m", "1"]);
    command.args(["-N", &(usage.files + usage.files / 4 + 1000).to_string()]);
    tools::output(command.arg("-d").arg(root).arg(image))?;
    // mke2fs writes directories without an index; an installed system has them. Status 1 says that it
    // did so.
    let status = Command::new("e2fsck")
        .env("E2FSPROGS_FAKE_TIME", EPOCH)
        .args(["-f", "-y", "-D"])
        .arg(image)
        .output()
        .map_err(|error| tools::explain("e2fsck", &error))?;
    if !matches!(status.status.code(), Some(0 | 1)) {
        bail!("e2fsck -fyD {} ended with {}", image.display(), status.status);
    }
    timeless(image)
}

/// An ext4 that was used until it was so full, percent.
fn pack_aged(
    uuid: &str,
    usage: &Usage,
    full: &str,
    root: &Path,
    image: &Path,
    registry: &Registry,
    say: &dyn Fn(&str),
) -> Result<()> {
    sparse(image, usage.bytes * AGED_SIZE + (512 << 20))?;
    let inodes = (usage.files * 4 + 100_000).to_string();
    let mut command = Command::new("mkfs.ext4");
    command.args(["-q", "-F", "-b", "4096", "-m", "1", "-U", uuid, "-N", &inodes]);
    command.args(["-E", "lazy_itable_init=0,lazy_journal_init=0"]);
    tools::output(command.arg(image))?;
    let told = mounted(image, registry, |target| {
        let mut command = Command::new("python3");
        command.args(["-c", AGE]).arg(target).arg(root).args([full, "17"]);
        tools::output_of("age.py", &mut command)
    })?;
    say(String::from_utf8_lossy(&told.stdout).trim());
    tools::run("e2fsck", [Path::new("-fn"), image])?;
    let free = tools::run("e2freefrag", [image])?;
    for line in free.lines().filter(|line| line.contains("free extent")) {
        say(line);
    }
    Ok(())
}

/// Gives an ext4 image the times that mke2fs (of Debian 12; later ones do this themselves) takes from the
/// files it packs and nobody can set on those, and the time of its check: the last things that would tell two
/// builds apart.
fn timeless(image: &Path) -> Result<()> {
    let shown = tools::run("dumpe2fs", [image])?;
    let count = |name: &str| -> Option<u64> {
        let line = shown.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse().ok()
    };
    let inodes =
        count("Inode count:").with_context(|| format!("dumpe2fs {}: no inode count", image.display()))?;
    let free = free_inodes(&shown);
    let mut script = format!("set_current_time @{EPOCH}\n");
    for inode in (1..=inodes).filter(|inode| !free.iter().any(|range| range.contains(inode))) {
        for field in ["atime", "ctime"] {
            script += &format!("set_inode_field <{inode}> {field} @{EPOCH}\n");
        }
    }
    script += &format!("set_super_value lastcheck @{EPOCH}\n");
    let path = image.with_extension("times");
    fs::write(&path, script).with_context(|| format!("writing {}", path.display()))?;
    let arguments = ["-w".as_ref(), "-f".as_ref(), path.as_os_str(), image.as_os_str()];
    let result = tools::output(Command::new("debugfs").args(arguments));
    fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
    // Whatever went wrong, debugfs(8) ends with 0; it begins by naming its version.
    let said = String::from_utf8_lossy(&result?.stderr).into_owned();
    if let Some(error) = said.lines().find(|line| !line.starts_with("debugfs ")) {
        bail!("debugfs {}: {error}", image.display());
    }
    Ok(())
}

/// The free inodes that dumpe2fs(8) lists group by group.
fn free_inodes(shown: &str) -> Vec<std::ops::RangeInclusive<u64>> {
    let lists = shown
        .lines()
        .filter_map(|line| line.strip_prefix("  Free inodes: "));
    let ranges = lists.flat_map(|list| list.split(", "));
    ranges
        .filter_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            Some(first.parse().ok()?..=last.parse().ok()?)
        })
        .collect()
}

struct Usage {
    bytes: u64,
    files: u64,
}

fn usage(directory: &Path) -> Result<Usage> {
    let mut total = Usage { bytes: 0, files: 0 };
    let mut pending = vec![directory.to_path_buf()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory).with_context(|| format!("reading {}", directory.display()))? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            total.files += 1;
            total.bytes += metadata.blocks() * 512;
            if metadata.is_dir() {
                pending.push(entry.path());
            }
        }
    }
    Ok(total)
}

fn sparse(image: &Path, size: u64) -> Result<()> {
    let file = File::create(image).with_context(|| format!("creating {}", image.display()))?;
    // Whole MiB.
    file.set_len(size.div_ceil(1 << 20) << 20)
        .with_context(|| format!("sizing {}", image.display()))
}

/// Ends the image on a whole block of a loop device.
fn round_up(image: &Path) -> Result<()> {
    let file = File::options().write(true).open(image)?;
    file.set_len(file.metadata()?.len().div_ceil(4096) * 4096)
        .with_context(|| format!("sizing {}", image.display()))
}

/// Copies `root` into the mounted image, as an installer would.
fn fill(image: &Path, root: &Path, registry: &Registry) -> Result<()> {
    let mut source = root.as_os_str().to_owned();
    source.push("/.");
    mounted(image, registry, |target| {
        tools::run("cp", ["-a".as_ref(), source.as_os_str(), target.as_os_str()])
    })?;
    Ok(())
}

/// Does something to the mounted image.
fn mounted<T>(image: &Path, registry: &Registry, act: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
    let target = paths::base()?.join("fill");
    fs::create_dir_all(&target)?;
    let guard = registry.guard(Item::Mount {
        target: target.clone(),
    })?;
    tools::run(
        "mount",
        [Path::new("-o"), Path::new("loop,noatime"), image, &target],
    )?;
    let done = act(&target)?;
    guard.undo()?;
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn two_images_of_equal_files_are_the_same_bytes() {
        let scratch = tempfile::tempdir().unwrap();
        let registry = Registry::open(scratch.path()).unwrap();
        let recipe = Recipe::load("git").unwrap();
        let images = |name: &str| {
            let root = scratch.path().join(name);
            for directory in ["a", "b/c"] {
                fs::create_dir_all(root.join(directory)).unwrap();
            }
            for number in 0..300 {
                let file = root.join("b/c").join(format!("file{number:03}"));
                fs::write(&file, name.len().to_string()).unwrap();
                fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
            }
            // Times that can be set are equal, as building leaves them; others are not.
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1 << 30);
            let mut pending = vec![root.clone()];
            while let Some(path) = pending.pop() {
                if path.is_dir() {
                    pending.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
                }
                File::open(&path).unwrap().set_modified(time).unwrap();
            }
            [Fs::Ext4, Fs::Squashfs, Fs::Erofs].map(|fs| {
                let image = scratch.path().join(format!("{name}.{fs}"));
                pack(&recipe, &root, fs, &image, &registry, &|_| {}).unwrap();
                (fs, fs::read(&image).unwrap())
            })
        };
        let first = images("one");
        std::thread::sleep(std::time::Duration::from_millis(1100));
        for ((fs, one), (_, two)) in first.iter().zip(&images("two")) {
            assert!(one == two, "the images on {fs} differ");
        }
        assert_eq!(
            fs::read_dir(scratch.path())
                .unwrap()
                .filter(|e| {
                    e.as_ref()
                        .unwrap()
                        .path()
                        .extension()
                        .is_some_and(|x| x == "times")
                })
                .count(),
            0
        );
    }

    #[test]
    fn free_inodes_are_read_from_dumpe2fs() {
        let shown =
            "Free inodes:              9\nGroup 0:\n  Free inodes: \nGroup 1:\n  Free inodes: 12, 15-20\n";
        assert_eq!(free_inodes(shown), [12..=12, 15..=20]);
    }
}
