//! Pages of files become ranges of bytes, cut where the file lies in pieces on the device, joined over holes
//! that are cheaper to read than to jump.

use crate::compressed::{in_blocks, whole_blocks};
use crate::parts::parts;
use crate::request::{
    Files, Ordered, Piece, Turn, by_path, deadline_us, facts_of, first_use, level, plan_stage, weight,
};
use headstart_model::machine::{DeviceClass, Extent, FileFacts, Machine, PathKind};
use headstart_model::plan::{Request, RequestKind};
use headstart_model::profile::{Entry, TAIL_PAGES, Version};
use headstart_model::{PageRange, PageSet, Profile, limits};

/// Of a file that was replaced since it was learned, only pages this certain are read: an update moves
/// contents, but what every start needs of the old file (headers, symbol tables, most code) it mostly needs
/// of the new one too.
const CERTAIN: f32 = 0.9;

/// Requests for the data of all files, in the profile's order.
pub(crate) fn requests(
    profile: &Profile,
    machine: &Machine,
    bridges: bool,
    files: &mut Files,
) -> Vec<Ordered> {
    let by_path = by_path(machine);
    let threshold = profile.policy.threshold();
    let mut result = Vec::new();
    for entry in profile.entries.iter().filter(|e| e.weight >= threshold) {
        // A plan cannot take more.
        if result.len() >= limits::REQUESTS {
            break;
        }
        let Some(facts) = facts_of(&by_path, entry).filter(|f| f.found == PathKind::File) else {
            continue;
        };
        let Some(device) = facts.device else { continue };
        let pages = if replaced(entry, facts) {
            entry.voted(threshold.max(CERTAIN))
        } else {
            entry.pages(threshold)
        };
        let Some(device_facts) = machine.devices.get(device as usize) else {
            continue;
        };
        let cost = device_facts.cost;
        let page = u64::from(machine.page_size);
        let appended = appended(entry, facts, &pages, page);
        let (pages, facts) = appended
            .as_ref()
            .map_or((pages, facts), |(pages, facts)| (pages.clone(), facts));
        // The ends of another file are others.
        let last = match written(entry, facts) {
            true => entry.last_pages(threshold, facts.size.div_ceil(page)),
            false => PageSet::new(),
        };
        let bridge = if bridges { device_facts.bridge() } else { 0 };
        let pieces_of = |pages: &PageSet| few_pieces(pages, facts, page, bridge);
        let last = pieces_of(&last);
        let blocks = device_facts.compression.map(|of| u64::from(of.block));
        let mut pieces = match blocks {
            None => pieces_of(&pages),
            Some(block) => in_blocks(pieces_of(&whole_blocks(&pages, block, page)), &pages, page),
        };
        if cost.class != DeviceClass::Disk {
            let parts = pieces
                .into_iter()
                .flat_map(|piece| parts(piece, &pages, entry, page, blocks.unwrap_or(page)));
            pieces = parts.collect();
        }
        if pieces.is_empty() && last.is_empty() {
            continue;
        }
        let Some(file) = files.index(facts, device) else {
            continue;
        };
        let parts = pieces.into_iter().map(|piece| (piece, false));
        for (piece, from_end) in parts.chain(last.into_iter().map(|piece| (piece, true))) {
            let pages = PageRange {
                start: piece.start / page,
                end: piece.end.div_ceil(page),
            };
            let end = from_end.then(|| facts.size.div_ceil(page));
            let (first, stage) = first_use(entry, pages, end);
            result.push(Ordered {
                request: Request {
                    kind: RequestKind::Data,
                    stage: plan_stage(stage),
                    device: device as u16,
                    file,
                    offset: piece.start,
                    length: piece.end - piece.start,
                    bridged: piece.bridged,
                    deadline_us: deadline_us(first),
                    from_end,
                    follows: false,
                },
                physical: piece.physical,
                level: level(&facts.path),
                turn: Turn::Sweep,
                pass: 0,
                lead: None,
                is_named: false,
                weight: weight(entry, pages, end),
            });
        }
    }
    result
}

fn version(facts: &FileFacts) -> Version {
    Version {
        size: facts.size,
        mtime_ns: facts.mtime_ns,
        generation: facts.generation,
    }
}

/// Whether another file is at the path than the one that was learned.
fn replaced(entry: &Entry, facts: &FileFacts) -> bool {
    !entry
        .version
        .is_some_and(|learned| learned.same_file(&version(facts)))
}

/// Whether the file at the path is the one that was learned, and known to change.
fn written(entry: &Entry, facts: &FileFacts) -> bool {
    entry.tail.is_some() && !replaced(entry, facts)
}

/// The pages with those behind them, and the facts with a place for these, of a file that is read up to where
/// it is written and has room behind that, as journals have: by the next start more of the room is written,
/// and that is read too. What is not written by then is read from no device.
fn appended(entry: &Entry, facts: &FileFacts, pages: &PageSet, page: u64) -> Option<(PageSet, FileFacts)> {
    let last = facts.extents.last()?;
    let written_end = last.logical.saturating_add(last.length);
    let from = pages.ranges().last()?.end;
    let near = (written_end / page).abs_diff(from) <= TAIL_PAGES;
    if !written(entry, facts) || written_end >= facts.size || !near {
        return None;
    }
    let to = (from + TAIL_PAGES).min(facts.size.div_ceil(page));
    let more = PageRange {
        start: from,
        end: to.max(from),
    };
    let mut facts = facts.clone();
    if let Some(last) = facts.extents.last_mut() {
        last.length = last.length.max((to * page).saturating_sub(last.logical));
    }
    Some((pages.union(&PageSet::from_iter([more])), facts))
}

/// The most pieces of one file that holes are left in as the cost model says: a quarter of a plan's requests.
const PIECES: usize = limits::REQUESTS / 4;

/// No hole larger than this is bridged for the sake of few pieces, bytes.
const WIDEST: u64 = 1 << 20;

/// The pieces that these pages lie in, joined over holes of up to `bridge` bytes. Where these are too many
/// for a plan, as of a large file that is touched everywhere, larger holes are bridged: what is read beside
/// is less than what a plan would leave out.
#[inline(never)]
fn few_pieces(pages: &PageSet, facts: &FileFacts, page: u64, mut bridge: u64) -> Vec<Piece> {
    loop {
        let found = pieces(pages, facts, page, bridge);
        if found.len() <= PIECES || bridge >= WIDEST {
            return found;
        }
        bridge = (2 * bridge).max(page);
    }
}

/// The pieces that these pages lie in, joined over holes of up to `bridge` bytes.
pub(crate) fn pieces(pages: &PageSet, facts: &FileFacts, page: u64, bridge: u64) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    for range in pages.ranges() {
        // Saturating: the profile may have been learned with smaller pages than this machine's.
        let start = range.start.saturating_mul(page);
        let end = range.end.saturating_mul(page).min(facts.size);
        for cut in cuts(start, end, &facts.extents, page) {
            match pieces.last_mut() {
                Some(last) if continues(last, &cut, bridge) => {
                    last.bridged += cut.start - last.end;
                    last.end = cut.end;
                }
                _ => pieces.push(cut),
            }
        }
    }
    pieces
}

/// Whether the next piece is read with the last: it follows within the bridge, in the file and on the device
/// alike. On the device it may follow sooner: compressed bytes are fewer.
fn continues(last: &Piece, next: &Piece, bridge: u64) -> bool {
    let in_place = match (last.physical, next.physical) {
        (Some(a), Some(b)) => b.checked_sub(a).is_some_and(|way| way <= next.start - last.start),
        (None, None) => true,
        _ => false,
    };
    in_place && next.start - last.end <= bridge
}

/// The bytes from `start` to `end` cut at the extents; what no extent holds (a hole) is read by nobody.
/// Without extents the bytes stay whole.
fn cuts(start: u64, end: u64, extents: &[Extent], page: u64) -> Vec<Piece> {
    if start >= end {
        return Vec::new();
    }
    if extents.is_empty() {
        return vec![Piece {
            start,
            end,
            physical: None,
            bridged: 0,
        }];
    }
    let first = extents.partition_point(|e| e.logical + e.length <= start);
    let mut pieces: Vec<Piece> = Vec::new();
    for extent in extents[first..].iter().take_while(|e| e.logical < end) {
        // Where a file system packs tighter than in pages (compressed, small blocks), the page that two
        // extents share is read with the first.
        let behind = pieces.last().map_or(start, |last| last.end);
        let from = (extent.logical / page * page).max(behind);
        let to = (extent.logical + extent.length).next_multiple_of(page).min(end);
        if from < to {
            let physical = extent.physical + from.saturating_sub(extent.logical);
            pieces.push(Piece {
                start: from,
                end: to,
                physical: Some(physical),
                bridged: 0,
            });
        }
    }
    pieces
}
