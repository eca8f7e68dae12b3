//! Profiles that travel: what may leave this machine ([`export`]), and what becomes of what came from another
//! ([`import`], [`packaged`]).

pub mod export;
pub mod import;
pub mod packaged;
mod private;

use serde::Serialize;

/// A key that was left out, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// The key.
    pub key: String,
    /// Why, as the end of a sentence.
    pub why: String,
}

impl LeftOut {
    fn new(key: impl ToString, why: impl Into<String>) -> LeftOut {
        LeftOut {
            key: key.to_string(),
            why: why.into(),
        }
    }
}

/// What was left out, a line each, for people.
pub fn lines(left_out: &[LeftOut]) -> impl Iterator<Item = String> {
    left_out.iter().map(|it| {
        let key = headstart_inspect::human::printable(&it.key);
        format!("{key} is left out: {}\n", it.why)
    })
}
