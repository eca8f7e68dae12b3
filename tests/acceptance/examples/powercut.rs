//! Power cuts: a machine whose boots are read ahead is cut off at random moments of its boot. After each cut
//! every file of headstart's state must be whole, the next boot must come up, and the guard must act once:
//! where the cut came after the replay had begun, the next boot goes without one and says why; the one after
//! is read ahead again.
//!
//! `cargo run --release -p headstart-acceptance --example powercut -- [CUTS [SEED [RECIPE [DISK]]]]`
//!
//! Defaults: 50 cuts, seed 1, a small Debian 13 in a virtual machine, the disk without delays. Of a virtual
//! machine all is lost that its disk had not flushed, in part: memory, and a random half of the blocks in the
//! disk's write cache.

use anyhow::{Context, Result, ensure};
use headstart_acceptance::boots::{Boots, FROM_INITRAMFS, ROOT_CHECKED, State};
use headstart_bench::statistics::Random;
use headstart_lab::paths;
use headstart_lab::registry::Registry;
use std::time::Duration;

const SAID: &str = "did not come to its end";

/// What came of the cuts.
#[derive(Default)]
struct Counts {
    set: usize,
    amid: usize,
    lost: usize,
    unflushed: usize,
    temporary: usize,
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let cuts: usize = arguments.next().map_or(Ok(50), |text| text.parse())?;
    let mut random = Random(arguments.next().map_or(Ok(1), |text| text.parse())?);
    let recipe = arguments
        .next()
        .unwrap_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/images/small13.toml").to_owned());
    let disk = arguments.next().unwrap_or_else(|| "none".into());
    let registry = Registry::open(&paths::base()?)?;
    registry.undo_on_signals()?;
    let mut boots = Boots::new(&recipe, &disk, &registry)?;
    // As early as can be: by the initramfs, which checks the root.
    boots.shell(ROOT_CHECKED)?;
    boots.shell(FROM_INITRAMFS)?;

    boots.boot().context("the first boot")?;
    let (_, mut whole) = boots.boot().context("the second boot")?;
    let state = boots.state()?;
    ensure!(replayed(&state)?, "the second boot is read ahead: {}", state.last);
    let mut counts = Counts::default();
    for cut in 1..=cuts {
        ensure!(boots.state()?.armed, "the guard is set before cut {cut}");
        // Of the seconds that the last whole boot took, until headstart had learned from it.
        let after = Duration::from_secs_f64(whole * random.below(1 << 20) as f64 / f64::from(1 << 20));
        let (lost, unflushed) = boots
            .machine
            .cut(&boots.setup, &boots.place, after, &mut random)
            .with_context(|| format!("cut {cut}"))?;
        let state = boots.state().with_context(|| format!("after cut {cut}"))?;
        let amid = !state.armed;
        counts.temporary = counts.temporary.max(state.temporary);
        (_, whole) = boots
            .boot()
            .with_context(|| format!("the boot after cut {cut}"))?;
        let next = boots
            .state()
            .with_context(|| format!("after the boot after cut {cut}"))?;
        // The reason is told, and it is the only one there can be.
        ensure!(
            replayed(&next)? != amid && next.last.contains(SAID) == amid,
            "cut {cut} came {}, the next boot says {}",
            if amid {
                "amid a replay"
            } else {
                "the guard was set"
            },
            next.last
        );
        ensure!(
            next.armed,
            "after the boot after cut {cut} the guard is set again: {}",
            next.last
        );
        ensure!(
            next.temporary == 0 && next.traces <= 7 && next.outcomes <= 50,
            "what a cut left is cleared away: {next:?}"
        );
        counts.lost += lost;
        counts.unflushed += unflushed;
        if amid {
            counts.amid += 1;
        } else {
            counts.set += 1;
        }
        println!(
            "cut {cut}: after {:.1} s, {}; {lost} of {unflushed} unflushed blocks lost; {} temporary files; next boot served after {:.1} s",
            after.as_secs_f64(),
            if amid {
                "amid a replay"
            } else {
                "the guard was set"
            },
            state.temporary,
            whole,
        );
    }
    boots.boot().context("the last boot")?;
    let state = boots.state()?;
    ensure!(replayed(&state)?, "the last boot is read ahead: {}", state.last);
    println!(
        "{cuts} cuts: {} while the guard was set (before the replay, or when the boot had ended), {} amid a replay; every next boot came up, every file was whole; {} of {} unflushed \
         blocks lost; at most {} temporary files, gone after the next boot; state now {} KiB",
        counts.set,
        counts.amid,
        counts.lost,
        counts.unflushed,
        counts.temporary,
        state.bytes >> 10,
    );
    Ok(())
}

/// Whether the last boot that ended was read ahead.
fn replayed(state: &State) -> Result<bool> {
    let last: serde_json::Value = serde_json::from_str(&state.last).context("the report of a boot")?;
    Ok(last["not_replayed"].is_null() && last["mode"] == "replay")
}
