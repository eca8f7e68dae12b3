//! A machine whose packages are upgraded between boots.

use crate::boot::unwrapped;
use anyhow::{Context, Result};
use headstart_acceptance::boots::Boots;
use headstart_lab::paths;
use headstart_lab::registry::Registry;
use headstart_model::Outcome;
use headstart_model::outcome::Mode;

/// As dpkg does it: each file is written anew, somewhat longer, and renamed over the old one.
const UPGRADE: &str = r#"
cd $R/var/lib/dpkg/info
cat systemd.list libsystemd-shared:amd64.list libssl3:amd64.list openssh-server.list nginx.list | while read -r path; do
    file=$R$path
    case $path in /etc/*) continue ;; esac
    test -f "$file" && test ! -L "$file" || continue
    cp -p "$file" "$file.dpkg-new"
    case $(head -c 4 "$file" | tail -c 3) in ELF) head -c 10000 /dev/zero >>"$file.dpkg-new" ;; esac
    touch "$file.dpkg-new"
    mv "$file.dpkg-new" "$file"
done"#;

#[test]
fn an_upgrade_is_not_read_wrongly_and_followed_at_once() -> Result<()> {
    let registry = Registry::open(&paths::base()?)?;
    let image = concat!(env!("CARGO_MANIFEST_DIR"), "/images/cut.toml");
    let mut boots = Boots::new(image, "none", &registry)?;
    let mut boot = || -> Result<Outcome> {
        boots.boot()?;
        boots.state()?.outcome.context("an outcome")
    };
    boot()?;
    let before = boot()?;
    assert_eq!(before.mode, Mode::Replay);
    boots.shell(UPGRADE)?;
    let mut boot = || -> Result<Outcome> {
        boots.boot()?;
        boots.state()?.outcome.context("an outcome")
    };
    let sum = |outcome: &Outcome, of: fn(&headstart_model::outcome::StageOutcome) -> u64| {
        outcome.stages.iter().map(of).sum::<u64>()
    };
    // Of the files that are others now nothing is read: not at the old offsets, not at all.
    let first = boot()?;
    println!("{:?}", first.skipped);
    assert!(
        first.mode == Mode::Replay && first.not_learned.is_none(),
        "{first:?}"
    );
    assert!(
        first.skipped.changed > 20 && before.skipped.changed == 0,
        "{first:?}"
    );
    let (wasted, arrived) = (sum(&first, |s| s.wasted_pages), sum(&first, |s| s.arrived_pages));
    assert!(wasted * 20 <= arrived, "{wasted} of {arrived} pages were wasted");
    assert!(
        arrived * 10 < sum(&before, |s| s.arrived_pages) * 9,
        "what changed is not read: {arrived} pages"
    );
    // The boot after is read ahead in full.
    let second = boot()?;
    let (used, late, missed) = (
        sum(&second, |s| s.used_pages),
        sum(&second, |s| s.late_pages),
        sum(&second, |s| s.missed_pages),
    );
    println!("used {used}, late {late}, missed {missed}; {:?}", second.skipped);
    assert_eq!(second.skipped.changed, 0, "{second:?}");
    assert!(missed * 10 <= used + late, "{missed} pages missed, {used} used");

    // What boots need is known by now, and recording takes more than a hundredth of this one's processors:
    // the next is not recorded.
    let known = boots.state()?;
    assert!((1..10).contains(&known.turns.record_in), "{:?}", known.turns);
    let (said, _) = boots.boot()?;
    let state = boots.state()?;
    let unrecorded = state.outcome.context("an outcome")?;
    assert!(
        unrecorded.mode == Mode::Replay && unrecorded.unrecorded && unrecorded.elapsed_ns > 0,
        "{unrecorded:?}: {}",
        state.last
    );
    assert_eq!(state.turns.record_in, known.turns.record_in - 1);
    assert_eq!((state.traces, state.outcomes), (known.traces, known.outcomes + 1));
    assert!(
        state.armed && state.last.contains("\"recorder\": null"),
        "{}",
        state.last
    );
    let said = unwrapped(&said);
    let expected = "This boot was read ahead. It was not recorded";
    assert!(
        said.contains(expected) && said.contains("not its turn to be recorded"),
        "{said}"
    );

    // But for an upgrade, which the boot after it learns, whoever's turn it is.
    boots.shell("echo '{\"replays_since_control\":0,\"record_in\":9}' | tee $R/var/lib/headstart/keys/*/turns; rm $R/var/lib/headstart/starts/*-boot")?;
    boots.shell(UPGRADE)?;
    boots.boot()?;
    let state = boots.state()?;
    let changed = state.outcome.context("an outcome")?;
    assert!(changed.unrecorded && changed.skipped.changed > 20, "{changed:?}");
    assert_eq!(state.turns.record_in, 0);
    boots.boot()?;
    let learned = boots.state()?.outcome.context("an outcome")?;
    assert!(
        learned.mode == Mode::Replay && learned.not_learned.is_none(),
        "{learned:?}"
    );
    Ok(())
}
