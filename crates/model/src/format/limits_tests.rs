//! Traces made to claim much: the limits of tables and of paths.

use super::Kind;
use super::container::{Container, Writer};
use crate::{Trace, limits, testing};

/// A trace whose columns and paths are as given, with nothing else in it.
fn made(paths: &[u8], columns: &[u8]) -> Result<Trace, String> {
    let mut blank = testing::trace();
    blank.processes.clear();
    let bytes = blank.to_bytes().unwrap();
    let sound = Container::new(Kind::Trace, &bytes).unwrap();
    let mut file = Writer::new(Kind::Trace);
    file.raw(b"META", &sound.section(b"META", limits::META).unwrap());
    file.raw(b"MMAP", &sound.section(b"MMAP", limits::MMAP).unwrap());
    file.compressed(b"PATH", paths, usize::MAX).unwrap();
    file.compressed(b"COLS", columns, usize::MAX).unwrap();
    Trace::from_bytes(&file.finish().unwrap()).map_err(|e| e.to_string())
}

/// A column: its length in seven bits a byte, then it.
fn column(bytes: &[u8]) -> Vec<u8> {
    let (mut out, mut left) = (Vec::new(), bytes.len());
    while left >= 0x80 {
        out.push(left as u8 | 0x80);
        left >>= 7;
    }
    out.push(left as u8);
    [&out, bytes].concat()
}

#[test]
fn tables_cannot_claim_much() {
    const MANY: usize = 1 << 18;
    /// All columns empty but those from `from` on.
    fn columns(from: usize, filled: &[Vec<u8>]) -> Vec<u8> {
        let mut columns = vec![Vec::new(); 33];
        columns[from - 1..from - 1 + filled.len()].clone_from_slice(filled);
        columns.iter().flat_map(|bytes| column(bytes)).collect()
    }
    let paths = |shared: &[u8], rest: &[u8]| [column(shared), column(rest)].concat();
    let refused = |paths: &[u8], columns: &[u8], why: &str| {
        let error = made(paths, columns).unwrap_err();
        assert!(error.contains(why), "{error} lacks {why:?}");
    };
    let none = columns(1, &[]);
    assert!(made(&paths(&[], &[]), &none).is_ok());
    refused(&paths(&[0; MANY], &[0; MANY]), &none, "more than 131072 paths");
    // Each path is as long as the one before and costs two bytes.
    let long = [&b"/".repeat(4000)[..], &[0; MANY / 2]].concat();
    let shared: Vec<u8> = [0].into_iter().chain([0xa0, 0x1f].repeat(MANY / 4)).collect();
    refused(&paths(&shared, &long), &none, "more than 8388608 bytes of paths");
    // One path, looked up by every row.
    let mut again = vec![1; MANY / 2];
    again[0] = 0;
    let rows = || vec![0; MANY / 2];
    let lookups = columns(25, &[rows(), rows(), again.clone(), rows()]);
    refused(
        &paths(&[0], &long[..4001]),
        &lookups,
        "more than 33554432 bytes of paths referred to",
    );
    again.push(1);
    let longer = || vec![0; MANY / 2 + 1];
    let lookups = columns(25, &[longer(), longer(), again, longer()]);
    refused(&paths(&[0], b"/\0"), &lookups, "more than 131072 look-ups");
    let misses = columns(29, &vec![vec![0; MANY]; 5]);
    refused(&paths(&[], &[]), &misses, "more than 65536 metadata misses");
    let files = columns(1, &vec![vec![0; MANY]; 13]);
    refused(&paths(&[0], b"/\0"), &files, "more than 65536 files");
    let uses = columns(14, &vec![vec![0; MANY]; 11]);
    refused(&paths(&[], &[]), &uses, "more than 131072 uses");
    refused(
        &paths(&[], &[]),
        &vec![0; 13 << 20],
        "section COLS has 13631488 bytes when decoded",
    );
}
