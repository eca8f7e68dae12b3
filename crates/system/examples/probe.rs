//! Measures a block device and prints what a plan would be told: `cargo run --example probe -- /dev/loop0`.

use headstart_system::device::{ProbeOptions, probe_node};
use std::path::PathBuf;

fn main() {
    for node in std::env::args_os().skip(1).map(PathBuf::from) {
        let before = std::time::Instant::now();
        match probe_node(&node, &ProbeOptions::default()) {
            Ok(found) => println!("{}: {:#?} in {:?}", node.display(), found, before.elapsed()),
            Err(error) => println!("{error}"),
        }
    }
}
