//! Through which mounts a file system's file can be seen, and through which overlays a layer's.
//!
//! A machine may have tens of thousands of mounts, most of them of one file system: web hosts bind `/usr`
//! into each user's jail, and so do container engines. So mounts are found by device and by the directory
//! that they show, and of those that show the same only so many are looked at.

use super::{Mount, MountTable, join, plain, prefixes, strip_prefix};
use headstart_model::FilePath;
use headstart_model::sort::Sort;
use std::collections::HashMap;

/// Of the mounts that show the same directory so many are looked at: those with the shortest mount points.
const EXAMINED: usize = 32;

/// Of the mounts that show parts of a file system so many are looked at where any will do.
const PARTS: usize = 256;

/// So many ways to a file are enough: a file that is at none of them is gone.
pub const WAYS: usize = 8;

/// Mounts by what they show.
#[derive(Debug, Default)]
pub(super) struct ByDevice {
    /// Device → the directory that is mounted → indices, the shortest mount point first.
    devices: HashMap<(u32, u32), HashMap<Vec<u8>, Vec<usize>>>,
    /// Indices of the overlays.
    overlays: Vec<usize>,
    /// Directory → indices of the overlays of which it is a layer.
    layers: HashMap<Vec<u8>, Vec<usize>>,
}

impl ByDevice {
    fn new(mounts: &[Mount]) -> ByDevice {
        let mut by_device = ByDevice::default();
        for (index, mount) in mounts.iter().enumerate() {
            let roots = by_device.devices.entry((mount.major, mount.minor)).or_default();
            let root = plain(mount.root.as_bytes());
            match roots.get_mut(root) {
                Some(same) => same.push(index),
                None => drop(roots.insert(root.to_vec(), vec![index])),
            }
            if mount.overlay.is_some() {
                by_device.overlays.push(index);
            }
            for layer in mount.overlay.iter().flat_map(|overlay| overlay.layers()) {
                let overlays = by_device
                    .layers
                    .entry(plain(layer.as_bytes()).to_vec())
                    .or_default();
                overlays.push(index);
            }
        }
        for same in by_device.devices.values_mut().flat_map(HashMap::values_mut) {
            same.sort_small_by_key(|index| mounts[*index].mount_point.as_bytes().len());
        }
        by_device
    }
}

impl MountTable {
    fn shown(&self) -> &ByDevice {
        self.by_device.get_or_init(|| ByDevice::new(&self.mounts))
    }

    /// A mount of that device, one that shows the whole file system if there is one.
    pub fn by_device(&self, major: u32, minor: u32) -> Option<&Mount> {
        let roots = self.shown().devices.get(&(major, minor))?;
        let first = match roots.get(&b""[..]) {
            Some(whole) => whole.iter().min(),
            None => roots.values().flatten().min(),
        };
        first.map(|index| &self.mounts[*index])
    }

    /// Mounts of that device, those of the whole file system first: of what is mounted thousands of times not
    /// all.
    pub fn of_device(&self, major: u32, minor: u32) -> impl Iterator<Item = &Mount> {
        let roots = self.shown().devices.get(&(major, minor));
        let whole = roots.and_then(|roots| roots.get(&b""[..]));
        let whole = whole.into_iter().flatten().take(EXAMINED);
        let parts = roots.into_iter().flatten().filter(|(root, _)| !root.is_empty());
        let parts = parts.flat_map(|(_, same)| same.iter().take(EXAMINED)).take(PARTS);
        whole.chain(parts).map(|index| &self.mounts[*index])
    }

    /// The ways to a file that is `inside` a file system (path from its own root), the best first, `most` at
    /// most: the mount and the path through it. Whole file systems come before parts, and those that can be
    /// reached before those that are hidden below another mount.
    pub fn ways_to(&self, major: u32, minor: u32, inside: &[u8], most: usize) -> Vec<(usize, FilePath)> {
        let (mut open, mut hidden) = (Vec::new(), Vec::new());
        let Some(roots) = self.shown().devices.get(&(major, minor)) else {
            return open;
        };
        for root in prefixes(inside) {
            for index in roots.get(root).into_iter().flatten().take(EXAMINED) {
                #[cfg(test)]
                tests::EXAMINED_SO_FAR.set(tests::EXAMINED_SO_FAR.get() + 1);
                let rest = strip_prefix(inside, root).unwrap_or_default();
                let path = join(self.mounts[*index].mount_point.as_bytes(), rest);
                let ways = match self.index_of(path.as_bytes()) == Some(*index) {
                    true => &mut open,
                    false => &mut hidden,
                };
                ways.push((*index, path));
                if open.len() >= most {
                    return open;
                }
            }
        }
        hidden.truncate(most.saturating_sub(open.len()));
        open.append(&mut hidden);
        open
    }

    /// Whether some mount shows a file that is `inside` a file system.
    pub fn shows(&self, major: u32, minor: u32, inside: &[u8]) -> bool {
        let roots = self.shown().devices.get(&(major, minor));
        roots.is_some_and(|roots| prefixes(inside).any(|root| roots.contains_key(root)))
    }

    /// The paths through overlays that a file in a layer shows up as, eight at most.
    pub fn overlay_paths_of(&self, layer_path: &[u8]) -> Vec<FilePath> {
        let mut paths = Vec::new();
        for layer in prefixes(layer_path).rev() {
            let rest = strip_prefix(layer_path, layer).unwrap_or_default();
            let inside = join(b"/", rest);
            for index in self
                .shown()
                .layers
                .get(layer)
                .into_iter()
                .flatten()
                .take(EXAMINED)
            {
                let mount = &self.mounts[*index];
                if let Some(rest) = strip_prefix(inside.as_bytes(), mount.root.as_bytes()) {
                    paths.push(join(mount.mount_point.as_bytes(), rest));
                }
                if paths.len() >= WAYS {
                    return paths;
                }
            }
        }
        paths
    }

    /// Indices of the overlays that are mounted.
    pub fn overlays(&self) -> impl Iterator<Item = usize> {
        self.shown().overlays.iter().copied()
    }

    /// Whether any overlay is mounted.
    pub fn has_overlays(&self) -> bool {
        !self.shown().overlays.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        /// How many mounts were looked at on this thread.
        pub(super) static EXAMINED_SO_FAR: Cell<usize> = const { Cell::new(0) };
    }

    /// A machine with so many bind mounts of its root file system, and of a directory of another.
    fn bound(times: usize) -> MountTable {
        let mut text =
            "20 1 7:0 / / rw - ext4 /dev/loop0 rw\n21 20 7:1 / /srv rw - ext4 /dev/loop1 rw\n".to_owned();
        for nth in 0..times {
            text += &format!("{} 20 7:0 / /jail/{nth} rw - ext4 /dev/loop0 rw\n", 100 + 2 * nth);
            text += &format!(
                "{} 20 7:1 /data /data/{nth} rw - ext4 /dev/loop1 rw\n",
                101 + 2 * nth
            );
        }
        MountTable::parse(text.as_bytes())
    }

    #[test]
    fn of_ten_thousand_mounts_few_are_looked_at_for_a_file() {
        for times in [0, 100, 10_000] {
            let table = bound(times);
            EXAMINED_SO_FAR.set(0);
            for nth in 0..1000 {
                let (usr, data) = (format!("/usr/lib/{nth}"), format!("/data/{nth}"));
                assert_eq!(
                    table.ways_to(7, 0, usr.as_bytes(), WAYS)[0].1,
                    usr.as_str().into()
                );
                assert_eq!(
                    table.ways_to(7, 1, data.as_bytes(), 1)[0].1,
                    format!("/srv{data}").as_str().into()
                );
                assert!(table.ways_to(7, 2, usr.as_bytes(), 1).is_empty());
            }
            let examined = EXAMINED_SO_FAR.get();
            assert!(examined <= 2000 * 2 * EXAMINED, "{times} mounts: {examined}");
        }
    }

    #[test]
    fn a_layer_that_thousands_of_containers_share_leads_to_few_of_them() {
        let mut text = "20 1 7:0 / / rw - ext4 /dev/loop0 rw\n".to_owned();
        for nth in 0..5000 {
            let options = format!("rw,lowerdir=/l/{nth}:/l/base,upperdir=/u/{nth},workdir=/w/{nth}");
            text += &format!(
                "{} 20 0:{nth} / /c/{nth} rw - overlay overlay {options}\n",
                100 + nth
            );
        }
        let table = MountTable::parse(text.as_bytes());
        let base = table.overlay_paths_of(b"/l/base/usr/bin/sh");
        assert_eq!(
            (base.len(), base[0].to_string().as_str()),
            (WAYS, "/c/0/usr/bin/sh")
        );
        assert_eq!(table.overlay_paths_of(b"/u/4999/etc/x"), ["/c/4999/etc/x".into()]);
        assert!(table.overlay_paths_of(b"/l").is_empty());
        assert!(table.has_overlays() && !bound(3).has_overlays());
    }
}
