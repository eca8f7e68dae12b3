//! What people ask of starts and this machine, beyond what is kept: the floor of a start on this machine's devices ([`floor`]), and whose the bytes are that
//! devices read ([`compare`], [`owners`]).

pub mod compare;
pub mod floor;
pub mod owners;
pub mod privacy;
