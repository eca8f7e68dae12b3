//! Which requests are only for starts whose arguments name what they are for.

use crate::request::{Files, Ordered};
use headstart_model::machine::{FileFacts, Machine};
use headstart_model::plan::{Request, RequestKind};
use headstart_model::profile::Entry;
use headstart_model::sort::Sort;
use headstart_model::{FilePath, PageRange, PageSet, Profile};
use std::collections::HashSet;

/// Fewer pages amid a request for metadata are read by all starts: a request of its own costs as much.
const FEW: u64 = 16;

/// Marks them: those for such entries, and for metadata that nothing else has. Requests for metadata are cut
/// where that changes.
pub(crate) fn mark(requests: &mut Vec<Ordered>, profile: &Profile, machine: &Machine, files: &Files) {
    let threshold = profile.policy.threshold();
    let is_one = |entry: &&Entry| entry.weight >= threshold && profile.is_only_named(entry);
    let named: HashSet<&FilePath> = profile
        .entries
        .iter()
        .filter(is_one)
        .flat_map(|entry| [Some(&entry.path), entry.overlay.as_ref()])
        .flatten()
        .collect();
    if named.is_empty() {
        return;
    }
    for request in requests.iter_mut() {
        let file = files.entries.get(request.request.file as usize);
        request.is_named = file.is_some_and(|file| named.contains(&file.path));
    }
    let own = |index: usize| blocks(machine, index, &named);
    let own: Vec<PageSet> = (0..machine.devices.len()).map(own).collect();
    let page = u64::from(machine.page_size).max(1);
    let before = std::mem::take(requests);
    for request in before {
        let own = own.get(usize::from(request.request.device));
        match own.filter(|own| request.request.kind == RequestKind::Metadata && !own.is_empty()) {
            Some(own) => requests.extend(cut(request, own, page)),
            None => requests.push(request),
        }
    }
}

/// The pages of a device with metadata of named files only.
fn blocks(machine: &Machine, device: usize, named: &HashSet<&FilePath>) -> PageSet {
    let page = u64::from(machine.page_size).max(1);
    let pages_of = |is_named: bool| -> PageSet {
        let is_one = |facts: &&FileFacts| {
            facts.device == Some(device as u32) && named.contains(&facts.path) == is_named
        };
        let facts = machine.files.iter().filter(is_one);
        let ranges = facts.flat_map(|facts| &facts.metadata);
        let pages = ranges.map(|range| PageRange {
            start: range.start / page,
            end: range.start.saturating_add(range.length).div_ceil(page),
        });
        pages.filter(|pages| pages.start < pages.end).collect()
    };
    pages_of(true).difference(&pages_of(false))
}

/// A request for metadata in pieces, of which each is for all starts or for some.
fn cut(ordered: Ordered, own: &PageSet, page: u64) -> Vec<Ordered> {
    let whole = PageRange {
        start: ordered.request.offset / page,
        end: (ordered.request.offset + ordered.request.length) / page,
    };
    let pages: PageSet = [whole].into_iter().collect();
    let others = pages.difference(own);
    let own = pages.difference(&others);
    if others.is_empty() {
        return vec![Ordered {
            is_named: true,
            ..ordered
        }];
    }
    if own.pages() < FEW {
        return vec![ordered];
    }
    let pieces = |set: &PageSet, is_named| -> Vec<(PageRange, bool)> {
        set.ranges().iter().map(|range| (*range, is_named)).collect()
    };
    let mut parts = pieces(&own, true);
    parts.extend(pieces(&others, false));
    parts.sort_small();
    // Holes are nobody's.
    let mut bridged = ordered.request.bridged;
    let piece = |(range, is_named): (PageRange, bool)| {
        let length = range.pages() * page;
        let holes = if is_named { 0 } else { bridged.min(length) };
        bridged -= holes;
        Ordered {
            request: Request {
                offset: range.start * page,
                length,
                bridged: holes,
                ..ordered.request
            },
            physical: Some(range.start * page),
            is_named,
            ..ordered
        }
    };
    parts.into_iter().map(piece).collect()
}

#[cfg(test)]
mod tests {
    use crate::tests::{entry, facts, flash, make, profile};
    use headstart_model::machine::{FileFacts, Machine};
    use headstart_model::plan::{PlanDraft, RequestKind};

    fn paths(draft: &PlanDraft) -> Vec<String> {
        let named = draft.named.iter().map(|index| draft.requests[*index as usize]);
        let data = named.filter(|request| request.kind == RequestKind::Data);
        data.map(|request| draft.files[request.file as usize].path.to_string())
            .collect()
    }

    #[test]
    fn what_only_arguments_bring_is_marked_and_its_own_metadata() {
        let block = |n: u64, pages: u64| headstart_model::machine::ByteRange {
            start: n * 4096,
            length: pages * 4096,
        };
        let with = |path: &str, metadata: Vec<_>| FileFacts {
            metadata,
            ..facts(path, &[], &[])
        };
        let files = vec![
            with("/big", vec![block(10, 1), block(100, 20)]),
            with("/lib", vec![block(10, 1), block(120, 1)]),
        ];
        let machine: Machine = flash(files);
        let mut profile = profile(vec![entry("/big", &[(0, 4, 1)]), entry("/lib", &[(0, 4, 1)])]);
        assert_eq!(make(&profile, &machine).named, [], "nothing is named");
        profile.named.insert("/big".into(), 1.0);
        let draft = make(&profile, &machine);
        assert_eq!(paths(&draft), ["/big"]);
        let metadata = draft.named.iter().map(|index| &draft.requests[*index as usize]);
        let metadata = metadata.filter(|request| request.kind == RequestKind::Metadata);
        let blocks: Vec<_> = metadata
            .map(|request| (request.offset / 4096, request.length / 4096))
            .collect();
        assert_eq!(blocks, [(100, 20)]);
        // One start in three has named it, and all have used it.
        profile.named.insert("/big".into(), 0.3);
        assert_eq!(make(&profile, &machine).named, []);
    }
}
