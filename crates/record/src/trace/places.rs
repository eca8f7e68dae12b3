//! Where things are as the recorder sees them: from a file system and a path within it to an absolute path.

use crate::kernel::event::{Location, Place};
use crate::trace::mounts::{Mount, Mounts, outside};
use headstart_model::limits::PATH;

/// An absolute path, and the mount it was found through, if any.
pub(crate) struct Resolved<'a> {
    pub path: Vec<u8>,
    pub mount: Option<&'a Mount>,
}

/// The absolute paths that `place` may have, the best first, of those that can be seen now `most`; empty if
/// its file system is mounted nowhere the recorder sees. A path that is longer than any that can be asked for
/// is none: directories can be nested deeper, one chdir(2) after the other, and a trace that held such a path
/// could not be written.
pub(crate) fn resolve<'a>(mounts: &'a Mounts, place: &Place, most: usize) -> Vec<Resolved<'a>> {
    let mut paths = candidates(mounts, place, most);
    paths.retain(|one| one.path.len() <= PATH);
    paths
}

fn candidates<'a>(mounts: &'a Mounts, place: &Place, most: usize) -> Vec<Resolved<'a>> {
    match &place.location {
        Location::Unknown => vec![],
        Location::Within(within) => {
            // The way it was reached by is the way it is called.
            let showing = mounts.showing(place.dev, within, place.mount, most);
            let resolved = |mount: &'a Mount| {
                Some(Resolved {
                    path: outside(mount, within)?,
                    mount: Some(mount),
                })
            };
            showing.into_iter().filter_map(resolved).collect()
        }
        Location::Absolute(path) => {
            let mount = mounts.find(place.dev, path);
            vec![Resolved {
                path: path.clone(),
                mount,
            }]
        }
    }
}

/// The absolute path of what a process called `path`, given what a relative path is relative to and, where it
/// is not the recorder's, the root of the process; and how many bytes of it go through no symbolic link,
/// since the kernel named them. Empty components and `.` are dropped, `..` is kept: what it means depends on
/// symbolic links. `None` where the recorder does not see it, and for a path that is longer than any that can
/// be asked for.
pub(crate) fn absolute(
    mounts: &Mounts,
    path: &[u8],
    base: Option<&Place>,
    root: Option<&Place>,
) -> Option<(Vec<u8>, usize)> {
    let start = if path.starts_with(b"/") { root } else { Some(base?) };
    let start = match start {
        Some(place) => resolve(mounts, place, 1).into_iter().next()?.path,
        None => vec![],
    };
    let mut out = start.strip_suffix(b"/").unwrap_or(&start).to_vec();
    let real = out.len();
    for part in path
        .split(|b| *b == b'/')
        .filter(|part| !matches!(*part, b"" | b"."))
    {
        if out.len() + 1 + part.len() > PATH {
            return None;
        }
        out.push(b'/');
        out.extend_from_slice(part);
    }
    if out.is_empty() {
        out.push(b'/');
    }
    Some((out, real))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::event::Dev;

    #[test]
    fn what_lies_deeper_than_any_path_has_no_name_and_no_look_up_from_there_has() {
        let mounts = Mounts::read().unwrap();
        let place = |length: usize| Place {
            dev: Dev { major: 0, minor: 0 },
            location: Location::Absolute([b"/".as_slice(), &b"d/".repeat(length / 2)].concat()),
            mount: None,
        };
        let (near, deep) = (place(4000), place(4200));
        assert_eq!(resolve(&mounts, &near, 8).len(), 1);
        assert!(resolve(&mounts, &deep, 8).is_empty());
        assert!(absolute(&mounts, b".", Some(&near), None).is_some());
        assert!(absolute(&mounts, b".", Some(&deep), None).is_none());
    }

    #[test]
    fn a_path_has_no_empty_component_and_no_dot_and_is_no_longer_than_any() {
        let mounts = Mounts::read().unwrap();
        let base = Place {
            dev: Dev { major: 0, minor: 0 },
            location: Location::Absolute(b"/home/u".to_vec()),
            mount: None,
        };
        let resolved = |path: &[u8]| absolute(&mounts, path, Some(&base), None);
        assert_eq!(resolved(b"/usr//lib/./x/"), Some((b"/usr/lib/x".to_vec(), 0)));
        assert_eq!(resolved(b"./w//x"), Some((b"/home/u/w/x".to_vec(), 7)));
        assert_eq!(resolved(b"//"), Some((b"/".to_vec(), 0)));
        let long = vec![b'x'; PATH - 8];
        assert_eq!(resolved(&long).unwrap().0.len(), PATH);
        assert_eq!(resolved(&[&long[..], b"x"].concat()), None);
    }
}
