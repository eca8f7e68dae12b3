//! Which data is moved, in which order, and what that brings by the cost model. No file is touched.

use crate::moving::volume::unserved;
use crate::predict::{Prediction, on_device, prediction, unless_worthwhile};
use headstart_model::machine::{Cost, Extent, FileFacts, Machine, PathKind};
use headstart_model::profile::{Entry, Version};
use headstart_model::{FilePath, PageRange, PageSet, Profile};
use serde::{Serialize, Serializer};
use std::collections::{BTreeMap, HashMap, HashSet};

/// A file of up to this many bytes is moved whole, and a larger one of which at least half is needed.
const WHOLE: u64 = 64 << 10;
/// Of one file no more is moved: a start that reads more does so from one end to the other.
const MOST_OF_A_FILE: u64 = 256 << 20;
/// Ranges of a file are moved as one over holes of up to this many bytes.
const JOINED: u64 = 64 << 10;

/// A file, and what of it is moved.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Item {
    /// Its facts when the order was made; of them only the path is told.
    #[serde(rename = "path", serialize_with = "path")]
    pub facts: FileFacts,
    /// Bytes of the file that are moved, by offset, each range in one piece; multiples of the page size, but
    /// at its end.
    #[serde(serialize_with = "pairs")]
    pub ranges: Vec<PageRange>,
    /// Bytes of it that the starts need.
    #[serde(skip)]
    pub needed: PageSet,
    /// Whether headstart itself reads it, before it can read anything ahead.
    #[serde(skip)]
    pub own: bool,
}

fn path<S: Serializer>(facts: &FileFacts, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&facts.path)
}

fn pairs<S: Serializer>(ranges: &[PageRange], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(ranges.iter().map(|range| [range.start, range.end]))
}

impl Item {
    /// Bytes that are moved.
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(PageRange::pages).sum()
    }

    /// Where what is needed of it lies on the device.
    pub fn device_ranges(&self) -> Vec<PageRange> {
        let needed = self.needed.ranges().iter();
        needed
            .flat_map(|part| on_device(&self.facts.extents, part.start, part.pages()))
            .collect()
    }
}

/// Why a file stays that would be moved if more of its file system were free, in larger pieces.
pub const NO_ROOM: &str = "there is no room for all, or in too small pieces: what is moved saves more";

/// Why a file stays that has nothing to be moved.
pub(crate) const NO_DATA: &str = "no data of its own on the device";

/// What is moved on one file system.
#[derive(Clone, Debug, Serialize)]
pub struct Order {
    /// Index of the device in the machine.
    pub device: u32,
    /// The files that are moved, in their order on disk.
    pub items: Vec<Item>,
    /// Those that lie in that order already, and stay.
    pub settled: Vec<Item>,
    /// Those that stay because others save more.
    #[serde(skip)]
    pub(crate) stay: Vec<Item>,
    /// Inodes of all files that the starts need, also of those that stay for now: none of them is in the way.
    #[serde(skip)]
    pub(crate) wanted: HashSet<u64>,
    /// What reading takes now.
    pub before: Prediction,
    /// What it would take if the room for all lay in one piece.
    pub after: Prediction,
    /// Files that stay where they are, by reason.
    pub left: BTreeMap<String, u64>,
    /// Why it is not worth it, if it is not.
    pub declined: Option<String>,
    /// The room that there is, where that is known.
    pub room: Option<FreeRoom>,
}

/// How much of a file system is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FreeRoom {
    /// Bytes that ordinary users may have.
    pub free: u64,
    /// Bytes of them that stay free all the time.
    pub stays: u64,
}

impl Order {
    /// One that is not judged yet.
    pub(crate) fn new(device: u32, items: Vec<Item>) -> Order {
        Order {
            device,
            items,
            settled: Vec::new(),
            stay: Vec::new(),
            wanted: HashSet::new(),
            before: Prediction::default(),
            after: Prediction::default(),
            left: BTreeMap::new(),
            declined: None,
            room: None,
        }
    }

    /// Bytes that are moved.
    pub fn bytes(&self) -> u64 {
        self.items.iter().map(Item::bytes).sum()
    }

    /// All that the starts need, also what is not moved.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Item> {
        self.items.iter().chain(&self.settled).chain(&self.stay)
    }

    /// What reading takes once the data lies in this room, by offset in the order.
    pub fn predict(&self, room: &[Extent], cost: &Cost) -> Prediction {
        let stays = self.settled.iter().chain(&self.stay);
        let mut placed: Vec<PageRange> = stays.flat_map(Item::device_ranges).collect();
        let mut from = 0;
        for item in &self.items {
            let mut needed = item.needed.ranges();
            for range in &item.ranges {
                let first = needed.partition_point(|part| part.end <= range.start);
                needed = &needed[first..];
                for part in needed.iter().take_while(|part| part.start < range.end) {
                    let (start, end) = (part.start.max(range.start), part.end.min(range.end));
                    placed.extend(on_device(room, from + (start - range.start), end - start));
                }
                from += range.pages();
            }
        }
        prediction(&placed.into_iter().collect(), cost)
    }

    /// Leaves what does not fit into `most` bytes. What is moved is what headstart itself reads, piece after
    /// piece before its first request, and then what saves the most jumps for its bytes, over holes of up to
    /// `bridge` bytes.
    pub(crate) fn fit(&mut self, most: u64, bridge: u64) {
        let jumps = self.jumps(bridge);
        let saves = |index: usize| jumps[index] / self.items[index].bytes().max(1) as f64;
        let mut by_worth: Vec<usize> = (0..self.items.len()).collect();
        let own = |index: usize| self.items[index].own;
        by_worth.sort_by(|a, b| own(*b).cmp(&own(*a)).then(saves(*b).total_cmp(&saves(*a))));
        let mut fits = vec![false; self.items.len()];
        let mut left = most;
        for index in by_worth {
            let bytes = self.items[index].bytes();
            if bytes <= left {
                left -= bytes;
                fits[index] = true;
            }
        }
        for (item, fits) in std::mem::take(&mut self.items).into_iter().zip(fits) {
            match fits {
                true => self.items.push(item),
                false => {
                    self.stay.push(item);
                    self.leave(NO_ROOM);
                }
            }
        }
    }

    /// Of each item how many jumps it costs where all lies now: one for each run without a hole larger than
    /// `bridge` bytes, shared among those that have a part of it, by their bytes.
    fn jumps(&self, bridge: u64) -> Vec<f64> {
        let items = self
            .items
            .iter()
            .enumerate()
            .map(|(index, item)| (Some(index), item));
        let others = self.settled.iter().chain(&self.stay);
        let items = items.chain(others.map(|item| (None, item)));
        let mut parts: Vec<(PageRange, Option<usize>)> = items
            .flat_map(|(index, item)| item.device_ranges().into_iter().map(move |part| (part, index)))
            .collect();
        parts.sort_unstable_by_key(|(part, _)| part.start);
        let mut jumps = vec![0.0; self.items.len()];
        let mut rest = parts.as_slice();
        while !rest.is_empty() {
            let mut end = rest[0].0.end;
            let is_near = |(part, _): &&(PageRange, Option<usize>)| {
                let near = part.start <= end.saturating_add(bridge);
                end = end.max(part.end);
                near
            };
            let (run, others) = rest.split_at(rest.iter().take_while(is_near).count());
            let bytes: u64 = run.iter().map(|(part, _)| part.pages()).sum();
            for (part, index) in run {
                if let Some(index) = index {
                    jumps[*index] += part.pages() as f64 / bytes as f64;
                }
            }
            rest = others;
        }
        jumps
    }

    /// Counts a file that stays where it is.
    pub(crate) fn leave(&mut self, why: impl Into<String>) {
        *self.left.entry(why.into()).or_default() += 1;
    }
}

/// The order for these profiles, one for each file system that has any of their files. A file that several
/// need is placed by the first of them.
pub fn plan(profiles: &[Profile], machine: &Machine) -> Vec<Order> {
    let mut orders = BTreeMap::<u32, Order>::new();
    let mut placed = HashMap::<(u32, u64), (u32, usize)>::new();
    let by_path: HashMap<&FilePath, &FileFacts> = machine.files.iter().map(|f| (&f.path, f)).collect();
    for profile in profiles {
        let threshold = profile.policy.threshold();
        let mut entries: Vec<&Entry> = profile
            .entries
            .iter()
            .filter(|entry| entry.weight >= threshold && !entry.pages(threshold).is_empty())
            .collect();
        entries.sort_by_key(|entry| (entry.stage, first_use(entry, threshold), &entry.path));
        for entry in entries {
            let Some(facts) = facts_of(&by_path, entry) else {
                continue;
            };
            let Some(device) = facts.device else { continue };
            let order = orders
                .entry(device)
                .or_insert_with(|| Order::new(device, Vec::new()));
            order.wanted.insert(facts.inode);
            match item(entry, threshold, facts, u64::from(machine.page_size)) {
                Err(why) => order.leave(why),
                Ok(new) => match placed.get(&(device, facts.inode)) {
                    Some((_, index)) => merge(&mut order.items[*index], &new),
                    None => {
                        placed.insert((device, facts.inode), (device, order.items.len()));
                        order.items.push(new);
                    }
                },
            }
        }
    }
    let mut orders: Vec<Order> = orders.into_values().collect();
    for order in &mut orders {
        judge(order, machine);
    }
    orders
}

/// Fills in what an order brings.
pub(crate) fn judge(order: &mut Order, machine: &Machine) {
    let Some(device) = machine.devices.get(order.device as usize) else {
        return;
    };
    order.before = prediction(&order.all().flat_map(Item::device_ranges).collect(), &device.cost);
    // Wherever it is, it is not beside what stays.
    let together = [Extent {
        logical: 0,
        physical: 1 << 60,
        length: 1 << 60,
    }];
    order.after = order.predict(&together, &device.cost);
    order.declined = if !device.cost.place_matters(u64::from(machine.page_size)) {
        Some("it has no head that moves, and a request costs next to nothing: where a file lies does not matter there".into())
    } else {
        unserved(&device.fstype).or_else(|| unless_worthwhile(&order.before, &order.after))
    };
}

fn facts_of<'a>(by_path: &HashMap<&FilePath, &'a FileFacts>, entry: &Entry) -> Option<&'a FileFacts> {
    let regular_file = |path: &FilePath| by_path.get(path).filter(|facts| facts.found == PathKind::File);
    regular_file(&entry.path)
        .or_else(|| regular_file(entry.overlay.as_ref()?))
        .copied()
}

fn first_use(entry: &Entry, threshold: f32) -> u64 {
    let wanted = entry.ranges.iter().filter(|range| range.weight >= threshold);
    wanted
        .map(|range| range.first_use_ns)
        .min()
        .unwrap_or(entry.first_use_ns)
}

/// What of a file is moved, or why nothing.
fn item(entry: &Entry, threshold: f32, facts: &FileFacts, page: u64) -> Result<Item, &'static str> {
    let version = Version {
        size: facts.size,
        mtime_ns: facts.mtime_ns,
        generation: facts.generation,
    };
    if entry.version != Some(version) {
        return Err("changed since it was learned");
    }
    if facts.extents.is_empty() {
        return Err(NO_DATA);
    }
    let needed: PageSet = entry
        .pages(threshold)
        .ranges()
        .iter()
        .map(|range| PageRange {
            start: range.start.saturating_mul(page).min(facts.size),
            end: range.end.saturating_mul(page).min(facts.size),
        })
        .filter(|range| range.start < range.end)
        .collect();
    if needed.is_empty() {
        return Err("changed since it was learned");
    }
    let mut ranges = ranges(&needed, facts.size, page);
    cap(&mut ranges, MOST_OF_A_FILE);
    Ok(Item {
        facts: facts.clone(),
        ranges,
        needed,
        own: false,
    })
}

/// Leaves no more than `most` bytes, those at the beginning.
fn cap(ranges: &mut Vec<PageRange>, most: u64) {
    let mut left = most;
    ranges.retain_mut(|range| {
        range.end = range.end.min(range.start.saturating_add(left));
        left -= range.pages();
        range.start < range.end
    });
}

/// The ranges that are moved for what is needed.
fn ranges(needed: &PageSet, size: u64, page: u64) -> Vec<PageRange> {
    if size <= WHOLE || needed.pages() >= size / 2 {
        return vec![PageRange {
            start: 0,
            end: size.next_multiple_of(page),
        }];
    }
    let joined = needed.bridged(JOINED);
    let aligned = joined.ranges().iter().map(|range| PageRange {
        start: range.start / page * page,
        end: range.end.next_multiple_of(page),
    });
    aligned.collect()
}

/// A second profile needs of a file what it may; it is in its place already.
fn merge(item: &mut Item, other: &Item) {
    item.needed = item.needed.union(&other.needed);
    let pages: PageSet = item.ranges.iter().chain(&other.ranges).copied().collect();
    item.ranges = pages.ranges().to_vec();
}

#[cfg(test)]
mod tests;
