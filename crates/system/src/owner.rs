//! Whose a process is, for all that a user has a share of.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// User namespaces are nested so deep at most (create_user_ns, kernel/user_namespace.c).
const NESTED: usize = 33;

/// `_IO(NSIO, 2)` and `_IO(NSIO, 4)` of linux/nsfs.h: ioctl_ns(2).
const NS_GET_PARENT: libc::c_ulong = 0xb702;
const NS_GET_OWNER_UID: libc::c_ulong = 0xb704;

/// Whose a process is that runs as `user`: that user; but in a user namespace whoever has made that, for all
/// ids in it are that user's: the owner of the outermost one that is not root's. So BPF has it, too (`whose`,
/// common.h). Where it may not be known or the process has ended it is `user`.
pub fn owner(pid: u32, user: u32) -> u32 {
    let Ok(space) = File::open(format!("/proc/{pid}/ns/user")) else {
        return user;
    };
    let mut owner = user;
    let mut space = OwnedFd::from(space);
    for _ in 0..NESTED {
        // Of the initial one, and of this process's, the kernel tells no parent.
        let Some(parent) = parent_of(&space) else { break };
        match owner_of(&space) {
            Some(0) | None => {}
            Some(user) => owner = user,
        }
        space = parent;
    }
    owner
}

fn parent_of(space: &OwnedFd) -> Option<OwnedFd> {
    // SAFETY: a descriptor of a namespace and a number; the answer is a descriptor or an error.
    let parent = unsafe { libc::ioctl(space.as_raw_fd(), NS_GET_PARENT as _) };
    // SAFETY: the kernel has just made this descriptor, and nobody else knows of it.
    (parent >= 0).then(|| unsafe { OwnedFd::from_raw_fd(parent) })
}

fn owner_of(space: &OwnedFd) -> Option<u32> {
    let mut user: libc::uid_t = 0;
    // SAFETY: the kernel writes one uid_t there.
    let told = unsafe { libc::ioctl(space.as_raw_fd(), NS_GET_OWNER_UID as _, &raw mut user) };
    (told == 0).then_some(user)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};
    use std::time::{Duration, Instant};

    struct Ends(Child);

    impl Drop for Ends {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// A process in a user namespace that this user has made.
    fn inside(user: u32) -> Ends {
        let mut command = Command::new("setpriv");
        command.args([
            &format!("--reuid={user}"),
            "--clear-groups",
            "unshare",
            "-U",
            "sleep",
            "1000",
        ]);
        let child = Ends(command.current_dir("/").spawn().unwrap());
        let space = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/user")).unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        while space(&child.0.id().to_string()) == space("self") {
            assert!(Instant::now() < until, "it makes no namespace");
            std::thread::sleep(Duration::from_millis(5));
        }
        child
    }

    #[test]
    fn ids_in_a_users_namespace_are_that_users_and_those_in_roots_are_their_own() {
        if !crate::testing::can_mount() {
            return;
        }
        assert_eq!(owner(std::process::id(), 7), 7);
        assert_eq!(owner(u32::MAX / 2, 7), 7);
        assert_eq!(owner(inside(1234).0.id(), 100_005), 1234);
        assert_eq!(owner(inside(0).0.id(), 100_005), 100_005);
    }
}
