//! What a path of somebody's command line leads to, asked in a way that nobody can hold up.

use super::names::lowest_layer;
use super::{Names, is_registered};
use headstart_system::files::Type;
use headstart_system::mounts::MountTable;
use headstart_system::open::{Expect, Skip, may_be_searched_by, pin, pin_on_the_way, read_small};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// The kernel follows no more links of a path (`MAXSYMLINKS`, linux/namei.h).
const MOST_LINKS: usize = 40;

/// So many parts of paths with links are walked, each from the root of its mount: a millisecond at most. A
/// program that somebody has put deeper is taken by its name.
const MOST_PARTS: usize = 128;

/// Paths as a process of this user finds them that was started in this directory.
pub struct Local<'a> {
    /// That directory, where it is known.
    pub cwd: Option<&'a Path>,
    /// The user.
    pub user: u32,
}

impl Names for Local<'_> {
    fn real(&self, path: &Path) -> Option<PathBuf> {
        let whole = match path.is_absolute() {
            true => path.to_owned(),
            false => self.cwd.filter(|cwd| cwd.is_absolute())?.join(path),
        };
        Some(resolve(&mounts_in_time(), self.user, &whole))
    }

    fn is_there(&self, path: &Path) -> bool {
        let real = self.real(path);
        real.is_some_and(|real| pin(&mounts_in_time(), &real).is_ok())
    }

    fn is_registered(&self, executable: &Path) -> bool {
        is_registered(executable)
    }

    fn directory(&self) -> Option<PathBuf> {
        self.cwd.filter(|cwd| cwd.is_absolute()).map(Path::to_owned)
    }

    fn content(&self, path: &Path, most: usize) -> Option<Vec<u8>> {
        let reader = Some(self.user).filter(|user| *user != 0);
        let expect = Expect {
            reader,
            ..Expect::default()
        };
        let (mounts, real) = (mounts_in_time(), self.real(path)?);
        let bytes = read_small(&mounts, &real, most, true, &expect).ok()?;
        // All on the way is in memory now.
        may_reach(&mounts, self.user, &real).then_some(bytes)
    }

    fn lowest_layer(&self, path: &Path) -> Option<PathBuf> {
        lowest_layer(&mounts_in_time(), path)
    }
}

/// Whether two paths, of which none has symbolic links, lead to one file; false where that is not on a local
/// file system.
pub fn are_one(one: &Path, other: &Path) -> bool {
    let file = |path| {
        let stat = pin(&mounts_in_time(), path).ok()?.1;
        Some((stat.major, stat.minor, stat.inode))
    };
    one == other || file(one).is_some_and(|it| file(other) == Some(it))
}

/// What is mounted now, read again only when that has changed: an exec does not wait for it to be read. For
/// one use: as long as somebody has it, nothing that was looked up in it can be unmounted.
pub fn mounts() -> io::Result<MountTable> {
    MountTable::read()
}

/// The same for an exec, of which there are hundreds a second: as it was a moment ago where thousands are
/// mounted and some come and go all the time.
fn mounts_in_time() -> MountTable {
    MountTable::read_in_time().unwrap_or_default()
}

/// The path with its symbolic links resolved, as far as local file systems know it: what is on others is
/// taken by its name. As realpath(3) followed by `headstart run`: what is not there at all is taken by its
/// name from the first; and so is what this user may not look up, who would learn from the answer what is
/// there.
pub fn resolve(mounts: &MountTable, user: u32, path: &Path) -> PathBuf {
    let plain = || std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut ahead: VecDeque<OsString> = path.components().filter_map(part).collect();
    let mut done = PathBuf::from("/");
    // Mostly there is no link at all.
    if !ahead.iter().any(|part| part == "..") {
        let whole: PathBuf = std::iter::once(OsString::from("/"))
            .chain(ahead.iter().cloned())
            .collect();
        if pin(mounts, &whole).is_ok_and(|(_, stat)| stat.kind != Type::Symlink) {
            return whole;
        }
    }
    let (mut links, mut parts) = (0, 0);
    while let Some(next) = ahead.pop_front() {
        parts += 1;
        if parts > MOST_PARTS {
            return plain();
        }
        if next == ".." {
            done.pop();
            continue;
        }
        done.push(next);
        match pin(mounts, &done) {
            Ok((fd, stat)) if stat.kind == Type::Symlink => {
                links += 1;
                let target = rustix::fs::readlinkat(&fd, c"", Vec::new());
                let (Ok(target), true) = (target, links <= MOST_LINKS) else {
                    return plain();
                };
                let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
                done.pop();
                if target.is_absolute() {
                    done = PathBuf::from("/");
                }
                target
                    .components()
                    .rev()
                    .filter_map(part)
                    .for_each(|part| ahead.push_front(part));
            }
            Ok((fd, stat))
                if stat.kind == Type::Directory && !may_be_searched_by(fd.as_fd(), &stat, user) =>
            {
                return plain();
            }
            Ok(_) | Err(Skip::NotLocal) => {}
            Err(_) => return plain(),
        }
    }
    done
}

/// Whether a user may look up each name on the way to a path that has no symbolic links. Of one that lies
/// deeper than anybody's, nobody may.
fn may_reach(mounts: &MountTable, user: u32, path: &Path) -> bool {
    let may_search = |directory: &Path| {
        let pinned = pin_on_the_way(mounts, directory);
        pinned.is_ok_and(|(fd, stat)| may_be_searched_by(fd.as_fd(), &stat, user))
    };
    let mut above = path.ancestors().skip(1);
    user == 0 || above.by_ref().take(MOST_PARTS).all(may_search) && above.next().is_none()
}

fn part(component: Component<'_>) -> Option<OsString> {
    match component {
        Component::Normal(part) => Some(part.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_system::testing::{LoopFs, Spec, can_mount};
    use rustix::mount::{UnmountFlags, unmount};
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// Below the target directory: where temporary files are kept may be a file system in memory, which is
    /// not local.
    fn directory() -> tempfile::TempDir {
        tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap()
    }

    #[test]
    fn links_are_resolved_as_realpath_resolves_them() {
        let dir = directory();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("a/b")).unwrap();
        std::fs::write(at("a/b/script"), "").unwrap();
        symlink("a/b", at("short")).unwrap();
        symlink(at("short/script"), at("whole")).unwrap();
        symlink("../script", at("a/b/missing")).unwrap();
        symlink("circle", at("circle")).unwrap();
        let mounts = MountTable::read().unwrap();
        for name in [
            "a/b/script",
            "short/script",
            "whole",
            "short/../b/./script",
            "a//b/script",
        ] {
            let expected = at(name).canonicalize().unwrap();
            assert_eq!(resolve(&mounts, 0, &at(name)), expected, "{name}");
        }
        for name in ["none", "a/none/below", "circle", "short/missing", "circle/below"] {
            assert_eq!(
                resolve(&mounts, 0, &at(name)),
                std::path::absolute(at(name)).unwrap(),
                "{name}"
            );
        }
        assert_eq!(resolve(&mounts, 0, Path::new("/")), Path::new("/"));
    }

    #[test]
    fn a_relative_path_leads_from_the_directory_it_was_started_in() {
        let dir = directory();
        let script = dir.path().join("script");
        std::fs::write(&script, "").unwrap();
        let script = script.canonicalize().unwrap();
        let real = |cwd: Option<&Path>, path: &str| Local { cwd, user: 0 }.real(Path::new(path));
        let here = Some(dir.path());
        assert_eq!(real(here, "./script"), Some(script.clone()));
        assert_eq!(real(here, script.to_str().unwrap()), Some(script));
        assert_eq!(real(None, "./script"), None);
        assert_eq!(real(Some(Path::new("relative")), "x"), None);
    }

    #[test]
    fn what_a_user_may_not_look_up_is_not_told() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("closed")).unwrap();
        std::fs::write(at("closed/file"), "").unwrap();
        symlink("closed/file", at("link")).unwrap();
        let mode = |name: &str, mode| {
            std::fs::set_permissions(at(name), std::fs::Permissions::from_mode(mode)).unwrap();
        };
        mode("", 0o755);
        let mounts = MountTable::read().unwrap();
        let whole = at("closed/file").canonicalize().unwrap();
        for (open_to_all, real) in [(0o711, &whole), (0o700, &at("link"))] {
            mode("closed", open_to_all);
            assert_eq!(resolve(&mounts, 0, &at("link")), whole);
            assert_eq!(resolve(&mounts, 4711, &at("link")), *real);
        }
    }

    #[test]
    fn a_user_has_a_file_read_that_this_user_may_read_alone() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let at = |name: &str| dir.path().join(name);
        let mode = |name: &str, mode| {
            std::fs::set_permissions(at(name), std::fs::Permissions::from_mode(mode)).unwrap();
        };
        std::fs::create_dir(at("bundle")).unwrap();
        std::fs::write(at("bundle/config.json"), "{}").unwrap();
        mode("", 0o755);
        for (directory, file, by_user) in [(0o755, 0o644, true), (0o700, 0o644, false), (0o755, 0o600, false)]
        {
            mode("bundle", directory);
            mode("bundle/config.json", file);
            let read = |user| {
                Local { cwd: None, user }
                    .content(&at("bundle/config.json"), 9)
                    .is_some()
            };
            assert!(read(0));
            assert_eq!(read(4711), by_user, "{directory:o} {file:o}");
        }
    }

    #[test]
    fn what_was_looked_up_can_be_unmounted() {
        if !can_mount() {
            return;
        }
        let files = |root: &Path| {
            std::fs::write(root.join("one"), "")?;
            std::fs::hard_link(root.join("one"), root.join("other"))
        };
        let disk = LoopFs::create(&Spec::new("ext4"), files).unwrap();
        let root = disk.mount_point();
        assert!(are_one(&root.join("one"), &root.join("other")));
        unmount(&root, UnmountFlags::empty()).unwrap();
    }

    #[test]
    fn what_may_not_answer_is_not_asked() {
        // Nothing is there to be asked, and by its name it would be a link out of /proc.
        let real = resolve(&MountTable::read().unwrap(), 0, Path::new("/proc/self/exe"));
        assert_eq!(real, Path::new("/proc/self/exe"));
    }
}
