//! Traces made to claim much: the bounds of [`super::columns`] tables and of paths.

use super::container::{Container, Writer};
use super::{Kind, tests};
use crate::Trace;

/// A trace whose columns and paths are as given, with nothing else in it.
fn made(paths: &[u8], columns: &[u8]) -> Result<Trace, String> {
    let mut blank = tests::one(tests::trace());
    blank.processes.clear();
    blank.files.clear();
    blank.mappings.clear();
    blank.uses.clear();
    blank.lookups.clear();
    blank.metadata.clear();
    let bytes = blank.to_bytes().unwrap();
    let sound = Container::new(Kind::Trace, &bytes).unwrap();
    let mut file = Writer::new(Kind::Trace);
    file.raw(b"META", &sound.section(b"META").unwrap());
    file.raw(b"MAPS", &sound.section(b"MAPS").unwrap());
    file.raw(b"PATH", paths);
    file.raw(b"COLS", columns);
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
    const MANY: usize = 1 << 22;
    /// All columns empty but those from `from` on.
    fn columns(from: usize, filled: &[Vec<u8>]) -> Vec<u8> {
        let mut all = vec![Vec::new(); 33];
        all[from - 1..from - 1 + filled.len()].clone_from_slice(filled);
        all.iter().flat_map(|bytes| column(bytes)).collect()
    }
    let paths = |shared: &[u8], rest: &[u8]| [column(shared), column(rest)].concat();
    let refused = |paths: &[u8], columns: &[u8], why: &str| {
        let error = made(paths, columns).unwrap_err();
        assert!(error.contains(why), "{error} lacks {why:?}");
    };
    let none = columns(1, &[]);
    assert!(made(&paths(&[], &[]), &none).is_ok());
    refused(&paths(&[0; MANY], &[0; MANY]), &none, "more than 2097152 paths");
    // Each path is as long as the one before and costs two bytes.
    let long = [&b"/".repeat(4000)[..], &[0; MANY]].concat();
    let shared: Vec<u8> = [0].into_iter().chain([0xa0, 0x1f].repeat(MANY / 2)).collect();
    refused(&paths(&shared, &long), &none, "too many bytes");
    // One path, looked up by every row.
    let mut again = vec![1; MANY];
    again[0] = 0;
    let lookups = columns(25, &[vec![0; MANY], vec![0; MANY], again, vec![0; MANY]]);
    refused(&paths(&[0], &long[..4001]), &lookups, "too many bytes");
    refused(&paths(&[0], b"/\0"), &lookups, "more than 1048576 look-ups");
    let misses = columns(29, &vec![vec![0; MANY]; 5]);
    refused(&paths(&[], &[]), &misses, "more than 1048576 metadata misses");
}
