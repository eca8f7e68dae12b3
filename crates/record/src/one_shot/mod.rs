//! One recording, begun and ended by whoever starts it: `headstart run`, `headstart record` and boots.

pub mod recorder;
pub mod samples;
pub mod worker;
