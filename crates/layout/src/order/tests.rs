use super::*;
use crate::testing::{PAGE, facts, machine};
use headstart_model::Key;
use headstart_model::machine::DeviceClass;
use headstart_model::profile::{Policy, WeightedRange};

fn entry(path: &str, pages: &[(u64, u32)], size: u64, first_use_ns: u64) -> Entry {
    let version = Version {
        size,
        mtime_ns: 7,
        generation: 0,
    };
    let range = |(start, pages): &(u64, u32)| WeightedRange {
        first_use_ns,
        ..headstart_model::testing::range(*start, *pages, 1.0)
    };
    Entry {
        ranges: pages.iter().map(range).collect(),
        ..Entry::whole(path.into(), version, PAGE as u32, first_use_ns)
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
    let btrfs = plan(
        &[profile("a", entries.clone())],
        &machine(files, DeviceClass::Disk, "btrfs"),
    );
    assert!(btrfs[0].declined.as_ref().unwrap().contains("snapshots"));
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

#[test]
fn where_not_all_fits_what_saves_most_jumps_for_its_bytes_is_moved() {
    let size = 8 * PAGE;
    // The second would not fit alone; the last two lie together, so that both cost one jump.
    let items = [
        (size, 0),
        (100 * size, 1 << 30),
        (2 * size, 2 << 30),
        (size, 3 << 30),
        (size, (3 << 30) + size),
    ];
    let files = items.iter().enumerate().map(|(number, (size, at))| {
        facts(
            &format!("/{number}"),
            number as u64 + 1,
            *size,
            &[(0, *at, *size)],
        )
    });
    let entries = items.iter().enumerate().map(|(number, (size, _))| {
        entry(
            &format!("/{number}"),
            &[(0, (size / PAGE) as u32)],
            *size,
            number as u64,
        )
    });
    let machine = machine(files.collect(), DeviceClass::Disk, "ext4");
    let order = plan(&[profile("a", entries.collect())], &machine).remove(0);
    let fit_of = |order: &Order, most| {
        let mut order = order.clone();
        order.fit(most, machine.devices[0].cost.bridge());
        assert_eq!(order.left[NO_ROOM] as usize, items.len() - order.items.len());
        let paths = order.items.iter().map(|item| item.facts.path.to_string());
        paths.collect::<Vec<_>>().join(" ")
    };
    let fit = |most| fit_of(&order, most);
    assert_eq!(fit(size), "/0");
    assert_eq!(fit(2 * size), "/0 /3");
    assert_eq!(fit(3 * size), "/0 /2");
    assert_eq!(fit(4 * size), "/0 /2 /3");
    assert_eq!(fit(5 * size), "/0 /2 /3 /4", "in the order of their use");
    // What headstart itself reads comes first, whatever it saves.
    let mut order = order;
    order.items[2].own = true;
    assert_eq!(fit_of(&order, 2 * size), "/2");
    assert_eq!(fit_of(&order, 3 * size), "/0 /2");
}
