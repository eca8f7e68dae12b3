//! One sort for all types.
//!
//! The standard library's sorts are compiled anew for each type and each comparison, some 5 KB each. A start
//! reads the program from a cold disk before it reads anything ahead, so size counts more than the last bit
//! of speed. Here positions are sorted, by one compiled sort, and the elements follow. Numbers alone keep the
//! standard library's sort, which is compiled once for each kind of number.

use std::cmp::Ordering;

/// The sorts of a slice. All are stable.
pub trait Sort<T> {
    /// Sorts by the elements' own order.
    fn sort_small(&mut self)
    where
        T: Ord;

    /// Sorts as `compare` says.
    fn sort_small_by(&mut self, compare: impl FnMut(&T, &T) -> Ordering);

    /// Sorts by a key, which is computed for each comparison.
    fn sort_small_by_key<K: Ord>(&mut self, key: impl FnMut(&T) -> K);

    /// Sorts by a key, which is computed once for each element.
    fn sort_small_by_cached_key<K: Ord>(&mut self, key: impl FnMut(&T) -> K);
}

impl<T> Sort<T> for [T] {
    fn sort_small(&mut self)
    where
        T: Ord,
    {
        let mut order = positions(self.len(), &mut |a, b| self[a].cmp(&self[b]));
        follow(self, &mut order);
    }

    fn sort_small_by(&mut self, mut compare: impl FnMut(&T, &T) -> Ordering) {
        let mut order = positions(self.len(), &mut |a, b| compare(&self[a], &self[b]));
        follow(self, &mut order);
    }

    fn sort_small_by_key<K: Ord>(&mut self, mut key: impl FnMut(&T) -> K) {
        let mut order = positions(self.len(), &mut |a, b| key(&self[a]).cmp(&key(&self[b])));
        follow(self, &mut order);
    }

    fn sort_small_by_cached_key<K: Ord>(&mut self, key: impl FnMut(&T) -> K) {
        let keys: Vec<K> = self.iter().map(key).collect();
        let mut order = positions(self.len(), &mut |a, b| keys[a].cmp(&keys[b]));
        follow(self, &mut order);
    }
}

/// The positions `0..length` in the order that `compare` says.
#[inline(never)]
fn positions(length: usize, compare: &mut dyn FnMut(usize, usize) -> Ordering) -> Vec<usize> {
    let mut order: Vec<usize> = (0..length).collect();
    order.sort_by(|a, b| compare(*a, *b));
    order
}

/// Puts each element where `order` wants it: at position `i` the one that was at `order[i]`. Goes along the
/// cycles of the permutation, and leaves `order` as the identity.
fn follow<T>(items: &mut [T], order: &mut [usize]) {
    for first in 0..order.len() {
        let mut at = first;
        loop {
            let from = std::mem::replace(&mut order[at], at);
            if from == first {
                break;
            }
            items.swap(at, from);
            at = from;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers from 0 to `below`, the same ones every time.
    fn numbers(count: usize, below: u64) -> Vec<u64> {
        let mut seed = 7u64;
        let mut next = || {
            // Knuth's MMIX generator.
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn it_sorts_as_the_standard_library_does() {
        for count in [0, 1, 2, 3, 10, 100, 5000] {
            // Few different keys, so that it shows whether equal ones stay in their order.
            let items: Vec<(u64, usize)> = numbers(count, 20).into_iter().zip(0..).collect();
            let mut expected = items.clone();
            expected.sort_by_key(|(key, _)| *key);
            let mut by_key = items.clone();
            by_key.sort_small_by_key(|(key, _)| *key);
            assert_eq!(by_key, expected, "{count}");
            let mut by_cached_key = items.clone();
            by_cached_key.sort_small_by_cached_key(|(key, _)| key.to_string().len() * 100 + *key as usize);
            assert_eq!(by_cached_key, expected, "{count}");
            let mut by = items.clone();
            by.sort_small_by(|a, b| b.0.cmp(&a.0));
            let mut expected = items.clone();
            expected.sort_by_key(|b| std::cmp::Reverse(b.0));
            assert_eq!(by, expected, "{count}");
        }
    }

    #[test]
    fn what_cannot_be_copied_is_sorted_by_its_own_order() {
        let mut words: Vec<String> = numbers(300, 1000).iter().map(u64::to_string).collect();
        let mut expected = words.clone();
        expected.sort();
        words.sort_small();
        assert_eq!(words, expected);
    }
}
