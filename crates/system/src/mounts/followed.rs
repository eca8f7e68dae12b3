//! The mount table of a process that needs it again and again: read anew only when something was mounted or unmounted.

use super::{MountTable, closed};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::io::{self, Seek, SeekFrom};

/// The mounts of this process, followed. Not for one that forks and goes on in both: the kernel counts by the open file what it has told,
/// and they share that.
#[derive(Debug)]
pub struct Followed {
    file: File,
    table: MountTable,
}

impl Followed {
    /// The mounts of now.
    pub fn read() -> io::Result<Followed> {
        let mut file = File::open("/proc/self/mountinfo")?;
        let table = MountTable::read_of(&mut file)?;
        Ok(Followed { file, table })
    }

    /// Reads again if something was mounted or unmounted since; whether that was so. What cannot be read stays as it was read before, which
    /// is the best there is.
    pub fn refresh(&mut self) -> bool {
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let changed = poll(&mut [PollFd::new(&self.file, PollFlags::PRI)], Some(&at_once));
        if !changed.is_ok_and(|ready| ready > 0) {
            return false;
        }
        let again = self.file.seek(SeekFrom::Start(0));
        match again.and_then(|_| MountTable::read_of(&mut self.file)) {
            Ok(table) => self.table = table,
            Err(_) => return false,
        }
        true
    }

    /// The mounts as they were read last, for one use: it opens their roots, and of what is open nothing can be unmounted.
    pub fn table(&self) -> MountTable {
        MountTable {
            roots: closed(&self.table.mounts),
            ..self.table.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::can_mount;
    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

    #[test]
    fn what_is_mounted_later_is_seen_and_can_be_unmounted() {
        if !can_mount() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().canonicalize().unwrap();
        let mut followed = Followed::read().unwrap();
        let fstype = |followed: &Followed| {
            let table = followed.table();
            table
                .lookup(place.as_os_str().as_encoded_bytes())
                .unwrap()
                .fstype
                .clone()
        };
        let before = fstype(&followed);
        mount("none", &place, "ramfs", MountFlags::empty(), None).unwrap();
        assert!(followed.refresh());
        assert_eq!(fstype(&followed), "ramfs");
        // The root is open as long as somebody has the table.
        let table = followed.table();
        let path = place.as_os_str().as_encoded_bytes();
        let opened = table.inside(table.index_of(path).unwrap(), path).map(drop);
        let busy = unmount(&place, UnmountFlags::empty());
        drop(table);
        let after = unmount(&place, UnmountFlags::empty());
        unmount(&place, UnmountFlags::DETACH).ok();
        assert_eq!(
            (busy, after),
            (Err(rustix::io::Errno::BUSY), Ok(())),
            "{opened:?}"
        );
        assert!(followed.refresh());
        assert_eq!(fstype(&followed), before);
    }
}
