//! Reports about tools like this one, tried on headstart: each module is one kind of surprise, and says what
//! is right.

#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;

mod crowded;
mod deep_paths;
mod encrypted;
mod fair_shares;
mod filtered_doctor;
mod foreign_root;
mod hard_links;
mod hardened;
mod ia32;
mod leased;
mod many_mounts;
mod overlay_container;
mod own_limits;
mod own_namespace;
mod reads_left;
mod renumbered;
mod resume;
mod savings;
mod scanner;
mod squashfs;
mod thin_volume;
mod unmounted_at_end;
mod warmth;
mod wrappers;
