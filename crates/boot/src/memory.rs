//! How much memory a boot's replay may fill: what the machine has, less what boots turned out to need for
//! themselves.
//!
//! What is available when a boot begins says little: nearly all is, and the services that will want it have
//! not started. So each boot notes the most that it had in use, page cache apart, and the next plan leaves
//! that alone.

use headstart_model::room::{RESERVE, Room};
use headstart_system::memory::{Memory, memory};

/// This part of all memory stays free, or [`RESERVE`] if that is more, for what differs from one boot to the
/// next.
const SLACK: u64 = 16;

/// What a boot needs for itself, as far as it has come.
#[derive(Debug, Default)]
pub struct Need {
    /// The most that was in use so far, bytes; 0 before the first look.
    most: u64,
    /// All memory, bytes.
    total: u64,
}

impl Need {
    /// Samples how much memory is in use now. Nothing is noted where `/proc/meminfo` cannot be read.
    pub fn sample(&mut self) {
        if let Ok(now) = memory() {
            self.note(&now);
        }
    }

    fn note(&mut self, now: &Memory) {
        self.total = now.limit.unwrap_or(now.total);
        self.most = self.most.max(now.in_use());
    }

    /// What the next boot is taken to need, bytes: what this one did, or half way down from what earlier ones
    /// were taken to need if that was more. `None` if nothing is known.
    pub fn with_earlier(&self, earlier: Option<u64>) -> Option<u64> {
        let half_way = |earlier: u64| self.most.midpoint(earlier).max(self.most);
        (self.most > 0).then(|| earlier.map_or(self.most, half_way))
    }

    /// What the replay of a boot may fill that needs `needed` bytes for itself.
    pub fn budget(&self, needed: u64) -> u64 {
        let spare = RESERVE.max(self.total / SLACK);
        Room::new(self.total.saturating_sub(needed), spare, 1.0).bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn machine(total: u64, available: u64) -> Memory {
        Memory {
            total,
            available,
            ..Memory::default()
        }
    }

    #[test]
    fn the_most_of_a_boot_counts_and_earlier_ones_fade() {
        let mut need = Need::default();
        assert_eq!(need.with_earlier(Some(7)), None, "nothing was seen");
        for available in [900, 600, 700] {
            need.note(&machine(1024 * MIB, available * MIB));
        }
        assert_eq!(need.with_earlier(None), Some(424 * MIB));
        assert_eq!(need.with_earlier(Some(400 * MIB)), Some(424 * MIB));
        assert_eq!(need.with_earlier(Some(624 * MIB)), Some(524 * MIB));
    }

    #[test]
    fn what_boots_need_is_left_to_them() {
        let mut need = Need::default();
        need.note(&machine(4096 * MIB, 4000 * MIB));
        assert_eq!(need.budget(1000 * MIB), (4096 - 1000 - 256) * MIB);
        need.note(&machine(192 * MIB, 100 * MIB));
        assert_eq!(need.budget(100 * MIB), 28 * MIB);
        assert_eq!(need.budget(144 * MIB), 4 * MIB, "on a small machine metadata");
        assert_eq!(need.budget(180 * MIB), 0, "and on a smaller one nothing");
        // What was swapped out would have been in memory if there had been room.
        let mut board = Need::default();
        board.note(&Memory {
            swapped: 70 * MIB,
            in_zram: 70 * MIB,
            ..machine(128 * MIB, 40 * MIB)
        });
        assert_eq!(board.with_earlier(None), Some(158 * MIB));
        assert_eq!(board.budget(158 * MIB), 0);
        let limited = Memory {
            limit: Some(512 * MIB),
            ..machine(8192 * MIB, 500 * MIB)
        };
        let mut need = Need::default();
        need.note(&limited);
        assert_eq!(need.with_earlier(None), Some(12 * MIB));
    }
}
