//! Moving the data of files on a mounted file system, while they are in use. The places of a file's data are
//! exchanged with those of a donor, a nameless file whose room was allocated before ([`donor`]): who reads or
//! writes the file notices nothing, and a crash leaves either the old place or the new one. What the donor
//! holds in the end is free when it is closed, also by a crash. What lies below may have less room than the
//! file system ([`space_below`]), so room is written before it is exchanged.
//!
//! Each kind of file system has an exchange of its own, and files that it skips ([`mover`]).

pub mod donor;
mod ext4;
mod mapper;
pub mod movable;
pub mod mover;
mod space_below;
pub mod volume;
mod xfs;
