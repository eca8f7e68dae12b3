//! The least time a start could take on its devices, and where its time beyond that went.

use serde::{Deserialize, Serialize};

/// The floor of a start, and what it is made of. Times are nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Floor {
    /// No order of reads makes the start shorter.
    pub floor_ns: u64,
    /// The moment of the warm start that decides: what is used before it has to be read first.
    pub moment_ns: u64,
    /// The devices' best time for what is used before that moment.
    pub read_ns: u64,
    /// The devices' best time for all that is used.
    pub read_all_ns: u64,
    /// What the start takes where it waits for nothing.
    pub warm_ns: u64,
    /// Bytes used.
    pub bytes: u64,
    /// Whether the start recorded had waited for devices, so that its times only say when something was
    /// needed at the latest.
    pub waited: bool,
}

/// Bytes of a device that a start surely uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Need {
    /// When a start that waits for nothing uses them first: nanoseconds from its first use.
    pub time_ns: u64,
    /// The device's place among those that the floor goes by.
    pub device: u32,
    /// The first byte.
    pub start: u64,
    /// The byte behind the last.
    pub end: u64,
}

/// Where a start's time above its floor went, by the cost model. The parts add up to the time above it.
/// Nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Above {
    /// How long the start took.
    pub took_ns: u64,
    /// Until headstart issued its first request.
    pub own_ns: u64,
    /// The replay took longer than the devices' best time for what it read.
    pub order_ns: u64,
    /// What it read beyond what the start used.
    pub over_read_ns: u64,
    /// What the start used and no replay read, one read after the other.
    pub reads_left_ns: u64,
    /// The rest: computing that waited for what was read late, or that ran slower than in a warm start.
    pub computing_ns: u64,
}

impl Above {
    /// The parts with their names, in the order of a start.
    pub fn parts(&self) -> [(&'static str, u64); 5] {
        [
            ("own time", self.own_ns),
            ("order", self.order_ns),
            ("over-read", self.over_read_ns),
            ("reads left", self.reads_left_ns),
            ("computing that waited", self.computing_ns),
        ]
    }
}
