//! A power cut: what it leaves of what a disk was told to write and had not flushed.

use std::os::unix::fs::FileExt;
use std::sync::{Arc, PoisonError};

use anyhow::Result;

use super::backing::Backing;
use super::block::{BLOCK, Blocks};
use headstart_bench::statistics::Random;

/// What a power cut leaves of a block that was not flushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// All that was written, or what was there before: with even odds.
    Blocks,
    /// One time in three each; else it is torn: each of its sectors is one or the other.
    Sectors,
}

/// Bytes that a disk writes whole or not at all, if no more.
const SECTOR: usize = 512;

impl Backing {
    /// Keeps, as [`Backing::commit`] does, what a power cut at this instant would leave: of the blocks
    /// written since the last flush some, as `random` has it, hold what they held before, for a write cache
    /// is emptied in any order. Whoever uses the disk may go on; what it writes is forgotten. Returns how
    /// many blocks were lost, in part or whole, of how many not flushed.
    pub fn cut_power(&self, random: &mut Random, cut: Cut) -> Result<(usize, usize)> {
        let (left, lost, all) = self.left_by_a_cut(random, cut)?;
        self.keep(left)?;
        Ok((lost, all))
    }

    fn left_by_a_cut(&self, random: &mut Random, cut: Cut) -> Result<(Blocks, usize, usize)> {
        // Against a writer in between.
        let overlay = self.overlay.read().unwrap_or_else(PoisonError::into_inner);
        let mut written: Vec<_> = self
            .unflushed()
            .iter()
            .map(|(block, before)| (*block, before.clone()))
            .collect();
        let mut left = overlay.clone();
        drop(overlay);
        // The map's order is another in every process.
        written.sort_unstable_by_key(|(block, _)| *block);
        let (all, mut lost) = (written.len(), 0);
        for (block, before) in written {
            let fates = match cut {
                Cut::Blocks => 2,
                Cut::Sectors => 3,
            };
            match (random.below(fates), before) {
                (0, _) => continue,
                (1, Some(content)) => drop(left.insert(block, content)),
                (1, None) => drop(left.remove(&block)),
                (_, before) => {
                    let torn = self.torn(left.get(&block), block, before, random)?;
                    left.insert(block, torn);
                }
            }
            lost += 1;
        }
        Ok((left, lost, all))
    }

    /// A block of which each sector is what was written or what was there before.
    fn torn(
        &self,
        written: Option<&Arc<[u8]>>,
        block: u64,
        before: Option<Arc<[u8]>>,
        random: &mut Random,
    ) -> Result<Arc<[u8]>> {
        let mut torn = vec![0; BLOCK as usize];
        match before {
            Some(before) => torn.copy_from_slice(&before),
            None => self.file.read_exact_at(&mut torn, block * BLOCK)?,
        }
        let new = written.map_or(&[][..], |written| &written[..]);
        for (old, new) in torn.chunks_mut(SECTOR).zip(new.chunks(SECTOR)) {
            if random.below(2) == 0 {
                old.copy_from_slice(new);
            }
        }
        Ok(torn.into())
    }
}

#[cfg(test)]
mod tests {
    use super::super::backing::Writes;
    use super::super::backing::tests::image;
    use super::*;

    #[test]
    fn a_power_cut_takes_some_of_what_was_not_flushed() {
        let file = image(40);
        let scratch = tempfile::tempdir().unwrap();
        let writes = Writes::Delta(scratch.path().join("delta"));
        let backing = Backing::open(file.path(), &writes).unwrap();
        let original = std::fs::read(file.path()).unwrap();
        backing.write(0, &vec![1; 20 * 4096]).unwrap();
        backing.flush();
        // Some of the image, some of what was flushed; one of them twice.
        backing.write(10 * 4096, &vec![2; 20 * 4096]).unwrap();
        backing.write(10 * 4096, &[2; 4096]).unwrap();
        let (lost, all) = backing.cut_power(&mut Random(1), Cut::Blocks).unwrap();
        backing.write(0, &[3; 4096]).unwrap();
        backing.reset();
        let now = backing.read(0, original.len()).unwrap().to_vec();
        assert!(all == 20 && lost > 0 && lost < 20);
        assert_eq!(now[..10 * 4096], [1; 10 * 4096], "what was flushed stays");
        let stayed = (10..30).filter(|i| now[i * 4096..][..4096] == [2; 4096]);
        assert_eq!(stayed.count(), 20 - lost);
        let lost_of_flushed = (10..20).filter(|i| now[i * 4096..][..4096] == [1; 4096]).count();
        let of_image = (20..30).filter(|i| now[i * 4096..][..4096] == original[i * 4096..][..4096]);
        assert_eq!(lost_of_flushed + of_image.count(), lost);
        let again = backing.cut_power(&mut Random(1), Cut::Blocks).unwrap();
        assert_eq!(again, (0, 0), "what is left is on the media");
    }

    #[test]
    fn a_power_cut_may_tear_blocks_between_sectors() {
        let file = image(60);
        let scratch = tempfile::tempdir().unwrap();
        let writes = Writes::Delta(scratch.path().join("delta"));
        let backing = Backing::open(file.path(), &writes).unwrap();
        // Some of the image, some of what was flushed.
        backing.write(0, &[9; 30 * 4096]).unwrap();
        backing.flush();
        let before = backing.read(0, 60 * 4096).unwrap().to_vec();
        backing.write(0, &[250; 60 * 4096]).unwrap();
        let (lost, all) = backing.cut_power(&mut Random(1), Cut::Sectors).unwrap();
        backing.reset();
        let now = backing.read(0, before.len()).unwrap().to_vec();
        let new = |at: usize, bytes: &[u8]| match bytes {
            bytes if bytes == [250; 512] => true,
            bytes => {
                assert_eq!(bytes, &before[at..at + 512], "a sector is one or the other");
                false
            }
        };
        let blocks: Vec<usize> = (0..60)
            .map(|block| {
                let sectors = (0..8).map(|sector| block * 4096 + sector * 512);
                sectors.filter(|at| new(*at, &now[*at..at + 512])).count()
            })
            .collect();
        let whole = blocks.iter().filter(|new| **new == 8).count();
        let old = blocks.iter().filter(|new| **new == 0).count();
        assert!(all == 60 && whole >= all - lost && whole > 5 && old > 5);
        assert!(whole + old < 50, "{blocks:?}");
    }
}
