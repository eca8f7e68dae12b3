//! The paths looked up: each but once, as many as there is room for, and under names that have one spelling.

use crate::limits::{LOOKUP_BYTES, LOOKUPS};
use headstart_model::FilePath;
use headstart_model::trace::{Lookup, LookupKind};
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

/// The look-ups so far.
pub(super) struct Lookups {
    list: Vec<Lookup>,
    /// Paths with a component `..`, and how much of each is known to go through no symbolic link.
    dotted: Vec<(Lookup, usize)>,
    /// Hashes of what was looked up, by a key that nobody can know: of [`LOOKUPS`] two are equal once in
    /// 10^10 recordings.
    known: HashSet<u64>,
    hasher: RandomState,
    room: Room,
    dropped: u64,
}

impl Lookups {
    /// None yet. Where everybody is recorded, users other than root have a part of the room only.
    pub(super) fn new(everybody: bool) -> Lookups {
        Lookups {
            list: Vec::new(),
            dotted: Vec::new(),
            known: HashSet::new(),
            hasher: RandomState::new(),
            room: Room::new(everybody),
            dropped: 0,
        }
    }

    /// Takes one in. `path` is absolute and has no empty component and none that is `.`; its first `real`
    /// bytes go through no symbolic link.
    pub(super) fn add(&mut self, lookup: Lookup, real: usize, uid: u32) {
        let hash = self.hash(lookup.kind, lookup.found, &lookup.path);
        if self.known.contains(&hash) {
            return;
        }
        if !self.room.take_allowance(uid, lookup.path.as_bytes().len()) {
            self.dropped += 1;
            return;
        }
        self.known.insert(hash);
        if has_dots(lookup.path.as_bytes()) {
            self.dotted.push((lookup, real));
        } else {
            self.list.push(lookup);
        }
    }

    /// About how much memory they take, bytes.
    pub(super) fn bytes(&self) -> usize {
        (self.list.len() + self.dotted.len()) * 128 + self.room.all.bytes
    }

    /// How many there was no room for; some of them the same.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// All of them. What `..` means depends on symbolic links: it is taken away where `is_directory` says
    /// that what stands before it is a directory; else the look-up is left out, for its path has no name of
    /// one spelling.
    pub(super) fn finish(mut self, is_directory: impl Fn(&[u8]) -> bool) -> Vec<Lookup> {
        for (lookup, real) in std::mem::take(&mut self.dotted) {
            let Some(path) = without_dots(lookup.path.as_bytes(), real, &is_directory) else {
                continue;
            };
            let path = FilePath::from(path);
            if self.known.insert(self.hash(lookup.kind, lookup.found, &path)) {
                self.list.push(Lookup { path, ..lookup });
            }
        }
        self.list
    }

    fn hash(&self, kind: LookupKind, found: bool, path: &FilePath) -> u64 {
        self.hasher.hash_one((kind, found, path))
    }
}

fn has_dots(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').any(|part| part == b"..")
}

/// The path without `..`, or `None` if one of them may lead elsewhere than to the directory named before.
fn without_dots(path: &[u8], real: usize, is_directory: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(path.len());
    let mut at = 0;
    // What of `out` is known to go through no symbolic link.
    let mut known = 0;
    for part in path.split(|byte| *byte == b'/').skip(1) {
        at += 1 + part.len();
        if part != b".." {
            out.push(b'/');
            out.extend_from_slice(part);
            if at <= real {
                known = out.len();
            }
            continue;
        }
        if out.len() > known && !is_directory(&out) {
            return None;
        }
        // The root is its own parent.
        let cut = out.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        out.truncate(cut);
        known = out.len();
    }
    if out.is_empty() {
        out.push(b'/');
    }
    Some(out)
}

/// The room for look-ups. Of a recording of everybody, users other than root have half, and any one of them a
/// quarter, so that neither root's look-ups nor another user's can be crowded out.
struct Room {
    everybody: bool,
    all: Share,
    others: Share,
    /// By user. Others than root together have [`LOOKUPS`] / 2 at most, so there are no more users.
    users: HashMap<u32, Share>,
}

/// What was taken.
#[derive(Clone, Copy, Default)]
struct Share {
    paths: usize,
    bytes: usize,
}

impl Share {
    /// Whether a path of so many bytes fits a part of all room.
    fn fits(self, bytes: usize, part: usize) -> bool {
        self.paths < LOOKUPS / part && self.bytes + bytes <= LOOKUP_BYTES / part
    }

    fn add(&mut self, bytes: usize) {
        self.paths += 1;
        self.bytes += bytes;
    }
}

impl Room {
    fn new(everybody: bool) -> Room {
        Room {
            everybody,
            all: Share::default(),
            others: Share::default(),
            users: HashMap::new(),
        }
    }

    fn take_allowance(&mut self, uid: u32, bytes: usize) -> bool {
        if !self.all.fits(bytes, 1) {
            return false;
        }
        if self.everybody && uid != 0 {
            let user = self.users.get(&uid).copied().unwrap_or_default();
            if !self.others.fits(bytes, 2) || !user.fits(bytes, 4) {
                return false;
            }
            self.others.add(bytes);
            self.users.entry(uid).or_default().add(bytes);
        }
        self.all.add(bytes);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(path: &str) -> Lookup {
        Lookup {
            time_ns: 0,
            process: 0,
            path: path.into(),
            kind: LookupKind::Stat,
            found: false,
        }
    }

    /// Distinct paths of 4,000 bytes.
    fn long(number: usize) -> Lookup {
        lookup(&format!("/{number:07}{}", "x".repeat(3992)))
    }

    #[test]
    fn a_user_who_floods_look_ups_leaves_room_for_root_and_for_other_users() {
        let mut lookups = Lookups::new(true);
        for number in 0..10_000 {
            lookups.add(long(number), 0, 1000);
        }
        for number in 0..LOOKUPS {
            lookups.add(lookup(&format!("/a/{number}")), 0, 1000);
        }
        assert!(lookups.dropped() > 50_000);
        for uid in [0, 1001] {
            let before = lookups.dropped();
            for number in 0..10_000 {
                lookups.add(lookup(&format!("/{uid}/{number}")), 0, uid);
            }
            assert_eq!(lookups.dropped(), before, "user {uid}");
        }
        // A user of a thousand numbers (subordinate ones) is still not root.
        for number in 0..LOOKUPS as u32 {
            lookups.add(lookup(&format!("/many/{number}")), 0, 100_000 + number);
        }
        let before = lookups.dropped();
        for number in 0..10_000 {
            lookups.add(lookup(&format!("/later/{number}")), 0, 0);
        }
        assert_eq!(lookups.dropped(), before);
        let kept = lookups.finish(|_| false);
        assert!(kept.len() <= LOOKUPS);
        let bytes: usize = kept.iter().map(|one| one.path.as_bytes().len()).sum();
        assert!(bytes <= LOOKUP_BYTES);
    }

    #[test]
    fn a_command_that_is_recorded_alone_has_all_the_room() {
        let mut lookups = Lookups::new(false);
        for number in 0..LOOKUPS + 10 {
            lookups.add(lookup(&format!("/{number}")), 0, 1000);
        }
        assert_eq!(lookups.dropped(), 10);
        assert_eq!(lookups.finish(|_| false).len(), LOOKUPS);
    }

    #[test]
    fn dots_are_taken_away_behind_directories_and_else_the_path_is_left_out() {
        let directories = |path: &[u8]| matches!(path, b"/usr" | b"/usr/bin");
        let path = |path: &str, real: usize| {
            without_dots(path.as_bytes(), real, directories).map(|path| String::from_utf8(path).unwrap())
        };
        assert_eq!(path("/usr/bin/../lib/x", 0).as_deref(), Some("/usr/lib/x"));
        assert_eq!(path("/usr/bin/../../x", 0).as_deref(), Some("/x"));
        assert_eq!(path("/usr/../../../x", 0).as_deref(), Some("/x"));
        assert_eq!(path("/usr/..", 0).as_deref(), Some("/"));
        assert_eq!(path("/home/u/w/../mnt/dead/x", 0), None, "w may be a link");
        assert_eq!(path("/usr/lib/../bin/../x", 0), None);
        // The directory of a process has no links in its name; what it asks for may have.
        assert_eq!(path("/home/u/../x", "/home/u".len()).as_deref(), Some("/home/x"));
        assert_eq!(path("/home/u/../../x", "/home/u".len()).as_deref(), Some("/x"));
        assert_eq!(path("/home/u/w/../x", "/home/u".len()), None);
        assert_eq!(path("/home/u/../v/../x", "/home/u".len()), None);
    }

    #[test]
    fn two_spellings_of_a_path_are_one_look_up() {
        let mut lookups = Lookups::new(false);
        lookups.add(lookup("/usr/lib/x"), 0, 0);
        lookups.add(lookup("/usr/bin/../lib/x"), 0, 0);
        lookups.add(lookup("/usr/bin/../lib/y"), 0, 0);
        lookups.add(lookup("/other/../lib/y"), 0, 0);
        let kept = lookups.finish(|path| path == b"/usr/bin");
        let paths: Vec<String> = kept.iter().map(|one| one.path.to_string()).collect();
        assert_eq!(paths, ["/usr/lib/x", "/usr/lib/y"]);
    }
}
