//! Indices of chunks.

use super::super::{ImageSize, Places, desync};
use super::{damaged, with};
use std::time::{Duration, Instant};

/// An index of chunks that end there.
fn index(ends: &[u64]) -> Vec<u8> {
    let mut index = Vec::new();
    let words = [
        48,
        0x9682_4d9c_7b12_9ff9,
        0,
        1,
        2,
        3,
        u64::MAX,
        0xe75b_9e11_2f17_417d,
    ];
    index.extend(words.iter().flat_map(|word: &u64| word.to_le_bytes()));
    for end in ends {
        index.extend(end.to_le_bytes());
        index.extend([7; 32]);
    }
    let table = 16 + 40 * (ends.len() as u64 + 1);
    let words = [0, 0, 48, table, 0x4b4f_050e_5549_ecd1];
    index.extend(words.iter().flat_map(|word: &u64| word.to_le_bytes()));
    index
}

fn of_desync(bytes: &[std::ops::Range<u64>], sizes: &[(u64, u64)], index: &[u8]) -> Result<Places, String> {
    let sizes: Vec<ImageSize> = sizes
        .iter()
        .map(|(size, at)| ImageSize { size: *size, at: *at })
        .collect();
    with(&[index], |files| desync(bytes, &sizes, &files[0]))
}

#[test]
fn chunks_are_marked_that_have_a_needed_byte() {
    let ends: Vec<u64> = (1..=10).map(|chunk| chunk * 1000).collect();
    let marked = |bytes: &[std::ops::Range<u64>], sizes: &[(u64, u64)]| {
        let places = of_desync(bytes, sizes, &index(&ends)).unwrap();
        assert_eq!(places.text.len(), 2);
        let bits = u16::from_le_bytes([places.text[0], places.text[1]]);
        assert_eq!(bits.count_ones() as usize, places.places);
        bits
    };
    let whole = &[(9728, 0)][..];
    assert_eq!(marked(&[999..1000], whole), 0b1);
    assert_eq!(marked(&[1000..1001], whole), 0b10);
    assert_eq!(marked(&[9000..9001, 999..3001, 0..1], whole), 0b10_0000_1111);
    assert_eq!(marked(&[20_000..30_000], whole), 0);
    assert_eq!(marked(&[0..u64::MAX], whole), 0b11_1111_1111);
    // The image is that of a disk, and this its partition.
    assert_eq!(marked(&[0..1], &[(4096, 0), (9728, 2048)]), 0b100);
}

#[test]
fn indices_that_do_not_fit_are_refused() {
    let whole = index(&[1000, 2000]);
    let mut swapped = whole.clone();
    swapped[64..104].rotate_left(1);
    let mut large = whole.clone();
    large.resize(65 << 20, 0);
    for (bytes, expected) in [
        (
            &index(&[1000, 3000])[..],
            "is of another image: that has 3000 bytes, the device below --tree 1536 or its disk 9",
        ),
        (&index(&[]), "is of another image: that has 0 bytes"),
        (&index(&[2000, 1000]), "do not ascend"),
        (&index(&[0, 2000]), "do not ascend"),
        (&whole[..whole.len() - 1], "ends within a chunk"),
        (&whole[..whole.len() - 40], "has no tail"),
        (&whole[8..], "is no index"),
        (&whole[..50], "ends at 50"),
        (&swapped, "do not ascend"),
        (&large, "has more than 64 MiB"),
    ] {
        let refused = of_desync(&[0..1], &[(1536, 0), (9, 0)], bytes).unwrap_err();
        assert!(refused.contains(expected), "{expected}: {refused}");
    }
    damaged(&whole, 1000, |bytes| {
        let _ = of_desync(&[0..1], &[(1536, 0)], bytes);
    });
}

#[test]
fn files_that_share_their_data_take_no_second() {
    let ends: Vec<u64> = (1..1_600_000).map(|chunk| chunk * 512).collect();
    let begun = Instant::now();
    let all = vec![0..u64::MAX; 100_000];
    let places = of_desync(&all, &[(1_599_999 * 512, 0)], &index(&ends)).unwrap();
    assert_eq!(places.places, 1_599_999);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}
