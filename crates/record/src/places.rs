//! Where things are as the recorder sees them: from a file system and a path within it to an absolute path.

use crate::event::{Location, Place};
use crate::mounts::{Mount, Mounts, below, join};

/// An absolute path, and the mount it was found through, if any.
pub(crate) struct Resolved<'a> {
    pub path: Vec<u8>,
    pub mount: Option<&'a Mount>,
}

/// Every absolute path that `place` may have, the best first; empty if its file system is mounted nowhere the
/// recorder sees.
pub(crate) fn resolve<'a>(mounts: &'a Mounts, place: &Place) -> Vec<Resolved<'a>> {
    match &place.location {
        Location::Unknown => vec![],
        Location::Within(within) => {
            let mut showing = mounts.showing(place.dev, within);
            // The way it was reached by is the way it is called.
            showing.sort_by_key(|mount| Some(mount.id) != place.mount);
            let outside = |mount: &'a Mount| {
                Some(Resolved {
                    path: mount.outside(within)?,
                    mount: Some(mount),
                })
            };
            showing.into_iter().filter_map(outside).collect()
        }
        Location::Absolute(path) => {
            let through = |m: &&Mount| below(path, &m.point).is_some();
            let mount = mounts
                .of_device(place.dev)
                .filter(through)
                .max_by_key(|m| m.point.len());
            vec![Resolved {
                path: path.clone(),
                mount,
            }]
        }
    }
}

/// The absolute path of what a process called `path`, given what a relative path is relative to and, where it is not
/// the recorder's, the root of the process. Empty components and `.` are dropped, `..` is kept: what it means depends
/// on symbolic links.
pub(crate) fn absolute(
    mounts: &Mounts,
    path: &[u8],
    base: Option<&Place>,
    root: Option<&Place>,
) -> Option<Vec<u8>> {
    let start = if path.starts_with(b"/") { root } else { Some(base?) };
    let start = match start {
        Some(place) => resolve(mounts, place).into_iter().next()?.path,
        None => vec![],
    };
    let mut out = start.strip_suffix(b"/").unwrap_or(&start).to_vec();
    for part in path
        .split(|b| *b == b'/')
        .filter(|part| !matches!(*part, b"" | b"."))
    {
        out = join(&out, &[b"/", part].concat());
    }
    if out.is_empty() {
        out.push(b'/');
    }
    Some(out)
}
