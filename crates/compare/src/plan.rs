//! What a plan has, by file and by byte of a device.

use headstart_model::FilePath;
use headstart_model::blocks::{OwningFile, Part};
use headstart_model::plan::{Plan, RequestKind};
use std::collections::{HashMap, HashSet};

/// Ranges by their first byte, with the byte behind the last; none overlap.
type Ranges = Vec<(u64, u64)>;

/// What a plan has, of the requests that are issued.
#[derive(Default)]
pub struct Planned {
    by_path: HashMap<FilePath, usize>,
    by_inode: HashMap<(FilePath, u64), usize>,
    data: Vec<Ranges>,
    metadata: HashMap<FilePath, Ranges>,
    looked: HashSet<FilePath>,
}

impl Planned {
    /// Collects what a plan reads.
    pub fn from_plan(plan: &Plan<'_>) -> Planned {
        let mut planned = Planned {
            data: vec![Ranges::new(); plan.file_count()],
            ..Planned::default()
        };
        let mounts: Vec<FilePath> = (0..plan.device_count())
            .filter_map(|index| plan.device(index))
            .map(|device| device.mount_point)
            .collect();
        for index in 0..plan.file_count() {
            let Some(file) = plan.file(index) else { continue };
            if let Some(mount) = mounts.get(usize::from(file.device)) {
                planned.by_inode.insert((mount.clone(), file.inode), index);
            }
            planned.by_path.insert(file.path, index);
        }
        for request in plan.requests().take(plan.cut()) {
            let range = (request.offset, request.offset.saturating_add(request.length));
            let mount = mounts.get(usize::from(request.device));
            match (request.kind, mount) {
                (RequestKind::Metadata, Some(mount)) => {
                    planned.metadata.entry(mount.clone()).or_default().push(range);
                }
                (_, Some(mount)) if !planned.looked.contains(mount) => {
                    planned.looked.insert(mount.clone());
                }
                _ => {}
            }
            if let (RequestKind::Data, Some(ranges)) =
                (request.kind, planned.data.get_mut(request.file as usize))
            {
                ranges.push(range);
            }
        }
        for ranges in planned.data.iter_mut().chain(planned.metadata.values_mut()) {
            merge(ranges);
        }
        planned
    }

    /// What the plan reads of a file.
    pub fn data(&self, part: &Part, file: &OwningFile) -> &[(u64, u64)] {
        let by_path = file.path.as_ref().and_then(|path| self.by_path.get(path));
        let index = by_path.or_else(|| self.by_inode.get(&(part.mount_point.clone(), file.inode)));
        index
            .and_then(|index| self.data.get(*index))
            .map_or(&[], Vec::as_slice)
    }

    /// What the plan reads of a device as metadata, bytes from where the file system begins.
    pub fn metadata(&self, part: &Part) -> &[(u64, u64)] {
        self.metadata.get(&part.mount_point).map_or(&[], Vec::as_slice)
    }

    /// Whether the plan looks anything up on a file system.
    pub fn has_lookups(&self, part: &Part) -> bool {
        self.looked.contains(&part.mount_point)
    }
}

fn merge(ranges: &mut Ranges) {
    ranges.sort_unstable();
    let mut merged = Ranges::new();
    for (start, end) in ranges.drain(..).filter(|(start, end)| start < end) {
        match merged.last_mut() {
            Some(last) if last.1 >= start => last.1 = last.1.max(end),
            _ => merged.push((start, end)),
        }
    }
    *ranges = merged;
}

/// Takes `start..end` apart into what is in the ranges and what is not.
pub fn split(ranges: &[(u64, u64)], start: u64, end: u64, mut part: impl FnMut(u64, u64, bool)) {
    let mut at = start;
    let from = ranges.partition_point(|(_, until)| *until <= start);
    for (first, until) in ranges[from..]
        .iter()
        .take_while(|(first, _)| *first < end && start < end)
    {
        if at < *first {
            part(at, *first, false);
        }
        let until = (*until).min(end);
        part(at.max(*first), until, true);
        at = until;
    }
    if at < end {
        part(at, end, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_taken_apart_at_what_is_planned() {
        let mut ranges = vec![(20, 30), (0, 10), (25, 40), (5, 5)];
        merge(&mut ranges);
        assert_eq!(ranges, [(0, 10), (20, 40)]);
        let parts = |start, end| {
            let mut parts = Vec::new();
            split(&ranges, start, end, |from, to, is| parts.push((from, to, is)));
            parts
        };
        assert_eq!(parts(5, 25), [(5, 10, true), (10, 20, false), (20, 25, true)]);
        assert_eq!(parts(10, 20), [(10, 20, false)]);
        assert_eq!(parts(30, 50), [(30, 40, true), (40, 50, false)]);
        assert_eq!(parts(7, 7), []);
    }
}
