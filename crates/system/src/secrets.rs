//! Names that may be kept only where they are encrypted: those below a directory with an encryption policy
//! (fscrypt), and those on an encrypted volume. The state directory keeps them if it lies in that directory,
//! or on that volume, itself.

use crate::device::devices_below::{self, Layer};
use crate::mounts::MountTable;
use crate::open::pin_on_the_way;
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, ResolveFlags, Statx, StatxAttributes, StatxFlags, openat2, statx,
};
use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// So many directories are remembered.
const MOST: usize = 100_000;
/// File systems that encrypt what another one holds, as mounts name them.
const ENCRYPTING: [&str; 5] = [
    "ecryptfs",
    "fuse.gocryptfs",
    "fuse.encfs",
    "fuse.cryfs",
    "fuse.securefs",
];

/// Where names are kept.
static STATE: OnceLock<PathBuf> = OnceLock::new();

/// Says where this process keeps names; the first word counts. Without it they are kept in the clear.
pub fn are_kept_in(state: &Path) {
    let _ = STATE.set(state.to_owned());
}

/// Asks for the mounts of now; without it whoever answers for a directory is waited for.
pub type Mounts<'a> = Option<&'a dyn Fn() -> MountTable>;

/// What is known of a directory: what is below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Secrecy {
    Open,
    /// Encrypted, and so is what the state directory keeps, by the same key.
    Own,
    Secret,
}

/// Which names are secrets, with what was seen of directories: those that are locked or unmounted later are
/// secrets still.
#[derive(Default)]
pub struct Secrets {
    own: Option<StateEncryption>,
    directories: HashMap<Vec<u8>, (Secrecy, (u32, u32))>,
    volumes: HashMap<(u32, u32), bool>,
    seen: bool,
}

/// What the state directory is encrypted by; found out where it is asked for, which it is at few starts.
struct StateEncryption {
    /// The directory, or what is there of the way to it.
    at: Option<PathBuf>,
    device: (u32, u32),
    volumes: OnceCell<BTreeSet<String>>,
    directory: OnceCell<Option<((u32, u32), u64)>>,
}

impl Secrets {
    /// Nothing seen yet.
    pub fn new() -> Secrets {
        Secrets::default()
    }

    /// Whether a file's name, an absolute path, is one that is to be kept nowhere. With `mounts` nobody is
    /// waited for who may not answer.
    pub fn is_secret(&mut self, mounts: Mounts<'_>, path: &[u8]) -> bool {
        let secret = self.look_up(mounts, path);
        self.seen |= secret;
        secret
    }

    /// Whether any was asked for.
    pub fn were_seen(&self) -> bool {
        self.seen
    }

    fn look_up(&mut self, mounts: Mounts<'_>, path: &[u8]) -> bool {
        if !path.starts_with(b"/") {
            return false;
        }
        // What is known of the directory, or of the next above it.
        let slashes = || (0..path.len()).filter(|at| path[*at] == b'/');
        let known = slashes()
            .rev()
            .find_map(|at| Some((at, *self.directories.get(directory_before(path, at))?)));
        let (from, (mut below, mut device)) = match known {
            Some((at, known)) => (at + 1, known),
            None => (0, (Secrecy::Open, (u32::MAX, 0))),
        };
        for at in slashes().filter(|at| *at >= from) {
            if below == Secrecy::Secret {
                return true;
            }
            let directory = directory_before(path, at);
            let Some(found) = facts(mounts, directory) else {
                return false;
            };
            (below, device) = self.check_directory(mounts, directory, &found, below, device);
            if self.directories.len() >= MOST {
                // Secrets have to stay known.
                self.directories.retain(|_, (below, _)| *below == Secrecy::Secret);
            }
            self.directories.insert(directory.to_vec(), (below, device));
        }
        below == Secrecy::Secret
    }

    /// Whether a text names one: a path that begins in it, or one from this directory on.
    pub fn are_in(&mut self, mounts: Mounts<'_>, text: &[u8], at: Option<&Path>) -> bool {
        let begins = |byte: &u8| {
            matches!(
                byte,
                b' ' | b'\t' | b'\n' | b'"' | b'\'' | b'=' | b':' | b',' | b'(' | b'<' | b'>' | b'`'
            )
        };
        let at = at.map(|at| at.as_os_str().as_bytes());
        // Where one works in such a directory, every word may be a name in it.
        if at.is_some_and(|at| self.is_secret(mounts, &[at, b"/x"].concat())) {
            return true;
        }
        let mut from = 0;
        while from < text.len() {
            let rest = &text[from..];
            let secret = match (rest.first(), at) {
                (Some(b'/'), _) => self.is_secret(mounts, rest),
                (_, Some(at)) if rest.split(begins).next().is_some_and(|word| word.contains(&b'/')) => {
                    self.is_secret(mounts, &[at, b"/", rest].concat())
                }
                _ => false,
            };
            if secret {
                return true;
            }
            match rest.iter().position(begins) {
                Some(next) => from += next + 1,
                None => break,
            }
        }
        false
    }

    fn check_directory(
        &mut self,
        mounts: Mounts<'_>,
        directory: &[u8],
        found: &Statx,
        above: Secrecy,
        device_above: (u32, u32),
    ) -> (Secrecy, (u32, u32)) {
        let device = (found.stx_dev_major, found.stx_dev_minor);
        if device != device_above && self.is_volume_secret(mounts, directory, device) {
            return (Secrecy::Secret, device);
        }
        let encrypted = found.stx_attributes.contains(StatxAttributes::ENCRYPTED);
        let below = match (encrypted, above) {
            (false, _) => Secrecy::Open,
            // What is below a directory has its policy.
            (true, Secrecy::Own) if device == device_above => Secrecy::Own,
            (true, _) if self.state_encryption().directory() == Some((device, found.stx_ino)) => Secrecy::Own,
            (true, _) => Secrecy::Secret,
        };
        (below, device)
    }

    /// Whether the file system at a directory, on this device, is encrypted and the state directory is not so
    /// too.
    fn is_volume_secret(&mut self, mounts: Mounts<'_>, directory: &[u8], device: (u32, u32)) -> bool {
        if device == self.state_encryption().device {
            return false;
        }
        if let Some(known) = self.volumes.get(&device) {
            return *known;
        }
        let stacked = match (mounts, device.0) {
            (Some(mounts), 0) => mounts().lookup(directory).map(|mount| mount.fstype.clone()),
            _ => None,
        };
        let secret = stacked.is_some_and(|fstype| ENCRYPTING.contains(&fstype.as_str())) || {
            let mut volumes = BTreeSet::new();
            of_device(block_device(mounts, directory, device), &mut volumes);
            !volumes.is_subset(self.state_encryption().volumes())
        };
        if self.volumes.len() < MOST {
            self.volumes.insert(device, secret);
        }
        secret
    }

    fn state_encryption(&mut self) -> &StateEncryption {
        self.own
            .get_or_insert_with(|| StateEncryption::new(STATE.get().map(PathBuf::as_path)))
    }
}

impl StateEncryption {
    fn new(state: Option<&Path>) -> StateEncryption {
        // It may have to be made yet.
        let there = state.and_then(|state| {
            state
                .ancestors()
                .find_map(|at| Some((at.canonicalize().ok()?, facts(None, at.as_os_str().as_bytes())?)))
        });
        let (at, device) = there.map_or((None, (u32::MAX, u32::MAX)), |(at, found)| {
            (Some(at), (found.stx_dev_major, found.stx_dev_minor))
        });
        StateEncryption {
            at,
            device,
            volumes: OnceCell::new(),
            directory: OnceCell::new(),
        }
    }

    /// The encrypted volumes that it lies on.
    fn volumes(&self) -> &BTreeSet<String> {
        self.volumes.get_or_init(|| {
            let mut volumes = BTreeSet::new();
            if let Some(at) = &self.at {
                of_device(
                    block_device(None, at.as_os_str().as_bytes(), self.device),
                    &mut volumes,
                );
            }
            volumes
        })
    }

    /// The topmost directory with a policy that it is in, or is: device and inode number.
    fn directory(&self) -> Option<((u32, u32), u64)> {
        *self.directory.get_or_init(|| {
            let mut ways: Vec<&Path> = self.at.iter().flat_map(|at| at.ancestors()).collect();
            ways.reverse();
            ways.into_iter().find_map(|way| {
                let facts = facts(None, way.as_os_str().as_bytes())?;
                let device = (facts.stx_dev_major, facts.stx_dev_minor);
                (facts.stx_attributes.contains(StatxAttributes::ENCRYPTED)).then_some((device, facts.stx_ino))
            })
        })
    }
}

/// The directory that ends before a slash.
fn directory_before(path: &[u8], slash: usize) -> &[u8] {
    match slash {
        0 => b"/",
        slash => &path[..slash],
    }
}

/// What a directory is; `None` where there is none, or nobody may be asked.
fn facts(mounts: Mounts<'_>, directory: &[u8]) -> Option<Statx> {
    let path = Path::new(OsStr::from_bytes(directory));
    let how = AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let wanted = StatxFlags::INO;
    let Some(mounts) = mounts else {
        return statx(CWD, path, how, wanted).ok();
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::CACHED | ResolveFlags::NO_MAGICLINKS;
    let fd = openat2(CWD, path, flags, Mode::empty(), resolve).ok();
    let fd = fd.or_else(|| pin_on_the_way(&mounts(), path).ok().map(|(fd, _)| fd))?;
    statx(fd, c"", how | AtFlags::EMPTY_PATH, wanted).ok()
}

/// The block device of a file system whose own number is no device's (btrfs), by what was mounted; else that
/// of the number.
fn block_device(mounts: Mounts<'_>, directory: &[u8], device: (u32, u32)) -> (u32, u32) {
    if device.0 != 0 {
        return device;
    }
    let table = mounts.map_or_else(|| MountTable::read().unwrap_or_default(), |mounts| mounts());
    let mount = table.lookup(directory);
    let source = mount
        .map(|mount| mount.source.as_path())
        .filter(|source| source.starts_with("/dev"));
    let facts = source.and_then(|source| std::fs::metadata(source).ok());
    facts.map_or(device, |facts| {
        (rustix::fs::major(facts.rdev()), rustix::fs::minor(facts.rdev()))
    })
}

/// Adds the names of the encrypted volumes (dm-crypt) that a device lies on, and of the encrypted directories
/// that hold its images.
fn of_device((major, minor): (u32, u32), volumes: &mut BTreeSet<String>) {
    devices_below::visit_below((major, minor), &mut |layer| match layer {
        // The kernel's name of a volume that cryptsetup has made.
        Layer::Disk(whole) => volumes.extend(
            std::fs::read_to_string(whole.join("dm/uuid"))
                .map(|uuid| uuid.trim().to_owned())
                .ok()
                .filter(|uuid| uuid.starts_with("CRYPT-")),
        ),
        Layer::Directory(found) if found.stx_attributes.contains(StatxAttributes::ENCRYPTED) => {
            volumes.insert(format!(
                "directory {}:{} {}",
                found.stx_dev_major, found.stx_dev_minor, found.stx_ino
            ));
        }
        Layer::Directory(_) => {}
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_encrypted_is_no_secret_and_what_was_seen_to_be_stays_one() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = |name: &str| [dir.path().as_os_str().as_bytes(), name.as_bytes()].concat();
        let read: &dyn Fn() -> MountTable = &|| MountTable::read().unwrap();
        let mut secrets = Secrets::new();
        for mounts in [Some(read), None] {
            assert!(!secrets.is_secret(mounts, &path("/file")) && !secrets.is_secret(mounts, b"/"));
            assert!(
                !secrets.is_secret(mounts, b"relative/x") && !secrets.is_secret(mounts, &path("/gone/x"))
            );
            assert!(!secrets.are_in(mounts, b"cat /etc/passwd a/b", Some(dir.path())));
        }
        secrets
            .directories
            .insert(path("/locked"), (Secrecy::Secret, (0, 0)));
        for mounts in [Some(read), None] {
            assert!(
                secrets.is_secret(mounts, &path("/locked/x"))
                    && secrets.is_secret(mounts, &path("/locked/a/b/c"))
            );
            assert!(
                !secrets.is_secret(mounts, &path("/locked")),
                "its own name is in the clear"
            );
            let text = [b"sh -c cat ".as_slice(), &path("/locked/x")].concat();
            assert!(secrets.are_in(mounts, &text, None));
            assert!(secrets.are_in(mounts, b"cat locked/x", Some(dir.path())));
            assert!(!secrets.are_in(mounts, b"cat locked", Some(dir.path())));
        }
    }
}
