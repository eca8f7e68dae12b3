//! Devices behind a cache that large sequential reads pass by (bcache: `sequential_cutoff`).
//!
//! Such a cache adds up requests of which one begins where another ended, whoever asked for them; what comes
//! once that is much does not get into it. A start that reads files here and there fills it. A plan would
//! not: it reads the same files at once and by address, which looks like a copy of the disk. So of the pieces
//! into which the device is divided by a quarter of that size every other one is read first, and then those
//! between. A run is then of two pieces at most, and the head goes over the device twice instead of once,
//! until the cache has what the start needs.

use crate::request::{Ordered, Turn};
use headstart_model::limits;
use headstart_model::machine::{Device, DeviceClass, Machine};
use headstart_model::sort::Sort;

/// A run of two pieces is half of what passes the cache by.
const PIECES: u64 = 4;
/// What the kernel reads ahead for anybody is as much: where less passes the cache by, starts fill it no more
/// than a replay does.
const LEAST: u64 = 128 << 10;
/// What is needed first is read first where no head moves: so many bytes are put into another order at once,
/// and what there is up to an odd piece: one that follows the last of those before follows no odd one then.
const WINDOW: u64 = 32 << 20;

/// The size of a device's pieces; `None` where no cache is in the way.
fn piece(device: &Device, page: u64) -> Option<u64> {
    let cutoff = device.sequential_cutoff.filter(|cutoff| *cutoff >= LEAST)?;
    Some((cutoff / PIECES / page * page).max(page))
}

/// The most that is asked for at once of a device.
pub(crate) fn request_limit(device: &Device, page: u64) -> u32 {
    let piece = piece(device, page).unwrap_or(u64::MAX);
    piece.min(device.request_limit.into()) as u32
}

/// Which piece a request reads, if it is one of those that are put into another order.
fn place(request: &Ordered, piece: u64) -> Option<u64> {
    (request.turn == Turn::Sweep).then_some(request.physical? / piece)
}

/// Cuts the requests where a piece ends.
pub(crate) fn cut(requests: &mut Vec<Ordered>, machine: &Machine) {
    let page = u64::from(machine.page_size.max(1));
    let pieces: Vec<Option<u64>> = machine.devices.iter().map(|d| piece(d, page)).collect();
    if pieces.iter().all(Option::is_none) {
        return;
    }
    let mut room = limits::REQUESTS.saturating_sub(requests.len());
    let mut result = Vec::with_capacity(requests.len());
    for mut one in std::mem::take(requests) {
        let piece = pieces.get(usize::from(one.request.device)).copied().flatten();
        while let (Some(piece), Some(at), false) = (piece, one.physical, one.request.from_end) {
            let until_end = piece - at % piece;
            let part = (room > 0).then(|| one.beginning((until_end / page * page).max(page)));
            let Some(part) = part.flatten() else { break };
            room -= 1;
            result.push(part);
        }
        result.push(one);
    }
    *requests = result;
}

/// Puts requests in issue order into one in which no run is long. A start that waits for so many requests of
/// a device (`holds`) waits for the same ones.
pub(crate) fn spread(requests: &mut Vec<Ordered>, machine: &Machine, holds: &[u32]) {
    let page = u64::from(machine.page_size.max(1));
    let mut order: Vec<usize> = (0..requests.len()).collect();
    for (index, device) in machine.devices.iter().enumerate() {
        let Some(piece) = piece(device, page) else {
            continue;
        };
        let disk = device.cost.class == DeviceClass::Disk;
        let held = holds.get(index).map_or(0, |hold| *hold as usize);
        let own = (0..requests.len()).filter(|at| usize::from(requests[*at].request.device) == index);
        let (mut window, mut bytes) = (0, 0);
        let (mut places, mut sorted) = (Vec::new(), Vec::new());
        for (count, at) in own.enumerate() {
            let request = &requests[at];
            let Some(place) = place(request, piece) else {
                continue;
            };
            let stage = if disk { 0 } else { request.request.stage };
            if !disk && bytes >= WINDOW && place % 2 == 1 {
                (window, bytes) = (window + 1, 0);
            }
            bytes += request.request.length;
            places.push(at);
            sorted.push(((stage, count >= held, request.pass, window, place % 2), at));
        }
        // What is alike stays in its order.
        sorted.sort_small_by_key(|(key, _)| *key);
        for (at, (_, from)) in places.into_iter().zip(sorted) {
            order[at] = from;
        }
    }
    let mut taken: Vec<Option<Ordered>> = requests.drain(..).map(Some).collect();
    requests.extend(order.into_iter().filter_map(|from| taken.get_mut(from)?.take()));
}

#[cfg(test)]
mod tests {
    use crate::tests::{entry, facts, profile};
    use crate::{PlanOptions, plan};
    use headstart_model::plan::{PlanDraft, RequestKind};
    use headstart_model::testing;
    use std::collections::HashMap;

    const MIB: u64 = 1 << 20;

    /// The longest run of a plan's data that a cache would add up, bytes, and all of it.
    fn longest_run(draft: &PlanDraft, at: &HashMap<u32, u64>) -> (u64, u64) {
        let mut ends: HashMap<u64, u64> = HashMap::new();
        let (mut longest, mut all) = (0, 0);
        for request in draft.requests.iter().filter(|r| r.kind == RequestKind::Data) {
            let begin = at[&request.file] + request.offset;
            let run = ends.remove(&begin).unwrap_or(0) + request.length;
            ends.insert(begin + request.length, run);
            longest = longest.max(run);
            all += request.length;
        }
        (longest, all)
    }

    #[test]
    fn no_run_is_so_long_that_it_passes_a_cache_by() {
        for cost in [testing::DISK, testing::FLASH, testing::NETWORK] {
            // Forty files, one of them large, one behind the other on the device.
            let sizes = (0..40u64).map(|n| if n == 7 { 20_000u64 } else { 75 });
            let mut at = 769u64;
            let (mut files, mut entries, mut begins) = (Vec::new(), Vec::new(), HashMap::new());
            for (n, pages) in sizes.enumerate() {
                let path = format!("/f{n:02}");
                files.push(facts(&path, &[(0, at, pages)], &[]));
                entries.push(entry(&path, &[(0, pages as u32, n as u64)]));
                for (file, entry) in files.iter_mut().zip(&mut entries).skip(n) {
                    file.size = pages * 4096;
                    entry.version.as_mut().unwrap().size = file.size;
                }
                begins.insert(path, at * 4096);
                at += pages;
            }
            let profile = profile(entries);
            let options = PlanOptions::new(1);
            let mut machine = testing::machine(cost, "xfs", files);
            let mut look = |cutoff| {
                machine.devices[0].sequential_cutoff = cutoff;
                let draft = plan(&profile, &machine, &[], &options);
                let places = draft.files.iter().enumerate();
                let places =
                    places.map(|(n, file)| (n as u32, begins[file.path.as_path().to_str().unwrap()]));
                (
                    longest_run(&draft, &places.collect()),
                    draft.devices[0].request_limit,
                )
            };
            let ((before, all), limit) = look(None);
            assert!(before > 4 * MIB, "{before}");
            for cutoff in [4 * MIB, MIB, 512 << 10] {
                let ((longest, cached), limit) = look(Some(cutoff));
                assert!(longest <= cutoff / 2, "{cost:?}: {longest} of {cutoff}");
                assert_eq!(cached, all);
                assert!(u64::from(limit) <= cutoff / 4);
            }
            // Where everything passes it by anyway, and where nothing does.
            for cutoff in [Some(4096), Some(1 << 40)] {
                assert_eq!(look(cutoff), ((before, all), limit));
            }
        }
    }
}
