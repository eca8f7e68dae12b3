//! File systems that compress by blocks (SquashFS): a plan asks for whole blocks, each once.
//!
//! The kernel reads and decompresses all of a block for any page of it. So the other pages cost nothing, and
//! two requests for parts of one block, under way at once, have it read and decompressed twice. Pages that
//! come with needed ones count as bridged: as brought in on purpose, and not as wasted.

use crate::parts::pages_in;
use crate::request::{Ordered, Piece};
use headstart_model::machine::Machine;
use headstart_model::plan::{PlanFileEntry, Request, RequestKind};
use headstart_model::sort::Sort;
use headstart_model::{PageRange, PageSet};

/// Blocks' bytes of small files over which one is brought forward: with the block that is read just now these
/// are the three fragments that the kernel keeps (`CONFIG_SQUASHFS_FRAGMENT_CACHE_SIZE`).
const KEPT: u64 = 2;

/// The pages of all blocks in which some of these lie.
pub(crate) fn whole_blocks(pages: &PageSet, block: u64, page: u64) -> PageSet {
    let each = (block / page.max(1)).max(1);
    let whole = |range: &PageRange| PageRange {
        start: range.start / each * each,
        end: range.end.checked_next_multiple_of(each).unwrap_or(range.end),
    };
    pages.ranges().iter().map(whole).collect()
}

/// Pieces of whole blocks, which now tell how much of them is not wanted.
pub(crate) fn in_blocks(pieces: Vec<Piece>, wanted: &PageSet, page: u64) -> Vec<Piece> {
    let told = |piece: Piece| {
        let pages = PageRange {
            start: piece.start / page,
            end: piece.end.div_ceil(page),
        };
        let bridged = (pages.pages() - pages_in(wanted, pages)) * page;
        Piece {
            // The last page may be in use in part only.
            bridged: bridged.min(piece.end - piece.start),
            ..piece
        }
    };
    pieces.into_iter().map(told).collect()
}

/// Says of the requests for small files which are asked for together: several files lie in one block (a
/// *fragment*), of which SquashFS keeps the last three in memory. It does not tell which block that is.
/// Inodes are numbered in the order in which files are packed, unless somebody has sorted them. So those of
/// one group have numbers as near as files of their size fill a block. In an image that was sorted by first
/// use what is needed one after the other lies together, and so nothing is brought forward over more than
/// [`KEPT`] blocks.
pub(crate) fn gather(requests: &mut [Ordered], files: &[PlanFileEntry], machine: &Machine) {
    for (index, device) in machine.devices.iter().enumerate() {
        let Some(block) = device.compression.map(|of| u64::from(of.block)) else {
            continue;
        };
        let small = |request: &Request| {
            let is_data = usize::from(request.device) == index && request.kind == RequestKind::Data;
            let file = files.get(request.file as usize).filter(|_| is_data)?;
            (file.size < block).then_some((file.inode, file.size))
        };
        let own = requests.iter_mut().filter_map(|request| {
            let (inode, size) = small(&request.request)?;
            Some(Small {
                inode,
                size,
                before: 0,
                request,
            })
        });
        groups(own.collect(), block);
    }
}

/// The request for a file that is smaller than a block.
struct Small<'a> {
    inode: u64,
    size: u64,
    /// Bytes of all such files that are needed before.
    before: u64,
    request: &'a mut Ordered,
}

fn groups(mut own: Vec<Small<'_>>, block: u64) {
    own.sort_small_by_key(|one| (one.request.request.stage, one.request.request.deadline_us));
    let mut bytes: u64 = 0;
    for one in &mut own {
        one.before = bytes;
        bytes = bytes.saturating_add(one.size);
    }
    let near = (own.len() as u64).saturating_mul(block) / bytes.max(1);
    own.sort_small_by_key(|one| (one.request.request.stage, one.inode));
    let mut rest = own.as_mut_slice();
    while let Some(first) = rest.first() {
        let (inode, stage) = (first.inode, first.request.request.stage);
        let (mut least, mut most) = (first.before, first.before);
        let joins = |next: &&Small<'_>| {
            (least, most) = (least.min(next.before), most.max(next.before));
            let is_near = next.request.request.stage == stage && next.inode.abs_diff(inode) <= near;
            is_near && most - least <= KEPT * block
        };
        let count = rest.iter().take_while(joins).count().max(1);
        let (group, others) = rest.split_at_mut(count);
        let needs = group.iter().map(|one| one.request.request.deadline_us);
        let lead = needs.min().map(|need| (need, inode));
        for one in group {
            one.request.lead = lead;
        }
        rest = others;
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::{PAGE, data, entry, facts, machine, make, profile};
    use crate::{PlanOptions, plan};
    use headstart_model::machine::{Compression, DeviceClass, FileFacts, Machine, PathKind};
    use headstart_model::plan::RequestKind::{self, Data, List, Stat};
    use headstart_model::plan::{PlanDraft, Request};
    use headstart_model::profile::{Entry, Need, WeightedRange};
    use headstart_model::testing;

    /// Files of 1000 pages in blocks of 32.
    fn compressed(class: DeviceClass, latency: f64, names: &[&str]) -> Machine {
        let files = names.iter().map(|name| facts(name, &[], &[])).collect();
        let mut machine = machine(class, latency, 16, files);
        machine.devices[0].compression = Compression::of_blocks(32 * PAGE);
        machine
    }

    fn bridged(draft: &PlanDraft) -> Vec<u64> {
        draft.requests.iter().map(|r| r.bridged / PAGE).collect()
    }

    #[test]
    fn a_block_is_asked_for_once_and_as_a_whole() {
        // Two parts of the first block, a page of the third, two pages across a border, the last of the file.
        let needed = [(3, 2, 0), (20, 1, 0), (70, 1, 100), (159, 2, 200), (999, 1, 300)];
        let profile = profile(vec![entry("/m/a", &needed)]);
        let machine = compressed(DeviceClass::Flash, 16e-6, &["/m/a"]);
        let draft = make(&profile, &machine);
        let rows: Vec<(u64, u64)> = data(&draft).iter().map(|(_, at, of)| (*at, *of)).collect();
        assert_eq!(rows, [(0, 32), (64, 32), (128, 64), (992, 8)]);
        assert_eq!(bridged(&draft), [29, 31, 62, 7]);
    }

    #[test]
    fn blocks_are_parts_of_their_own_and_none_is_cut() {
        let needed = [(0, 32, 0), (32, 32, 100), (64, 32, 200)];
        let profile = profile(vec![entry("/m/a", &needed)]);
        let mut machine = compressed(DeviceClass::Flash, 16e-6, &["/m/a"]);
        assert_eq!(data(&make(&profile, &machine)).len(), 3);
        machine.devices[0].compression = Compression::of_blocks(64 * PAGE);
        let rows = data(&make(&profile, &machine));
        assert_eq!(rows, [("/m/a".into(), 0, 64), ("/m/a".into(), 64, 64)]);
    }

    #[test]
    fn a_block_in_between_is_bridged_where_reading_and_decompressing_it_is_cheaper_than_a_request() {
        let mut machine = compressed(DeviceClass::Network, 5e-3, &["/m/a"]);
        machine.devices[0].cost.depth = 1;
        let block = 32 * PAGE;
        assert!(machine.devices[0].bridge() >= block, "as fast as it is read");
        // 131 kB are read in 1.3 ms, and decompressed in 6.5.
        if let Some(compression) = &mut machine.devices[0].compression {
            compression.rate = 20;
        }
        assert!(machine.devices[0].bridge() < block);
    }

    /// The names of small files by their inodes' numbers, in the order in which they are asked for; each has
    /// a quarter of a block, and is needed at this time.
    fn order_of(needs: &[(u64, u64)]) -> Vec<u64> {
        let name = |inode: u64| format!("/m/{inode:03}");
        let file = |inode: u64| FileFacts {
            inode,
            size: 8 * PAGE,
            ..facts(&name(inode), &[], &[])
        };
        let entry_of = |(inode, ms): &(u64, u64)| Entry {
            version: None,
            ranges: vec![WeightedRange {
                first_use_ns: ms * 1_000_000,
                ..testing::range(0, 8, 1.0)
            }],
            ..entry(&name(*inode), &[])
        };
        let mut entries: Vec<Entry> = needs.iter().map(entry_of).collect();
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        let mut machine = compressed(DeviceClass::Flash, 16e-6, &[]);
        machine.files = needs.iter().map(|(inode, _)| file(*inode)).collect();
        let rows = data(&make(&profile(entries), &machine));
        rows.iter().map(|(path, ..)| path[3..].parse().unwrap()).collect()
    }

    #[test]
    fn small_files_that_may_share_a_block_are_asked_for_together() {
        let needs = [
            (10, 0),
            (50, 20),
            (11, 40),
            (52, 60),
            (12, 80),
            (90, 100),
            (51, 120),
        ];
        assert_eq!(order_of(&needs), [10, 11, 12, 50, 51, 52, 90]);
    }

    #[test]
    fn in_an_image_that_was_sorted_by_first_use_nothing_goes_far() {
        // Inodes by name, data by need: forty files, of which four lie in a block.
        let needs: Vec<(u64, u64)> = (0..40).map(|n| (100 + n * 7 % 40, n * 20)).collect();
        let place = |inode: &u64| needs.iter().position(|(of, _)| of == inode).unwrap() / 4;
        let order = order_of(&needs);
        let (mut kept, mut read) = (Vec::new(), 0);
        for block in order.iter().map(place) {
            if !kept.contains(&block) {
                kept.push(block);
                read += 1;
            }
            let from = kept.len().saturating_sub(3);
            kept.drain(..from);
        }
        assert!(read <= 11, "ten blocks are read {read} times: {order:?}");
    }

    #[test]
    fn all_paths_are_looked_up_before_data_and_directories_listed_beside_it() {
        let mut machine = compressed(DeviceClass::Flash, 16e-6, &["/m/a"]);
        machine.devices[0].metadata_by_block = false;
        machine.files.push(FileFacts {
            found: PathKind::Directory,
            ..facts("/m", &[], &[])
        });
        machine.files.push(FileFacts {
            found: PathKind::Missing,
            device: None,
            ..facts("/m/none", &[], &[])
        });
        let directory = Entry {
            need: Need::List,
            ..entry("/m", &[])
        };
        let missing = Entry {
            need: Need::Missing,
            ..entry("/m/none", &[])
        };
        let profile = profile(vec![directory, entry("/m/a", &[(0, 1, 0)]), missing]);
        let rows = |machine: &Machine| -> Vec<(RequestKind, String)> {
            let draft = make(&profile, machine);
            let row = |r: &Request| (r.kind, draft.files[r.file as usize].path.to_string());
            draft.requests.iter().map(row).collect()
        };
        let row = |kind, path: &str| (kind, path.to_string());
        let stat = [row(Stat, "/m/a"), row(Stat, "/m/none")];
        let others = [row(Data, "/m/a"), row(List, "/m")];
        assert_eq!(rows(&machine), [&stat[..], &others[..]].concat());
        machine.devices[0].compression = None;
        let others = [row(List, "/m"), row(Data, "/m/a"), row(Stat, "/m/none")];
        assert_eq!(rows(&machine), others);
    }

    #[test]
    fn memory_ends_between_blocks() {
        let profile = profile(vec![entry("/m/a", &[(0, 1, 0), (33, 1, 0), (65, 1, 0)])]);
        let machine = compressed(DeviceClass::Flash, 16e-6, &["/m/a"]);
        let planned = |pages: u64| {
            let options = PlanOptions {
                budget: Some(pages * PAGE),
                ..PlanOptions::new(0)
            };
            let draft = plan(&profile, &machine, &[], &options);
            (draft.cut, draft.requests[0].length / PAGE)
        };
        // Three pages of memory are none of the blocks they lie in.
        let cuts = [3, 40, 95, 96].map(planned);
        assert_eq!(cuts, [(0, 96), (1, 32), (1, 64), (1, 96)]);
    }
}
