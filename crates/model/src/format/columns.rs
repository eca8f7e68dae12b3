//! Tables as columns of variable-length numbers: what repeats or grows slowly stands together, so that zstd
//! leaves one or two bytes of a row.

/// Appends a number, seven bits a byte, least significant first (LEB128).
fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes a number off the front.
fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let part = u64::from(byte & 0x7f);
        if shift == 63 && part > 1 {
            return None;
        }
        value |= part << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Small numbers of either sign as small numbers.
fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// The columns of a section, in order: each its length in bytes, then its bytes.
pub(super) fn join(columns: &[Column]) -> Vec<u8> {
    let mut out = Vec::new();
    for column in columns {
        put(&mut out, column.0.len() as u64);
        out.extend_from_slice(&column.0);
    }
    out
}

/// The first `N` columns of a section; later ones are of a later version.
pub(super) fn split<const N: usize>(mut bytes: &[u8]) -> Result<[Cursor<'_>; N], String> {
    let mut columns = [const { Cursor(&[]) }; N];
    for (index, column) in columns.iter_mut().enumerate() {
        let length = take(&mut bytes).and_then(|n| usize::try_from(n).ok());
        let cut = || format!("column {index} is cut");
        (column.0, bytes) = length
            .and_then(|length| bytes.split_at_checked(length))
            .ok_or_else(cut)?;
    }
    Ok(columns)
}

/// A column being written.
#[derive(Clone, Default)]
pub(super) struct Column(Vec<u8>);

impl Column {
    /// A number.
    pub fn number(&mut self, value: u64) {
        put(&mut self.0, value);
    }

    /// The difference of two numbers, modulo 2^64.
    pub fn step(&mut self, from: u64, to: u64) {
        put(&mut self.0, zigzag(to.wrapping_sub(from) as i64));
    }

    /// Bytes, ended by NUL; they have none.
    pub fn text(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        self.0.push(0);
    }
}

/// A column being read.
pub(super) struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    /// How many numbers are left; of a column of anything else this says nothing.
    pub fn rows(&self) -> usize {
        self.0.iter().filter(|byte| **byte < 0x80).count()
    }

    /// Whether a row is left.
    pub fn more(&self) -> bool {
        !self.0.is_empty()
    }

    /// The next number.
    pub fn number(&mut self) -> Result<u64, String> {
        take(&mut self.0).ok_or_else(|| "a column ends before its last row".to_string())
    }

    /// The next number, if it is one of the type's.
    pub fn small<T: TryFrom<u64>>(&mut self) -> Result<T, String> {
        let value = self.number()?;
        T::try_from(value).map_err(|_| format!("{value} is out of range"))
    }

    /// What is a step away from a number.
    pub fn step(&mut self, from: u64) -> Result<u64, String> {
        Ok(from.wrapping_add(unzigzag(self.number()?) as u64))
    }

    /// The bytes up to the next NUL.
    pub fn text(&mut self) -> Result<&'a [u8], String> {
        let end = self.0.iter().position(|byte| *byte == 0);
        let end = end.ok_or("a text has no end")?;
        let (text, rest) = self.0.split_at(end);
        self.0 = &rest[1..];
        Ok(text)
    }
}

/// How many of the values met last are told by how long ago that was: so many keep a hostile file from
/// costing more than a microsecond a row, and the files a start works on at a time are fewer.
const RECENT: usize = 256;

/// Values of which the same come again soon: a value is 0 and, in a second column, its step from the one that
/// was met first last; or, if it was among the last met, 1 for the very last, 2 for the one before, and so
/// on.
#[derive(Default)]
pub(super) struct Recent {
    /// The last met at the end.
    met: Vec<u64>,
    /// The value most recently met for the first time.
    first: u64,
}

impl Recent {
    fn meet(&mut self, value: u64) {
        if self.met.len() == RECENT {
            self.met.remove(0);
        }
        self.met.push(value);
    }

    /// Writes a value.
    pub fn put(&mut self, ago: &mut Column, steps: &mut Column, value: u64) {
        match self.met.iter().rposition(|met| *met == value) {
            Some(at) => {
                ago.number((self.met.len() - at) as u64);
                self.met.remove(at);
            }
            None => {
                ago.number(0);
                steps.step(self.first, value);
                self.first = value;
            }
        }
        self.meet(value);
    }

    /// Reads a value.
    pub fn take(&mut self, ago: &mut Cursor<'_>, steps: &mut Cursor<'_>) -> Result<u64, String> {
        let value = match ago.small::<usize>()? {
            0 => {
                self.first = steps.step(self.first)?;
                self.first
            }
            ago => {
                let at = self.met.len().checked_sub(ago);
                self.met
                    .remove(at.ok_or_else(|| format!("{ago} values ago there was none"))?)
            }
        };
        self.meet(value);
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back() {
        let values = [0, 7, 7, u64::MAX, 0, 3, 7, u64::MAX, 1 << 40];
        let many: Vec<u64> = (0..3000).map(|i| i * i % 601).chain(values).collect();
        let mut columns = [const { Column(Vec::new()) }; 3];
        let (mut recent, mut last) = (Recent::default(), 0);
        for value in &many {
            let [ago, first, steps] = &mut columns;
            recent.put(ago, first, *value);
            steps.step(last, *value);
            last = *value;
        }
        let bytes = join(&columns);
        let [mut ago, mut first, mut steps] = split(&bytes).unwrap();
        let (mut recent, mut last) = (Recent::default(), 0);
        for value in many {
            assert_eq!(recent.take(&mut ago, &mut first), Ok(value));
            last = steps.step(last).unwrap();
            assert_eq!(last, value);
        }
        assert!(!ago.more() && !first.more() && !steps.more());
        assert!(split::<4>(&bytes).is_err());
    }
}
