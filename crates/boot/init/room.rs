//! Whether a file system has room for what a boot teaches. Pure, and so tested by the crate
//! (`src/program.rs`).

/// Of a boot neither trace nor profile nor plan has 1 MB.
const LEAST_BYTES: u64 = 4 << 20;
/// Twice the files that a boot writes.
const LEAST_INODES: u64 = 16;

/// Of file systems in memory, by what statfs(2) calls their type: tmpfs and ramfs.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// What statfs(2) says of a file system; root may take what is kept back from others.
pub struct Room {
    /// What kind it is.
    pub kind: u64,
    /// Bytes of a block.
    pub block: u64,
    /// Blocks that are free.
    pub free_blocks: u64,
    /// Inodes; 0 where there are as many as fit.
    pub inodes: u64,
    /// Inodes that are free.
    pub free_inodes: u64,
}

impl Room {
    /// Whether there is enough, and for longer than until the next boot.
    pub fn is_enough(&self) -> bool {
        !IN_MEMORY.contains(&self.kind)
            && self.block.saturating_mul(self.free_blocks) >= LEAST_BYTES
            && (self.inodes == 0 || self.free_inodes >= LEAST_INODES)
    }
}
