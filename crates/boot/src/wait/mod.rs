//! What waits for headstart in a boot: for how long ([`how_long`]), and who, with the words by which they are
//! told ([`who`]).

pub(crate) mod how_long;
pub mod who;
