//! Boots that are not like others, and are no failures: whose job queue never empties, or that wait for
//! somebody for minutes.

use anyhow::{Context, Result};
use headstart_acceptance::boots::{Boots, State};
use headstart_lab::paths;
use headstart_lab::registry::Registry;
use headstart_model::outcome::Mode;

/// In the place of the unit that waits for headstart, which would wait for ever.
const ENOUGH: &str = r#"cat >$R/etc/systemd/system/served.service <<'END'
[Service]
ExecStart=/bin/sh -c "sleep 6; echo headstart has served this boot >/dev/console"
END
"#;

fn unit(name: &str, text: &str, target: &str) -> String {
    let system = "$R/etc/systemd/system";
    format!(
        "cat >{system}/{name}.service <<'END'\n{text}END\nmkdir -p {system}/{target}.wants\nln -sf ../{name}.service {system}/{target}.wants/{name}.service\n"
    )
}

fn boots() -> Result<Boots> {
    let registry = Registry::open(&paths::base()?)?;
    let image = concat!(env!("CARGO_MANIFEST_DIR"), "/images/odd.toml");
    Boots::new(image, "none", &registry)
}

fn mode(state: &State) -> Result<Mode> {
    Ok(state.outcome.as_ref().context("an outcome")?.mode)
}

/// What a boot left, which taught, and after the first one was read ahead.
fn served(boots: &mut Boots, boot: u32) -> Result<State> {
    let state = boots.state()?;
    assert!(
        state.armed && state.profile && state.plan,
        "{boot}: {}",
        state.last
    );
    let expected = if boot == 1 { Mode::Record } else { Mode::Replay };
    assert_eq!(mode(&state)?, expected, "{boot}: {}", state.last);
    Ok(state)
}

#[test]
fn case_04_a_boot_whose_jobs_never_end_teaches_and_the_next_ones_are_read_ahead() -> Result<()> {
    let mut boots = boots()?;
    let kiosk = "[Service]\nType=oneshot\nExecStart=/bin/sleep infinity\n";
    boots.shell(&unit("kiosk", kiosk, "multi-user.target"))?;
    boots.shell(ENOUGH)?;
    for boot in 1..=4 {
        boots.boot()?;
        let state = served(&mut boots, boot)?;
        assert!(state.last.contains("\"took_ns\": null"), "{boot}: {}", state.last);
        assert!(
            state.last.contains("the machine was shut down"),
            "{boot}: {}",
            state.last
        );
    }
    // Cut off, it may have hung.
    boots.boot_and(false)?;
    boots.shell("for guard in $R/var/lib/headstart/starts/*.guard; do head -c 4096 /dev/zero | tr '\\0' 0 >\"$guard\"; done")?;
    boots.boot()?;
    let state = boots.state()?;
    assert!(state.armed && mode(&state)? == Mode::Declined, "{}", state.last);
    assert!(state.last.contains("did not come to its end"), "{}", state.last);
    Ok(())
}

/// A machine that has been started for one thing: it powers itself off as soon as it is up.
const BRIEF: &str = r#"cat >$R/etc/systemd/system/served.service <<'END'
[Service]
ExecStart=/bin/sh -c "systemctl is-system-running --wait; echo headstart has served this boot >/dev/console; exec systemctl poweroff"
END
"#;

#[test]
fn a_boot_that_ends_as_soon_as_it_is_up_is_no_failure() -> Result<()> {
    let mut boots = boots()?;
    boots.shell(BRIEF)?;
    for boot in 1..=3 {
        boots.boot()?;
        served(&mut boots, boot)?;
    }
    Ok(())
}

#[test]
#[ignore = "make test-all runs it"]
fn case_21_what_comes_behind_a_late_passphrase_is_known_and_read_ahead() -> Result<()> {
    let mut boots = boots()?;
    let ask = "[Unit]\nDefaultDependencies=no\nBefore=local-fs.target\n[Service]\nType=oneshot\nTimeoutStartSec=600\nExecStart=/bin/sh -c \"sleep $(cat /etc/ask)\"\n";
    boots.shell(&unit("ask", ask, "local-fs.target"))?;
    let work = "[Unit]\nAfter=basic.target\n[Service]\nType=oneshot\nExecStart=/bin/sh -c \"cat /usr/share/perl/*/*.pm >/dev/null\"\n";
    boots.shell(&unit("work", work, "multi-user.target"))?;
    boots.shell("mkdir -p $R/usr/share/perl/behind; seq 100000 >$R/usr/share/perl/behind/passphrase.pm")?;
    // More than any boot is recorded that does something.
    for (boot, seconds) in [(1, 150), (2, 1)] {
        boots.shell(&format!("echo {seconds} >$R/etc/ask"))?;
        boots.boot()?;
        let state = boots.state()?;
        let expected = if boot == 1 { Mode::Record } else { Mode::Replay };
        assert_eq!(mode(&state)?, expected, "{boot}: {}", state.last);
        assert!(
            state.armed && state.last.contains("it was quiet"),
            "{boot}: {}",
            state.last
        );
    }
    let used = boots.state()?.outcome.context("an outcome")?;
    let missed: u64 = used.stages.iter().map(|stage| stage.missed_pages).sum();
    let in_time: u64 = used
        .stages
        .iter()
        .map(|stage| stage.used_pages + stage.late_pages)
        .sum();
    assert!(missed * 10 <= in_time, "{used:?}");
    Ok(())
}
