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
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_cut_into_arguments() {
        assert_eq!(cut(b"sh\0-c\0\0"), [&b"sh"[..], b"-c", b""]);
        assert_eq!(cut(&b"x\0".repeat(100)).len(), MOST_ARGUMENTS);
        assert_eq!(cut(&[b'x'; 9000])[0].len(), MOST_BYTES);
    }

    #[test]
    fn the_unified_cgroup_is_found() {
        let text = b"1:cpu:/x\n0::/system.slice/cron.service\n";
        assert_eq!(cgroup_of(text).as_deref(), Some("/system.slice/cron.service"));
        assert_eq!(cgroup_of(b"1:cpu:/x\n"), None);
    }

    fn process(executable: &str, argv: &[&str]) -> Process {
        Process {
            executable: executable.into(),
            argv: argv.iter().map(|a| a.as_bytes().to_vec()).collect(),
            has_more: false,
            cgroup: None,
            is_first: false,
            cwd: Some("/".into()),
            uid: 0,
        }
    }

    #[test]
    fn what_the_kernel_takes_for_the_same_has_one_key() {
        let told = |process: &Process| process.is_told_apart(process.key().as_ref());
        let key_for = |executable: &str, argv: &[&str]| told(&process(executable, argv));
        assert!(key_for("/usr/bin/cat", &["cat", "a", "b"]));
        assert!(key_for("/usr/bin/python3", &["python3", "/srv/a.py", "x"]));
        assert!(key_for(
            "/usr/bin/python3",
            &["python3", "-m", "http.server", "80"]
        ));
        assert!(key_for("/usr/bin/python3", &["python3", "-c", "import os"]));
        // What is run comes behind what the kernel looks at.
        assert!(!key_for(
            "/usr/bin/python3",
            &["python3", "-W", "ignore", "/srv/a.py"]
        ));
        assert!(!key_for(
            "/usr/bin/java",
            &["java", "-Xmx1g", "-XX:+UseG1GC", "-jar", "/srv/a.jar"]
        ));
        assert!(!key_for("/usr/bin/flatpak", &["flatpak", "run", "org.gimp.GIMP"]));
        // A service is another than one that is started by hand, and all services of systemd begin the same
        // way.
        let mut service = process("/usr/sbin/cron", &["/usr/sbin/cron", "-f"]);
        service.cgroup = Some("/system.slice/cron.service".into());
        assert!(service.key().is_some() && !told(&service));
        assert!(!key_for(
            "/usr/lib/systemd/systemd-executor",
            &["systemd-executor", "--deserialize", "43"]
        ));
    }

    #[test]
    fn a_process_that_executes_something_else_by_now_is_looked_at_only_where_the_kernel_told_all() {
        let own = std::env::current_exe()
            .unwrap()
            .into_os_string()
            .into_encoded_bytes();
        let pid = std::process::id();
        let nothing = Facts::default();
        // It is not answered in time where the machine is busy.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let answered = |path: &[u8], facts: Facts<'_>| loop {
            match Process::read(pid, path, facts) {
                Err(ProcessChanged::Gone) if std::time::Instant::now() < until => std::thread::yield_now(),
                found => break found,
            }
        };
        let process = answered(&own, nothing).unwrap();
        assert_eq!(process.uid, rustix::process::getuid().as_raw());
        let arguments: Vec<Vec<u8>> = std::env::args().map(String::into_bytes).collect();
        assert_eq!(process.argv, arguments);
        let facts = Facts {
            parent_and_user: Some((7, 4711)),
            arguments: Some(b"x\0"),
        };
        let process = Process::read(pid, &own, facts).unwrap();
        assert_eq!((process.argv, process.uid), (vec![b"x".to_vec()], 4711));
        // A launcher that is answered late.
        let process = Process::read(pid, b"/bin/sh", facts).unwrap();
        assert_eq!(process.executable, Path::new("/bin/sh"));
        assert_eq!((process.argv, process.uid), (vec![b"x".to_vec()], 4711));
        let without_user = Facts {
            parent_and_user: None,
            ..facts
        };
        let without_arguments = Facts {
            arguments: None,
            ..facts
        };
        for facts in [nothing, without_user, without_arguments] {
            assert_eq!(answered(b"/bin/sh", facts).err(), Some(ProcessChanged::Another));
        }
        for facts in [nothing, facts] {
            assert_eq!(
                Process::read(u32::MAX / 2, &own, facts).err(),
                Some(ProcessChanged::Gone)
            );
        }
    }

    #[test]
    fn what_is_gone_is_in_no_key_and_a_name_that_ends_so_is() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let root = dir.path().canonicalize().unwrap();
        let at = |name: &str| root.join(name);
        std::fs::create_dir(at("gone")).unwrap();
        for name in ["kept", "kept (deleted)", "replaced"] {
            std::fs::copy("/bin/sleep", at(name)).unwrap();
        }
        let start = |name: &str| {
            let mut command = std::process::Command::new(at(name));
            command.arg("60").current_dir(at("gone"));
            let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
            loop {
                match command.spawn() {
                    // A process that another test has just forked still has the file open to write.
                    Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                        assert!(std::time::Instant::now() < until, "{error}");
                    }
                    child => break child.unwrap(),
                }
            }
        };
        let mut children = ["kept", "kept (deleted)", "replaced"].map(start);
        let exe = |pid: u32| std::fs::read_link(format!("/proc/{pid}/exe"));
        for child in &children {
            let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
            while !exe(child.id()).is_ok_and(|path| path.starts_with(&root)) {
                assert!(std::time::Instant::now() < until);
                std::thread::yield_now();
            }
        }
        std::fs::remove_dir(at("gone")).unwrap();
        std::fs::copy("/bin/sleep", at("new")).unwrap();
        std::fs::rename(at("new"), at("replaced")).unwrap();
        let names: Vec<Option<String>> = ["kept", "kept (deleted)", "replaced"]
            .iter()
            .zip(&children)
            .map(|(name, child)| {
                let path = at(name).into_os_string().into_encoded_bytes();
                // Not read of the process: on a busy machine, or beside other tests' questions of the same
                // user, that is not answered in time.
                let facts = Facts {
                    arguments: Some(b"sleep\x0060\0"),
                    ..Facts::default()
                };
                let process = Process::read(child.id(), &path, facts).ok()?;
                assert_eq!(process.cwd, None, "{name}");
                Some(process.key()?.to_string())
            })
            .collect();
        let gone = at("removed (deleted)").into_os_string().into_encoded_bytes();
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let expected =
            ["kept", "kept (deleted)", "replaced"].map(|name| Some(at(name).display().to_string()));
        assert_eq!(names, expected);
        assert_eq!(process(std::str::from_utf8(&gone).unwrap(), &["x"]).key(), None);
        // A script of a directory that is gone has no key.
        let script = Process {
            cwd: None,
            ..process("/usr/bin/python3", &["python3", "a.py"])
        };
        assert_eq!(script.key(), None);
    }

    #[test]
    fn of_a_service_only_its_first_process_begins_it() {
        let dir = tempfile::tempdir().unwrap();
        let own = std::process::id();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        std::fs::create_dir_all(dir.path().join("system.slice/x.service")).unwrap();
        let is_first = |of: u32, processes: &[u32]| {
            let text: String = processes.iter().map(|pid| format!("{pid}\n")).collect();
            std::fs::write(dir.path().join("system.slice/x.service/cgroup.procs"), text).unwrap();
            is_first_in(dir.path(), "/system.slice/x.service", of)
        };
        let firsts = [
            is_first(own, &[own]),
            is_first(own, &[own, child.id()]),
            is_first(own, &[own, u32::MAX / 2]),
            is_first(child.id(), &[own, child.id()]),
        ];
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(firsts, [true, true, true, false]);
        assert!(is_first_in(dir.path(), "/none", own), "nobody can tell");
        let key = |is_first, begins: bool| {
            let mut service = process("/usr/bin/job", &["job"]);
            service.cgroup = Some("/system.slice/cron.service".into());
            service.is_first = is_first;
            service.is_service_if(|_| begins);
            service.key().unwrap().to_string()
        };
        assert_eq!(key(true, false), "cron.service");
        assert_eq!(key(false, true), "cron.service", "ExecStartPost=");
    }

    #[test]
    fn an_interpreter_is_no_plain_program() {
        let cat = process("/usr/bin/cat", &["cat", "file"]);
        assert!(cat.is_plain(&cat.key().unwrap()));
        let python = process("/usr/bin/python3", &["python3"]);
        assert!(python.key().is_none_or(|key| !python.is_plain(&key)));
        let script = process("/usr/bin/python3", &["python3", "/usr/bin/script"]);
        assert!(!script.is_plain(&script.key().unwrap()));
    }
}
