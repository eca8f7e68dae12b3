//! What is mounted where, from /proc/self/mountinfo, and how it changes while a start is recorded.

use crate::error::RecordError;
use crate::event::Dev;
use crate::limits::FILESYSTEMS;
use headstart_system::mounts::{Followed, MountTable};

/// A mount, as a line of mountinfo has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    pub id: u32,
    pub parent: u32,
    pub dev: Dev,
    /// The directory of the file system that is mounted here.
    pub root: Vec<u8>,
    /// Where it is mounted, as the recorder sees it.
    pub point: Vec<u8>,
    pub fstype: String,
    /// The directories an overlay is made of.
    layers: Vec<Vec<u8>>,
}

impl From<&headstart_system::mounts::Mount> for Mount {
    fn from(mount: &headstart_system::mounts::Mount) -> Mount {
        let layers = mount.overlay.iter().flat_map(|overlay| overlay.layers());
        Mount {
            id: mount.id,
            parent: mount.parent,
            dev: Dev {
                major: mount.major,
                minor: mount.minor,
            },
            root: mount.root.as_bytes().to_vec(),
            point: mount.mount_point.as_bytes().to_vec(),
            fstype: mount.fstype.clone(),
            layers: layers
                .map(|layer| layer.as_bytes().to_vec())
                .filter(|l| l.starts_with(b"/"))
                .collect(),
        }
    }
}

impl Mount {
    /// Where a path from the root of the file system shows through this mount.
    pub(crate) fn outside(&self, within: &[u8]) -> Option<Vec<u8>> {
        Some(join(&self.point, below(within, &self.root)?))
    }

    /// Whether it shows all of its file system, or a subvolume.
    pub(crate) fn is_whole(&self) -> bool {
        self.root == b"/" || self.fstype == "btrfs"
    }

    /// Whether headstart may learn from the file system: by its type, as a replay decides. An overlay has no pages of
    /// its own: its files are recorded in their layers.
    pub(crate) fn is_local(&self) -> bool {
        self.fstype != "overlay" && headstart_system::mounts::is_local(&self.fstype)
    }
}

/// The mounts seen so far: those of now, in the order of mountinfo, and those that are gone.
pub(crate) struct Mounts {
    source: Followed,
    now: Vec<Mount>,
    gone: Vec<Mount>,
}

impl Mounts {
    /// The mounts of now.
    pub(crate) fn read() -> Result<Mounts, RecordError> {
        let source =
            Followed::read().map_err(|source| RecordError::io("read /proc/self/mountinfo", source))?;
        Ok(Mounts {
            now: of(&source.table()),
            source,
            gone: vec![],
        })
    }

    /// Reads again if something was mounted or unmounted since; a file system that is gone stays known.
    pub(crate) fn refresh(&mut self) {
        if !self.source.refresh() {
            return;
        }
        for mount in std::mem::replace(&mut self.now, of(&self.source.table())) {
            let known = self.now.contains(&mount) || self.gone.contains(&mount);
            if !known && self.gone.len() < FILESYSTEMS {
                self.gone.push(mount);
            }
        }
    }

    /// Mounts of a file system through which a path from its root can be seen, the best first: whole file systems
    /// before parts, those reachable before those hidden below another mount, the present before those gone.
    pub(crate) fn showing(&self, dev: Dev, within: &[u8]) -> Vec<&Mount> {
        let mut found: Vec<&Mount> = Vec::new();
        let shows = |m: &&Mount| m.dev == dev && below(within, &m.root).is_some();
        found.extend(self.now.iter().filter(shows));
        found.sort_by_key(|m| {
            let hidden = m.outside(within).is_none_or(|path| self.hides(m, &path));
            (hidden, m.root.len(), m.point.len())
        });
        found.extend(self.gone.iter().filter(shows));
        found
    }

    /// Mounts of a file system, those of now first.
    pub(crate) fn of_device(&self, dev: Dev) -> impl Iterator<Item = &Mount> {
        self.now.iter().chain(&self.gone).filter(move |m| m.dev == dev)
    }

    /// Whether `path`, seen through `mount`, is covered by another mount.
    fn hides(&self, mount: &Mount, path: &[u8]) -> bool {
        if self
            .now
            .iter()
            .any(|m| m.parent == mount.id && m.id != mount.id && below(path, &m.point).is_some())
        {
            return true;
        }
        // A mount further up may cover the directory that this one is attached below.
        let mut child = mount;
        // Deeper than the mounts are many, it would go in circles.
        for _ in 0..self.now.len() {
            let Some(parent) = self.now.iter().find(|m| m.id == child.parent && m.id != child.id) else {
                break;
            };
            let covers = |m: &&Mount| m.parent == parent.id && m.id != child.id && m.id != parent.id;
            if self
                .now
                .iter()
                .filter(covers)
                .any(|m| below(&child.point, &m.point).is_some_and(|b| !b.is_empty()))
            {
                return true;
            }
            child = parent;
        }
        false
    }

    /// The paths through overlay mounts behind which `path`, in a layer, may lie.
    pub(crate) fn through_overlays(&self, path: &[u8]) -> Vec<Vec<u8>> {
        let overlays = self
            .now
            .iter()
            .chain(&self.gone)
            .filter(|m| m.fstype == "overlay");
        overlays
            .flat_map(|mount| {
                let layers = mount.layers.iter();
                layers.filter_map(|layer| mount.outside(below(path, layer)?))
            })
            .collect()
    }

    /// Whether there is any overlay mount.
    pub(crate) fn have_overlays(&self) -> bool {
        self.now.iter().chain(&self.gone).any(|m| m.fstype == "overlay")
    }
}

/// What is left of `path` below the directory `root` (with its leading slash; empty for `root` itself), or `None` if
/// it is not below.
pub(crate) fn below<'a>(path: &'a [u8], root: &[u8]) -> Option<&'a [u8]> {
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

/// The mounts of a table, in its order.
fn of(table: &MountTable) -> Vec<Mount> {
    table.all().iter().map(Mount::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> Mounts {
        Mounts {
            source: Followed::read().unwrap(),
            now: of(&MountTable::parse(text.as_bytes())),
            gone: vec![],
        }
    }

    fn best(mounts: &Mounts, minor: u32, within: &str) -> String {
        let dev = Dev { major: 7, minor };
        let path = mounts.showing(dev, within.as_bytes())[0]
            .outside(within.as_bytes())
            .unwrap();
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
                .showing(Dev { major: 7, minor: 1 }, b"/database")
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
    fn memory_and_network_are_not_local() {
        let local = |line: &str| of(&MountTable::parse(line.as_bytes()))[0].is_local();
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
    }

    #[test]
    fn this_machine_has_a_root() {
        let mounts = Mounts::read().unwrap();
        assert!(mounts.now.iter().any(|m| m.point == b"/"));
    }
}
