//! Whether this process runs in a container, made by whom, and what such a container needs for headstart to
//! record in it.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What made a container: what it calls itself, and how a container is made in which headstart records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manager {
    /// Its name, as `container=` in the environment of process 1 has it.
    pub name: &'static str,
    /// The command line that gives what recording needs, without image and command.
    line: &'static str,
    /// What has it made without a user namespace.
    without_users: &'static str,
    /// What has it made without a filter of system calls, where the line lets bpf(2) pass with the
    /// capabilities in newer versions only.
    without_filter: Option<&'static str>,
}

impl Manager {
    /// The command line that gives what recording needs, without image and command. In a user namespace no
    /// capability is one over the kernel: from within one, the line has none made.
    pub fn line(&self) -> String {
        self.line_from(is_user_namespace(), is_filtered())
    }

    /// The same for people, and how the host records for the container.
    pub fn description(&self) -> String {
        self.way_from(is_user_namespace(), is_filtered())
    }

    fn line_from(&self, has_users: bool, is_filtered: bool) -> String {
        let without_users = has_users.then_some(self.without_users);
        let without_filter = self.without_filter.filter(|_| is_filtered);
        let words = [Some(self.line), without_filter, without_users];
        words.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }

    fn way_from(&self, has_users: bool, is_filtered: bool) -> String {
        let line = self.line_from(has_users, is_filtered);
        let by_root = match has_users {
            true => ", by root: in a user namespace, as here, no capability is one over the kernel",
            false => "",
        };
        format!(
            "{line} …{by_root}; or let the host record for it: headstart run -- and the container's command line"
        )
    }
}

/// BPF programs need CAP_BPF and CAP_PERFMON, and where memory of BPF is still charged by RLIMIT_MEMLOCK
/// (before Linux 5.11) CAP_IPC_LOCK; opening by handle CAP_DAC_READ_SEARCH, which nspawn gives by itself. The
/// system calls are what systemd-nspawn's filter leaves out; podman and docker let them pass with the
/// capabilities since containers-common 0.60 and moby 23.0 (their seccomp.json and default.json), and before
/// with CAP_SYS_ADMIN only.
pub const MANAGERS: [Manager; 3] = [
    Manager {
        name: "systemd-nspawn",
        line: "systemd-nspawn --capability=CAP_BPF,CAP_PERFMON,CAP_IPC_LOCK --system-call-filter='bpf perf_event_open open_by_handle_at'",
        without_users: "--private-users=no",
        without_filter: None,
    },
    Manager {
        name: "podman",
        line: "podman run --cap-add=BPF,PERFMON,IPC_LOCK,DAC_READ_SEARCH",
        without_users: "--userns=host",
        without_filter: Some("--security-opt seccomp=unconfined"),
    },
    Manager {
        name: "docker",
        line: "docker run --cap-add=BPF --cap-add=PERFMON --cap-add=IPC_LOCK --cap-add=DAC_READ_SEARCH",
        without_users: "--userns=host",
        without_filter: Some("--security-opt seccomp=unconfined"),
    },
];

/// Whether a filter refuses BPF where the capabilities allow it. In a user namespace that cannot be told:
/// there the kernel refuses it too.
fn is_filtered() -> bool {
    !is_user_namespace() && crate::features::is_bpf_filtered()
}

/// Whether this process is in a user namespace of its own, whose root has no rights over the kernel.
pub fn is_user_namespace() -> bool {
    std::fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| !covers_all(&map))
}

/// The inode number of the initial pid namespace (`PROC_PID_INIT_INO`, include/linux/proc_ns.h).
const INITIAL_PIDS: u64 = 0xEFFF_FFFC;

/// Whether this process is in the initial pid namespace, so that its numbers are the kernel's. In containers
/// it is not, whether or not they leave a file that says what made them.
pub fn is_initial_pid_namespace() -> io::Result<bool> {
    Ok(std::fs::metadata("/proc/self/ns/pid")?.ino() == INITIAL_PIDS)
}

/// Whether a map of user numbers is that of the initial user namespace: all 2^32 - 1, as they are.
fn covers_all(map: &str) -> bool {
    map.split_ascii_whitespace().eq(["0", "0", "4294967295"])
}

/// What made the container that this process runs in; `None` outside of containers. One that is none of
/// [`MANAGERS`] is taken for the last, whose words most understand.
pub fn manager() -> Option<Manager> {
    below(Path::new("/"), std::env::var("container").ok())
}

/// As [`manager`], of the system at a path, and of what the environment says.
fn below(root: &Path, environment: Option<String>) -> Option<Manager> {
    // systemd as process 1 writes down what its environment says; others leave a file.
    let name = match environment.or_else(|| first_word(&root.join("run/systemd/container"))) {
        Some(name) => name,
        None if root.join("run/.containerenv").exists() => "podman".into(),
        None if root.join(".dockerenv").exists() => "docker".into(),
        None => return None,
    };
    let [.., other] = MANAGERS;
    Some(
        MANAGERS
            .into_iter()
            .find(|manager| manager.name == name.trim())
            .unwrap_or(other),
    )
}

/// The text of a file that holds a word.
fn first_word(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(64).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_map_is_the_initial_user_namespace() {
        assert!(covers_all("         0          0 4294967295\n"));
        assert!(!covers_all("         0       1000          1\n"));
        assert!(!covers_all("0 0 65536\n65536 100000 65536\n"));
    }

    #[test]
    fn in_a_user_namespace_the_line_does_without_one_and_the_guide_has_it() {
        let guide = include_str!("../../../docs/guide/servers.md");
        for manager in MANAGERS {
            let (with, without) = (manager.line_from(true, false), manager.line_from(false, false));
            assert!(with.starts_with(&without) && with.ends_with(manager.without_users));
            let unfiltered = manager.line_from(false, true);
            match manager.without_filter {
                Some(word) => assert!(unfiltered.ends_with(word) && guide.contains(word), "{unfiltered}"),
                None => assert!(with.contains("bpf") && unfiltered == without, "{unfiltered}"),
            }
            assert!(guide.contains(&format!("- `{with}` …")), "{with}");
            assert!(manager.way_from(true, false).contains("by root"));
            assert!(!manager.way_from(false, true).contains("root"));
        }
    }

    #[test]
    fn the_manager_is_told_by_what_it_leaves() {
        let name = |files: &[(&str, &str)]| {
            let root = tempfile::tempdir().unwrap();
            std::fs::create_dir_all(root.path().join("run/systemd")).unwrap();
            for (path, text) in files {
                std::fs::write(root.path().join(path), text).unwrap();
            }
            below(root.path(), None).map(|manager| manager.name)
        };
        let empty = tempfile::tempdir().unwrap();
        let named = below(empty.path(), Some("podman".into()));
        assert_eq!(named.map(|manager| manager.name), Some("podman"));
        assert_eq!(name(&[]), None);
        assert_eq!(
            name(&[("run/systemd/container", "systemd-nspawn\n")]),
            Some("systemd-nspawn")
        );
        assert_eq!(name(&[("run/.containerenv", "")]), Some("podman"));
        assert_eq!(
            name(&[(".dockerenv", ""), ("run/systemd/container", "podman")]),
            Some("podman")
        );
        assert_eq!(name(&[(".dockerenv", "")]), Some("docker"));
        assert_eq!(name(&[("run/systemd/container", "lxc-libvirt")]), Some("docker"));
    }
}
