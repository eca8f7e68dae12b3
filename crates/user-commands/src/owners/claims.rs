//! Which of the wanted bytes have found an owner.

use headstart_model::FilePath;
use headstart_model::blocks::{Kind, Owned, OwningFile};
use headstart_model::machine::ByteRange;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// Pieces with an owner that are told apart at most.
pub const MAX_PIECES: usize = headstart_model::limits::PIECES;

/// How often it is told how far the search is.
const TELL_EVERY: Duration = Duration::from_millis(200);

/// Told now and then how many bytes have no owner yet.
pub type Progress<'a> = &'a dyn Fn(u64);

/// Bytes that are wanted, and those of them that have an owner. Who claims first has them.
pub struct Claims<'a> {
    /// What nobody has claimed yet: end by start; none empty, none overlapping.
    wanted: BTreeMap<u64, u64>,
    owned: Vec<Owned>,
    files: Vec<OwningFile>,
    /// Index of a file by its tree (btrfs: its subvolume) and inode number.
    known: HashMap<(u64, u64), u32>,
    deadline: Instant,
    unfinished: Option<String>,
    progress: Progress<'a>,
    told: Instant,
}

/// A file that claims.
#[derive(Clone, Copy)]
pub struct Claimant<'a> {
    /// On btrfs its subvolume, 0 where only the path is known; elsewhere 0.
    pub tree: u64,
    /// Inode number.
    pub inode: u64,
    /// Its path, if that is known.
    pub path: Option<&'a FilePath>,
}

impl<'a> Claims<'a> {
    /// Nothing is claimed yet. After `deadline` nobody should look further.
    pub fn new(wanted: &[ByteRange], deadline: Instant, progress: Progress<'a>) -> Claims<'a> {
        let mut sorted: Vec<ByteRange> = wanted.iter().copied().filter(|r| r.length > 0).collect();
        sorted.sort_unstable();
        let mut ranges: BTreeMap<u64, u64> = BTreeMap::new();
        for ByteRange { start, length } in sorted {
            let end = start.saturating_add(length);
            match ranges.last_entry() {
                Some(mut last) if *last.get() >= start => {
                    let end = end.max(*last.get());
                    last.insert(end);
                }
                _ => {
                    ranges.insert(start, end);
                }
            }
        }
        Claims {
            wanted: ranges,
            owned: Vec::new(),
            files: Vec::new(),
            known: HashMap::new(),
            deadline,
            unfinished: None,
            progress,
            told: Instant::now(),
        }
    }

    /// Whether looking further is of no use: everything has an owner, or it took too long.
    pub fn is_over(&mut self) -> bool {
        if self.wanted.is_empty() || self.unfinished.is_some() {
            return true;
        }
        if self.told.elapsed() >= TELL_EVERY {
            self.told = Instant::now();
            (self.progress)(self.unclaimed().iter().map(|range| range.length).sum());
        }
        if self.is_late() {
            self.give_up("it took too long: give more time with --limit");
        }
        self.unfinished.is_some()
    }

    /// Whether it took too long.
    pub fn is_late(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Looks no further, and says why.
    pub fn give_up(&mut self, why: impl Into<String>) {
        self.unfinished.get_or_insert(why.into());
    }

    /// What nobody has claimed, ascending.
    pub fn unclaimed(&self) -> Vec<ByteRange> {
        let ranges = self.wanted.iter();
        ranges
            .map(|(&start, &end)| ByteRange {
                start,
                length: end - start,
            })
            .collect()
    }

    /// Whether any of these bytes is wanted and not yet claimed.
    pub fn wants(&self, range: ByteRange) -> bool {
        let end = range.start.saturating_add(range.length);
        let before = self.wanted.range(..end).next_back();
        before.is_some_and(|(_, &until)| until > range.start) && range.length > 0
    }

    /// Claims bytes that belong to no file alone.
    pub fn claim(&mut self, range: ByteRange, kind: Kind) {
        self.claim_range(range, kind, None, 0);
    }

    /// Claims bytes for a file; for its data, `offset` is where in the file the first of them is.
    pub fn claim_for(&mut self, range: ByteRange, kind: Kind, claimant: Claimant<'_>, offset: u64) {
        if !self.wants(range) {
            return;
        }
        let next = self.files.len() as u32;
        let file = *self.known.entry((claimant.tree, claimant.inode)).or_insert(next);
        if file == next {
            self.files.push(OwningFile {
                inode: claimant.inode,
                path: claimant.path.cloned(),
            });
        }
        self.claim_range(range, kind, Some(file), offset);
    }

    fn claim_range(&mut self, range: ByteRange, kind: Kind, file: Option<u32>, offset: u64) {
        let end = range.start.saturating_add(range.length);
        while let Some((&start, &until)) = self.wanted.range(..end).next_back() {
            if until <= range.start {
                break;
            }
            if self.owned.len() >= MAX_PIECES {
                self.give_up(format!("it lies in more than {MAX_PIECES} pieces"));
                return;
            }
            self.wanted.remove(&start);
            let (first, last) = (start.max(range.start), until.min(end));
            if start < first {
                self.wanted.insert(start, first);
            }
            if last < until {
                self.wanted.insert(last, until);
            }
            let offset = match kind {
                Kind::Data => offset.saturating_add(first - range.start),
                _ => 0,
            };
            let range = ByteRange {
                start: first,
                length: last - first,
            };
            self.owned.push(Owned {
                range,
                kind,
                file,
                offset,
            });
        }
    }

    /// The files that have claimed and have no path, each with its tree and inode number.
    pub fn nameless(&self) -> Vec<(u64, u64)> {
        let without = |index: u32| self.files.get(index as usize).is_some_and(|f| f.path.is_none());
        let mut inodes: Vec<(u64, u64)> = self
            .known
            .iter()
            .filter(|(_, index)| without(**index))
            .map(|(id, _)| *id)
            .collect();
        inodes.sort_unstable();
        inodes
    }

    /// Tells a file's path.
    pub fn name(&mut self, tree: u64, inode: u64, path: FilePath) {
        if let Some(index) = self.known.get(&(tree, inode)) {
            self.files[*index as usize].path = Some(path);
        }
    }

    /// The files, whose the bytes are by their first byte, and why no more was found out.
    pub fn finish(mut self) -> (Vec<OwningFile>, Vec<Owned>, Option<String>) {
        self.owned.sort_unstable_by_key(|owned| owned.range);
        (self.files, self.owned, self.unfinished)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn range(start: u64, end: u64) -> ByteRange {
        ByteRange {
            start,
            length: end - start,
        }
    }

    fn claims(wanted: &[ByteRange]) -> Claims<'static> {
        Claims::new(wanted, Instant::now() + Duration::from_secs(60), &|_| {})
    }

    #[test]
    fn who_claims_first_has_what_is_wanted_and_no_more() {
        let mut claims = claims(&[range(10, 20), range(15, 30), range(40, 50), range(60, 60)]);
        assert_eq!(claims.unclaimed(), [range(10, 30), range(40, 50)]);
        claims.claim(range(18, 22), Kind::Inodes);
        let file = Claimant {
            tree: 0,
            inode: 7,
            path: None,
        };
        claims.claim_for(range(0, 45), Kind::Data, file, 1000);
        claims.claim_for(range(100, 200), Kind::Data, Claimant { inode: 8, ..file }, 0);
        assert_eq!(claims.unclaimed(), [range(45, 50)]);
        assert!(!claims.wants(range(20, 45)) && claims.wants(range(0, 46)) && !claims.wants(range(47, 47)));
        assert!(!claims.is_over());
        assert_eq!(claims.nameless(), [(0, 7)]);
        claims.name(0, 7, "/a".into());
        assert_eq!(claims.nameless(), []);
        let (files, owned, unfinished) = claims.finish();
        assert_eq!(
            (files.len(), unfinished),
            (1, None),
            "nothing was wanted of the other"
        );
        let pieces: Vec<_> = owned.iter().map(|o| (o.range, o.kind, o.offset)).collect();
        assert_eq!(
            pieces,
            [
                (range(10, 18), Kind::Data, 1010),
                (range(18, 22), Kind::Inodes, 0),
                (range(22, 30), Kind::Data, 1022),
                (range(40, 45), Kind::Data, 1040),
            ]
        );
    }

    #[test]
    fn now_and_then_it_is_told_how_much_is_left() {
        let left = Cell::new(0);
        let tell = |bytes| left.set(bytes);
        let mut claims = Claims::new(&[range(0, 100)], Instant::now() + Duration::from_secs(60), &tell);
        claims.claim(range(0, 30), Kind::Inodes);
        assert!(!claims.is_over());
        assert_eq!(left.get(), 0, "not at once");
        claims.told -= TELL_EVERY;
        assert!(!claims.is_over());
        assert_eq!(left.get(), 70);
    }

    #[test]
    fn after_the_deadline_nobody_looks_further() {
        let mut claims = Claims::new(&[range(0, 1)], Instant::now(), &|_| {});
        assert!(claims.is_over());
        let (_, _, unfinished) = claims.finish();
        assert!(unfinished.unwrap().contains("--limit"));
        let mut none = Claims::new(&[], Instant::now(), &|_| {});
        assert!(
            none.is_over() && none.finish().2.is_none(),
            "there was nothing to find"
        );
    }
}
