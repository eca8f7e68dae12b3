//! What was recorded on one machine travels inside an image: captured after its boots were learned and
//! started as another machine, it is read ahead at its first boot. Judged by counts; `--example golden`
//! measures the seconds. In a run of all tests only. The disk's size and name stay, so that it is not taken
//! for another: that such a one is measured anew, tests of the session crate show.

use anyhow::{Context, Result, ensure};
use headstart_acceptance::boots::Boots;
use headstart_lab::paths;
use headstart_lab::registry::Registry;
use headstart_model::Outcome;
use headstart_model::outcome::Mode;

/// The least share of what was read ahead at the third boot of the machine that learned, which the first of
/// another has to have.
const GOAL: f64 = 0.90;

/// The share of the pages a boot used that a replay read ahead, in time or late.
fn read_ahead(outcome: &Outcome) -> Result<f64> {
    ensure!(
        outcome.mode == Mode::Replay,
        "it was not read ahead: {:?}, {:?}",
        outcome.mode,
        outcome.not_learned
    );
    let sum = |count: fn(&headstart_model::outcome::StageOutcome) -> u64| -> u64 {
        outcome.stages.iter().map(count).sum()
    };
    let used = sum(|stage| stage.used_pages);
    // Late ones, too, were read ahead: a busy machine makes more of them.
    let known = used + sum(|stage| stage.late_pages);
    ensure!(used > 0, "nothing that was read ahead was used");
    Ok(known as f64 / (known + sum(|stage| stage.missed_pages)) as f64)
}

#[test]
#[ignore = "make test-all runs it"]
fn an_image_is_read_ahead_at_its_first_boot_on_another_machine() -> Result<()> {
    let registry = Registry::open(&paths::base()?)?;
    let container = concat!(env!("CARGO_MANIFEST_DIR"), "/images/cut.toml");
    let mut boots = Boots::new(container, "flash4ms", &registry)?;
    boots.setup.init = Some("/usr/sbin/headstart-init".into());
    for _ in 0..2 {
        boots.boot().context("a boot to learn from")?;
    }
    // Not each boot with a replay is recorded.
    let due = "rm -f $R/var/lib/headstart/keys/*/turns $R/var/lib/headstart/starts/*-boot";
    boots.shell(due)?;
    boots.boot().context("a boot to compare with")?;
    let third = read_ahead(&boots.state()?.outcome.context("an outcome of the third boot")?)?;
    // Another machine, and a disk that answers otherwise.
    boots.shell("echo 676f6c64656e0000000000000000beef >$R/etc/machine-id")?;
    boots.change_disk("cloud", &registry)?;
    boots.shell(due)?;
    boots.boot().context("the first boot of the other machine")?;
    let state = boots.state()?;
    let first = read_ahead(&state.outcome.context("an outcome of the first boot")?)?;
    println!(
        "read ahead: {:.1} % at the third boot, {:.1} % at the first of another",
        100.0 * third,
        100.0 * first
    );
    ensure!(state.outcomes == 4, "{} boots are known of four", state.outcomes);
    ensure!(
        first >= GOAL * third,
        "{first:.3} of what it used was read ahead, and {third:.3} before"
    );
    Ok(())
}
