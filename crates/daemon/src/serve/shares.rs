//! What all users' programs share a bounded number of: what one user's take, others' are not left out for.

use std::collections::HashMap;
use std::hash::Hash;

/// So many of something at most, and so many for the keys of one user, who is not root.
pub(super) struct Shares<K> {
    most: usize,
    most_of_a_user: usize,
    all: HashMap<K, SlotUse>,
    last: u64,
}

struct SlotUse {
    /// `None`: the system's, or several users'.
    user: Option<u32>,
    turn: u64,
}

impl<K: Copy + Eq + Hash> Shares<K> {
    pub(super) fn new(most: usize, most_of_a_user: usize) -> Shares<K> {
        Shares {
            most,
            most_of_a_user,
            all: HashMap::new(),
            last: 0,
        }
    }

    /// One more, or one that is there already, anew; gives those that give way to it: the oldest of the same
    /// user, or of whoever has the most.
    pub(super) fn add(&mut self, key: K, user: Option<u32>) -> Vec<K> {
        self.last += 1;
        let turn = self.last;
        if let Some(one) = self.all.get_mut(&key) {
            let user = one.user.filter(|theirs| Some(*theirs) == user);
            *one = SlotUse { user, turn };
            return Vec::new();
        }
        let mut gone = Vec::new();
        if user.is_some() && self.count(user) >= self.most_of_a_user {
            gone.extend(self.remove_oldest_of(user));
        }
        if self.all.len() >= self.most {
            let mut counts: HashMap<Option<u32>, usize> = HashMap::new();
            for one in self.all.values() {
                *counts.entry(one.user).or_default() += 1;
            }
            if let Some((whose, _)) = counts.into_iter().max_by_key(|(_, count)| *count) {
                gone.extend(self.remove_oldest_of(whose));
            }
        }
        self.all.insert(key, SlotUse { user, turn });
        gone
    }

    fn count(&self, user: Option<u32>) -> usize {
        self.all.values().filter(|one| one.user == user).count()
    }

    fn remove_oldest_of(&mut self, user: Option<u32>) -> Option<K> {
        let theirs = self.all.iter().filter(|(_, one)| one.user == user);
        let oldest = *theirs.min_by_key(|(_, one)| one.turn)?.0;
        self.all.remove(&oldest).map(|_| oldest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_much_gives_way_to_others_and_to_nobody_else() {
        let mut shares = Shares::new(128, 32);
        let theirs = (1001, 0);
        assert!(shares.add(theirs, Some(1001)).is_empty());
        for number in 0..132_u64 {
            let gone = shares.add((1000, number), Some(1000));
            let expected: Vec<_> = number
                .checked_sub(32)
                .map(|number| (1000, number))
                .into_iter()
                .collect();
            assert_eq!(gone, expected);
        }
        assert!(shares.all.contains_key(&theirs) && !shares.all.contains_key(&(1000, 0)));
        // The system may have all that is free, and what others need of that they get.
        for number in 0..200 {
            shares.add((0, number), None);
        }
        assert_eq!((shares.all.len(), shares.count(Some(1000))), (128, 32));
        assert_eq!(shares.add((1002, 0), Some(1002)), [(0, 105)]);
        assert!(shares.all.contains_key(&theirs) && shares.all.len() == 128);
    }

    #[test]
    fn what_several_users_have_counts_for_none_of_them() {
        let mut shares = Shares::new(8, 2);
        for user in [1000, 1001, 1001] {
            assert!(shares.add(7_u64, Some(user)).is_empty());
        }
        assert_eq!((shares.count(None), shares.count(Some(1001))), (1, 0));
    }
}
