//! What headstart costs a boot that it cannot help: a machine on a disk without delays, off, bypassed,
//! recorded only, and replayed; and one boot in forty recorded, the others bypassed, as it goes by itself in
//! the long run.
//!
//! `cargo run --release -p headstart-acceptance --example overhead -- [ROUNDS [cold|warm [unit|init [RECIPE]]]]`
//!
//! Seconds to the last mark before headstart has learned from the boot, seconds of processors until it has,
//! all of the machine's added up, and what was read from the disk; in every round each once, in turn. `warm`:
//! with all the boot reads in memory already. `init`: from before process 1 on, not from the first unit on.
//! RECIPE: another machine than the container, such as `tests/acceptance/images/small13.toml`.

use anyhow::{Context, Result, bail};
use headstart_acceptance::boots::Boots;
use headstart_lab::machine::Machine;
use headstart_lab::paths;
use headstart_lab::registry::Registry;
use headstart_lab::setup::Cache;
use headstart_lab::stats::{deviation, mean, median};

/// How boots go, and the word for it on the kernel command line, where there is one.
const MODES: [(&str, Option<&str>); 4] = [
    ("off", Some("headstart=off")),
    ("alone", None),
    ("record", Some("headstart=record")),
    ("on", Some("headstart=on")),
];

/// Seconds until it was up, seconds of processors, read requests, and MiB read.
type Run = [f64; 4];

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
    let init = match arguments.next().as_deref() {
        None | Some("unit") => None,
        Some("init") => Some("/usr/sbin/headstart-init".into()),
        Some(other) => bail!("{other:?}: give unit or init"),
    };
    let container = concat!(env!("CARGO_MANIFEST_DIR"), "/images/cut.toml");
    let recipe = arguments.next().unwrap_or_else(|| container.into());
    let mut boots = Boots::new(&recipe, "none", &registry)?;
    boots.setup.init = init;
    boots.setup.cache = cache;
    boots.shell("rm $R/etc/headstart/headstart.toml")?;
    boots.setup.kernel = vec!["headstart=record".into()];
    for _ in 0..3 {
        boots.boot().context("a boot to learn from")?;
    }
    if boots.state()?.bypass.is_empty() {
        bail!("boots are not bypassed: on this machine a boot of {recipe} waits for its disk");
    }
    // None re-evaluates meanwhile.
    boots.shell(&format!(
        "sed -i '1s/.*/{}/' $R/var/lib/headstart/keys/*/bypass",
        u32::MAX
    ))?;
    let mut by_mode: [Vec<Run>; MODES.len()] = Default::default();
    for round in 0..rounds {
        for turn in 0..MODES.len() {
            let mode = (round + turn) % MODES.len();
            let mut setup = boots.setup.clone();
            setup.kernel = MODES[mode].1.map(String::from).into_iter().collect();
            // What it writes is forgotten: every boot knows the same.
            let measured = boots.machine.run(&setup, &boots.place)?;
            let up = measured.marks.iter().rev().nth(1);
            let boot = measured.stages.last().context("a boot")?;
            by_mode[mode].push([
                up.context("a mark before the last")?.seconds,
                boot.cpu_seconds
                    .context("a control group that counts processors' time")?,
                boot.reads as f64,
                boot.bytes as f64 / f64::from(1 << 20),
            ]);
        }
    }
    let fortieth = by_mode[1]
        .iter()
        .zip(&by_mode[2])
        .map(|(alone, record)| std::array::from_fn(|at| (39.0 * alone[at] + record[at]) / 40.0))
        .collect();
    let names = MODES.iter().map(|(name, _)| *name).chain(["1 in 40"]);
    println!("{rounds} rounds, {cache:?}: mean (sd), median of the difference to off in each round");
    for (mode, runs) in names.zip(by_mode.iter().chain([&fortieth])) {
        let own = |runs: &[Run], at: usize| runs.iter().map(|run| run[at]).collect::<Vec<f64>>();
        let column = |at: usize| {
            let (runs, base) = (own(runs, at), own(&by_mode[0], at));
            let less: Vec<f64> = runs.iter().zip(&base).map(|(a, b)| a - b).collect();
            let sd = deviation(&runs).unwrap_or(f64::NAN);
            let difference = median(&less);
            format!(
                "{:.3} s ({sd:.3}), {difference:+.3} s ({:+.1} %)",
                mean(&runs),
                100.0 * difference / median(&base)
            )
        };
        println!(
            "{mode:7} up {}; CPU {}; {} reads, {:.1} MiB",
            column(0),
            column(1),
            median(&own(runs, 2)),
            median(&own(runs, 3))
        );
    }
    Ok(())
}
