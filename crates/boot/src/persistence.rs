//! Whether what a boot would keep is there at the next: not on a file system in memory, as the upper layer of
//! a live system's root is, nor on one that is never written to. Whatever else is read-only now may become
//! writable (`guard.rs`), and is taken for lasting.

use headstart_store::{KeyDir, Store};
use headstart_system::container;
use headstart_system::mounts::{Mount, MountTable};
use rustix::fs::{StatVfsMountFlags, statfs, statvfs};
use std::fs;
use std::path::{Component, Path};

/// Of file systems in memory (statfs(2)): tmpfs and ramfs.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];
const OVERLAY: u64 = 0x794c_7630;
/// Of such as nobody can write to: squashfs, erofs, iso9660, cramfs, romfs.
const READ_ONLY: [u64; 5] = [0x7371_7368, 0xe0f5_e1e2, 0x9660, 0x28cd_3d45, 0x7275];
/// Where nothing outlives a boot (hier(7)): the upper layer of a root may lie where no process of it sees it.
const OF_ONE_BOOT: [&str; 3] = ["/run", "/tmp", "/dev/shm"];
/// Where units of systemd are found that mount something.
const UNITS: [&str; 3] = [
    "/etc/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// How long what is kept now lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// Beyond this boot, as far as can be told.
    Longer,
    /// It can be kept, and is gone at the next boot.
    ThisBoot,
    /// Nothing can be kept.
    Frozen,
}

impl Persistence {
    /// How long a state directory lasts, as it is mounted now.
    pub fn for_store(store: &Store) -> Persistence {
        let state = store.root();
        let there = state.ancestors().find(|path| path.exists());
        match there.map(of_path) {
            None | Some(Persistence::Longer) => Persistence::Longer,
            // Read only where it decides: a boot waits.
            Some(_) if is_mounted_later(state) => Persistence::Longer,
            Some(it) => it,
        }
    }

    /// Why nothing of this boot is there at the next, if so.
    pub fn why_not(self, store: &Store) -> Option<String> {
        let state = store.root().display();
        match self {
            Persistence::Longer => None,
            Persistence::ThisBoot => Some(format!(
                "{state} is on a file system in memory, which ends with this boot"
            )),
            Persistence::Frozen => Some(format!("{state} is on a file system that is never written to")),
        }
    }
}

/// Of a frozen state why a plan in it is not used, if so: it is as it was when it was frozen. `None` of any
/// other.
pub fn of_frozen(store: &Store, kept: &KeyDir) -> Option<Option<String>> {
    let why_not = || {
        format!(
            "{} is never written to, and the boot-failure guard in it is not armed: the boot before it was frozen did not come to its end",
            store.root().display()
        )
    };
    (Persistence::for_store(store) == Persistence::Frozen).then(|| (!kept.is_armed()).then(why_not))
}

fn of_path(path: &Path) -> Persistence {
    let (Ok(found), Ok(flags)) = (statfs(path), statvfs(path)) else {
        return Persistence::Longer;
    };
    let (magic, is_read_only) = (
        found.f_type as u64,
        flags.f_flag.contains(StatVfsMountFlags::RDONLY),
    );
    if IN_MEMORY.contains(&magic) {
        return Persistence::ThisBoot;
    }
    if READ_ONLY.contains(&magic) {
        return Persistence::Frozen;
    }
    if magic != OVERLAY && !is_read_only {
        return Persistence::Longer;
    }
    let mounts = MountTable::read().unwrap_or_default();
    let real = path.canonicalize().unwrap_or_default();
    let Some(mount) = mounts.lookup(real.as_os_str().as_encoded_bytes()) else {
        return Persistence::Longer;
    };
    match &mount.overlay {
        Some(overlay) => match &overlay.upper {
            None => Persistence::Frozen,
            Some(upper) => of_upper(upper.as_path(), &mounts),
        },
        None if is_read_only && stays_read_only(mount) => Persistence::Frozen,
        None => Persistence::Longer,
    }
}

/// What is written to an overlay is in its upper layer, at a path of whoever mounted it; who did so in an
/// initramfs may have moved that since.
fn of_upper(upper: &Path, mounts: &MountTable) -> Persistence {
    let kind = |path: &Path| statfs(path).ok().map(|found| found.f_type as u64);
    let moved = || {
        let below = |above: &Path| {
            let rest = upper.strip_prefix(above).ok()?;
            let mut named = mounts.all().iter().map(|mount| mount.mount_point.as_path());
            named.find_map(|point| {
                let is_named = point.file_name().is_some() && point.file_name() == above.file_name();
                is_named.then(|| kind(&point.join(rest)))?
            })
        };
        upper.ancestors().find_map(below)
    };
    let is_in_memory = match kind(upper).or_else(moved) {
        Some(kind) => IN_MEMORY.contains(&kind),
        None => OF_ONE_BOOT.iter().any(|place| upper.starts_with(place)),
    };
    if is_in_memory {
        Persistence::ThisBoot
    } else {
        Persistence::Longer
    }
}

/// Whether nothing makes a mount writable that is not: its device cannot be, or fstab(5) names it so, or it
/// is the root that a container was given.
fn stays_read_only(mount: &Mount) -> bool {
    let of_device = format!("/sys/dev/block/{}:{}/ro", mount.major, mount.minor);
    if fs::read_to_string(of_device).is_ok_and(|ro| ro.trim() == "1") {
        return true;
    }
    let fstab = fs::read_to_string("/etc/fstab").unwrap_or_default();
    let options = fields(&fstab).find(|(point, _)| Path::new(point) == mount.mount_point.as_path());
    match options {
        Some((_, options)) => is_read_only(options),
        None => mount.mount_point.as_path() == Path::new("/") && container::manager().is_some(),
    }
}

/// Whether something else is mounted at or above the state later in this boot, by fstab(5) or a unit of
/// systemd; what is there now is not meant.
fn is_mounted_later(state: &Path) -> bool {
    let fstab = fs::read_to_string("/etc/fstab").unwrap_or_default();
    let mounts = MountTable::read().unwrap_or_default();
    let is_mounted = |point: &Path| {
        mounts
            .all()
            .iter()
            .any(|mount| mount.mount_point.as_path() == point)
    };
    state
        .ancestors()
        .filter(|point| point.parent().is_some() && !is_mounted(point))
        .any(|point| {
            fields(&fstab).any(|(named, _)| Path::new(named) == point)
                || unit_of(point)
                    .is_some_and(|unit| UNITS.iter().any(|units| Path::new(units).join(&unit).exists()))
        })
}

/// Whether what has these options in fstab(5) is not to be written to.
pub(crate) fn is_read_only(options: &str) -> bool {
    options.split(',').any(|option| option == "ro")
}

/// The mount points of fstab(5), and their options.
pub(crate) fn fields(fstab: &str) -> impl Iterator<Item = (&str, &str)> {
    fstab.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let first = words.next().filter(|first| !first.starts_with('#'));
        let point = first.and(words.next())?;
        Some((point, words.nth(1).unwrap_or_default()))
    })
}

/// The name of the unit that mounts something at a path (systemd.mount(5)); `None` for a path that would have
/// to be escaped.
fn unit_of(point: &Path) -> Option<String> {
    let names = point.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_str()),
        _ => None,
    });
    let names: Option<Vec<&str>> = names.collect();
    let names = names.filter(|names| !names.iter().any(|name| name.contains('-')))?;
    Some(names.join("-") + ".mount")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

    struct Mounted(tempfile::TempDir);

    impl Drop for Mounted {
        fn drop(&mut self) {
            let _ = unmount(self.0.path(), UnmountFlags::DETACH);
        }
    }

    fn mounted(kind: &str, options: &str) -> Mounted {
        let mounted = Mounted(tempfile::tempdir_in("/var/tmp").unwrap());
        let options = std::ffi::CString::new(options).unwrap();
        mount(
            kind,
            mounted.0.path(),
            kind,
            MountFlags::empty(),
            options.as_c_str(),
        )
        .unwrap();
        mounted
    }

    #[test]
    fn case_16_what_lies_in_memory_or_is_never_written_to_does_not_last() {
        if !headstart_system::testing::can_mount() {
            return;
        }
        let disk = tempfile::tempdir_in("/var/tmp").unwrap();
        assert_eq!(
            Persistence::for_store(&Store::new(disk.path().join("state"))),
            Persistence::Longer
        );
        let memory = mounted("tmpfs", "size=1m");
        let state =
            |below: &Mounted| Persistence::for_store(&Store::new(below.0.path().join("lib/headstart")));
        assert_eq!(
            state(&memory),
            Persistence::ThisBoot,
            "it is not there yet, either"
        );
        assert!(
            Persistence::ThisBoot
                .why_not(&Store::new("/s"))
                .unwrap()
                .contains("in memory")
        );
        for name in ["up", "work", "upper", "low"] {
            fs::create_dir(memory.0.path().join(name)).unwrap();
            fs::create_dir(disk.path().join(name)).unwrap();
        }
        let overlay = |upper: &Path| {
            let at = |name: &str| upper.join(name).display().to_string();
            mounted(
                "overlay",
                &format!(
                    "lowerdir={},upperdir={},workdir={}",
                    disk.path().join("low").display(),
                    at("up"),
                    at("work")
                ),
            )
        };
        assert_eq!(state(&overlay(memory.0.path())), Persistence::ThisBoot);
        assert_eq!(state(&overlay(disk.path())), Persistence::Longer);
        let lower = format!(
            "lowerdir={}:{}",
            disk.path().join("low").display(),
            memory.0.path().join("low").display()
        );
        assert_eq!(state(&mounted("overlay", &lower)), Persistence::Frozen);
        let mounts = MountTable::read().unwrap();
        let upper = |path: &str| of_upper(Path::new(path), &mounts);
        assert_eq!(
            upper("/tmp/nspawn-volatile-x/upper"),
            Persistence::ThisBoot,
            "of another's mounts"
        );
        assert_eq!(upper("/var/lib/docker/overlay2/x/diff"), Persistence::Longer);
        let name = memory.0.path().file_name().unwrap().to_str().unwrap();
        assert_eq!(
            upper(&format!("/{name}/up")),
            Persistence::ThisBoot,
            "moved since"
        );
        assert_eq!(upper(&format!("/{name}/none")), Persistence::Longer);
    }

    #[test]
    fn mount_points_are_found_in_fstab_and_as_units() {
        let fstab = "# /x /var ext4 ro\n/dev/sda1 / ext4 ro,noatime 0 1\n/dev/sda2\t/var ext4\nnone\n";
        assert_eq!(
            fields(fstab).collect::<Vec<_>>(),
            [("/", "ro,noatime"), ("/var", "")]
        );
        assert_eq!(unit_of(Path::new("/var/lib")).as_deref(), Some("var-lib.mount"));
        assert_eq!(unit_of(Path::new("/var/my-lib")), None);
    }
}
