//! What a lab can put on a machine, and how each is taken away again.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::process::{end_group, holders, remove_cgroup};
use crate::{print, tools};

/// How long the last user of a device may take to let it go.
const DETACHING: Duration = Duration::from_secs(20);

/// One thing that must not stay behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Item {
    /// A file system mounted at `target`.
    Mount {
        /// Mount point.
        target: PathBuf,
    },
    /// A FUSE server's mount: its connection is aborted when it does not go quietly.
    Fuse {
        /// Mount point.
        target: PathBuf,
    },
    /// A loop device, ours as long as it is backed by `backing`, or by what that was when the mount is gone
    /// that it lay on.
    Loop {
        /// Such as `/dev/loop3`.
        device: PathBuf,
        /// Backing file.
        backing: PathBuf,
        /// Its inode number, which no other lab's file has.
        inode: u64,
        /// What the lab changes of its queue and detaching would not undo, as it was before: see
        /// [`Item::loop_device`].
        #[serde(default)]
        queue: Vec<(String, String)>,
    },
    /// A process group started by the lab; `start` tells its leader from a later namesake.
    Group {
        /// Process id of the leader.
        pid: i32,
        /// Its start time in clock ticks since boot.
        start: u64,
    },
    /// A control group of the lab's own: its processes, those of groups below it, and the groups.
    Cgroup {
        /// Its directory.
        path: PathBuf,
    },
    /// A scratch file or directory tree of the lab's own.
    Scratch {
        /// Path.
        path: PathBuf,
    },
}

/// Settings of a loop device that outlive what is attached to it; the kernel sets the others anew.
const LASTING: [&str; 2] = ["scheduler", "max_sectors_kb"];

impl Item {
    /// A loop device about to be attached to `backing`, with its settings as they are.
    pub fn loop_device(device: &Path, backing: &Path) -> Result<Item> {
        let mut queue = Vec::new();
        for name in LASTING {
            // A device that is made by attaching to it has none yet.
            let text = fs::read_to_string(sysfs(device)?.join("queue").join(name)).unwrap_or_default();
            // Of several, the one in use is in brackets.
            let used = text
                .split_whitespace()
                .find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
            let value = used.unwrap_or(text.trim());
            if !value.is_empty() {
                queue.push((name.to_owned(), value.to_owned()));
            }
        }
        let file = fs::metadata(backing).with_context(|| format!("asking for {}", backing.display()))?;
        Ok(Item::Loop {
            device: device.to_owned(),
            backing: backing.to_owned(),
            inode: file.ino(),
            queue,
        })
    }

    /// Ends all waiting for a server that is dead and never answers: unmounting, or a change of the queue of
    /// a device upon it, would else wait for ever. So would a thread of its own process, `owner`, that has
    /// asked it something, in whatever mount namespace.
    pub(super) fn abort(&self, owner: Option<i32>) -> Result<()> {
        let target = match self {
            Item::Fuse { target } => target,
            Item::Loop { device, inode, .. } if inode_of(device) == Some(*inode) => {
                return abort_behind(device);
            }
            _ => return Ok(()),
        };
        abort_fuse(target)?;
        let threads = owner.and_then(|pid| fs::read_dir(format!("/proc/{pid}/task")).ok());
        for thread in threads
            .into_iter()
            .flatten()
            .flatten()
            .map(|thread| thread.path())
        {
            if let Ok(Some(_)) = mounted_by(&thread, target) {
                let namespace = format!("--mount={}", thread.join("ns/mnt").display());
                let words = [Path::new(&namespace), "umount".as_ref(), "-f".as_ref(), target];
                // As in `abort_fuse`, or it has ended meanwhile.
                let _ = tools::run("nsenter", words);
            }
        }
        Ok(())
    }

    /// Takes the thing away if it is there; nothing to do is success.
    pub(super) fn undo(&self) -> Result<()> {
        match self {
            Item::Mount { target } | Item::Fuse { target } => unmount(target),
            Item::Loop {
                device,
                backing,
                inode,
                queue,
            } => detach(device, backing, *inode, queue),
            Item::Group { pid, start } => end_group(*pid, *start),
            Item::Cgroup { path } => remove_cgroup(path),
            Item::Scratch { path } => {
                if let Some(target) = mounted_below(path)? {
                    bail!("{} stays: {target} is mounted in it", path.display());
                }
                let result = if path.is_dir() {
                    fs::remove_dir_all(path)
                } else {
                    fs::remove_file(path)
                };
                match result {
                    Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                        Err(e).with_context(|| format!("removing {}", path.display()))
                    }
                    _ => Ok(()),
                }
            }
        }
    }
}

/// The device number of what is mounted at `target`.
fn mounted(target: &Path) -> Result<Option<String>> {
    mounted_by(Path::new("/proc/self"), target)
}

/// The device number of what is mounted at `target`, top mount last, as a process or thread sees it, whose
/// directory in /proc is given.
fn mounted_by(process: &Path, target: &Path) -> Result<Option<String>> {
    let table = process.join("mountinfo");
    let text = fs::read_to_string(&table).with_context(|| format!("reading {}", table.display()))?;
    let wanted = target.to_string_lossy().replace(' ', "\\040");
    let mut mounted = None;
    for line in text.lines() {
        let mut fields = line.split(' ');
        let device = fields.nth(2);
        if fields.nth(1) == Some(wanted.as_str()) {
            mounted = device.map(str::to_owned);
        }
    }
    Ok(mounted)
}

/// A mount point at or below `path`.
fn mounted_below(path: &Path) -> Result<Option<String>> {
    let text = fs::read_to_string("/proc/self/mountinfo").context("reading /proc/self/mountinfo")?;
    let targets = text.lines().filter_map(|line| line.split(' ').nth(4));
    Ok(targets
        .map(|target| target.replace("\\040", " "))
        .find(|target| Path::new(target).starts_with(path)))
}

fn unmount(target: &Path) -> Result<()> {
    let patience = Instant::now() + Duration::from_secs(3);
    while mounted(target)?.is_some() {
        match tools::run("umount", [target]) {
            Ok(_) => {}
            Err(_) if Instant::now() < patience => std::thread::sleep(Duration::from_millis(50)),
            // Still busy: take it out of sight, the kernel frees it with its last user.
            Err(_) => {
                if let Some(device) = mounted(target)? {
                    print::note(format_args!(
                        "headstart-lab: {} is busy{}",
                        target.display(),
                        held(&device)
                    ));
                }
                tools::run("umount", [Path::new("-l"), target])?;
            }
        }
    }
    Ok(())
}

/// Ends a FUSE server's connection and all waiting for it: forcing aborts the connection (umount2(2),
/// MNT_FORCE), with or without a fusectl mount.
pub(crate) fn abort_fuse(target: &Path) -> Result<()> {
    if mounted(target)?.is_some() {
        // An error: busy, most likely, and aborted all the same; what is left is for `unmount` to take away.
        let _ = tools::run("umount", [Path::new("-f"), target]);
    }
    Ok(())
}

/// The same of the server that is behind a loop device, if any: its mount may have been taken out of sight
/// before. A process that is killed then, and has written to the device, waits for itself.
fn abort_behind(device: &Path) -> Result<()> {
    let number = losetup(device, "BACK-MAJ:MIN").unwrap_or_default();
    let Some(connection) = number.trim().strip_prefix("0:") else {
        return Ok(());
    };
    // Documentation/filesystems/fuse: each connection has a directory there; that of another kind of file
    // system has none.
    let script = "all=/sys/fs/fuse/connections; [ -d $all/$0 ] || mount -t fusectl none $all; [ ! -d $all/$0 ] || echo 1 >$all/$0/abort";
    let words = ["--mount", "sh", "-c", script, connection];
    tools::run("unshare", words).map(drop)
}

/// Who holds a device, as the end of a sentence.
fn held(device: &str) -> String {
    match holders(device).join(", ") {
        who if who.is_empty() => ", by whom cannot be seen".to_owned(),
        who => format!(": {who}"),
    }
}

/// The directory of a block device in sysfs.
fn sysfs(device: &Path) -> Result<PathBuf> {
    let name = device.file_name().context("a device without a name")?;
    Ok(Path::new("/sys/block").join(name))
}

fn backing_of(device: &Path) -> Option<String> {
    let file = fs::read_to_string(sysfs(device).ok()?.join("loop/backing_file")).ok()?;
    Some(file.trim_end().trim_end_matches(" (deleted)").to_owned())
}

/// The inode number of a loop device's backing file.
fn inode_of(device: &Path) -> Option<u64> {
    losetup(device, "BACK-INO")?.trim().parse().ok()
}

/// What losetup(8) says of a loop device in one of its columns.
fn losetup(device: &Path, column: &str) -> Option<String> {
    let words = ["--noheadings", "--output", column].map(Path::new);
    tools::run("losetup", words.into_iter().chain([device])).ok()
}

fn detach(device: &Path, backing: &Path, inode: u64, queue: &[(String, String)]) -> Result<()> {
    let file = backing_of(device);
    let named = file.as_ref().is_some_and(|file| Path::new(file) == backing);
    if file.is_none() || !(named || inode_of(device) == Some(inode)) {
        return Ok(());
    }
    let ours = || backing_of(device) == file;
    let asked = || -> Result<()> {
        for (name, value) in queue {
            let path = sysfs(device)?.join("queue").join(name);
            fs::write(&path, value).with_context(|| format!("writing {value} to {}", path.display()))?;
        }
        tools::run("losetup", [Path::new("-d"), device]).map(drop)
    };
    match asked() {
        // Asked to go before, it went with its last user meanwhile.
        Err(_) if !ours() => return Ok(()),
        other => other?,
    }
    // Detaching a device in use only marks it; wait for the last close.
    let patience = Instant::now() + DETACHING;
    while ours() {
        if Instant::now() > patience {
            let number = fs::read_to_string(sysfs(device)?.join("dev")).unwrap_or_default();
            bail!(
                "{} is still in use {} s after losetup -d{}",
                device.display(),
                DETACHING.as_secs(),
                held(number.trim())
            );
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}
