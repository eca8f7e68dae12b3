//! The limits of memory, tasks and processors of the cgroups that this process is in, versions 1 and 2.

use crate::mounts::{Mount, MountTable};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag, fsmount, fsopen,
};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// What the tightest cgroup allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Its limit, bytes.
    pub bytes: u64,
    /// What it leaves: the limit less what is in use, inactive file pages counted as free.
    pub available: u64,
}

/// The names of a version's files.
struct Files {
    limit: &'static str,
    /// Beyond this its processes are slowed down.
    high: &'static str,
    usage: &'static str,
    inactive: &'static str,
}

const V1: Files = Files {
    limit: "memory.limit_in_bytes",
    high: "memory.high",
    usage: "memory.usage_in_bytes",
    inactive: "total_inactive_file",
};
const V2: Files = Files {
    limit: "memory.max",
    high: "memory.high",
    usage: "memory.current",
    inactive: "inactive_file",
};

/// The limits of the cgroups that this process is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The tightest one of memory; `None` if there is none, or it cannot be read.
    pub memory: Option<Limit>,
    /// How many more tasks may begin; `None` if there is no limit, or it cannot be read.
    pub tasks: Option<u64>,
    /// How much of a processor may be used, thousandths; `None` if there is no limit, or it cannot be read.
    pub processor: Option<u64>,
    /// Whether there may be limits that cannot be read, for the cgroup file system or /proc is not visible
    /// here.
    pub are_hidden: bool,
}

/// So many levels are looked at, from the hierarchy's root on: no service manager makes as many, but whoever
/// was given a group may make thousands in it.
const LEVELS: usize = 32;

/// The limits on this process, as far as they are to be seen here.
pub fn limits() -> Limits {
    read_limits("self", false)
}

/// The limits on the process with this number.
pub fn limits_of(process: u32) -> Limits {
    read_limits(&process.to_string(), false)
}

/// The limits on this process, also those that only a mount of the hierarchy shows: a look that is made once,
/// for it makes that mount.
pub fn limits_even_hidden() -> Limits {
    read_limits("self", true)
}

fn read_limits(process: &str, shows_hidden: bool) -> Limits {
    let text = std::fs::read_to_string(format!("/proc/{process}/cgroup"));
    let (Ok(text), Ok(mounts)) = (text, MountTable::read()) else {
        // A kernel without cgroups has no such file. Without /proc nothing says which group this is.
        return Limits {
            are_hidden: !Path::new("/proc/self/stat").exists() || Path::new("/proc/self/cgroup").exists(),
            ..Limits::default()
        };
    };
    let (mut memory, mut tasks) = (groups(&text, &mounts, "memory"), groups(&text, &mounts, "pids"));
    let processor = groups(&text, &mounts, "cpu");
    let may_be_limited = !is_first_namespace();
    let mut are_hidden = false;
    for group in memory.iter_mut().chain(&mut tasks) {
        let is_hidden = group.is_hidden(may_be_limited);
        are_hidden |= is_hidden && !(shows_hidden && group.show().is_ok());
    }
    Limits {
        are_hidden,
        memory: memory
            .iter()
            .filter_map(|group| lowest(&group.root, group.dir.as_ref()?, group.files))
            .min_by_key(|l| l.available),
        tasks: tasks
            .iter()
            .filter_map(|group| fewest_tasks(&group.root, group.dir.as_ref()?))
            .min(),
        processor: processor
            .iter()
            .filter_map(|group| least_of_processor(&group.root, group.dir.as_ref()?))
            .min(),
    }
}

/// Whether this is the first cgroup namespace, whose root group has no limits. include/linux/proc_ns.h:
/// PROC_CGROUP_INIT_INO.
fn is_first_namespace() -> bool {
    let link = std::fs::read_link("/proc/self/ns/cgroup");
    link.is_ok_and(|link| link.as_os_str() == "cgroup:[4026531835]")
}

/// A group of this process in one hierarchy.
struct Group {
    /// Where the hierarchy is mounted.
    root: PathBuf,
    /// The group's directory; `None` if the hierarchy is mounted nowhere.
    dir: Option<PathBuf>,
    /// Its path in this process's cgroup namespace.
    path: String,
    /// The hierarchy's controllers, of version 1, separated by commas.
    controllers: String,
    files: &'static Files,
    /// The hierarchy, mounted where nobody else sees it.
    mount: Option<OwnedFd>,
}

impl Group {
    /// Whether its limits cannot be read, should it have some: the root has none unless it `may_be_limited`.
    fn is_hidden(&self, may_be_limited: bool) -> bool {
        let is_seen = |dir: &PathBuf| dir.join("cgroup.procs").exists();
        (self.path != "/" || may_be_limited) && !self.dir.as_ref().is_some_and(is_seen)
    }

    /// Has its limits read from a mount of the hierarchy that is attached nowhere and ends with this; whoever
    /// may not mount cannot.
    fn show(&mut self) -> rustix::io::Result<()> {
        let kind = if self.controllers.is_empty() {
            "cgroup2"
        } else {
            "cgroup"
        };
        let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
        // The hierarchy is there, for this process is in it: none is made.
        for controller in self.controllers.split(',').filter(|name| !name.is_empty()) {
            fsconfig_set_flag(context.as_fd(), controller)?;
        }
        fsconfig_create(context.as_fd())?;
        let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOSUID;
        let mount = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
        self.root = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()));
        self.dir = Some(self.root.join(self.path.trim_start_matches('/')));
        self.mount = Some(mount);
        Ok(())
    }
}

/// A group and those above it, the root first.
fn levels<'a>(root: &'a Path, group: &'a Path) -> impl Iterator<Item = &'a Path> {
    let levels: Vec<&Path> = group
        .ancestors()
        .take_while(|dir| dir.starts_with(root))
        .collect();
    levels.into_iter().rev().take(LEVELS)
}

fn fewest_tasks(root: &Path, group: &Path) -> Option<u64> {
    // "max" is no number: no limit.
    let left = |dir: &Path| Some(number(dir, "pids.max")?.saturating_sub(number(dir, "pids.current")?));
    levels(root, group).filter_map(left).min()
}

/// Thousandths of a processor, by the time that may be used in each period: `cpu.max` of version 2 has both,
/// version 1 a file for each.
fn least_of_processor(root: &Path, group: &Path) -> Option<u64> {
    let share = |dir: &Path| {
        let (quota, period) = match std::fs::read_to_string(dir.join("cpu.max")) {
            Ok(text) => {
                let (quota, period) = text.trim().split_once(' ')?;
                // "max" is no number: no limit.
                (quota.parse().ok()?, period.parse().ok()?)
            }
            // -1 is no such number: no limit.
            Err(_) => (
                number(dir, "cpu.cfs_quota_us")?,
                number(dir, "cpu.cfs_period_us")?,
            ),
        };
        quota.checked_mul(1000)?.checked_div(period)
    };
    levels(root, group).filter_map(share).min()
}

fn number(dir: &Path, name: &str) -> Option<u64> {
    std::fs::read_to_string(dir.join(name)).ok()?.trim().parse().ok()
}

/// Whether a version 1 hierarchy mounted there has the controller: `/sys/fs/cgroup/cpu,cpuacct`.
fn is_of(mount_point: &str, controller: &str) -> bool {
    let name = mount_point.rsplit('/').next().unwrap_or_default();
    name.split(',').any(|one| one == controller)
}

/// The groups where a controller may be, from the lines `id:controllers:path`.
fn groups(text: &str, mounts: &MountTable, controller: &str) -> Vec<Group> {
    let (mut groups, mut has_first) = (Vec::new(), false);
    for line in text.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        // A controller is in one hierarchy: where version 1 has it version 2 has not.
        let is_first = match controllers {
            "" if !has_first => false,
            list if list.split(',').any(|name| name == controller) => true,
            _ => continue,
        };
        has_first |= is_first;
        // A version 1 hierarchy is known by its mount point's name, of which the controllers are a part.
        let fits = |m: &&Mount| match is_first {
            true => m.fstype == "cgroup" && is_of(&m.mount_point.to_string(), controller),
            false => m.fstype == "cgroup2",
        };
        let mount = mounts.all().iter().find(fits);
        let root = mount.map_or(Path::new("/"), |mount| mount.mount_point.as_path());
        // In a container the hierarchy may be mounted from the container's own group.
        let dir = mount.map(|mount| {
            let inside = path.strip_prefix(&mount.root.to_string()).unwrap_or(path);
            root.join(inside.trim_start_matches('/'))
        });
        groups.push(Group {
            root: root.to_path_buf(),
            dir,
            path: path.into(),
            controllers: controllers.into(),
            files: if is_first { &V1 } else { &V2 },
            mount: None,
        });
    }
    groups
}

/// The tightest limit of a group and those above it.
fn lowest(root: &Path, group: &Path, files: &Files) -> Option<Limit> {
    levels(root, group)
        .filter_map(|dir| limit(dir, files))
        .min_by_key(|l| l.available)
}

fn limit(dir: &Path, files: &Files) -> Option<Limit> {
    // "max" is no number: no limit.
    let limits = [number(dir, files.limit), number(dir, files.high)];
    let bytes = limits.into_iter().flatten().min()?;
    let usage = number(dir, files.usage)?;
    let stat = std::fs::read_to_string(dir.join("memory.stat")).unwrap_or_default();
    let inactive = stat
        .lines()
        .find_map(|line| line.strip_prefix(files.inactive)?.trim().parse::<u64>().ok())
        .unwrap_or(0)
        .min(usage);
    Some(Limit {
        bytes,
        available: bytes.saturating_sub(usage - inactive),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(dir: &Path, limit: &str, usage: &str, stat: &str) {
        std::fs::create_dir_all(dir).unwrap();
        std::fs::write(dir.join("memory.max"), limit).unwrap();
        std::fs::write(dir.join("memory.current"), usage).unwrap();
        std::fs::write(dir.join("memory.stat"), stat).unwrap();
    }

    #[test]
    fn the_tightest_of_the_groups_above_counts() {
        let root = tempfile::tempdir().unwrap();
        write(
            &root.path().join("a"),
            "1000",
            "700",
            "anon 1\ninactive_file 100\n",
        );
        write(&root.path().join("a/b"), "max", "10", "");
        write(&root.path().join("a/b/c"), "2000", "10", "");
        let limit = lowest(root.path(), &root.path().join("a/b/c"), &V2);
        assert_eq!(
            limit,
            Some(Limit {
                bytes: 1000,
                available: 400
            })
        );
        assert_eq!(
            lowest(root.path(), &root.path().join("a/b/x"), &V2).map(|l| l.bytes),
            Some(1000)
        );
        assert_eq!(lowest(root.path(), &root.path().join("z"), &V2), None);
        // What slows its processes down is a limit like what ends them.
        std::fs::write(root.path().join("a/memory.high"), "900").unwrap();
        let limit = lowest(root.path(), &root.path().join("a/b/c"), &V2);
        assert_eq!(limit.map(|l| (l.bytes, l.available)), Some((900, 300)));
    }

    #[test]
    fn of_many_levels_the_outer_ones_count() {
        let deep = format!("/c/{}", "x/".repeat(1000));
        let looked: Vec<&Path> = levels(Path::new("/c"), Path::new(&deep)).collect();
        assert_eq!((looked.len(), looked[0]), (LEVELS, Path::new("/c")));
    }

    #[test]
    fn the_limits_of_another_process_are_its_own() {
        // What this one starts is in its group; of one that is gone nothing is known.
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let (own, childs) = (limits(), limits_of(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(own.memory.map(|l| l.bytes), childs.memory.map(|l| l.bytes));
        assert_eq!(limits_of(child.id()).memory, None);
    }

    #[test]
    fn the_least_of_a_processor_that_any_group_allows_counts() {
        let root = tempfile::tempdir().unwrap();
        let write = |dir: &str, files: &[(&str, &str)]| {
            let dir = root.path().join(dir);
            std::fs::create_dir_all(&dir).unwrap();
            for (name, text) in files {
                std::fs::write(dir.join(name), text).unwrap();
            }
        };
        write("a", &[("cpu.max", "20000 100000\n")]);
        write("a/b", &[("cpu.max", "max 100000\n")]);
        write(
            "one",
            &[("cpu.cfs_quota_us", "-1\n"), ("cpu.cfs_period_us", "100000\n")],
        );
        write(
            "one/b",
            &[
                ("cpu.cfs_quota_us", "150000\n"),
                ("cpu.cfs_period_us", "100000\n"),
            ],
        );
        let share = |group: &str| least_of_processor(root.path(), &root.path().join(group));
        assert_eq!(share("a/b"), Some(200));
        assert_eq!(share("one"), None);
        assert_eq!(share("one/b"), Some(1500));
        assert!(is_of("/sys/fs/cgroup/cpu,cpuacct", "cpu") && !is_of("/sys/fs/cgroup/cpuset", "cpu"));
    }

    #[test]
    fn the_fewest_tasks_that_any_group_leaves_count() {
        let root = tempfile::tempdir().unwrap();
        let write = |dir: &str, max: &str, current: &str| {
            let dir = root.path().join(dir);
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(dir.join("pids.max"), max).unwrap();
            std::fs::write(dir.join("pids.current"), current).unwrap();
        };
        write("a", "50\n", "38\n");
        write("a/b", "max\n", "1\n");
        write("a/b/c", "20\n", "1\n");
        let left = |group: &str| fewest_tasks(root.path(), &root.path().join(group));
        assert_eq!(
            (left("a/b/c"), left("a/b"), left("z")),
            (Some(12), Some(12), None)
        );
        write("a/b/c", "20\n", "22\n");
        assert_eq!(left("a/b/c"), Some(0));
    }

    #[test]
    fn groups_are_found_in_both_versions() {
        let mounts = MountTable::parse(
            b"1 1 8:1 / / rw - ext4 /dev/a rw\n2 1 0:5 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
              3 1 0:6 /docker/x /sys/fs/cgroup/unified rw - cgroup2 cgroup rw\n",
        );
        let text = "9:cpu,cpuacct:/c\n4:memory:/m/n\n0::/docker/x/app\n";
        let of_memory = groups(text, &mounts, "memory");
        let dirs: Vec<_> = of_memory.iter().flat_map(|group| group.dir.clone()).collect();
        assert_eq!(dirs, [Path::new("/sys/fs/cgroup/memory/m/n")]);
        let dirs: Vec<_> = groups(text, &mounts, "pids")
            .iter()
            .flat_map(|group| group.dir.clone())
            .collect();
        assert_eq!(dirs, [Path::new("/sys/fs/cgroup/unified/app")]);
    }

    #[test]
    fn limits_that_cannot_be_read_are_no_absent_ones() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().to_str().unwrap();
        let mounts = MountTable::parse(format!("1 1 0:5 / {at} rw - cgroup2 cgroup rw\n").as_bytes());
        let is_hidden = |text: &str, mounts: &MountTable, may_be_limited| {
            let groups = groups(text, mounts, "pids");
            groups.iter().any(|group| group.is_hidden(may_be_limited))
        };
        let nowhere = MountTable::parse(b"1 1 8:1 / / rw - ext4 /dev/a rw\n");
        // As under an empty /sys, whose mounts stay in the table.
        for mounts in [&nowhere, &mounts] {
            assert!(is_hidden("0::/system.slice/a.service\n", mounts, false));
            assert!(is_hidden("8:pids:/a\n0::/\n", mounts, false));
            assert!(is_hidden("0::/\n", mounts, true), "the root of a container");
            assert!(!is_hidden("0::/\n", mounts, false), "the root of all");
        }
        let group = dir.path().join("system.slice/a.service");
        std::fs::create_dir_all(&group).unwrap();
        std::fs::write(group.join("cgroup.procs"), "").unwrap();
        assert!(!is_hidden("0::/system.slice/a.service\n", &mounts, false));
    }
}
