//! The daemon's units, as packages install them, and whether the daemon runs.

use headstart_system::container;
use serde::Serialize;
use std::path::Path;

/// Their names and texts.
pub fn units() -> [(&'static str, &'static str); 2] {
    [
        (
            "headstartd.service",
            include_str!("../../../packaging/systemd/headstartd.service"),
        ),
        (
            "headstartd.socket",
            include_str!("../../../packaging/systemd/headstartd.socket"),
        ),
    ]
}

/// Whether the daemon runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It does.
    Runs,
    /// It begins when somebody asks it.
    Waits,
    /// It does not.
    Stopped,
}

/// What the daemon has cost since it began.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Memory that is its own, bytes.
    pub memory: u64,
    /// CPU time, microseconds.
    pub cpu_us: u64,
    /// How long ago it began.
    pub age: std::time::Duration,
}

impl State {
    /// Reads the state without connecting: a connection would start the daemon.
    pub fn read() -> State {
        State::look_at(Path::new("/sys/fs/cgroup"), Path::new(crate::control::SOCKET))
    }

    fn look_at(cgroups: &Path, socket: &Path) -> State {
        // The one hierarchy of version 2, or systemd's own beside those of version 1.
        let runs = ["", "systemd", "unified"].into_iter().any(|hierarchy| {
            let group = cgroups.join(hierarchy).join("system.slice/headstartd.service");
            std::fs::read(group.join("cgroup.procs")).is_ok_and(|processes| !processes.is_empty())
        });
        match runs {
            true => State::Runs,
            false if socket.exists() => State::Waits,
            false => State::Stopped,
        }
    }

    /// What the daemon costs, as its control group counts; `None` where it does not run, or version 2 of the
    /// groups does not count that.
    pub fn cost() -> Option<Cost> {
        let group = Path::new("/sys/fs/cgroup/system.slice/headstartd.service");
        let number = |file: &str, name: &str| {
            let text = std::fs::read_to_string(group.join(file)).ok()?;
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().parse::<u64>().ok()
        };
        Some(Cost {
            memory: number("memory.stat", "anon ")?,
            cpu_us: number("cpu.stat", "usage_usec ")?,
            age: group.metadata().ok()?.modified().ok()?.elapsed().ok()?,
        })
    }

    /// For people, with the way out.
    pub fn text(self) -> &'static str {
        match self {
            State::Runs => "runs",
            State::Waits => left_out().unwrap_or(
                "does not run: it begins when `headstart apps` asks, or by `systemctl enable --now headstartd`",
            ),
            State::Stopped => {
                left_out().unwrap_or("does not run: `systemctl enable --now headstartd` starts it")
            }
        }
    }
}

/// The same of one that cannot be asked.
pub(crate) fn how_to_start() -> &'static str {
    left_out().unwrap_or("does not run: `systemctl enable --now headstartd.socket` starts it")
}

/// Where a kernel tells of its types, without which no daemon notices starts.
const BTF: &str = "/sys/kernel/btf/vmlinux";

/// Where systemd leaves the units out, or the daemon ends at once, and nothing is said: why.
fn left_out() -> Option<&'static str> {
    if container::manager().is_some() || container::is_initial_pid_namespace().is_ok_and(|is| !is) {
        return Some("does not run in containers: servers.md of the guide says what does");
    }
    // It may lack more; the daemon says what when it ends.
    (!Path::new(BTF).exists())
        .then_some("does not run: this kernel does not tell of starts, and `headstart doctor` says why")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// The most that `systemd-analyze security` may say, tenths: 10.0 is a service without any restriction.
    const MOST_EXPOSED: u32 = 30;

    #[test]
    fn the_socket_is_where_clients_look_for_it() {
        let [_, (_, socket)] = units();
        let line = format!("\nListenStream={}\n", crate::control::SOCKET);
        assert!(socket.contains(&line));
    }

    #[test]
    fn the_service_may_take_as_much_memory_as_it_allows_itself() {
        let [(_, service), _] = units();
        let line = format!("\nLimitDATA={}M\n", crate::serve::MEMORY >> 20);
        assert!(service.contains(&line));
    }

    #[test]
    fn whether_it_runs_is_seen_without_asking_it() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("socket");
        let look = || State::look_at(dir.path(), &socket);
        assert_eq!(look(), State::Stopped);
        std::fs::write(&socket, "").unwrap();
        assert_eq!(look(), State::Waits);
        let group = dir.path().join("systemd/system.slice/headstartd.service");
        std::fs::create_dir_all(&group).unwrap();
        std::fs::write(group.join("cgroup.procs"), "").unwrap();
        assert_eq!(look(), State::Waits, "a group that is left over");
        std::fs::write(group.join("cgroup.procs"), "12\n").unwrap();
        assert_eq!(look(), State::Runs);
        assert_eq!(State::Runs.text(), "runs");
        assert!(State::Stopped.text().starts_with("does not run"));
        for (_, text) in units() {
            assert!(text.contains("\nConditionVirtualization=!container\n"));
        }
    }

    #[test]
    fn the_daemon_is_as_little_exposed_as_is_promised() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in units() {
            // Whether the command is installed is not asked here.
            let text = text.replace("/usr/bin/headstart daemon", "/bin/true");
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let analyze = |words: &[&str]| {
            let ran = Command::new("systemd-analyze")
                .args(words)
                .arg(dir.path().join("headstartd.service"))
                .output();
            let ran = ran.expect("systemd-analyze runs: install systemd");
            let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            (ran.status.success(), said(&ran.stdout), said(&ran.stderr))
        };
        let threshold = format!("--threshold={MOST_EXPOSED}");
        let (within, table, error) = analyze(&["security", "--offline=yes", "--no-pager", &threshold]);
        assert!(table.contains("Overall exposure level"), "{error}");
        assert!(within, "{table}");
        let (well, _, error) = analyze(&["verify", "--man=no"]);
        // Warnings count, those that name these units.
        assert!(well && !error.contains("headstartd"), "{error}");
    }
}
