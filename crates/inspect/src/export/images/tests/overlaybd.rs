//! Layers.

use super::super::{Places, crc32c::crc32c, overlaybd, u32_at, u64_at};
use super::{BLOCK, damaged, put, with};
use std::time::{Duration, Instant};

/// A sealed layer with so many sectors of data and these segments: sector of the device, sectors, sector in
/// the layer.
fn layer(device: u64, sectors: usize, segments: &[(u64, u64, u64)]) -> Vec<u8> {
    let head = |flags: u32, at: u64| {
        let mut head = vec![0; BLOCK];
        put(
            &mut head,
            0,
            b"LSMT\0\x01\x02\0\x65\x7e\x63\xd2\x94\x44\x08\x4c\xa2\xd2\xc8\xec\x4f\xcf\xae\x8a",
        );
        put(&mut head, 28, &flags.to_le_bytes());
        put(&mut head, 32, &at.to_le_bytes());
        put(&mut head, 40, &(segments.len() as u64).to_le_bytes());
        put(&mut head, 48, &device.to_le_bytes());
        head
    };
    let mut layer = head(7, 0);
    layer.resize(BLOCK + sectors * 512, 0);
    let at = layer.len() as u64;
    for (device, length, in_layer) in segments {
        layer.extend((device | length << 50).to_le_bytes());
        layer.extend(in_layer.to_le_bytes());
    }
    layer.resize(layer.len().next_multiple_of(BLOCK), 0);
    layer.extend(head(6, at));
    layer
}

fn of_overlaybd(bytes: &[std::ops::Range<u64>], size: u64, layers: &[&[u8]]) -> Result<Places, String> {
    with(layers, |layers| overlaybd(bytes, size, layers))
}

/// Layer, bytes and offset of each record, as overlaybd's `reload` reads them.
fn records(trace: &[u8]) -> Vec<(u32, u64, u64)> {
    assert_eq!(u32_at(trace, 0), 3_270_449_184);
    assert_eq!(u64_at(trace, 8), trace.len() as u64 - 24);
    assert_eq!(u32_at(trace, 16), crc32c(0, &trace[24..]));
    let records = trace[24..].chunks_exact(24);
    records
        .map(|record| {
            assert_eq!(record[0], b'R');
            (u32_at(record, 4), u64_at(record, 8), u64_at(record, 16))
        })
        .collect()
}

#[test]
fn reads_are_those_of_the_topmost_layer_that_has_the_data() {
    // The device has grown; the topmost layer does not say how large it is.
    let bottom = layer(1 << 20, 100, &[(0, 50, 8), (60, 10, 58)]);
    let middle = layer(1 << 30, 0, &[]);
    // Zeros hide what is below; the last fills the index.
    let top = layer(0, 8, &[(10, 4, 8), (20, 5, 1 << 55), ((1 << 50) - 1, 0, 0)]);
    let layers = [&bottom[..], &middle, &top];
    let read = |bytes| records(&of_overlaybd(&[bytes], 1 << 30, &layers).unwrap().text);
    let sector = 512;
    assert_eq!(read(5..6), [(0, sector, 8 * sector)]);
    assert_eq!(read(5 * sector + 5..6 * sector), [(0, sector, 13 * sector)]);
    assert_eq!(
        read(8 * sector..16 * sector),
        [
            (0, 2 * sector, 16 * sector),
            (2, 4 * sector, 8 * sector),
            (0, 2 * sector, 22 * sector)
        ]
    );
    assert_eq!(
        read(19 * sector..26 * sector),
        [(0, sector, 27 * sector), (0, sector, 33 * sector)]
    );
    assert_eq!(read(55 * sector..61 * sector), [(0, sector, 58 * sector)]);
    assert_eq!(read(1000 * sector..1001 * sector), []);

    let large = layer(1 << 30, 10_000, &[(0, 10_000, 8)]);
    let places = of_overlaybd(&[0..10_000 * sector], 1 << 30, &[&large]).unwrap();
    let reads = records(&places.text);
    assert_eq!(reads[0], (0, 1 << 20, 8 * sector));
    assert!(reads.iter().all(|(_, bytes, _)| *bytes <= 1 << 20) && reads.len() == 5 && places.places == 5);
}

#[test]
fn layers_that_do_not_fit_are_refused() {
    let whole = layer(1 << 30, 100, &[(0, 50, 8)]);
    let mut compressed = whole.clone();
    put(&mut compressed, 0, b"ZFile\0\x01\0");
    let mut open = whole.clone();
    let tail = open.len() - BLOCK;
    open[tail + 28] = 2;
    let mut many = whole.clone();
    put(&mut many, tail + 40, &u64::MAX.to_le_bytes());
    let mut beyond = whole.clone();
    put(&mut beyond, tail + 40, &499_999u64.to_le_bytes());
    for (bytes, expected) in [
        (
            &layer(1 << 29, 100, &[])[..],
            "these are layers of another image: its device has 536870912 bytes, that below --tree 1073741824",
        ),
        (&compressed, "overlaybd-zfile -x"),
        (&open, "no sealed layer"),
        (&whole[..whole.len() - 1], "no sealed layer"),
        (&whole[..10], "ends at 10"),
        (&many, "segments, with those before it more than 500000"),
        (&beyond, "ends at"),
        (&layer(1 << 30, 100, &[(0, 50, 80)]), "overlap or lie beyond"),
        (
            &layer(1 << 30, 100, &[(0, 50, (1 << 55) - 1)]),
            "overlap or lie beyond",
        ),
        (
            &layer(1 << 30, 100, &[(0, 50, 8), (49, 1, 8)]),
            "overlap or lie beyond",
        ),
    ] {
        let refused = of_overlaybd(&[0..1], 1 << 30, &[bytes]).unwrap_err();
        assert!(refused.contains(expected), "{expected}: {refused}");
    }
    assert!(
        of_overlaybd(&[0..1], 1 << 30, &[])
            .unwrap_err()
            .contains("1 to 255 layers")
    );
    damaged(&whole, 2000, |bytes| {
        let _ = of_overlaybd(&[0..1 << 20], 1 << 30, &[bytes, bytes]);
    });
}

#[test]
fn files_that_share_their_data_take_no_second() {
    let begun = Instant::now();
    let all = vec![0..u64::MAX; 100_000];
    let zeros: Vec<(u64, u64, u64)> = (0..400_000).map(|sector| (sector, 1, 1 << 55)).collect();
    let zeros = layer(1 << 30, 1, &zeros);
    let refused = of_overlaybd(&all, 1 << 30, &[&zeros]).unwrap_err();
    assert!(refused.contains("looked at more than"), "{refused}");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}
