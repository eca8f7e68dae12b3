//! Numbers by chance, the same for the same seed.

/// Numbers by chance (splitmix64).
pub struct Random(u64);

impl Random {
    /// Those of a seed.
    pub fn new(seed: u32) -> Random {
        Random(u64::from(seed) << 32 | 0x5eed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number of any size: small ones as often as large ones, and those at the edges.
    pub fn number(&mut self) -> u64 {
        let any = self.next();
        match any % 8 {
            0 => 0,
            1 => u64::MAX,
            2 => i64::MAX as u64,
            _ => any >> (self.next() % 64),
        }
    }

    /// A number below `most`; 0 if that is 0.
    pub fn below(&mut self, most: usize) -> usize {
        (self.next() % most.max(1) as u64) as usize
    }

    /// Whether it is one of so many times.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}
