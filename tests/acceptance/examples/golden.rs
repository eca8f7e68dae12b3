//! What a boot gains that was learned on another machine: an image is booted on one disk until its boots are
//! learned, captured, and started as another machine (another machine-id, another disk; a virtual machine's
//! is called nvme0n1 there, and was called sda).
//!
//! `cargo run --release -p headstart-acceptance --example golden -- [ROUNDS [RECIPE [LEARNED_ON [DISK…]]]]`
//!
//! Seconds to multi-user of RECIPE (the container of the acceptance tests, by headstart-init; or a virtual
//! machine, such as debian12), the medians of ROUNDS (5) boots each, interleaved: cold and warm without
//! headstart, the third boot of a machine that learned on DISK itself (cloud and lazy), and the first there
//! of one that learned on LEARNED_ON (sata-ssd). R is the share of what there is to gain; the goal is that
//! the first boot's is at least 0.90 of the third's.

use anyhow::{Context, Result, bail};
use headstart_acceptance::boots::{Boots, FROM_INITRAMFS, ROOT_CHECKED};
use headstart_acceptance::hostile::decide_as_usual;
use headstart_bench::statistics::median;
use headstart_lab::machine::Machine;
use headstart_lab::paths;
use headstart_lab::registry::Registry;
use headstart_lab::setup::{Bus, Cache};

/// The word on the kernel command line that leaves a boot alone.
const OFF: &str = "headstart=off";
/// The least of what the third boot gained that the first has to gain.
const GOAL: f64 = 0.90;

const CONTAINER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/images/cut.toml");

/// A machine that has booted so many times on a disk.
fn learned(recipe: &str, disk: &str, count: usize, registry: &Registry) -> Result<Boots> {
    let mut boots = Boots::new(recipe, disk, registry)?;
    decide_as_usual(&mut boots)?;
    if recipe == CONTAINER {
        boots.setup.init = Some("/usr/sbin/headstart-init".into());
    } else {
        // The root is found whatever it is called.
        boots.shell("sed -i \"s|^/dev/sda|UUID=$(findmnt -no UUID -T $R)|\" $R/etc/fstab")?;
        boots.shell(ROOT_CHECKED)?;
        boots.shell(FROM_INITRAMFS)?;
    }
    for _ in 0..count {
        boots.boot().context("a boot to learn from")?;
    }
    // The other machine's turn.
    boots.machine.detach();
    Ok(boots)
}

/// Seconds to multi-user of a boot, what it writes forgotten.
fn boot(boots: &mut Boots, cache: Cache, words: &[&str]) -> Result<f64> {
    let mut setup = boots.setup.clone();
    setup.cache = cache;
    setup.kernel = words.iter().map(|word| (*word).to_owned()).collect();
    headstart_lab::pageout::wait();
    let measured = boots.machine.run(&setup, &boots.place);
    boots.machine.detach();
    let measured = measured?;
    let up = measured.marks.iter().find(|mark| mark.name == "multi-user");
    Ok(up.context("the mark multi-user")?.seconds)
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let rounds: usize = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let recipe = arguments.next().unwrap_or_else(|| CONTAINER.into());
    let learned_on = arguments.next().unwrap_or_else(|| "sata-ssd".into());
    let mut disks: Vec<String> = arguments.collect();
    if disks.is_empty() {
        disks = vec!["cloud".into(), "lazy".into()];
    }
    let registry = Registry::open(&paths::base()?)?;
    registry.undo_on_signals()?;
    let mut met = true;
    for disk in &disks {
        let mut third = learned(&recipe, disk, 2, &registry)?;
        let mut first = learned(&recipe, &learned_on, 3, &registry)?;
        println!(
            "{disk}: learned on {learned_on}, bypassed there: {}",
            !first.state()?.bypass.is_empty()
        );
        first.shell("echo 676f6c64656e0000000000000000beef >$R/etc/machine-id")?;
        first.change_disk(disk, &registry)?;
        first.setup.bus = Bus::Nvme;
        let mut shares: [Vec<f64>; 4] = Default::default();
        for round in 0..rounds {
            for turn in 0..4 {
                let which = (round + turn) % 4;
                shares[which].push(match which {
                    0 => boot(&mut third, Cache::Cold, &[OFF])?,
                    1 => boot(&mut third, Cache::Warm, &[OFF])?,
                    2 => boot(&mut third, Cache::Cold, &[])?,
                    _ => boot(&mut first, Cache::Cold, &[])?,
                });
            }
        }
        for (name, times) in ["cold", "warm", "third", "first"].iter().zip(&shares) {
            let least = times.iter().copied().fold(f64::INFINITY, f64::min);
            let most = times.iter().copied().fold(0.0, f64::max);
            println!("  {name:6} {:.2} s ({least:.2} to {most:.2})", median(times));
        }
        let [cold, warm, third, first] = shares.map(|times| median(&times));
        let gain = |with: f64| (cold - with) / (cold - warm);
        let share = gain(first) / gain(third);
        println!(
            "  R {:.0} % at the first boot, {:.0} % at the third of its own: {share:.2} of it",
            100.0 * gain(first),
            100.0 * gain(third)
        );
        met &= share >= GOAL;
    }
    if !met {
        bail!("a first boot gained less than {GOAL} of what the third of its own gained");
    }
    Ok(())
}
