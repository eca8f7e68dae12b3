//! What /proc tells of a process that has just begun a start. All of it is the word of whoever started it.

use crate::key::{self, Exec, MOST_ARGUMENTS, MOST_BYTES};
use headstart_model::Key;
use headstart_system::executions::asked_by;
use headstart_system::process::ProcessStat;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// So much of a command line is looked at, bytes.
const COMMAND_LINE: u64 = 16 << 10;

/// More than a cgroup's line has: its path and a few characters.
const CGROUP: u64 = 8192;

/// So many descendants of a process, and threads of one, are looked for.
const MOST_OF_TREE: usize = 256;

/// A process that has begun a start.
pub(super) struct Process {
    executable: PathBuf,
    argv: Vec<Vec<u8>>,
    cgroup: Option<String>,
    cwd: Option<PathBuf>,
    /// Whose it is.
    pub(super) uid: u32,
}

impl Process {
    /// The process with this number, which executes this; `None` if there is none any more.
    pub(super) fn of(pid: u32, executable: &[u8]) -> Option<Process> {
        let stat = ProcessStat::of(pid)?;
        let uid = std::fs::metadata(format!("/proc/{pid}")).ok()?.uid();
        let line = read(format!("/proc/{pid}/cmdline"), COMMAND_LINE)?;
        // What a service starts is a program like any other; what process 1 starts in a cgroup is the service.
        let cgroup = (stat.parent == 1).then(|| read(format!("/proc/{pid}/cgroup"), CGROUP));
        Some(Process {
            executable: PathBuf::from(OsStr::from_bytes(executable)),
            argv: arguments(&line),
            cgroup: cgroup.flatten().and_then(|text| cgroup_of(&text)),
            cwd: std::fs::read_link(format!("/proc/{pid}/cwd")).ok(),
            uid,
        })
    }

    /// What the process with this number may be about to become, which waits to execute a file of this program: the program with these arguments, or with
    /// the script that it has named. Nothing where its paths may be others than this process's.
    pub(super) fn before(pid: u32, program: &Path) -> Vec<Process> {
        let uid = std::fs::metadata(format!("/proc/{pid}")).map(|it| it.uid());
        let (true, Ok(uid), Some(asked)) =
            (shares_mounts(pid), uid, asked_by(pid, MOST_ARGUMENTS, MOST_BYTES))
        else {
            return Vec::new();
        };
        let cwd = std::fs::read_link(format!("/proc/{pid}/cwd")).ok();
        let name = program.file_name().unwrap_or_default().as_bytes().to_vec();
        let rest = asked.arguments.iter().skip(1).cloned();
        let by_script = [name, asked.file].into_iter().chain(rest).collect();
        let becomes = |argv| Process {
            executable: program.to_owned(),
            argv,
            cgroup: None,
            cwd: cwd.clone(),
            uid,
        };
        vec![becomes(asked.arguments), becomes(by_script)]
    }

    /// Whose start it is.
    pub(super) fn key(&self) -> Option<Key> {
        self.key_with(&self.argv)
    }

    /// Whether the key is the executable's, whatever it is given to do.
    pub(super) fn is_plain(&self, key: &Key) -> bool {
        if key.as_str().as_bytes() != self.executable.as_os_str().as_bytes() {
            return false;
        }
        // An interpreter that was given nothing has the same key; of a one-liner it has none.
        let name = self.argv.first().cloned().unwrap_or_default();
        let one_liner = [name, b"-c".to_vec(), b"x".to_vec()];
        self.key_with(&one_liner).as_ref() == Some(key)
    }

    fn key_with(&self, argv: &[Vec<u8>]) -> Option<Key> {
        key::of(&Exec {
            executable: &self.executable,
            argv,
            cgroup: self.cgroup.as_deref(),
            cwd: self.cwd.as_deref().map(Path::new),
        })
    }
}

/// Whether a process sees the same mounts as this one, as far as paths tell.
pub(super) fn shares_mounts(pid: u32) -> bool {
    let space = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    space("self").is_some_and(|own| space(&pid.to_string()) == Some(own))
}

/// Whether a process has this program among its ancestors, as far as those live.
pub(super) fn is_started_by(pid: u32, program: &[u8]) -> bool {
    let parent = |pid: &u32| {
        ProcessStat::of(*pid)
            .map(|stat| stat.parent)
            .filter(|pid| *pid > 1)
    };
    let is_it = |pid: u32| {
        let path = std::fs::read_link(format!("/proc/{pid}/exe"));
        path.is_ok_and(|path| path.as_os_str().as_bytes() == program)
    };
    std::iter::successors(parent(&pid), parent)
        .take(MOST_OF_TREE)
        .any(is_it)
}

/// A process and the descendants that it has now, as far as they are few.
pub(super) fn tree_of(pid: u32) -> Vec<u32> {
    let mut tree = vec![pid];
    let mut next = 0;
    while let Some(pid) = tree.get(next).copied() {
        next += 1;
        let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
        for thread in threads.into_iter().flatten().flatten().take(MOST_OF_TREE) {
            let children = read(thread.path().join("children"), COMMAND_LINE).unwrap_or_default();
            let text = String::from_utf8_lossy(&children);
            tree.extend(
                text.split_ascii_whitespace()
                    .filter_map(|pid| pid.parse::<u32>().ok()),
            );
        }
        tree.truncate(MOST_OF_TREE);
    }
    tree
}

/// The arguments in the text of a `cmdline`.
fn arguments(line: &[u8]) -> Vec<Vec<u8>> {
    let line = line.strip_suffix(b"\0").unwrap_or(line);
    line.split(|byte| *byte == 0)
        .take(MOST_ARGUMENTS)
        .map(|argument| argument[..argument.len().min(MOST_BYTES)].to_vec())
        .collect()
}

/// The path in the text of a `cgroup` file: of the unified hierarchy.
fn cgroup_of(text: &[u8]) -> Option<String> {
    let line = text
        .split(|byte| *byte == b'\n')
        .find_map(|line| line.strip_prefix(b"0::"))?;
    String::from_utf8(line.to_vec()).ok()
}

fn read(path: impl AsRef<Path>, most: u64) -> Option<Vec<u8>> {
    // Grown from nothing it would be read in ten pieces.
    let mut bytes = Vec::with_capacity(4096);
    File::open(path).ok()?.take(most).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_cut_into_arguments() {
        assert_eq!(arguments(b"sh\0-c\0\0"), [&b"sh"[..], b"-c", b""]);
        assert_eq!(arguments(&b"x\0".repeat(100)).len(), MOST_ARGUMENTS);
        assert_eq!(arguments(&[b'x'; 9000])[0].len(), MOST_BYTES);
    }

    #[test]
    fn the_unified_cgroup_is_found() {
        let text = b"1:cpu:/x\n0::/system.slice/cron.service\n";
        assert_eq!(cgroup_of(text).as_deref(), Some("/system.slice/cron.service"));
        assert_eq!(cgroup_of(b"1:cpu:/x\n"), None);
    }

    #[test]
    fn an_interpreter_is_no_plain_program() {
        let process = |executable: &str, argv: &[&str]| Process {
            executable: executable.into(),
            argv: argv.iter().map(|a| a.as_bytes().to_vec()).collect(),
            cgroup: None,
            cwd: Some("/".into()),
            uid: 0,
        };
        let cat = process("/usr/bin/cat", &["cat", "file"]);
        assert!(cat.is_plain(&cat.key().unwrap()));
        let python = process("/usr/bin/python3", &["python3"]);
        assert!(python.key().is_none_or(|key| !python.is_plain(&key)));
        let script = process("/usr/bin/python3", &["python3", "/usr/bin/script"]);
        assert!(!script.is_plain(&script.key().unwrap()));
    }
}
