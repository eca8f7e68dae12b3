//! When what lies at or below a path is needed first.

use crate::request::{deadline_us, plan_stage};
use headstart_model::profile::Entry;
use headstart_model::sort::Sort;
use headstart_model::{FilePath, Profile};
use std::cmp::Ordering;

/// The first needs of a profile's paths, by path.
///
/// A directory is needed when the first path below it is. Paths are not listed with all directories above
/// them: a profile of 7 MB may have paths of two thousand components each, and so 4 million directories of 8
/// GB together.
pub(crate) struct Deadlines<'a> {
    /// In the order of [`order`], in which what is below a directory follows it.
    paths: Vec<&'a [u8]>,
    /// A tree of minima: that of node `i` is the lesser of nodes `2 i` and `2 i + 1`; the leaves, one for
    /// each path, are the second half.
    first: Vec<First>,
}

/// When something is needed first, microseconds, and in which stage.
pub(crate) type First = (u32, u8);

/// After everything.
pub(crate) const NEVER: First = (u32::MAX, u8::MAX);

/// As the order of bytes, with `/` before all others.
fn order(a: &[u8], b: &[u8]) -> Ordering {
    let at = a.iter().zip(b).position(|(a, b)| a != b);
    match at {
        None => a.len().cmp(&b.len()),
        Some(at) => match (a[at], b[at]) {
            (b'/', _) => Ordering::Less,
            (_, b'/') => Ordering::Greater,
            (a, b) => a.cmp(&b),
        },
    }
}

fn at_or_below(path: &[u8], directory: &[u8]) -> bool {
    let rest = path.strip_prefix(directory);
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'/')) || directory == b"/")
}

impl<'a> Deadlines<'a> {
    pub fn new(profile: &'a Profile) -> Deadlines<'a> {
        Deadlines::of_those(profile, &|_| true)
    }

    /// Of those entries only.
    pub fn of_those(profile: &'a Profile, is_one: &dyn Fn(&Entry) -> bool) -> Deadlines<'a> {
        let mut firsts: Vec<(&[u8], First)> = Vec::with_capacity(profile.entries.len());
        for entry in profile.entries.iter().filter(|entry| is_one(entry)) {
            let deadline = (deadline_us(entry.first_use_ns), plan_stage(entry.stage));
            let names = [Some(&entry.path), entry.overlay.as_ref()];
            firsts.extend(
                names
                    .into_iter()
                    .flatten()
                    .map(|path| (path.as_bytes(), deadline)),
            );
        }
        firsts.sort_small_by(|a, b| order(a.0, b.0));
        let count = firsts.len();
        let mut first = vec![NEVER; count];
        first.extend(firsts.iter().map(|(_, deadline)| *deadline));
        for node in (1..count).rev() {
            first[node] = first[2 * node].min(first[2 * node + 1]);
        }
        Deadlines {
            paths: firsts.into_iter().map(|(path, _)| path).collect(),
            first,
        }
    }

    /// When the first of what is at or below the path is needed, microseconds; 0 if nothing there is.
    pub fn get(&self, path: &FilePath) -> u32 {
        self.first(path).map_or(0, |(deadline_us, _)| deadline_us)
    }

    /// When the first of what is at or below the path is needed, and in which stage; `None` if nothing there
    /// is.
    pub fn first(&self, path: &FilePath) -> Option<First> {
        let path = path.as_bytes();
        let begin = self
            .paths
            .partition_point(|known| order(known, path) == Ordering::Less);
        let end = begin + self.paths[begin..].partition_point(|known| at_or_below(known, path));
        (begin < end).then(|| self.least(begin, end))
    }

    /// The least of the leaves from `begin` up to `end`.
    fn least(&self, begin: usize, end: usize) -> First {
        let count = self.paths.len();
        let (mut left, mut right, mut least) = (begin + count, end + count, NEVER);
        while left < right {
            if left % 2 == 1 {
                least = least.min(self.first[left]);
                left += 1;
            }
            if right % 2 == 1 {
                right -= 1;
                least = least.min(self.first[right]);
            }
            (left, right) = (left / 2, right / 2);
        }
        least
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_model::profile::Entry;
    use headstart_model::testing;

    #[test]
    fn a_directory_is_needed_when_the_first_below_it_is() {
        let entry = |path: &str, ms: u64| Entry {
            first_use_ns: ms * 1_000_000,
            ..testing::entry(path)
        };
        let mut through = entry("/lower/f", 2);
        through.overlay = Some("/merged/f".into());
        let profile = testing::profile(vec![
            entry("/a", 9),
            entry("/a-b/x", 1),
            entry("/a/b/c", 5),
            entry("/a/b/d", 4),
            entry("/a/bc", 3),
            through,
        ]);
        let deadlines = Deadlines::new(&profile);
        for (path, ms) in [
            ("/", 1),
            ("/a", 3),
            ("/a/b", 4),
            ("/a/b/c", 5),
            ("/a/bc", 3),
            ("/a-b", 1),
            ("/lower", 2),
            ("/merged", 2),
            ("/b", 0),
            ("/a/b/c/d", 0),
        ] {
            assert_eq!(deadlines.get(&path.into()), ms * 1000, "{path}");
        }
        assert_eq!(Deadlines::new(&testing::profile(Vec::new())).get(&"/".into()), 0);
    }

    #[test]
    fn deep_paths_take_no_more_than_themselves() {
        let deep = |index: usize| testing::entry(&format!("{}/{index:04}", "/a".repeat(2000)));
        let profile = testing::profile((0..1700).map(deep).collect());
        let deadlines = Deadlines::new(&profile);
        assert_eq!(deadlines.paths.len() + deadlines.first.len(), 3 * 1700);
        assert_eq!(deadlines.get(&"/a/a/a".into()), 0);
    }
}
