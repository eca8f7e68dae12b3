//! Which data is moved, in which order, and what that brings by the cost model. No file is touched.

use headstart_model::machine::{Cost, Extent, FileFacts, Found, Machine};
use headstart_model::profile::{Entry, Version};
use headstart_model::{FilePath, PageRange, PageSet, Profile};
use headstart_plan::sweep_seconds;
use serde::{Deserialize, Serialize, Serializer};
use std::collections::{BTreeMap, HashMap};

/// A file of up to this many bytes is moved whole, and a larger one of which at least half is needed.
const WHOLE: u64 = 64 << 10;
/// Of one file no more is moved.
const MOST_OF_A_FILE: u64 = 256 << 20;
/// Ranges of a file are moved as one over holes of up to this many bytes.
const JOINED: u64 = 64 << 10;
/// It is not worth it below this share of the time that reading takes now …
const LEAST_SHARE: f64 = 0.10;
/// … or below this many seconds.
const LEAST_SECONDS: f64 = 0.05;

/// A file, and what of it is moved.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Item {
    /// Its facts when the order was made; of them only the path is told.
    #[serde(rename = "path", serialize_with = "path")]
    pub facts: FileFacts,
    /// Bytes of the file that are moved, by offset, each range in one piece; multiples of the page size, but at its end.
    #[serde(serialize_with = "pairs")]
    pub ranges: Vec<PageRange>,
    /// Bytes of it that the starts need.
    #[serde(skip)]
    pub needed: PageSet,
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
}

/// What reading all that is needed comes to, in one pass over the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// Jumps of the head: holes that take longer to read than to jump over.
    pub jumps: u64,
    /// Time by the cost model, nanoseconds.
    pub time_ns: u64,
}

/// What is moved on one file system.
#[derive(Clone, Debug, Serialize)]
pub struct Order {
    /// Index of the device in the machine.
    pub device: u32,
    /// Files, in their order on disk.
    pub items: Vec<Item>,
    /// What reading takes now.
    pub before: Prediction,
    /// What it would take if the room for all lay in one piece.
    pub after: Prediction,
    /// Files that stay where they are, by reason.
    pub left: BTreeMap<String, u64>,
    /// Why it is not worth it, if it is not.
    pub declined: Option<String>,
}

impl Order {
    /// Bytes that are moved.
    pub fn bytes(&self) -> u64 {
        self.items.iter().map(Item::bytes).sum()
    }

    /// What reading takes once the data lies in this room, by offset in the order.
    pub fn predict(&self, room: &[Extent], cost: &Cost) -> Prediction {
        let mut placed = Vec::new();
        let mut from = 0;
        for item in &self.items {
            for range in &item.ranges {
                let needed = item.needed.intersection(&PageSet::from_iter([*range]));
                for part in needed.ranges() {
                    let at = from + (part.start - range.start);
                    placed.extend(on_device(room, at, part.pages()));
                }
                from += range.pages();
            }
        }
        prediction(&placed.into_iter().collect(), cost)
    }
}

/// The order for these profiles, one for each file system that has any of their files. A file that several need is placed by the
/// first of them.
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
            let order = orders.entry(device).or_insert_with(|| Order {
                device,
                items: Vec::new(),
                before: Prediction::default(),
                after: Prediction::default(),
                left: BTreeMap::new(),
                declined: None,
            });
            match item(entry, threshold, facts, u64::from(machine.page_size)) {
                Err(why) => *order.left.entry(why.to_owned()).or_default() += 1,
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
fn judge(order: &mut Order, machine: &Machine) {
    let Some(device) = machine.devices.get(order.device as usize) else {
        return;
    };
    let now = order
        .items
        .iter()
        .flat_map(|item| {
            let needed = item.needed.ranges().iter();
            needed.flat_map(|part| on_device(&item.facts.extents, part.start, part.pages()))
        })
        .collect();
    order.before = prediction(&now, &device.cost);
    let together = [Extent {
        logical: 0,
        physical: 0,
        length: u64::MAX,
    }];
    order.after = order.predict(&together, &device.cost);
    order.declined = if !device.cost.place_matters(u64::from(machine.page_size)) {
        Some("it has no head that moves, and a request costs next to nothing: where a file lies does not matter there".into())
    } else if device.fstype != "ext4" {
        Some(format!(
            "files are moved on ext4 only, and this is {}",
            device.fstype
        ))
    } else {
        unless_worthwhile(&order.before, &order.after)
    };
}

/// Why the difference is not worth it, if it is not.
pub(crate) fn unless_worthwhile(before: &Prediction, after: &Prediction) -> Option<String> {
    let seconds = before.time_ns as f64 / 1e9;
    let gain = seconds - after.time_ns as f64 / 1e9;
    let least = (LEAST_SHARE * seconds).max(LEAST_SECONDS);
    (gain < least).then(|| {
        format!(
            "it would bring {:.2} of {:.2} s, and is worth it from {least:.2} s on",
            gain.max(0.0),
            seconds
        )
    })
}

fn facts_of<'a>(by_path: &HashMap<&FilePath, &'a FileFacts>, entry: &Entry) -> Option<&'a FileFacts> {
    let of = |path: &FilePath| by_path.get(path).filter(|facts| facts.found == Found::File);
    of(&entry.path).or_else(|| of(entry.overlay.as_ref()?)).copied()
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
        return Err("no data of its own on the device");
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
    let item = Item {
        facts: facts.clone(),
        ranges: ranges(&needed, facts.size, page),
        needed,
    };
    match item.bytes() <= MOST_OF_A_FILE {
        true => Ok(item),
        false => Err("more than 256 MiB of it are needed"),
    }
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
    let both: PageSet = item.ranges.iter().chain(&other.ranges).copied().collect();
    item.ranges = both.ranges().to_vec();
}

/// Where bytes `[start, start + length)` lie, by the extents of a file or of the room.
pub(crate) fn on_device(extents: &[Extent], start: u64, length: u64) -> Vec<PageRange> {
    let end = start.saturating_add(length);
    let first = extents.partition_point(|extent| extent.logical.saturating_add(extent.length) <= start);
    extents[first..]
        .iter()
        .take_while(|extent| extent.logical < end)
        .map(|extent| {
            let from = start.max(extent.logical);
            let to = end.min(extent.logical.saturating_add(extent.length));
            let at = extent.physical + (from - extent.logical);
            PageRange {
                start: at,
                end: at + (to - from),
            }
        })
        .collect()
}

pub(crate) fn prediction(bytes: &PageSet, cost: &Cost) -> Prediction {
    Prediction {
        jumps: (bytes.bridged(cost.bridge()).ranges().len() as u64).saturating_sub(1),
        time_ns: (sweep_seconds(bytes, cost) * 1e9) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_model::Key;
    use headstart_model::machine::{Device, DeviceClass};
    use headstart_model::profile::{Need, Policy, WeightedRange};

    const PAGE: u64 = 4096;

    fn entry(path: &str, pages: &[(u64, u32)], size: u64, first_use_ns: u64) -> Entry {
        Entry {
            path: path.into(),
            overlay: None,
            need: Need::Open,
            weight: 1.0,
            first_use_ns,
            stage: 0,
            version: Some(Version {
                size,
                mtime_ns: 7,
                generation: 0,
            }),
            tail: None,
            touches: None,
            ranges: pages
                .iter()
                .map(|(start, pages)| WeightedRange {
                    start: *start,
                    pages: *pages,
                    weight: 1.0,
                    first_use_ns,
                    stage: 0,
                })
                .collect(),
        }
    }

    fn facts(path: &str, inode: u64, size: u64, extents: &[(u64, u64, u64)]) -> FileFacts {
        FileFacts {
            path: path.into(),
            found: Found::File,
            device: Some(0),
            inode,
            generation: 0,
            size,
            mtime_ns: 7,
            owner: 0,
            others_may_write: false,
            extents: extents
                .iter()
                .map(|(logical, physical, length)| Extent {
                    logical: *logical,
                    physical: *physical,
                    length: *length,
                })
                .collect(),
            metadata: Vec::new(),
        }
    }

    fn machine(files: Vec<FileFacts>, class: DeviceClass, fstype: &str) -> Machine {
        Machine {
            page_size: PAGE as u32,
            memory_available: 1 << 30,
            devices: vec![Device {
                major: 8,
                minor: 1,
                node: "/dev/sda1".into(),
                mount_point: "/".into(),
                fstype: fstype.into(),
                uuid: [1; 16],
                cost: Cost {
                    class,
                    bandwidth: 100e6,
                    latency: 0.01,
                    depth: 1,
                },
                first_touch: None,
                request_limit: 128 << 10,
                metadata_by_block: true,
            }],
            files,
        }
    }

    fn profile(name: &str, entries: Vec<Entry>) -> Profile {
        Profile {
            entries,
            ..Profile::new(Key::new(name).unwrap(), PAGE as u32, Policy::Decay)
        }
    }

    /// 100 files of a page each, far apart, used from the last to the first.
    fn scattered() -> (Vec<Entry>, Vec<FileFacts>) {
        (0..100u64)
            .map(|i| {
                let path = format!("/{i:03}");
                (
                    entry(&path, &[(0, 1)], PAGE, 1000 - i),
                    facts(&path, i + 10, PAGE, &[(0, i * (50 << 20), PAGE)]),
                )
            })
            .unzip()
    }

    #[test]
    fn files_are_placed_by_their_first_use_and_the_gain_is_the_jumps() {
        let (entries, files) = scattered();
        let orders = plan(
            &[profile("a", entries)],
            &machine(files, DeviceClass::Disk, "ext4"),
        );
        let order = &orders[0];
        assert_eq!(order.declined, None);
        assert_eq!(order.items[0].facts.path, "/099".into());
        assert_eq!((order.before.jumps, order.after.jumps), (99, 0));
        // 100 pages at 100 MB/s, and 99 jumps of 10 ms.
        assert_eq!(
            (order.before.time_ns, order.after.time_ns),
            (994_096_000, 4_096_000)
        );
    }

    #[test]
    fn room_in_pieces_brings_less() {
        let (entries, files) = scattered();
        let machine = machine(files, DeviceClass::Disk, "ext4");
        let order = plan(&[profile("a", entries)], &machine).remove(0);
        let half = 50 * PAGE;
        let room = [(0, 0), (half, 1 << 40)].map(|(logical, physical)| Extent {
            logical,
            physical,
            length: half,
        });
        let pieces = order.predict(&room, &machine.devices[0].cost);
        assert_eq!(
            (pieces.jumps, pieces.time_ns),
            (1, order.after.time_ns + 10_000_000)
        );
    }

    #[test]
    fn nothing_is_moved_where_it_does_not_pay() {
        let (entries, files) = scattered();
        let mut flash = machine(files.clone(), DeviceClass::Flash, "ext4");
        let declined = |machine: &Machine| {
            plan(&[profile("a", entries.clone())], machine)[0]
                .declined
                .clone()
        };
        assert_eq!(declined(&flash), None, "a request takes as long as a megabyte");
        flash.devices[0].cost.depth = 256;
        flash.devices[0].cost.latency = 100e-6;
        assert!(declined(&flash).unwrap().contains("no head"));
        let xfs = plan(
            &[profile("a", entries.clone())],
            &machine(files, DeviceClass::Disk, "xfs"),
        );
        assert!(xfs[0].declined.as_ref().unwrap().contains("xfs"));
        let one = plan(
            &[profile("a", vec![entry("/f", &[(0, 1)], PAGE, 0)])],
            &machine(
                vec![facts("/f", 1, PAGE, &[(0, 0, PAGE)])],
                DeviceClass::Disk,
                "ext4",
            ),
        );
        assert!(one[0].declined.as_ref().unwrap().contains("worth it"));
    }

    #[test]
    fn of_a_large_file_only_the_ranges_that_are_needed_move() {
        let size = 100 << 20;
        let large = entry("/l", &[(10, 2), (20, 1), (1000, 3)], size, 0);
        let files = vec![facts("/l", 1, size, &[(0, 1 << 30, size)])];
        let orders = plan(
            &[profile("a", vec![large])],
            &machine(files, DeviceClass::Disk, "ext4"),
        );
        let item = &orders[0].items[0];
        let pages: Vec<_> = item
            .ranges
            .iter()
            .map(|r| (r.start / PAGE, r.end / PAGE))
            .collect();
        assert_eq!(pages, [(10, 21), (1000, 1003)]);
        assert_eq!(item.needed.pages(), 6 * PAGE);
    }

    #[test]
    fn a_file_that_two_need_has_one_place_and_a_changed_one_none() {
        let files = vec![
            facts("/shared", 1, 5000, &[(0, 0, 8192)]),
            facts("/other", 2, PAGE + 1, &[(0, 1 << 30, 8192)]),
        ];
        let first = profile("a", vec![entry("/shared", &[(0, 1)], 5000, 0)]);
        let second = profile(
            "b",
            vec![
                entry("/shared", &[(1, 1)], 5000, 0),
                entry("/other", &[(0, 1)], PAGE, 0),
            ],
        );
        let orders = plan(&[first, second], &machine(files, DeviceClass::Disk, "ext4"));
        assert_eq!(orders[0].items.len(), 1);
        assert_eq!(orders[0].items[0].needed.pages(), 5000);
        assert_eq!(orders[0].bytes(), 8192);
        assert_eq!(orders[0].left["changed since it was learned"], 1);
    }
}
