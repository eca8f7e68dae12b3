//! The mount table of a process that needs it again and again, and asks whether it has changed.

use super::{MountTable, cached_table};
use std::io;
use std::time::Duration;

/// The mounts of this process, followed.
#[derive(Debug)]
pub struct Followed {
    table: MountTable,
}

impl Followed {
    /// The mounts of now.
    pub fn read() -> io::Result<Followed> {
        Ok(Followed {
            table: MountTable::read()?,
        })
    }

    /// Looks again; whether something was mounted or unmounted since. What cannot be read stays as it was
    /// read before, which is the best there is.
    pub fn refresh(&mut self) -> bool {
        self.take(cached_table::table(false))
    }

    /// The same; where reading the table would take too much of a processor's time, not at once.
    pub fn refresh_in_time(&mut self) -> bool {
        self.take(cached_table::table(true))
    }

    /// When to look again at the latest, where what is mounted now may not have been read for that.
    pub fn waits_for(&self) -> Option<Duration> {
        cached_table::waits_for()
    }

    fn take(&mut self, now: io::Result<MountTable>) -> bool {
        let now = now.ok().filter(|now| !self.table.is_same(now));
        let changed = now.is_some();
        if let Some(now) = now {
            self.table = now;
        }
        changed
    }

    /// The mounts as they were read last, for one use: it opens their roots, and of what is open nothing can
    /// be unmounted.
    pub fn table(&self) -> MountTable {
        self.table.read_again()
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

    #[test]
    fn what_is_mounted_right_after_another_change_is_seen_at_once_also_in_time() {
        if !can_mount() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().canonicalize().unwrap();
        let mut followed = Followed::read().unwrap();
        for _ in 0..3 {
            mount("none", &place, "ramfs", MountFlags::empty(), None).unwrap();
            let mounted = followed.refresh_in_time();
            unmount(&place, UnmountFlags::empty()).unwrap();
            assert!(mounted && followed.refresh_in_time());
        }
    }
}
