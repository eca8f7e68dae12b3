//! [`open::pin`](crate::open::pin) for many paths at once, through one io_uring.
//!
//! A look-up that is answered from memory is answered while it is submitted, a batch of them in one system
//! call. One that has to read is left to a worker thread that the kernel makes for this process, so that as
//! many can wait for the device as are in flight. What was found is judged here by the same rules as a single
//! pin.
//!
//! Only the resolver and their closing go through the ring: what else opening takes never waits for a device,
//! and the kernel hands statx(2) and anything that goes by way of `/proc` to a worker always, which costs
//! more than the call.

use crate::files::Stat;
use crate::mounts::{INSIDE, Inside, LOOK, MountTable};
use crate::open::{Skip, inside_local, pin, stat_pin};
use crate::why_not_opened::skip;
use io_uring::{IoUring, Probe, cqueue, opcode, types};
use rustix::io::Errno;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

/// The most look-ups in flight at once: each may have a thread of the kernel's.
pub const MAX_IN_FLIGHT: u32 = 256;
/// How often a kernel short of memory is asked again, and after what time.
const RETRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(1);
/// Marks the completion of a closing; any other mark is a place in flight.
const CLOSED: u64 = u64::MAX;

/// A ring to pin paths with.
pub struct PathResolver {
    ring: IoUring,
    in_flight: usize,
    /// Whether requests were left in the ring: then their paths may be gone, and it is not used any more.
    abandoned: bool,
}

/// A look-up in flight.
struct Place<T> {
    what: T,
    /// From the root of its mount on; read by the kernel when it takes the request.
    path: CString,
}

impl PathResolver {
    /// A ring with at most that many look-ups in flight, at least 1 and at most [`MAX_IN_FLIGHT`].
    ///
    /// Fails where io_uring is missing, switched off or forbidden (`kernel.io_uring_disabled`, a container's
    /// seccomp filter, too little lockable memory), and before Linux 5.15, which does not let the number of
    /// workers be set.
    pub fn new(in_flight: u32) -> io::Result<PathResolver> {
        let in_flight = in_flight.clamp(1, MAX_IN_FLIGHT);
        // A place for the closing of each.
        let entries = 2 * in_flight;
        // 5.19: completions need not interrupt this thread, it asks for them anyway.
        let ring = IoUring::builder()
            .setup_coop_taskrun()
            .build(entries)
            .or_else(|_| IoUring::new(entries))?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let known = [opcode::OpenAt2::CODE, opcode::Close::CODE]
            .iter()
            .all(|code| probe.is_supported(*code));
        if !known || !ring.params().is_feature_submit_stable() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        // Else there are four for each CPU. The second number is for sockets and pipes: 0 leaves it as it is.
        ring.submitter().register_iowq_max_workers(&mut [in_flight, 0])?;
        Ok(PathResolver {
            ring,
            in_flight: in_flight as usize,
            abandoned: false,
        })
    }

    /// The most look-ups in flight.
    pub fn in_flight(&self) -> u32 {
        self.in_flight as u32
    }

    /// PathResolver each path that `next` names, until it names none, and tells `done` what became of it. The
    /// order of completion is any. The pin is closed after `done`.
    ///
    /// Fails if the ring does; then it is of no use any more, and `done` was not told of some paths.
    pub fn resolve_each<T>(
        &mut self,
        mounts: &MountTable,
        mut next: impl FnMut() -> Option<(T, PathBuf)>,
        mut done: impl FnMut(T, Result<(BorrowedFd<'_>, Stat), Skip>),
    ) -> io::Result<()> {
        // Stays so if this returns early or `done` panics.
        if std::mem::replace(&mut self.abandoned, true) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let how = types::OpenHow::new()
            .flags(LOOK.bits().into())
            .resolve(INSIDE.bits());
        let mut places: Vec<Option<Place<T>>> = Vec::new();
        places.resize_with(self.in_flight, || None);
        let mut free: Vec<usize> = (0..self.in_flight).collect();
        let (mut closing, mut refused) = (0, 0);
        let mut more = true;
        loop {
            while more {
                let Some(place) = free.pop() else { break };
                let Some((what, path)) = next() else {
                    more = false;
                    free.push(place);
                    break;
                };
                match inside_local(mounts, &path) {
                    // The root of a mount, which is open already.
                    Ok(inside) if inside.path.is_empty() => {
                        free.push(place);
                        let pinned = pin(mounts, &path);
                        done(
                            what,
                            pinned
                                .as_ref()
                                .map(|(fd, stat)| (fd.as_fd(), *stat))
                                .map_err(|e| *e),
                        );
                    }
                    Ok(Inside { root, path }) => {
                        let at = types::Fd(root.as_raw_fd());
                        let entry = opcode::OpenAt2::new(at, path.as_ptr(), &how).build();
                        // SAFETY: the kernel reads path and `how` when it takes the request
                        // (IORING_FEAT_SUBMIT_STABLE was checked), which it does in `submit_and_wait` below
                        // or never: the path stays in its place until the completion, `how` until this
                        // returns, and after an early return nothing is submitted any more (`abandoned`).
                        unsafe { self.ring.submission().push(&entry.user_data(place as u64)) }
                            .map_err(io::Error::other)?;
                        places[place] = Some(Place { what, path });
                    }
                    Err(reason) => {
                        free.push(place);
                        done(what, Err(reason));
                    }
                }
            }
            if free.len() == self.in_flight && closing == 0 {
                self.abandoned = false;
                return Ok(());
            }
            match self.ring.submit_and_wait(1) {
                Ok(_) => refused = 0,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    // Short of memory for a moment: what completes makes room.
                    Some(libc::EAGAIN | libc::EBUSY) if refused < RETRIES => {
                        refused += 1;
                        std::thread::sleep(PAUSE);
                    }
                    _ => return Err(error),
                },
            }
            let completed: Vec<(u64, i32)> = self
                .ring
                .completion()
                .map(|c: cqueue::Entry| (c.user_data(), c.result()))
                .collect();
            for (mark, result) in completed {
                if mark == CLOSED {
                    closing -= 1;
                    continue;
                }
                let Some(Place { what, path }) = places[mark as usize].take() else {
                    continue;
                };
                drop(path);
                free.push(mark as usize);
                if result < 0 {
                    done(what, Err(skip(Errno::from_raw_os_error(-result))));
                    continue;
                }
                // SAFETY: a descriptor that the kernel has just made for this request alone.
                let pin = unsafe { OwnedFd::from_raw_fd(result) };
                let stat = stat_pin(pin.as_fd());
                done(what, stat.map(|stat| (pin.as_fd(), stat)));
                let close = opcode::Close::new(types::Fd(pin.as_raw_fd())).build();
                // SAFETY: no pointer is passed. The descriptor is given away if the ring took the request.
                if unsafe { self.ring.submission().push(&close.user_data(CLOSED)) }.is_ok() {
                    let _ = pin.into_raw_fd();
                    closing += 1;
                }
            }
        }
    }
}

impl Drop for PathResolver {
    /// What was opened for nobody is closed.
    fn drop(&mut self) {
        if self.abandoned {
            let opened = |c: &cqueue::Entry| c.user_data() != CLOSED && c.result() >= 0;
            for completed in self.ring.completion().filter(opened) {
                // SAFETY: a descriptor that the kernel has made for this request alone, which nobody was told
                // of.
                drop(unsafe { OwnedFd::from_raw_fd(completed.result()) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Type;
    use crate::open::{Expect, open_checked, open_pinned, pin};
    use headstart_model::testing::needs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    /// None where a kernel without it is tested.
    #[track_caller]
    fn ring(in_flight: u32) -> Option<PathResolver> {
        let made = PathResolver::new(in_flight);
        let available = crate::features::features().io_uring;
        assert!(
            made.is_ok() || !available.yes(),
            "{available:?}: {:?}",
            made.err()
        );
        needs("io_uring", made.is_ok());
        made.ok()
    }

    fn each(paths: &[PathBuf], mut resolver: PathResolver) -> Vec<Result<Stat, Skip>> {
        let mounts = MountTable::read().unwrap();
        let mut results = vec![None; paths.len()];
        let mut next = paths.iter().cloned().enumerate();
        let done = |n: usize, pinned: Result<(BorrowedFd<'_>, Stat), Skip>| {
            results[n] = Some(pinned.map(|(_, stat)| stat));
        };
        resolver.resolve_each(&mounts, || next.next(), done).unwrap();
        results.into_iter().map(Option::unwrap).collect()
    }

    fn hostile(dir: &Path) -> Vec<PathBuf> {
        let at = |name: &str| dir.join(name);
        std::fs::write(at("file"), "x").unwrap();
        std::fs::create_dir(at("dir")).unwrap();
        symlink("file", at("link")).unwrap();
        symlink(dir, at("self")).unwrap();
        symlink("/proc", at("proc")).unwrap();
        let fifo = std::process::Command::new("mkfifo").arg(at("fifo")).status();
        assert!(fifo.unwrap().success());
        let _ = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        let mut paths: Vec<PathBuf> = [
            "file",
            "dir",
            "link",
            "self/file",
            "proc/self/maps",
            "proc/self/root/etc/passwd",
            "fifo",
            "socket",
            "none",
            "file/below",
            "dir/../file",
            "with\0zero",
        ]
        .iter()
        .map(|name| at(name))
        .collect();
        paths.push(at(&"x".repeat(300)));
        paths.push(at(&"x/".repeat(3000)));
        let others = [
            "file",
            "",
            "/proc/self/maps",
            "/sys/kernel",
            "/dev/null",
            "/dev/shm/x",
            "/",
        ];
        paths.extend(others.map(PathBuf::from));
        paths
    }

    #[test]
    fn every_path_is_judged_as_a_single_pin_is() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let paths = hostile(dir.path());
        let mounts = MountTable::read().unwrap();
        let single: Vec<_> = paths.iter().map(|p| pin(&mounts, p).map(|(_, s)| s)).collect();
        assert!(single.iter().filter(|r| r.is_ok()).count() >= 6, "{single:?}");
        for in_flight in [1, 3, 64] {
            let Some(resolver) = ring(in_flight) else { return };
            assert_eq!(each(&paths, resolver), single, "{in_flight}");
        }
    }

    #[test]
    fn what_is_pinned_opens_as_a_path_does() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let paths = hostile(dir.path());
        let mounts = MountTable::read().unwrap();
        let expect = Expect {
            size: Some(1),
            ..Expect::default()
        };
        let mut next = paths.iter().map(|path| (path, path.clone()));
        let mut files = 0;
        let Some(mut resolver) = ring(4) else { return };
        resolver
            .resolve_each(
                &mounts,
                || next.next(),
                |path, pinned| {
                    let through = pinned.and_then(|(pin, stat)| open_pinned(pin, stat, &expect));
                    let alone = open_checked(&mounts, path, &expect);
                    let kind = |opened: Result<crate::open::Opened, Skip>| opened.map(|o| o.stat.kind);
                    let (through, alone) = (kind(through), kind(alone));
                    assert_eq!(through, alone, "{path:?}");
                    files += usize::from(through == Ok(Type::File));
                },
            )
            .unwrap();
        assert_eq!(files, 2, "by name, and past a parent");
    }

    #[test]
    fn many_paths_leave_no_descriptor_behind() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let paths: Vec<PathBuf> = (0..1000).map(|n| dir.path().join(format!("{n}"))).collect();
        paths
            .iter()
            .step_by(2)
            .for_each(|path| std::fs::write(path, "x").unwrap());
        let mounts = MountTable::read().unwrap();
        let ours = || {
            let fds = std::fs::read_dir("/proc/self/fd").unwrap();
            let target = |fd: io::Result<std::fs::DirEntry>| std::fs::read_link(fd.unwrap().path()).ok();
            fds.filter_map(target)
                .filter(|t| t.starts_with(dir.path()))
                .count()
        };
        let Some(mut resolver) = ring(16) else { return };
        let (mut there, mut most) = (0, 0);
        for _ in 0..2 {
            let mut next = paths.iter().map(|path| ((), path.clone()));
            let done = |(), pinned: Result<(BorrowedFd<'_>, Stat), Skip>| {
                there += usize::from(pinned.is_ok());
                most = most.max(ours());
            };
            resolver.resolve_each(&mounts, || next.next(), done).unwrap();
        }
        assert_eq!((there, ours()), (1000, 0));
        assert!(most <= 16, "{most} were open at once");
    }

    #[test]
    fn a_ring_that_was_left_in_the_middle_is_not_used_again() {
        let mounts = MountTable::read().unwrap();
        let Some(mut resolver) = ring(4) else { return };
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let next = || Some(((), PathBuf::from("/usr")));
            let _ = resolver.resolve_each(&mounts, next, |(), _| panic!("in the middle"));
        }));
        assert!(unwound.is_err());
        assert!(
            resolver
                .resolve_each(&mounts, || None::<((), _)>, |(), _| ())
                .is_err()
        );
    }
}
