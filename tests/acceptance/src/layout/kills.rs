//! `layout apply`, killed at any moment.

use super::{Case, FULL, Image, SHAPES, Use, knobs, places, start, status};
use anyhow::{Context, Result, ensure};
use std::time::{Duration, Instant};

/// Kills it so often, on file systems of each [`FULL`] in turn. After each kill the file system is clean,
/// every file what it was, no donor and no changed knob left, and `layout status` tells of it. Returns what
/// came of it.
pub fn run(kills: usize, seed: u64) -> Result<String> {
    let on_full = |full: u64| on(full, kills.div_ceil(FULL.len()), seed);
    let told: Vec<String> = FULL.into_iter().map(on_full).collect::<Result<_>>()?;
    Ok(told.join("\n"))
}

fn on(full: u64, kills: usize, seed: u64) -> Result<String> {
    let case = Case {
        size: 512 << 20,
        full,
        shape: &SHAPES[0],
        seed,
    };
    let mut image = Image::new(&case)?;
    image.learn(Use::Random)?;
    let begun = Instant::now();
    let said = image.apply()?;
    let whole = begun.elapsed();
    ensure!(said.state == "complete", "one that nobody killed: {said:?}");
    let (mut amid, mut ended, mut moved) = (0, 0, 0);
    // On a busy machine one that is killed may be faster than the one that was measured, and no kill come in
    // time: then there are more of them.
    for kill in 1..=10 * kills {
        if kill > kills && amid > 0 {
            break;
        }
        image.learn(Use::Random)?;
        let before = knobs(&image.fs.node())?;
        let lay = places(&image.paths())?;
        let mut child = start(image.state())?;
        let after = whole.mul_f64(image.random.below(1100) as f64 / 1000.0);
        std::thread::sleep(after.max(Duration::from_millis(1)));
        child.kill()?;
        child.wait()?;
        let told = status(image.state())?;
        let state = told.as_ref().map_or("none", |said| &said.state);
        match state {
            "interrupted" => amid += 1,
            "complete" => ended += 1,
            state => anyhow::bail!("kill {kill}: status tells {state}: {told:?}"),
        }
        moved += usize::from(state == "interrupted" && places(&image.paths())? != lay);
        ensure!(
            before == knobs(&image.fs.node())?,
            "kill {kill}: a knob is not as it was"
        );
        image
            .check()
            .with_context(|| format!("after kill {kill}, at {after:?}"))?;
    }
    ensure!(amid > 0, "no kill came amid the work");
    ensure!(
        kills < 10 || moved > 0,
        "no kill came when files lay elsewhere by then"
    );
    image.learn(Use::Random)?;
    let said = image.apply().context("after the last kill")?;
    ensure!(said.state == "complete", "after the last kill: {said:?}");
    image.check().context("after the last kill")?;
    Ok(format!(
        "{full} % full: {} kills of what takes {whole:?}: {amid} amid the work ({moved} of them when files lay elsewhere by then), {ended} before it began or after its end; clean after \
         each, {} files as they were, no donor, no changed knob",
        amid + ended,
        image.files.len()
    ))
}
