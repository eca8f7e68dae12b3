//! Lists of `headstart export --for`, read by the code of the programs that they are for.

#![allow(clippy::unwrap_used)] // Tests fail by panicking, in their helpers too.

mod go;
mod image;
mod nydus2;
mod nydus3;
