//! What headstart costs a boot that it cannot help: a container on a disk without delays, off, recorded only, and replayed.
//!
//! `cargo run --release -p headstart-acceptance --example overhead -- [ROUNDS [cold|warm]]`
//!
//! Seconds to multi-user.target, and seconds of processors until headstart has learned from the boot, all processes of the
//! container added up; in every round each once, in turn. `warm`: with all the boot reads in memory already.

use anyhow::{Context, Result, bail};
use headstart_acceptance::boots::Boots;
use headstart_lab::machine::Machine;
use headstart_lab::paths;
use headstart_lab::registry::Registry;
use headstart_lab::setup::Cache;
use headstart_lab::stats::{deviation, mean, median};

const MODES: [&str; 3] = ["off", "record", "on"];

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let rounds: usize = arguments.next().map_or(Ok(10), |text| text.parse())?;
    let cache = match arguments.next().as_deref() {
        None | Some("cold") => Cache::Cold,
        Some("warm") => Cache::Warm,
        Some(other) => bail!("{other:?}: give cold or warm"),
    };
    let registry = Registry::open(&paths::base()?)?;
    registry.undo_on_signals()?;
    let recipe = concat!(env!("CARGO_MANIFEST_DIR"), "/images/cut.toml");
    let mut boots = Boots::new(recipe, "none", &registry)?;
    for _ in 0..3 {
        boots.boot().context("a boot to learn from")?;
    }
    let mut found: [Vec<(f64, f64)>; 3] = Default::default();
    for round in 0..rounds {
        for turn in 0..MODES.len() {
            let mode = (round + turn) % MODES.len();
            let mut setup = boots.setup.clone();
            setup.cache = cache;
            setup.kernel = vec![format!("headstart={}", MODES[mode])];
            // What it writes is forgotten: every boot knows the same.
            let measured = boots.machine.run(&setup, &boots.place)?;
            let up = measured.marks.iter().find(|mark| mark.name == "multi-user");
            let up = up.context("a boot that reached multi-user.target")?.seconds;
            let cpu = measured.stages.iter().find_map(|stage| stage.cpu_seconds);
            found[mode].push((up, cpu.context("a control group that counts processors' time")?));
        }
    }
    println!("{rounds} rounds, {cache:?}: mean (sd), median of the difference to off in each round");
    for (mode, runs) in MODES.iter().zip(&found) {
        let column = |of: fn(&(f64, f64)) -> f64| {
            let own: Vec<f64> = runs.iter().map(of).collect();
            let base: Vec<f64> = found[0].iter().map(of).collect();
            let less: Vec<f64> = own.iter().zip(&base).map(|(a, b)| a - b).collect();
            let sd = deviation(&own).unwrap_or(f64::NAN);
            let difference = median(&less);
            format!(
                "{:.3} s ({sd:.3}), {difference:+.3} s ({:+.1} %)",
                mean(&own),
                100.0 * difference / median(&base)
            )
        };
        println!("{mode:6} up {}; CPU {}", column(|run| run.0), column(|run| run.1));
    }
    Ok(())
}
