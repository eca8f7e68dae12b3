//! The limits of memory and tasks of the cgroups that this process is in, versions 1 and 2.

use crate::mounts::{Mount, MountTable};
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

/// The tightest limit on this process; `None` if there is none or it cannot be read.
pub fn tightest() -> Option<Limit> {
    let text = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = MountTable::read().ok()?;
    groups(&text, &mounts, "memory")
        .into_iter()
        .filter_map(|(root, group, is_first)| lowest(&root, &group, if is_first { &V1 } else { &V2 }))
        .min_by_key(|l| l.available)
}

/// How many more tasks may begin in the cgroups of this process; `None` if there is no limit, or it cannot be read.
pub fn tasks_left() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = MountTable::read().ok()?;
    let of = |(root, group, _): (PathBuf, PathBuf, bool)| fewest_tasks(&root, &group);
    groups(&text, &mounts, "pids").into_iter().filter_map(of).min()
}

fn fewest_tasks(root: &Path, group: &Path) -> Option<u64> {
    let levels = group.ancestors().take_while(|dir| dir.starts_with(root));
    // "max" is no number: no limit.
    let left = |dir: &Path| Some(number(dir, "pids.max")?.saturating_sub(number(dir, "pids.current")?));
    levels.filter_map(left).min()
}

fn number(dir: &Path, name: &str) -> Option<u64> {
    std::fs::read_to_string(dir.join(name)).ok()?.trim().parse().ok()
}

/// (directory of the hierarchy, this process's directory in it, whether it is of version 1) where a controller may be, from the lines
/// `id:controllers:path`.
fn groups(text: &str, mounts: &MountTable, controller: &str) -> Vec<(PathBuf, PathBuf, bool)> {
    let mut groups = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        let is_first = match controllers {
            "" => false,
            list if list.split(',').any(|name| name == controller) => true,
            _ => continue,
        };
        // A version 1 hierarchy is known by its mount point's name, of which the controllers are a part.
        let fits = |m: &&Mount| match is_first {
            true => m.fstype == "cgroup" && m.mount_point.to_string().contains(controller),
            false => m.fstype == "cgroup2",
        };
        let Some(mount) = mounts.all().iter().find(fits) else {
            continue;
        };
        let root = mount.mount_point.as_path().to_path_buf();
        // In a container the hierarchy may be mounted from the container's own group.
        let inside = path.strip_prefix(&mount.root.to_string()).unwrap_or(path);
        groups.push((root.clone(), root.join(inside.trim_start_matches('/')), is_first));
    }
    groups
}

/// The tightest limit of a group and those above it.
fn lowest(root: &Path, group: &Path, files: &Files) -> Option<Limit> {
    group
        .ancestors()
        .take_while(|dir| dir.starts_with(root))
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
        let found = lowest(root.path(), &root.path().join("a/b/c"), &V2);
        assert_eq!(
            found,
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
        let found: Vec<_> = groups(text, &mounts, "memory")
            .into_iter()
            .map(|(_, group, _)| group)
            .collect();
        assert_eq!(
            found,
            [
                Path::new("/sys/fs/cgroup/memory/m/n"),
                Path::new("/sys/fs/cgroup/unified/app")
            ]
        );
    }
}
