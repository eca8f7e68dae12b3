//! What /proc tells of a process that has just begun a start. All of it is the word of whoever started it.

use super::logins::CGROUPS;
use super::users::key_of_user;
use crate::key::{self, Exec, MOST_ARGUMENTS, MOST_BYTES};
use headstart_model::Key;
use headstart_start::Arguments;
use headstart_start::keys::{StartKey, as_launcher};
use headstart_store::Store;
use headstart_system::executions::executed_with;
use headstart_system::owner::owner;
use headstart_system::process::ProcessStat;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// So much of a command line is looked at, bytes: as the kernel tells of it (`ARGUMENTS` of watch.h).
const COMMAND_LINE: usize = 8 << 10;

/// More than most processes have children, in text.
const CHILDREN: u64 = 16 << 10;

/// More than a cgroup's line has: its path and a few characters.
const CGROUP: u64 = 8192;

/// So many descendants of a process, and threads of all of them, are looked for.
const MOST_OF_TREE: usize = 256;

/// More than /proc tells of a process's users and memory.
const STATUS: u64 = 8192;

/// What process 1, and users' own managers, execute first in the process of each service (systemd 255 and
/// later). Its arguments are the same for many of them.
const EXECUTOR: &str = "systemd-executor";

/// So much is read of who is in one, bytes: one that is not the first is told by the first others.
const PROCESSES: u64 = 1024;

/// Why a process is not the one that was noticed.
#[derive(Debug, PartialEq)]
pub(super) enum ProcessChanged {
    /// It has ended.
    Gone,
    /// It executes something else by now, and the kernel has not told what it executed before. The other is
    /// told as well, unless it is executed in another mount namespace.
    Another,
}

/// What is known of a process already.
#[derive(Clone, Copy, Default)]
pub(super) struct Facts<'a> {
    /// Its parent, and its real user.
    pub(super) parent_and_user: Option<(u32, u32)>,
    /// What it was executed with: each has a NUL behind it.
    pub(super) arguments: Option<&'a [u8]>,
}

/// A process that has begun a start.
pub(super) struct Process {
    executable: PathBuf,
    argv: Vec<Vec<u8>>,
    /// Whether it may have more arguments.
    has_more: bool,
    /// The control group, of what process 1 has started.
    cgroup: Option<String>,
    /// Whether it is the first in its control group: of what process 1 has for a child, so that alone begins
    /// the service. What a process of the service left behind when it ended is process 1's child, too.
    is_first: bool,
    cwd: Option<PathBuf>,
    /// Whose it is.
    pub(super) uid: u32,
}

impl Process {
    /// Reads the process with this number, which executes this file. Facts that are known already are not
    /// read from /proc.
    pub(super) fn read(pid: u32, executable: &[u8], facts: Facts<'_>) -> Result<Process, ProcessChanged> {
        let (parent, uid) = match facts.parent_and_user {
            Some(both) => both,
            None => {
                let stat = ProcessStat::for_process(pid).ok_or(ProcessChanged::Gone)?;
                (stat.parent, user_of(pid).ok_or(ProcessChanged::Gone)?)
            }
        };
        let line = match facts.arguments {
            Some(line) => line.to_vec(),
            None => executed_with(pid, uid, COMMAND_LINE).ok_or(ProcessChanged::Gone)?,
        };
        // A launcher may have executed what it starts before it is answered for. Its control group and its
        // directory are still its own then; whose it is and what it was given only the kernel knows.
        let is_told_by_kernel = facts.parent_and_user.is_some() && facts.arguments.is_some();
        let now = std::fs::read_link(format!("/proc/{pid}/exe")).map_err(|_| ProcessChanged::Gone)?;
        if !is_told_by_kernel {
            // Its file may have been replaced while it began.
            let (now, _) = key::told_by_proc(now);
            if !key::are_one(&now, Path::new(OsStr::from_bytes(executable))) {
                return Err(ProcessChanged::Another);
            }
        }
        // What a service starts is a program like any other; what process 1 starts in a cgroup is the
        // service.
        let cgroup = (parent == 1).then(|| read(format!("/proc/{pid}/cgroup"), CGROUP));
        let cgroup = cgroup.flatten().and_then(|text| cgroup_of(&text));
        // Its executor runs as root still.
        let uid = cgroup.as_deref().and_then(key::user_of_manager).unwrap_or(uid);
        let is_first = cgroup.as_deref().is_some_and(|cgroup| {
            executable.ends_with(EXECUTOR.as_bytes())
                || CGROUPS
                    .iter()
                    .all(|root| is_first_in(Path::new(root), cgroup, pid))
        });
        Ok(Process {
            executable: PathBuf::from(OsStr::from_bytes(executable)),
            argv: cut(&line),
            has_more: has_more(&line),
            cgroup,
            is_first,
            cwd: directory_of(pid),
            uid,
        })
    }

    /// The control group that it is in, if it is what process 1 has started of a service.
    pub(super) fn service(&self) -> Option<&str> {
        self.cgroup
            .as_deref()
            .filter(|cgroup| key::unit(cgroup).is_some())
    }

    /// Takes it for a program of its own where it does not begin its service, and that does not begin just
    /// now: what cron has begun, or a daemon that has put itself into the background.
    pub(super) fn is_service_if(&mut self, begins: impl Fn(&str) -> bool) {
        let is_one = self.is_first || self.service().is_some_and(begins);
        self.cgroup = self.cgroup.take().filter(|_| is_one);
    }

    /// What it was given; nothing where the unit says all.
    pub(super) fn arguments(&self) -> Arguments {
        if self.service().is_some() {
            return Arguments::default();
        }
        let words = self.argv.iter().skip(1).cloned().map(OsString::from_vec);
        let words: Vec<OsString> = words.collect();
        Arguments::new(&words, self.cwd.clone(), self.uid, self.has_more)
    }

    /// Whose start it is.
    #[cfg(test)]
    fn key(&self) -> Option<Key> {
        self.key_with(&self.argv)
    }

    /// The same, and as its user's, with the arguments that this says nothing of: of a program that turned
    /// out to be a launcher it is what that starts.
    pub(super) fn start_keys(&self, store: &Store) -> Option<(Key, StartKey)> {
        let whose = key::start_key(&self.exec(&self.argv))?;
        let plain = whose.key.clone();
        let whose = StartKey {
            key: key_of_user(whose.key, self.uid)?,
            ..whose
        };
        Some((plain, as_launcher(store, whose)))
    }

    /// Whether all starts that the kernel takes for the same as this one are: it knows an interpreter's first
    /// arguments (`what_it_does`, watch.h), and of a control group nothing.
    pub(super) fn is_told_apart(&self, key: Option<&Key>) -> bool {
        let is_option =
            |argument: &&Vec<u8>| argument.starts_with(b"-") && **argument != b"-c" && **argument != b"-e";
        let known = 2 + usize::from(self.argv.get(1).as_ref().is_some_and(is_option));
        if self.executable.ends_with(EXECUTOR) {
            return false;
        }
        if self.cgroup.is_none() && self.argv.len() <= known {
            return true;
        }
        let by_itself = key::for_exec(&Exec {
            executable: &self.executable,
            argv: &self.argv[..known.min(self.argv.len())],
            cgroup: None,
            cwd: self.cwd.as_deref(),
            user: self.uid,
        });
        by_itself.as_ref() == key
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
        key::for_exec(&self.exec(argv))
    }

    fn exec<'a>(&'a self, argv: &'a [Vec<u8>]) -> Exec<'a> {
        Exec {
            executable: &self.executable,
            argv,
            cgroup: self.cgroup.as_deref(),
            cwd: self.cwd.as_deref(),
            user: self.uid,
        }
    }
}

/// Whose process it is: who has begun it, also where it may do what another may (a program with the setuid
/// bit), or has made the user namespace that it is in.
fn user_of(pid: u32) -> Option<u32> {
    Some(owner(pid, real_user_of(pid)?))
}

fn real_user_of(pid: u32) -> Option<u32> {
    let status = read(format!("/proc/{pid}/status"), STATUS)?;
    let line = status
        .split(|byte| *byte == b'\n')
        .find_map(|line| line.strip_prefix(b"Uid:"))?;
    std::str::from_utf8(line)
        .ok()?
        .split_ascii_whitespace()
        .next()?
        .parse()
        .ok()
}

/// The directory that a process is in, unless that is gone: nothing is found below it the next time.
fn directory_of(pid: u32) -> Option<PathBuf> {
    let (path, is_gone) = key::told_by_proc(std::fs::read_link(format!("/proc/{pid}/cwd")).ok()?);
    (!is_gone).then_some(path)
}

/// A process and the descendants that it has now which are the same user's, as far as they and their threads
/// are few. root's are all.
pub(super) fn tree_of(pid: u32, uid: u32) -> Vec<u32> {
    let mut tree = vec![pid];
    let (mut next, mut threads_left) = (0, MOST_OF_TREE);
    // A process with more rights than its user's is root's.
    let is_theirs = |pid: &u32| {
        uid == 0 || std::fs::symlink_metadata(format!("/proc/{pid}")).is_ok_and(|facts| facts.uid() == uid)
    };
    while let Some(pid) = tree.get(next).copied() {
        next += 1;
        let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
        for thread in threads.into_iter().flatten().flatten().take(threads_left) {
            threads_left -= 1;
            let children = read(thread.path().join("children"), CHILDREN).unwrap_or_default();
            let text = String::from_utf8_lossy(&children);
            let children = text
                .split_ascii_whitespace()
                .filter_map(|pid| pid.parse::<u32>().ok());
            tree.extend(
                children
                    .filter(is_theirs)
                    .take(MOST_OF_TREE - tree.len().min(MOST_OF_TREE)),
            );
        }
    }
    tree
}

/// The arguments in a text of them.
fn cut(line: &[u8]) -> Vec<Vec<u8>> {
    let line = line.strip_suffix(b"\0").unwrap_or(line);
    line.split(|byte| *byte == 0)
        .take(MOST_ARGUMENTS)
        .map(|argument| argument[..argument.len().min(MOST_BYTES)].to_vec())
        .collect()
}

/// Whether a text of arguments may not be all of them, or [`cut`] leaves some out.
fn has_more(line: &[u8]) -> bool {
    let arguments = line.iter().filter(|byte| **byte == 0).count();
    line.len() >= COMMAND_LINE || arguments > MOST_ARGUMENTS
}

/// The path in the text of a `cgroup` file: of the unified hierarchy.
fn cgroup_of(text: &[u8]) -> Option<String> {
    let line = text
        .split(|byte| *byte == b'\n')
        .find_map(|line| line.strip_prefix(b"0::"))?;
    String::from_utf8(line.to_vec()).ok()
}

/// Whether nobody is in a control group but this process and what it has begun itself, as systemd's
/// `(sd-pam)`. Where that cannot be told it is.
fn is_first_in(root: &Path, cgroup: &str, pid: u32) -> bool {
    let path = root.join(cgroup.trim_start_matches('/')).join("cgroup.procs");
    let Some(text) = read(path, PROCESSES) else {
        return true;
    };
    let text = String::from_utf8_lossy(&text);
    let mut others = text
        .split_ascii_whitespace()
        .filter_map(|word| word.parse::<u32>().ok());
    others.all(|other| other == pid || ProcessStat::for_process(other).is_none_or(|stat| stat.parent == pid))
}

fn read(path: impl AsRef<Path>, most: u64) -> Option<Vec<u8>> {
    // Grown from nothing it would be read in ten pieces.
    let mut bytes = Vec::with_capacity(4096);
    File::open(path).ok()?.take(most).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests;
