//! The blocks that a disk's writes are counted and kept in.

use std::collections::HashMap;
use std::sync::Arc;

/// Bytes of a block: as many as in the file systems in use, so that a write is mostly whole blocks.
pub(super) const BLOCK: u64 = 4096;

/// Written blocks by number.
pub(super) type Blocks = HashMap<u64, Arc<[u8]>>;
