//! A root directory into an image file, by each file system's own tools.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::build::EPOCH;
use super::{Fs, Recipe};
use crate::registry::{Item, Registry};
use crate::{paths, tools};

/// The programs that packing into `fs` calls.
pub(super) fn tools(fs: Fs) -> &'static [&'static str] {
    match fs {
        Fs::Ext4 | Fs::Overlay => &["mkfs.ext4", "e2fsck"],
        Fs::Xfs => &["mkfs.xfs", "mount", "cp"],
        Fs::Btrfs => &["mkfs.btrfs", "mount", "cp"],
        Fs::Squashfs => &["mksquashfs"],
        Fs::Erofs => &["mkfs.erofs"],
    }
}

/// Writes the image of `root`.
pub(super) fn pack(recipe: &Recipe, root: &Path, fs: Fs, image: &Path, registry: &Registry) -> Result<()> {
    let uuid = recipe.uuid(fs);
    let usage = usage(root)?;
    let size = usage.bytes + usage.bytes / 8 + (64 << 20);
    match fs {
        Fs::Ext4 | Fs::Overlay => {
            sparse(image, size + 600 * usage.files)?;
            let mut command = Command::new("mkfs.ext4");
            command.env("E2FSPROGS_FAKE_TIME", EPOCH).arg("-q").arg("-F");
            // As on any system of a size to be installed; below 512 MiB mke2fs would choose 1 KiB.
            command.args(["-b", "4096"]);
            // Nothing is left for a background thread to write after the first mount.
            let extended = format!("hash_seed={uuid},lazy_itable_init=0,lazy_journal_init=0");
            command.args(["-U", &uuid, "-E", &extended, "-m", "1"]);
            command.args(["-N", &(usage.files + usage.files / 4 + 1000).to_string()]);
            tools::output(command.arg("-d").arg(root).arg(image))?;
            // mke2fs writes directories without an index; an installed system has them. Status 1 says that it did so.
            let status = Command::new("e2fsck")
                .env("E2FSPROGS_FAKE_TIME", EPOCH)
                .args(["-f", "-y", "-D"])
                .arg(image)
                .output()
                .map_err(|error| tools::explain("e2fsck", &error))?;
            if !matches!(status.status.code(), Some(0 | 1)) {
                bail!("e2fsck -fyD {} ended with {}", image.display(), status.status);
            }
            Ok(())
        }
        Fs::Xfs => {
            // 300 MB is the least that mkfs.xfs accepts.
            sparse(image, size.max(320 << 20))?;
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
    }
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
    let target = paths::base()?.join("fill");
    fs::create_dir_all(&target)?;
    let guard = registry.guard(Item::Mount {
        target: target.clone(),
    })?;
    tools::run(
        "mount",
        [Path::new("-o"), Path::new("loop,noatime"), image, &target],
    )?;
    let mut source = root.as_os_str().to_owned();
    source.push("/.");
    tools::run("cp", ["-a".as_ref(), source.as_os_str(), target.as_os_str()])?;
    guard.undo()
}
