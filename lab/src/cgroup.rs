//! A control group for everything one machine starts: whatever its processes fork, and whenever the lab is
//! killed, all of them can be found and ended.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::mounts;
use crate::registry::{Guard, Item, Registry};

/// One group in each hierarchy that can hold processes (one on a unified system, two on a hybrid one), below
/// this process's own.
#[derive(Debug)]
pub(crate) struct Cgroup {
    paths: Vec<PathBuf>,
    guards: Vec<Guard>,
}

impl Cgroup {
    /// Makes an empty group named `name`.
    pub(crate) fn new(name: &str, registry: &Registry) -> Result<Cgroup> {
        let read = |path: &str| fs::read_to_string(path).with_context(|| format!("reading {path}"));
        let mut group = Cgroup {
            paths: Vec::new(),
            guards: Vec::new(),
        };
        for parent in parents(&read("/proc/self/cgroup")?, &read("/proc/self/mountinfo")?) {
            let path = parent.join(name);
            group
                .guards
                .push(registry.guard(Item::Cgroup { path: path.clone() })?);
            fs::create_dir(&path).with_context(|| format!("making the control group {}", path.display()))?;
            group.paths.push(path);
        }
        if group.paths.is_empty() {
            bail!(
                "no control group file system is mounted (/sys/fs/cgroup): systemd-nspawn and the lab need one"
            );
        }
        Ok(group)
    }

    /// A command that enters the group before it becomes `program`: there is no moment at which it runs
    /// outside.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        let script = "n=$1; shift; while [ $n -gt 0 ]; do echo $$ >\"$1/cgroup.procs\" || exit 125; shift; n=$((n-1)); done; exec \"$@\"";
        command
            .args(["-c", script, "sh", &self.paths.len().to_string()])
            .args(&self.paths)
            .arg(program);
        command
    }

    /// Like [`Cgroup::command`], with mounts of its own: see [`mounts::alone`].
    pub(crate) fn command_alone(&self, own: &str, program: &str) -> Command {
        let mut command = self.command(mounts::UNSHARE);
        command.args(mounts::alone(own)).arg(program);
        command
    }

    /// Ends all processes and removes the group.
    pub(crate) fn end(mut self) -> Result<()> {
        while let Some(guard) = self.guards.pop() {
            guard.undo()?;
        }
        Ok(())
    }
}

/// This process's own groups in the unified hierarchy and in systemd's named one, as directories.
fn parents(own: &str, mounts: &str) -> Vec<PathBuf> {
    let mut groups = Vec::new();
    for line in own.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        if !matches!(controllers, "" | "name=systemd") {
            continue;
        }
        for mount in mounts.lines() {
            let Some((before, after)) = mount.split_once(" - ") else {
                continue;
            };
            let mut after = after.split(' ');
            let kind = after.next().unwrap_or_default();
            let options = after.nth(1).unwrap_or_default();
            let fits = match controllers {
                "" => kind == "cgroup2",
                name => kind == "cgroup" && options.split(',').any(|option| option == name),
            };
            let mut before = before.split(' ').skip(3);
            if let (true, Some(root), Some(target)) = (fits, before.next(), before.next()) {
                if let Ok(below) = Path::new(path).strip_prefix(root) {
                    groups.push(Path::new(target).join(below));
                    break;
                }
            }
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_system::testing::is_root;
    use std::time::{Duration, Instant};

    #[test]
    fn own_groups_are_found_in_both_layouts() {
        let hybrid = "36 35 0:30 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n\
                      37 35 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      38 35 0:32 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        assert_eq!(
            parents("9:name=systemd:/a\n1:cpu:/\n0::/b/c\n", hybrid),
            [
                Path::new("/sys/fs/cgroup/systemd/a"),
                Path::new("/sys/fs/cgroup/unified/b/c")
            ]
        );
        let unified = "30 25 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(
            parents("0::/user.slice/session-1.scope\n", unified),
            [Path::new("/sys/fs/cgroup/user.slice/session-1.scope")]
        );
        assert!(parents("0::/\n", "").is_empty());
    }

    #[test]
    fn everything_started_in_a_group_ends_with_it() {
        if !is_root() {
            return;
        }
        let base = tempfile::tempdir().unwrap();
        let registry = Registry::open(base.path()).unwrap();
        let group = Cgroup::new(&format!("headstart-test-{}", std::process::id()), &registry).unwrap();
        let paths = group.paths.clone();
        // One that leaves its session and its parent: only the group still knows it.
        let mut child = group
            .command("/bin/sh")
            .args(["-c", "setsid sleep 611 & exec sleep 612"])
            .spawn()
            .unwrap();
        let members = || fs::read_to_string(paths[0].join("cgroup.procs")).unwrap_or_default();
        let patience = Instant::now() + Duration::from_secs(10);
        while members().lines().count() < 2 && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(5));
        }
        let pids: Vec<String> = members().lines().map(str::to_owned).collect();
        assert_eq!(pids.len(), 2, "{pids:?}");
        let reaper = std::thread::spawn(move || child.wait().unwrap());
        group.end().unwrap();
        assert!(!reaper.join().unwrap().success());
        assert!(paths.iter().all(|path| !path.exists()));
        for pid in pids {
            let command = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            assert!(!command.contains("61"), "{pid} still runs {command:?}");
        }
    }
}
