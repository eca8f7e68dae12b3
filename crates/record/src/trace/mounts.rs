//! What is mounted where, from /proc/self/mountinfo, and how it changes while a start is recorded.

use crate::error::RecordError;
use crate::kernel::event::Dev;
use crate::limits::FILESYSTEMS;
pub(crate) use headstart_system::mounts::Mount;
use headstart_system::mounts::{Followed, MountTable};
use std::collections::HashMap;

/// The device of a mount.
pub(crate) fn dev_of(mount: &Mount) -> Dev {
    Dev {
        major: mount.major,
        minor: mount.minor,
    }
}

/// Where a path from the root of the file system shows through a mount.
pub(crate) fn outside(mount: &Mount, within: &[u8]) -> Option<Vec<u8>> {
    let rest = strip_root(within, mount.root.as_bytes())?;
    Some(join(mount.mount_point.as_bytes(), rest))
}

/// Whether a mount shows all of its file system, or a subvolume.
pub(crate) fn is_whole(mount: &Mount) -> bool {
    mount.root.as_bytes() == b"/" || mount.fstype == "btrfs"
}

/// Whether headstart may learn from the file system: by its type, as a replay decides. An overlay has no
/// pages of its own: its files are recorded in their layers.
pub(crate) fn is_local(mount: &Mount) -> bool {
    mount.fstype != "overlay" && headstart_system::mounts::is_local(&mount.fstype)
}

/// Whether headstart may learn from the file system. A remote one ([`Mount::is_remote`]) is asked nothing for
/// that: what the kernel told when a file was used has to do.
pub(crate) fn is_learned(mount: &Mount) -> bool {
    is_local(mount) || mount.is_remote
}

/// The mounts seen so far: those of now, and those that are gone.
pub(crate) struct Mounts {
    source: Followed,
    now: MountTable,
    gone: HashMap<Dev, Vec<Mount>>,
    /// How many those are.
    gone_count: usize,
}

impl Mounts {
    /// The mounts of now.
    pub(crate) fn read() -> Result<Mounts, RecordError> {
        let source =
            Followed::read().map_err(|source| RecordError::io("read /proc/self/mountinfo", source))?;
        Ok(Mounts {
            now: source.table(),
            source,
            gone: HashMap::new(),
            gone_count: 0,
        })
    }

    /// Reads again if something was mounted or unmounted since; a file system that is gone stays known.
    pub(crate) fn refresh(&mut self) {
        if self.source.refresh() {
            self.replace(self.source.table());
        }
    }

    /// The same, unless that would take too much of a processor's time.
    pub(crate) fn refresh_in_time(&mut self) {
        if self.source.refresh_in_time() {
            self.replace(self.source.table());
        }
    }

    fn replace(&mut self, now: MountTable) {
        let before = std::mem::replace(&mut self.now, now);
        for mount in before.all() {
            if self.is_there(mount) || self.gone_count >= FILESYSTEMS {
                continue;
            }
            let gone = self.gone.entry(dev_of(mount)).or_default();
            // Of what is mounted and unmounted again and again the last few are enough.
            if gone.len() >= GONE {
                gone.remove(0);
                self.gone_count -= 1;
            }
            gone.push(mount.clone());
            self.gone_count += 1;
        }
    }

    /// Those of now, for one use.
    pub(crate) fn table(&self) -> MountTable {
        self.source.table()
    }

    /// Mounts of a file system through which a path from its root can be seen, the best first: the one with
    /// this id if it is one, whole file systems before parts, those reachable before those hidden below
    /// another mount, the present before those gone.
    pub(crate) fn showing(&self, dev: Dev, within: &[u8], first: Option<u32>, most: usize) -> Vec<&Mount> {
        let mut mounts: Vec<&Mount> = Vec::new();
        let shows =
            |mount: &Mount| dev_of(mount) == dev && strip_root(within, mount.root.as_bytes()).is_some();
        let first = first.and_then(|id| self.now.index_of_id(id));
        mounts.extend(
            first
                .map(|index| &self.now.all()[index])
                .filter(|mount| shows(mount)),
        );
        let ways = self.now.ways_to(dev.major, dev.minor, within, most);
        let ways = ways.into_iter().filter(|(index, _)| Some(*index) != first);
        mounts.extend(ways.map(|(index, _)| &self.now.all()[index]));
        mounts.extend(self.unmounted(dev).filter(|mount| shows(mount)));
        mounts
    }

    /// Whether some mount shows or showed a path of a file system.
    pub(crate) fn shows(&self, dev: Dev, within: &[u8]) -> bool {
        let showed = |mount: &Mount| strip_root(within, mount.root.as_bytes()).is_some();
        self.now.shows(dev.major, dev.minor, within) || self.unmounted(dev).any(showed)
    }

    /// Mounts of now of a type of file system.
    pub(crate) fn of_type<'a>(&'a self, fstype: &'a str) -> impl Iterator<Item = &'a Mount> {
        self.now.all().iter().filter(move |m| m.fstype == fstype)
    }

    /// Whether a mount is one of those of now.
    pub(crate) fn is_there(&self, mount: &Mount) -> bool {
        self.by_id(mount.id) == Some(mount)
    }

    /// The mount of now with this id.
    pub(crate) fn by_id(&self, id: u32) -> Option<&Mount> {
        self.now.index_of_id(id).map(|index| &self.now.all()[index])
    }

    /// The id of the mount that a path leads to.
    pub(crate) fn leads_to(&self, path: &[u8]) -> Option<u32> {
        self.now.lookup(path).map(|mount| mount.id)
    }

    /// Overlays that are mounted, so many at most, the one that the root is on first.
    pub(crate) fn overlays(&self, most: usize) -> impl Iterator<Item = &Mount> {
        let root = self
            .now
            .index_of(b"/")
            .filter(|index| self.now.all()[*index].overlay.is_some());
        let others = self.now.overlays().filter(move |index| Some(*index) != root);
        let indices = root.into_iter().chain(others).take(most);
        indices.map(|index| &self.now.all()[index])
    }

    /// Whether a file system is mounted now, and may be unmounted by somebody: the root's is not.
    pub(crate) fn may_be_unmounted(&self, dev: Dev) -> bool {
        let is_root = self.now.lookup(b"/").is_some_and(|root| dev_of(root) == dev);
        let mount = self.now.of_device(dev.major, dev.minor).next();
        !is_root && mount.is_some_and(is_local)
    }

    /// Mounts of a file system, those of now first; of thousands the best.
    pub(crate) fn of_device(&self, dev: Dev) -> impl Iterator<Item = &Mount> {
        self.now
            .of_device(dev.major, dev.minor)
            .chain(self.unmounted(dev))
    }

    /// The mount of a file system that a path leads to, or led to.
    pub(crate) fn find(&self, dev: Dev, path: &[u8]) -> Option<&Mount> {
        let now = self.now.lookup(path).filter(|mount| dev_of(mount) == dev);
        let through = |mount: &&Mount| strip_root(path, mount.mount_point.as_bytes()).is_some();
        let longest = |mount: &&Mount| mount.mount_point.as_bytes().len();
        now.or_else(|| self.of_device(dev).filter(through).max_by_key(longest))
    }

    fn unmounted(&self, dev: Dev) -> impl Iterator<Item = &Mount> {
        self.gone.get(&dev).into_iter().flatten().rev()
    }

    /// The paths through overlay mounts behind which `path`, in a layer, may lie.
    pub(crate) fn through_overlays(&self, path: &[u8]) -> Vec<Vec<u8>> {
        let paths = self.now.overlay_paths_of(path).into_iter();
        paths.map(|path| path.as_bytes().to_vec()).collect()
    }

    /// Whether there is any overlay mount.
    pub(crate) fn have_overlays(&self) -> bool {
        self.now.has_overlays()
    }
}

/// So many mounts of one file system that are gone stay known.
const GONE: usize = 8;

/// What is left of `path` below the directory `root` (with its leading slash; empty for `root` itself), or
/// `None` if it is not below.
pub(crate) fn strip_root<'a>(path: &'a [u8], root: &[u8]) -> Option<&'a [u8]> {
    let root = root.strip_suffix(b"/").unwrap_or(root);
    let rest = path.strip_prefix(root)?;
    match rest {
        [] => Some(rest),
        [b'/'] => Some(&[]),
        [b'/', ..] => Some(rest),
        _ => None,
    }
}

/// A directory and what is below it, which begins with a slash or is empty.
pub(crate) fn join(directory: &[u8], below: &[u8]) -> Vec<u8> {
    let directory = directory.strip_suffix(b"/").unwrap_or(directory);
    match (directory, below) {
        ([], []) => b"/".to_vec(),
        _ => [directory, below].concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> Mounts {
        Mounts {
            source: Followed::read().unwrap(),
            now: MountTable::parse(text.as_bytes()),
            gone: HashMap::new(),
            gone_count: 0,
        }
    }

    fn best(mounts: &Mounts, minor: u32, within: &str) -> String {
        let dev = Dev { major: 7, minor };
        let mount = mounts.showing(dev, within.as_bytes(), None, 8)[0];
        let path = outside(mount, within.as_bytes()).unwrap();
        String::from_utf8(path).unwrap()
    }

    #[test]
    fn a_path_is_found_through_whole_and_bind_mounts() {
        let mounts = table(
            "20 1 7:0 / / rw - ext4 /dev/loop0 rw\n\
             21 20 7:1 /data /srv/a\\040b rw,noatime shared:1 - ext4 /dev/loop1 rw\n\
             22 20 7:0 /usr/lib /mnt/lib rw - ext4 /dev/loop0 rw",
        );
        assert_eq!(best(&mounts, 0, "/usr/lib/x"), "/usr/lib/x");
        assert_eq!(best(&mounts, 1, "/data/x"), "/srv/a b/x");
        assert_eq!(best(&mounts, 1, "/data"), "/srv/a b");
        assert!(
            mounts
                .showing(Dev { major: 7, minor: 1 }, b"/database", None, 8)
                .is_empty()
        );
    }

    #[test]
    fn a_covered_mount_gives_way_to_one_that_can_be_seen() {
        let mounts = table(
            "20 1 7:0 / / rw - ext4 /dev/loop0 rw\n\
             21 20 7:1 / /mnt/a rw - ext4 /dev/loop1 rw\n\
             22 20 0:9 / /mnt rw - tmpfs none rw\n\
             23 22 7:1 /sub /mnt/deep/b rw - ext4 /dev/loop1 rw",
        );
        assert_eq!(
            best(&mounts, 1, "/sub/x"),
            "/mnt/deep/b/x",
            "a tmpfs covers /mnt/a"
        );
        assert_eq!(best(&mounts, 0, "/mnt/x"), "/mnt/x", "covered, but the only one");
    }

    #[test]
    fn overlay_layers_are_found_with_their_escapes() {
        let mounts = table(
            "20 1 7:0 / / rw - ext4 /dev/loop0 rw\n\
             21 20 0:30 / /merged rw - overlay overlay rw,lowerdir=/l1:/odd\\134:name::/l2,upperdir=/up,workdir=/w",
        );
        let paths = |p: &str| mounts.through_overlays(p.as_bytes());
        assert_eq!(paths("/l1/a"), [b"/merged/a".to_vec()]);
        assert_eq!(paths("/odd:name/a"), [b"/merged/a".to_vec()]);
        assert_eq!(paths("/l2/a"), [b"/merged/a".to_vec()]);
        assert_eq!(paths("/up/b/c"), [b"/merged/b/c".to_vec()]);
        assert!(paths("/w/a").is_empty() && paths("/upper/a").is_empty());
    }

    #[test]
    fn memory_and_network_are_not_local_and_some_of_a_network_is_learned() {
        let local = |line: &str| is_local(&MountTable::parse(line.as_bytes()).all()[0]);
        assert!(local("20 1 7:0 / / rw - ext4 /dev/loop0 rw"));
        assert!(local("20 1 0:33 /@ / rw - btrfs /dev/sda rw"));
        assert!(!local("20 1 0:9 / /tmp rw - tmpfs none rw"));
        assert!(!local("20 1 0:9 / /net rw - nfs4 server:/ rw"));
        assert!(!local("20 1 0:9 / /net rw - fuse.sshfs server:/ rw"));
        assert!(
            !local("20 1 8:17 / /usb rw - fuseblk /dev/sdb1 rw"),
            "a program answers"
        );
        assert!(!local("20 1 0:30 / /merged rw - overlay overlay rw,lowerdir=/l1"));
        let learned = |line: &str| is_learned(&MountTable::parse(line.as_bytes()).all()[0]);
        assert!(learned("20 1 7:0 / / rw - ext4 /dev/loop0 rw"));
        assert!(learned("20 1 0:9 / /net rw - nfs4 server:/ rw"));
        assert!(learned(
            "20 1 0:9 / /net rw - fuse.sshfs server:/ rw,user_id=0,group_id=0"
        ));
        assert!(!learned(
            "20 1 0:9 / /net rw - fuse.sshfs server:/ rw,user_id=1000,group_id=0"
        ));
        assert!(!learned("20 1 0:9 / /tmp rw - tmpfs none rw"));
    }

    #[test]
    fn this_machine_has_a_root() {
        let mounts = Mounts::read().unwrap();
        assert!(mounts.now.lookup(b"/").is_some());
    }
}
