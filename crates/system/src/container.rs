//! Whether this process runs in a container, made by whom, and what such a container needs for headstart to record in it.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// What made a container: what it calls itself, and how a container is made in which headstart records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manager {
    /// Its name, as `container=` in the environment of process 1 has it.
    pub name: &'static str,
    /// The command line that gives what recording needs, without image and command.
    pub line: &'static str,
}

/// BPF programs need CAP_BPF and CAP_PERFMON, and where memory of BPF is still charged by RLIMIT_MEMLOCK (before Linux 5.11)
/// CAP_IPC_LOCK; opening by handle CAP_DAC_READ_SEARCH, which nspawn gives by itself. The system calls are what systemd-nspawn's
/// filter leaves out; podman and docker let them pass with the capabilities (seccomp.json of containers-common and of moby).
pub const MANAGERS: [Manager; 3] = [
    Manager {
        name: "systemd-nspawn",
        line: "systemd-nspawn --capability=CAP_BPF,CAP_PERFMON,CAP_IPC_LOCK --system-call-filter='bpf perf_event_open open_by_handle_at'",
    },
    Manager {
        name: "podman",
        line: "podman run --cap-add=BPF,PERFMON,IPC_LOCK,DAC_READ_SEARCH",
    },
    Manager {
        name: "docker",
        line: "docker run --cap-add=BPF --cap-add=PERFMON --cap-add=IPC_LOCK --cap-add=DAC_READ_SEARCH",
    },
];

/// What made the container that this process runs in; `None` outside of containers. One that is none of [`MANAGERS`] is
/// taken for the last, whose words most understand.
pub fn manager() -> Option<Manager> {
    below(Path::new("/"), std::env::var("container").ok())
}

/// As [`manager`], of the system at a path, and of what the environment says.
fn below(root: &Path, environment: Option<String>) -> Option<Manager> {
    // systemd as process 1 writes down what its environment says; others leave a file.
    let name = match environment.or_else(|| word(&root.join("run/systemd/container"))) {
        Some(name) => name,
        None if root.join("run/.containerenv").exists() => "podman".into(),
        None if root.join(".dockerenv").exists() => "docker".into(),
        None => return None,
    };
    let [.., other] = MANAGERS;
    Some(
        MANAGERS
            .into_iter()
            .find(|it| it.name == name.trim())
            .unwrap_or(other),
    )
}

/// The text of a file that holds a word.
fn word(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(64).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manager_is_told_by_what_it_leaves() {
        let name = |files: &[(&str, &str)]| {
            let root = tempfile::tempdir().unwrap();
            std::fs::create_dir_all(root.path().join("run/systemd")).unwrap();
            for (path, text) in files {
                std::fs::write(root.path().join(path), text).unwrap();
            }
            below(root.path(), None).map(|it| it.name)
        };
        let empty = tempfile::tempdir().unwrap();
        let named = below(empty.path(), Some("podman".into()));
        assert_eq!(named.map(|it| it.name), Some("podman"));
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
