//! A section of values, read one after the other, so that each list has its limit before memory is taken for
//! it.

use serde::de::DeserializeOwned;

/// The values that are left of a section.
pub(super) struct Values<'a>(&'a [u8]);

impl<'a> Values<'a> {
    /// Reads a section from its beginning.
    pub fn new(section: &'a [u8]) -> Values<'a> {
        Values(section)
    }

    /// The next value; of several in a row, a tuple. It may hold texts, which are no longer than the section,
    /// and no lists.
    pub fn one<T: DeserializeOwned>(&mut self) -> Result<T, String> {
        let (value, rest) = postcard::take_from_bytes(self.0).map_err(|e| e.to_string())?;
        self.0 = rest;
        Ok(value)
    }

    /// The number of elements of the list that comes next: at most `most`, and no more than bytes are left.
    pub fn count(&mut self, what: &str, most: usize) -> Result<usize, String> {
        let count: u64 = self.one()?;
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        crate::limits::bounded(what, count, most)?;
        match count <= self.0.len() {
            true => Ok(count),
            false => Err(format!("its list of {what} is cut")),
        }
    }

    /// A list of at most `most` elements.
    pub fn list<T: DeserializeOwned>(&mut self, what: &str, most: usize) -> Result<Vec<T>, String> {
        let count = self.count(what, most)?;
        let mut list = Vec::with_capacity(count);
        for _ in 0..count {
            list.push(self.one()?);
        }
        Ok(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_lists_come_back_in_order() {
        let bytes = postcard::to_allocvec(&(7u64, vec!["a", "b"], 9u16)).unwrap();
        let mut values = Values::new(&bytes);
        assert_eq!(values.one(), Ok(7u64));
        assert_eq!(values.list("texts", 2), Ok(vec!["a".to_string(), "b".into()]));
        assert_eq!(values.one(), Ok(9u16));
        assert!(values.one::<u8>().is_err());
    }

    #[test]
    fn a_count_is_judged_before_memory_is_taken() {
        let bytes = postcard::to_allocvec(&(3u64, [0u8; 3])).unwrap();
        assert!(
            Values::new(&bytes)
                .list::<u8>("things", 2)
                .is_err_and(|e| e == "it has more than 2 things")
        );
        let bytes = postcard::to_allocvec(&(u64::MAX, [0u8; 3])).unwrap();
        assert!(
            Values::new(&bytes)
                .list::<u64>("things", usize::MAX)
                .is_err_and(|e| e.contains("cut"))
        );
    }
}
