//! The requests of a plan, by device and pass.

use crate::queue::Queue;
use crate::request::RequestState;
use headstart_model::plan::{Fill, PlanDevice};

/// The requests of one device, by pass.
pub struct Work {
    /// The device as the plan has it.
    pub planned: PlanDevice,
    /// Its requests.
    pub passes: Passes<Queue>,
    /// What is fetched of it first.
    pub fill: Option<Fill>,
    /// How many of the data's requests are before the barrier: what was planned behind them may go before
    /// them where files are opened by path after all.
    pub barrier_data: usize,
}

impl Work {
    /// All of them.
    pub fn requests(&self) -> impl Iterator<Item = &RequestState> {
        let Passes {
            metadata,
            look_ups,
            data,
            beside,
        } = &self.passes;
        [metadata, look_ups, data, beside]
            .into_iter()
            .flat_map(|queue| &queue.requests)
    }
}

/// What the passes of a device do, one after the other; the last two at once.
#[derive(Default)]
pub struct Passes<T> {
    /// Metadata, read through the block device.
    pub metadata: T,
    /// Paths that are looked up.
    pub look_ups: T,
    /// Data, and the metadata that stands amid it.
    pub data: T,
    /// Paths that no data waits for.
    pub beside: T,
}
