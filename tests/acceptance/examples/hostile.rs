//! What headstart costs a boot beside an unprivileged user who does everything that could hurt it, against
//! the same boot and the same user without headstart.
//!
//! `cargo run --release -p headstart-acceptance --example hostile -- [ROUNDS [DISK [SECONDS]]]`
//!
//! Seconds to multi-user: the medians of ROUNDS (5) boots each, interleaved, on a disk model of the lab
//! (flash4ms). First beside a user who works for 6 s, longer than a boot takes until it is up; headstart has
//! learned in two boots beside the user and reads all ahead, and then the same where headstart decides
//! whether that pays. Last beside one who works for SECONDS (60) and fills the image, so that nobody can
//! write anything; headstart has had three boots to learn from. The goals are a ratio of 1.05, and 256 MiB.

use anyhow::{Context, Result};
use headstart_acceptance::boots::Boots;
use headstart_acceptance::hostile::{Pairs, decide_as_usual, join_boots};
use headstart_lab::paths;
use headstart_lab::registry::Registry;

/// How long the first user works.
const SHORT: u64 = 6;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let rounds: usize = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let disk = arguments.next().unwrap_or_else(|| "flash4ms".into());
    let seconds: u64 = arguments.next().map_or(Ok(60), |text| text.parse())?;
    let registry = Registry::open(&paths::base()?)?;
    registry.undo_on_signals()?;
    let image = concat!(env!("CARGO_MANIFEST_DIR"), "/images/cut.toml");
    for (seconds, files, to_learn, always) in [
        (SHORT, 2_000, 2, true),
        (SHORT, 2_000, 2, false),
        (seconds, 4_000, 3, false),
    ] {
        let mut boots = Boots::new(image, &disk, &registry)?;
        let how = match always {
            true => "all boots are read ahead",
            false => "as headstart decides",
        };
        if !always {
            decide_as_usual(&mut boots)?;
        }
        join_boots(&mut boots, seconds, files)?;
        println!("{disk}, a user who works for {seconds} s, {how}");
        for number in 1..=to_learn {
            let (said, _) = boots.boot().context("a boot to learn from")?;
            println!("boot {number} to learn from:");
            for line in said.lines().filter(|line| line.contains("status: ")) {
                println!("  {}", line.trim());
            }
        }
        println!("{}", Pairs::boot(&mut boots, rounds)?);
    }
    Ok(())
}
