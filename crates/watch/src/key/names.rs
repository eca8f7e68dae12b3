//! What a path of somebody's command line leads to, asked in a way that nobody can hold up.

use headstart_session::keys::Names;
use headstart_system::files::Type;
use headstart_system::mounts::MountTable;
use headstart_system::open::{Skip, pin};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The kernel follows no more links of a path (`MAXSYMLINKS`, linux/namei.h).
const MOST_LINKS: usize = 40;

/// So many parts of paths with links are walked, each from the root of its mount: a millisecond at most. A program that somebody has
/// put deeper is taken by its name.
const MOST_PARTS: usize = 128;

/// Paths as a process finds them that was started in this directory.
pub struct Local<'a> {
    pub cwd: Option<&'a Path>,
}

impl Names for Local<'_> {
    fn real(&self, path: &Path) -> Option<PathBuf> {
        let whole = match path.is_absolute() {
            true => path.to_owned(),
            false => self.cwd.filter(|cwd| cwd.is_absolute())?.join(path),
        };
        Some(with_mounts(|mounts| resolve(mounts, &whole)))
    }
}

/// Whether two paths, of which none has symbolic links, lead to one file; false where that is not on a local file system.
pub fn are_one(one: &Path, other: &Path) -> bool {
    let file = |path| {
        let stat = with_mounts(|mounts| pin(mounts, path)).ok()?.1;
        Some((stat.major, stat.minor, stat.inode))
    };
    one == other || file(one).is_some_and(|it| file(other) == Some(it))
}

fn with_mounts<T>(ask: impl FnOnce(&MountTable) -> T) -> T {
    static WATCHED: OnceLock<Mutex<Watched>> = OnceLock::new();
    let watched = WATCHED.get_or_init(Mutex::default);
    let mut watched = watched.lock().unwrap_or_else(PoisonError::into_inner);
    ask(watched.table())
}

/// The mount table, read again when something was mounted: an exec does not wait for it to be read.
#[derive(Default)]
struct Watched {
    file: Option<File>,
    table: MountTable,
}

impl Watched {
    fn table(&mut self) -> &MountTable {
        let changed = match &self.file {
            None => {
                self.file = File::open("/proc/self/mountinfo").ok();
                true
            }
            // It tells of each change once (`mounts_poll`, fs/proc_namespace.c).
            Some(file) => {
                let mut fds = [PollFd::new(file, PollFlags::PRI)];
                poll(&mut fds, Some(&Timespec::default()))
                    .is_ok_and(|_| fds[0].revents().intersects(PollFlags::PRI | PollFlags::ERR))
            }
        };
        if changed {
            self.table = MountTable::read().unwrap_or_default();
        }
        &self.table
    }
}

/// The path with its symbolic links resolved, as far as local file systems know it: what is on others is taken by its name. As
/// realpath(3) followed by `headstart run`: what is not there at all is taken by its name from the first.
pub fn resolve(mounts: &MountTable, path: &Path) -> PathBuf {
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
            Ok(_) | Err(Skip::NotLocal) => {}
            Err(_) => return plain(),
        }
    }
    done
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
    use std::os::unix::fs::symlink;

    /// Below the target directory: where temporary files are kept may be a file system in memory, which is not local.
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
            assert_eq!(resolve(&mounts, &at(name)), expected, "{name}");
        }
        for name in ["none", "a/none/below", "circle", "short/missing", "circle/below"] {
            assert_eq!(
                resolve(&mounts, &at(name)),
                std::path::absolute(at(name)).unwrap(),
                "{name}"
            );
        }
        assert_eq!(resolve(&mounts, Path::new("/")), Path::new("/"));
    }

    #[test]
    fn a_relative_path_leads_from_the_directory_it_was_started_in() {
        let dir = directory();
        let script = dir.path().join("script");
        std::fs::write(&script, "").unwrap();
        let script = script.canonicalize().unwrap();
        let cwd = Some(dir.path());
        assert_eq!(Local { cwd }.real(Path::new("./script")), Some(script.clone()));
        assert_eq!(Local { cwd }.real(&script), Some(script));
        assert_eq!(Local { cwd: None }.real(Path::new("./script")), None);
        let cwd = Some(Path::new("relative"));
        assert_eq!(Local { cwd }.real(Path::new("x")), None);
    }

    #[test]
    fn what_may_not_answer_is_not_asked() {
        // Nothing is there to be asked, and by its name it would be a link out of /proc.
        let real = resolve(&MountTable::read().unwrap(), Path::new("/proc/self/exe"));
        assert_eq!(real, Path::new("/proc/self/exe"));
    }
}
