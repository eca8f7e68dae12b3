//! Which files are asked about, and for whom: what one user's programs take, others' are not left out for.

use super::{Inode, ToAskAbout};
use std::collections::HashMap;
use std::path::PathBuf;

/// So many files are asked about at a time.
pub(super) const MOST: usize = 128;

/// And so many for the keys of one user, who is not root.
const MOST_OF_A_USER: usize = MOST / 4;

/// The files that are asked about.
#[derive(Default)]
pub(super) struct Shares {
    files: HashMap<Inode, File>,
    last: u64,
}

struct File {
    program: PathBuf,
    path: PathBuf,
    user: Option<u32>,
    turn: u64,
}

impl Shares {
    /// What starts when a file is executed.
    pub(super) fn program(&self, inode: Inode) -> Option<PathBuf> {
        self.files.get(&inode).map(|file| file.program.clone())
    }

    /// One more, or one for another key; gives the paths of those that give way to it: the oldest of the same user, or of whoever has the most.
    pub(super) fn add(&mut self, it: &ToAskAbout) -> Vec<PathBuf> {
        self.last += 1;
        let turn = self.last;
        if let Some(file) = self.files.get_mut(&it.inode) {
            // Also if its number was another file's: the kernel forgets what is deleted. What is several users' is the system's.
            file.user = file.user.filter(|user| Some(*user) == it.user);
            (file.program, file.path, file.turn) = (it.program.clone(), it.path.clone(), turn);
            return Vec::new();
        }
        let mut gone = Vec::new();
        if it.user.is_some() && self.count(it.user) >= MOST_OF_A_USER {
            gone.extend(self.remove_oldest_of(it.user));
        }
        if self.files.len() >= MOST {
            let all = self.files.values().map(|file| file.user);
            if let Some(whose) = all.max_by_key(|user| self.count(*user)) {
                gone.extend(self.remove_oldest_of(whose));
            }
        }
        let file = File {
            program: it.program.clone(),
            path: it.path.clone(),
            user: it.user,
            turn,
        };
        self.files.insert(it.inode, file);
        gone
    }

    fn count(&self, user: Option<u32>) -> usize {
        self.files.values().filter(|file| file.user == user).count()
    }

    fn remove_oldest_of(&mut self, user: Option<u32>) -> Option<PathBuf> {
        let theirs = self.files.iter().filter(|(_, file)| file.user == user);
        let oldest = theirs.min_by_key(|(_, file)| file.turn).map(|(inode, _)| *inode);
        self.files.remove(&oldest?).map(|file| file.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(user: Option<u32>, number: u64) -> ToAskAbout {
        ToAskAbout {
            file: std::fs::File::open("/dev/null").unwrap().into(),
            inode: (u64::from(user.unwrap_or(0)), number),
            path: format!("/{number}").into(),
            user,
            program: "/x".into(),
            known: None,
        }
    }

    #[test]
    fn who_has_many_programs_held_gives_way_to_others_and_to_nobody_else() {
        let mut shares = Shares::default();
        let theirs = of(Some(1001), 0);
        assert!(shares.add(&theirs).is_empty());
        for number in 0..132 {
            let gone = shares.add(&of(Some(1000), number));
            let expected: Vec<PathBuf> = number
                .checked_sub(MOST_OF_A_USER as u64)
                .map(|number| format!("/{number}").into())
                .into_iter()
                .collect();
            assert_eq!(gone, expected);
        }
        assert!(shares.program(theirs.inode).is_some());
        assert!(shares.program(of(Some(1000), 0).inode).is_none());
        // The system's may take all that is free, and what others need of it they get.
        for number in 0..200 {
            shares.add(&of(None, number));
        }
        assert_eq!(shares.files.len(), MOST);
        assert!(shares.program(theirs.inode).is_some());
        assert_eq!(shares.count(Some(1000)), MOST_OF_A_USER);
        assert_eq!(shares.add(&of(Some(1002), 0)).len(), 1);
        assert!(shares.program(theirs.inode).is_some() && shares.files.len() == MOST);
    }

    #[test]
    fn a_file_of_several_users_counts_for_none_of_them() {
        let mut shares = Shares::default();
        for user in [1000, 1001, 1001] {
            let mut it = of(Some(user), 0);
            it.inode = (0, 0);
            assert!(shares.add(&it).is_empty());
        }
        assert_eq!(shares.count(None), 1);
    }
}
