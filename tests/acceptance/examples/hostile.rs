//! What headstart costs a boot beside an unprivileged user who does everything that could hurt it, against the same boot and the same user
//! without headstart.
//!
//! `cargo run --release -p headstart-acceptance --example hostile -- [ROUNDS [DISK [SECONDS]]]`
//!
//! Seconds to multi-user: the medians of ROUNDS (5) boots each, interleaved, on a disk model of the lab (flash4ms), beside a user who
//! works for SECONDS (4): longer than a boot takes until it is up. What headstart knows it has learned in two boots beside the user; in more
//! than some 8 s the user fills the image, so that nobody can write anything, and each boot is a first one. The goal is a ratio of 1.05, and 256 MiB.

use anyhow::{Context, Result};
use headstart_acceptance::boots::Boots;
use headstart_acceptance::hostile::{Pairs, join_boots};
use headstart_lab::paths;
use headstart_lab::registry::Registry;

/// The user's files.
const FILES: u32 = 2_000;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let rounds: usize = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let disk = arguments.next().unwrap_or_else(|| "flash4ms".into());
    let seconds: u64 = arguments.next().map_or(Ok(4), |text| text.parse())?;
    let registry = Registry::open(&paths::base()?)?;
    registry.undo_on_signals()?;
    let image = concat!(env!("CARGO_MANIFEST_DIR"), "/images/cut.toml");
    let mut boots = Boots::new(image, &disk, &registry)?;
    join_boots(&mut boots, seconds, FILES)?;
    println!("{disk}");
    for number in 1..=2 {
        let (said, _) = boots.boot().context("a boot to learn from")?;
        println!("boot {number} to learn from:");
        for line in said.lines().filter(|line| line.contains("status: ")) {
            println!("  {}", line.trim());
        }
    }
    println!("{}", Pairs::boot(&mut boots, rounds)?);
    Ok(())
}
