//! Being told by the kernel that somebody executes a file (fanotify(7), `FAN_OPEN_EXEC`), after the fact:
//! nobody waits. It tells when a file is opened to be executed, so before the process is the new program; and
//! of a program's interpreters, too.

use crate::fanotify::Group;
use crate::mounts::{Kind, MountTable};
use crate::open::open_root;
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;

/// File systems whose executed files are told of, but for some of them.
pub struct Executed(Group);

/// So many mounts of a file system are tried until its root can be opened: those that lie below others
/// cannot.
const TRIED: usize = 32;

/// A file that was opened to be executed.
pub struct Opened {
    /// By which process; 0 if that is in no pid namespace that can be seen from here.
    pub pid: u32,
    file: OwnedFd,
}

impl Opened {
    /// Its path, as this process would name it.
    pub fn path(&self) -> io::Result<Vec<u8>> {
        let path = std::fs::read_link(format!("/proc/self/fd/{}", self.file.as_raw_fd()))?;
        Ok(path.into_os_string().into_vec())
    }

    /// The number of its file system, as stat(2) has it, and its own.
    pub fn inode(&self) -> io::Result<(u64, u64)> {
        let stat = rustix::fs::fstat(&self.file)?;
        Ok((stat.st_dev, stat.st_ino))
    }

    /// Whether it may have another name on its file system.
    pub fn has_names(&self) -> bool {
        rustix::fs::fstat(&self.file).is_ok_and(|stat| stat.st_nlink > 1)
    }
}

/// What is told of next.
pub enum ExecEvent {
    /// This.
    Opened(Opened),
    /// More was executed than is kept, or a file could not be opened for this process: some was not told of.
    Missed,
}

impl Executed {
    /// Needs CAP_SYS_ADMIN.
    pub fn new() -> io::Result<Executed> {
        Ok(Executed(Group::new(libc::FAN_CLASS_NOTIF, libc::O_NONBLOCK)?))
    }

    /// Tells of what is executed on each local file system that is mounted, in whichever mount namespace it
    /// is; also if it told of some already. Gives on how many: on none where none is mounted. Fails where it
    /// is refused on all.
    pub fn mark_all(&self, mounts: &MountTable) -> io::Result<usize> {
        let how = libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM;
        let mut seen = HashSet::new();
        let mut tried: HashMap<(u32, u32), usize> = HashMap::new();
        let mut refused = None;
        for (index, mount) in mounts.all().iter().enumerate() {
            if mounts.kind_at(index) != Kind::Local || seen.contains(&(mount.major, mount.minor)) {
                continue;
            }
            let tried = tried.entry((mount.major, mount.minor)).or_default();
            *tried += 1;
            if *tried > TRIED {
                continue;
            }
            // Where another is mounted over it, or where a file is mounted, it may be mounted elsewhere, too.
            let Ok(root) = open_root(mounts, mount) else {
                continue;
            };
            match self.0.mark(how, libc::FAN_OPEN_EXEC, Some(root.as_fd())) {
                Ok(()) => {
                    seen.insert((mount.major, mount.minor));
                }
                Err(error) => refused = Some(error),
            }
        }
        match refused {
            Some(error) if seen.is_empty() => Err(error),
            _ => Ok(seen.len()),
        }
    }

    /// Tells of this file no more, until all are told of again; also if it is written to.
    pub fn leave(&self, opened: &Opened) -> io::Result<()> {
        let how = libc::FAN_MARK_ADD | libc::FAN_MARK_IGNORED_MASK | libc::FAN_MARK_IGNORED_SURV_MODIFY;
        let mark = |how| self.0.mark(how, libc::FAN_OPEN_EXEC, Some(opened.file.as_fd()));
        // It does not keep the inode in memory: since 5.19.
        mark(how | libc::FAN_MARK_EVICTABLE).or_else(|_| mark(how))
    }

    /// Tells of all files again.
    pub fn leave_none(&self) -> io::Result<()> {
        self.0.mark(libc::FAN_MARK_FLUSH, 0, None)
    }

    /// What is told of next; `None` if there is nothing now.
    pub fn next(&self) -> io::Result<Option<ExecEvent>> {
        let event = match self.0.next() {
            // The kernel could not open that one file here, and has taken it off its list: a security
            // module's rule, no descriptor left, a device that has gone.
            Err(error) if !is_of_group(&error) => return Ok(Some(ExecEvent::Missed)),
            event => event?,
        };
        Ok(event.map(|event| match event.file {
            Some(file) => ExecEvent::Opened(Opened { pid: event.pid, file }),
            None => ExecEvent::Missed,
        }))
    }
}

/// Whether an error of reading is the group's, and the next would have it, too.
fn is_of_group(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        None | Some(libc::EBADF | libc::EINVAL | libc::EFAULT)
    )
}

impl AsFd for Executed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{LoopFs, Spec, can_mount};
    use std::process::Command;

    /// Paths of what this process's children have executed.
    fn executed_files(executed: &Executed) -> Vec<(u32, Opened)> {
        let mut executed_files = Vec::new();
        while let Some(told) = executed.next().unwrap() {
            match told {
                ExecEvent::Opened(opened) => executed_files.push((opened.pid, opened)),
                ExecEvent::Missed => panic!("one was missed"),
            }
        }
        executed_files
    }

    /// Has no descriptor left while something is executed.
    #[test]
    #[ignore = "run by another test in a process of its own"]
    fn without_descriptors() {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let executed = Executed::new().unwrap();
        executed.mark_all(&MountTable::read().unwrap()).unwrap();
        let start = || assert!(Command::new("/bin/true").status().unwrap().success());
        let before = getrlimit(Resource::Nofile);
        start();
        let none = Rlimit {
            current: Some(0),
            ..before
        };
        setrlimit(Resource::Nofile, none).unwrap();
        let told = executed.next();
        setrlimit(Resource::Nofile, before).unwrap();
        assert!(
            matches!(told, Ok(Some(ExecEvent::Missed))),
            "{:?}",
            told.map(drop)
        );
        while executed.next().unwrap().is_some() {}
        start();
        assert!(matches!(executed.next(), Ok(Some(ExecEvent::Opened(_)))));
    }

    #[test]
    fn what_cannot_be_opened_is_missed_and_the_next_is_told_of() {
        if !can_mount() {
            return;
        }
        let name = "executed::tests::without_descriptors";
        let own = std::env::current_exe().unwrap();
        let ran = Command::new(own)
            .args(["--exact", name, "--ignored", "--nocapture"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success() && said.contains("1 passed"), "{ran:?}");
    }

    #[test]
    fn what_is_executed_on_a_file_system_is_told_of_unless_it_is_to_be_left() {
        if !can_mount() {
            return;
        }
        let fs = LoopFs::create(&Spec::new("ext4"), |root| {
            std::fs::copy("/bin/true", root.join("one"))?;
            std::fs::copy("/bin/true", root.join("two")).map(drop)
        })
        .unwrap();
        let path = |name: &str| fs.mount_point().join(name);
        let executed = Executed::new().unwrap();
        // All that was mounted may be unmounted for a moment.
        assert_eq!(executed.mark_all(&MountTable::parse(b"")).unwrap(), 0);
        assert!(executed.mark_all(&MountTable::read().unwrap()).unwrap() >= 1);
        let told = |executed: &Executed| -> Vec<(u32, Opened)> {
            let below = |opened: &Opened| {
                opened
                    .path()
                    .unwrap()
                    .starts_with(fs.mount_point().as_os_str().as_encoded_bytes())
            };
            executed_files(executed)
                .into_iter()
                .filter(|(_, opened)| below(opened))
                .collect()
        };
        let start = |name: &str| {
            let mut child = Command::new(path(name)).spawn().unwrap();
            assert!(child.wait().unwrap().success());
            child.id()
        };
        // One that is read is not executed.
        std::fs::read(path("two")).unwrap();
        let pid = start("one");
        let files = told(&executed);
        assert_eq!(files.len(), 1);
        let (by, opened) = &files[0];
        assert_eq!(*by, pid);
        assert_eq!(opened.path().unwrap(), path("one").as_os_str().as_encoded_bytes());
        executed.leave(opened).unwrap();
        start("one");
        start("two");
        let files = told(&executed);
        assert_eq!(files.len(), 1);
        assert_eq!(
            files[0].1.path().unwrap(),
            path("two").as_os_str().as_encoded_bytes()
        );
        drop(files);
        executed.leave_none().unwrap();
        start("one");
        assert_eq!(told(&executed).len(), 1);
    }
}
