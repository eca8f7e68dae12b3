//! tracefs itself, and an instance of it that is removed again whatever happens.
//!
//! Instances are named `headstart-PID-N`. Whoever made one holds a lock on its directory, which is free when
//! it is dead, in whatever pid namespace it lived. So one that a killed recorder left is removed by the next
//! recorder, and one that is in use by nobody.

use crate::error::RecordError;
use rustix::fs::{CWD, Dir, FlockOperation, Mode, OFlags, flock, mkdirat, openat, unlinkat};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const PREFIX: &str = "headstart-";

/// How long an instance that is still in use is tried to be removed.
const PATIENCE: Duration = Duration::from_secs(1);

/// Opens the root of tracefs: where it usually is mounted, or else through a mount of our own that nobody
/// sees.
pub(super) fn open_root() -> Result<OwnedFd, RecordError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    for place in ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"] {
        if let Ok(root) = openat(CWD, place, flags, Mode::empty()) {
            if openat(&root, "instances", flags, Mode::empty()).is_ok() {
                return Ok(root);
            }
        }
    }
    let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC).map_err(|e| refused("mount tracefs", e))?;
    fsconfig_create(context.as_fd()).map_err(|e| refused("mount tracefs", e))?;
    fsmount(
        context.as_fd(),
        FsMountFlags::FSMOUNT_CLOEXEC,
        MountAttrFlags::empty(),
    )
    .map_err(|e| refused("mount tracefs", e))
}

/// The error for a step the kernel refused.
fn refused(step: &str, error: Errno) -> RecordError {
    match error {
        Errno::PERM | Errno::ACCESS => RecordError::Capability {
            backend: "tracefs",
            capability: "CAP_SYS_ADMIN",
            what: format!("{step}: {error}"),
        },
        Errno::NODEV | Errno::NOENT => RecordError::Unsupported {
            backend: "tracefs",
            feature: format!("{step}: {error}"),
            way_out: "use a kernel with CONFIG_FTRACE and CONFIG_TRACING",
        },
        other => RecordError::io(step, other),
    }
}

/// Reads a small file below `dir`, in one call where it fits: some files (`header_page`) give only the first.
fn read(dir: impl AsFd, path: &str) -> Result<String, RecordError> {
    let attempt = || -> io::Result<String> {
        let mut file = std::fs::File::from(openat(
            dir,
            path,
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )?);
        // The kernel shows at most a page of a format.
        let mut bytes = vec![0; 1 << 16];
        let length = file.read(&mut bytes)?;
        bytes.truncate(length);
        file.read_to_end(&mut bytes)?;
        String::from_utf8(bytes).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
    };
    attempt().map_err(|e| RecordError::io(format!("read tracefs' {path}"), e))
}

/// Tells apart instances of one process.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// A trace instance; removed when dropped.
#[derive(Debug)]
pub(super) struct Instance {
    instances: OwnedFd,
    dir: Option<OwnedFd>,
    name: String,
}

impl Instance {
    /// A new instance, after removing what dead recorders left.
    pub fn create(root: &OwnedFd) -> Result<Instance, RecordError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let instances =
            openat(root, "instances", flags, Mode::empty()).map_err(|e| refused("open its instances", e))?;
        remove_dead(&instances);
        let name = format!(
            "{PREFIX}{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        // Between its making and its lock nobody may take it for a dead one's. The lock goes with the
        // descriptor.
        let making =
            openat(root, "instances", flags, Mode::empty()).map_err(|e| refused("open its instances", e))?;
        flock(&making, FlockOperation::LockShared).map_err(|e| refused("lock its instances", e))?;
        mkdirat(&instances, &name, Mode::RWXU).map_err(|e| refused("make a trace instance", e))?;
        let mut instance = Instance {
            instances,
            dir: None,
            name,
        };
        let dir = openat(&instance.instances, &instance.name, flags, Mode::empty())
            .map_err(|e| refused("open the trace instance", e))?;
        flock(&dir, FlockOperation::NonBlockingLockExclusive)
            .map_err(|e| refused("lock the trace instance", e))?;
        instance.dir = Some(dir);
        Ok(instance)
    }

    /// One that is there already; `None` if it is not.
    pub fn adopt(root: &OwnedFd, name: &str) -> Result<Option<Instance>, RecordError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let instances =
            openat(root, "instances", flags, Mode::empty()).map_err(|e| refused("open its instances", e))?;
        match openat(&instances, name, flags | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(dir) => Ok(Some(Instance {
                instances,
                dir: Some(dir),
                name: name.to_owned(),
            })),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(refused("open the trace instance", error)),
        }
    }

    /// Opens a file of the instance.
    pub fn open(&self, path: &str, flags: OFlags) -> Result<OwnedFd, RecordError> {
        let Some(dir) = &self.dir else {
            return Err(RecordError::io(format!("open tracefs' {path}"), Errno::BADF));
        };
        openat(dir, path, flags | OFlags::CLOEXEC, Mode::empty())
            .map_err(|e| refused(&format!("open tracefs' {path}"), e))
    }

    /// Writes a setting in one call.
    pub fn write(&self, path: &str, value: &str) -> Result<(), RecordError> {
        std::fs::File::from(self.open(path, OFlags::WRONLY)?)
            .write_all(value.as_bytes())
            .map_err(|e| RecordError::io(format!("write {:?} to tracefs' {path}", value.trim()), e))
    }

    /// Reads a small file.
    pub fn read(&self, path: &str) -> Result<String, RecordError> {
        let Some(dir) = &self.dir else {
            return Err(RecordError::io(format!("read tracefs' {path}"), Errno::BADF));
        };
        read(dir, path)
    }

    /// The names in a directory of the instance.
    pub fn list(&self, path: &str) -> Result<Vec<String>, RecordError> {
        let step = || format!("list tracefs' {path}");
        let dir = Dir::read_from(self.open(path, OFlags::RDONLY | OFlags::DIRECTORY)?)
            .map_err(|e| RecordError::io(step(), e))?;
        names(dir).map_err(|e| RecordError::io(step(), e))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.dir = None;
        // A directory fd opened elsewhere keeps nothing alive; only open pipes and settings do. Ours are
        // closed, but a process that another thread began has copies until it executes its program.
        let begun = Instant::now();
        let remove = || unlinkat(&self.instances, &self.name, rustix::fs::AtFlags::REMOVEDIR);
        let mut removed = remove();
        while removed == Err(Errno::BUSY) && begun.elapsed() < PATIENCE {
            std::thread::sleep(PATIENCE / 100);
            removed = remove();
        }
        if let Err(error) = removed {
            // Nobody is left to tell but the next recorder, which removes it too.
            debug_assert_eq!(error, Errno::NOENT, "the instance {} stays", self.name);
        }
    }
}

/// Every name in a directory but its own two.
fn names(dir: Dir) -> rustix::io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in dir {
        if let Ok(name) = entry?.file_name().to_str() {
            if !name.starts_with('.') {
                names.push(name.to_owned());
            }
        }
    }
    Ok(names)
}

/// Whether an instance is one of headstart's recorders', by its name.
fn is_own(name: &str) -> bool {
    let numbers = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-'));
    numbers.is_some_and(|(pid, count)| pid.parse::<u32>().is_ok() && count.parse::<u32>().is_ok())
}

/// Removes instances of recorders that no longer run: they would trace for ever. Whoever records with BPF
/// removes them too, and nothing here can fail a recording.
pub(crate) fn remove_stale() {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let instances = open_root().map(|root| openat(&root, "instances", flags, Mode::empty()));
    if let Ok(Ok(instances)) = instances {
        remove_dead(&instances);
    }
}

fn remove_dead(instances: &OwnedFd) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(dir) = Dir::read_from(instances) else {
        return;
    };
    let dead: Vec<String> = names(dir).unwrap_or_default();
    let dead: Vec<String> = dead.into_iter().filter(|name| is_own(name)).collect();
    // Most often there is none.
    if dead.is_empty() {
        return;
    }
    // While somebody makes one, or removes them too, this is left to the next.
    let Ok(alone) = openat(instances, ".", flags, Mode::empty()) else {
        return;
    };
    if flock(&alone, FlockOperation::NonBlockingLockExclusive).is_err() {
        return;
    }
    for name in dead {
        let owner = openat(instances, &name, flags | OFlags::NOFOLLOW, Mode::empty());
        let free = owner.is_ok_and(|dir| flock(&dir, FlockOperation::NonBlockingLockExclusive).is_ok());
        if free {
            // One that is in use after all the kernel does not remove.
            let _ = unlinkat(instances, &name, rustix::fs::AtFlags::REMOVEDIR);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_model::testing::needs;

    #[track_caller]
    fn root() -> Option<OwnedFd> {
        let root = open_root();
        needs(&format!("tracefs: {:?}", root.as_ref().err()), root.is_ok());
        root.ok()
    }

    #[test]
    fn an_instance_is_removed_when_dropped_and_after_its_recorders_death_by_any_other() {
        let Some(root) = root() else { return };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let exists = |name: &str| openat(&root, format!("instances/{name}"), flags, Mode::empty()).is_ok();
        let instances = openat(&root, "instances", flags, Mode::empty()).unwrap();
        // By the number that this process has now, as those of a process that has ended are used again.
        let stale = format!("{PREFIX}{}-999999", std::process::id());
        let foreign = format!("{PREFIX}test-{}", std::process::id());
        for name in [&stale, &foreign] {
            mkdirat(&instances, name, Mode::RWXU).unwrap();
        }
        let instance = Instance::create(&root).unwrap();
        let name = instance.name.clone();
        // Another test may be making one at that moment.
        let begun = Instant::now();
        while exists(&stale) && begun.elapsed() < Duration::from_secs(20) {
            remove_stale();
        }
        assert!(exists(&name) && !exists(&stale) && exists(&foreign));
        unlinkat(&instances, &foreign, rustix::fs::AtFlags::REMOVEDIR).unwrap();
        drop(instance);
        assert!(!exists(&name));
    }

    #[test]
    fn an_instance_that_is_in_use_for_a_moment_is_removed_after_it() {
        let Some(root) = root() else { return };
        let instance = Instance::create(&root).unwrap();
        let path = format!("instances/{}", instance.name);
        let pipe = instance
            .open("per_cpu/cpu0/trace_pipe_raw", OFlags::RDONLY)
            .unwrap();
        let user = std::thread::spawn(move || {
            std::thread::sleep(PATIENCE / 10);
            drop(pipe);
        });
        drop(instance);
        let gone = openat(&root, path, OFlags::RDONLY, Mode::empty());
        assert_eq!(gone.err(), Some(Errno::NOENT));
        user.join().unwrap();
    }

    #[test]
    fn only_recorders_have_such_names() {
        assert!(is_own("headstart-12-0"));
        for other in [
            "headstart",
            "headstart-12",
            "headstart-x-0",
            "headstart-12-x",
            "foo-12-0",
        ] {
            assert!(!is_own(other), "{other}");
        }
    }
}
