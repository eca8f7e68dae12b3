//! A machine that boots: recorded twice, read ahead from then on, and not after a boot that did not come to
//! its end. A container on a disk without delays; judged by what headstart says it did, and by counts of the
//! disk.

use anyhow::{Context, Result};
use headstart_acceptance::boots::Boots;
use headstart_acceptance::headstart;
use headstart_lab::image::{Fs, Recipe};
use headstart_lab::kind::Kind;
use headstart_lab::machine::{self, Machine, Place, Spec};
use headstart_lab::model::Model;
use headstart_lab::paths;
use headstart_lab::registry::Registry;
use headstart_lab::setup::{Cache, Setup};
use headstart_model::outcome::Mode;
use headstart_model::trace::stage;
use headstart_model::{Outcome, Profile, Trace};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What is kept of boots in the image, copied out of it.
struct Kept(PathBuf);

impl Kept {
    fn files(&self, extension: &str) -> Result<Vec<PathBuf>> {
        let mut paths = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            let path = entry?.path();
            if path.extension().is_some_and(|e| e == extension) {
                paths.push(path);
            }
        }
        paths.sort();
        Ok(paths)
    }

    fn last_outcome(&self) -> Result<Outcome> {
        let path = self.files("outcome")?.pop().context("an outcome")?;
        Ok(Outcome::from_bytes(&fs::read(path)?)?)
    }

    fn said(&self) -> Result<String> {
        Ok(fs::read_to_string(self.0.join("last.json"))?)
    }

    fn is_armed(&self) -> bool {
        let key = self.0.file_name().unwrap_or_default().to_string_lossy();
        let guard = self.0.join(format!("../../starts/{key}.guard"));
        fs::read(guard).is_ok_and(|guard| guard.first() == Some(&b'1'))
    }
}

fn words(line: &[&str]) -> Vec<String> {
    line.iter().map(|word| (*word).to_owned()).collect()
}

/// Copies out what is kept.
fn kept(machine: &mut dyn Machine, place: &Place, to: &Path) -> Result<Kept> {
    let _ = fs::remove_dir_all(to);
    let to_text = to.to_string_lossy();
    machine.install(
        place,
        &[words(&["cp", "-a", "{root}/var/lib/headstart", &to_text])],
    )?;
    let mut keys = fs::read_dir(to.join("keys"))?;
    let key = keys.next().context("a key")??.path();
    assert!(keys.next().is_none(), "boots have one key");
    Ok(Kept(key))
}

#[test]
fn a_machine_is_read_ahead_from_its_second_boot_on() -> Result<()> {
    let base = paths::base()?;
    let registry = Registry::open(&base)?;
    let mut recipe = Recipe::load("container")?;
    // Until it is quiet, and what was learned is kept.
    recipe.boot.as_mut().context("it boots")?.settle_seconds = 8.0;
    let spec = Spec {
        kind: Kind::Container,
        recipe,
        fs: Fs::Ext4,
        model: Model::load("none")?,
        memory_mb: None,
        processors: None,
        answer: None,
        limit: Duration::from_secs(120),
        output: base.join("console.log"),
        base: base.clone(),
    };
    let mut setup = Setup::load("none")?;
    machine::check(&spec, &setup)?;
    let mut machine = machine::open(&spec, &registry, &|step| eprintln!("container: {step}"))?;
    let dir = tempfile::tempdir_in(&base)?;
    let place = Place {
        state: dir.path().join("state"),
        headstart: headstart()?,
        workload: "container".into(),
        disk: String::new(),
        at_once: false,
        profile: None,
    };
    let out = dir.path().join("keys");
    machine.install(
        &place,
        &[
            words(&[
                "install",
                "-D",
                "-m",
                "755",
                "{headstart}",
                "{root}/usr/bin/headstart",
            ]),
            words(&["{headstart}", "boot", "enable", "--root", "{root}"]),
        ],
    )?;

    machine.record(&setup, &place, None)?;
    let after = kept(machine.as_mut(), &place, &out)?;
    let first = after.last_outcome()?;
    assert_eq!(
        (first.mode, &first.not_learned),
        (Mode::Record, &None),
        "{}",
        after.said()?
    );
    assert!(after.is_armed(), "it came to its end: {}", after.said()?);
    let profile = Profile::from_bytes(&fs::read(after.0.join("profile"))?)?;
    let paths: Vec<String> = profile
        .entries
        .iter()
        .map(|entry| entry.path.to_string())
        .collect();
    assert!(
        paths.iter().any(|path| path.ends_with("/sshd")),
        "a service is known: {paths:?}"
    );
    let excluded = [
        "/proc/",
        "/sys/",
        "/dev/",
        "/run/",
        "/tmp/",
        "/var/lib/headstart/",
    ];
    let wrong: Vec<&String> = paths
        .iter()
        .filter(|path| excluded.iter().any(|e| path.starts_with(e)))
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    for stage in ["local-fs", "services"] {
        assert!(profile.stages.iter().any(|s| s == stage), "{:?}", profile.stages);
    }

    // On a disk without delays there is nothing to gain: it has to be asked for.
    setup.kernel = words(&["headstart=on"]);
    machine.record(&setup, &place, None)?;
    let after = kept(machine.as_mut(), &place, &out)?;
    let second = after.last_outcome()?;
    assert_eq!(
        (second.mode, &second.not_learned),
        (Mode::Replay, &None),
        "{}",
        after.said()?
    );
    let sum =
        |of: fn(&headstart_model::outcome::StageOutcome) -> u64| second.stages.iter().map(of).sum::<u64>();
    let (used, late, missed) = (
        sum(|s| s.used_pages),
        sum(|s| s.late_pages),
        sum(|s| s.missed_pages),
    );
    let (wasted, issued) = (sum(|s| s.wasted_pages), sum(|s| s.issued_pages));
    println!("used {used}, late {late}, missed {missed}, wasted {wasted} of {issued} pages");
    assert!(
        issued > 1000 && sum(|s| s.arrived_pages) * 100 >= issued * 99,
        "{second:?}"
    );
    assert!(
        missed * 10 <= used + late,
        "{missed} pages missed, {used} used, {late} late"
    );

    // From before process 1 on.
    setup.init = Some("/usr/sbin/headstart-init".into());
    machine.record(&setup, &place, None)?;
    let after = kept(machine.as_mut(), &place, &out)?;
    let said = after.said()?;
    assert!(said.contains("\"from\": \"init\""), "{said}");
    let third = after.last_outcome()?;
    assert_eq!((third.mode, &third.not_learned), (Mode::Replay, &None), "{said}");
    let profile = Profile::from_bytes(&fs::read(after.0.join("profile"))?)?;
    assert!(
        profile
            .entries
            .iter()
            .any(|entry| entry.path.to_string().ends_with("/systemd/systemd")),
        "what process 1 is made of is known"
    );
    // Its times count from when process 1 was released to when the boot was up, and not to the end of the
    // recording.
    let trace = after.files("trace")?.pop().context("a trace")?;
    let trace = Trace::from_bytes(&fs::read(trace)?)?;
    let (began, up) = (trace.began_ns(), trace.up_ns().context("it was up")?);
    let released = trace.marks.iter().find(|mark| mark.stage == stage::RELEASED);
    let released = released.context("it was released")?.time_ns;
    // It executes systemd at once.
    assert!(
        released <= began && began - released < (up - released) / 20,
        "{released} {began} {:?}",
        trace.marks
    );
    assert!(
        began < up && up < trace.end.elapsed_ns,
        "{began} {up} {:?}",
        trace.end
    );
    // The next headstart-init finds headstart by what its file says.
    let way = "getfattr --absolute-names --only-values -n trusted.headstart \"$0/usr/sbin/headstart-init\" | grep -qa '^/dev/'";
    machine.install(&place, &[words(&["sh", "-c", way, "{root}"])])?;

    // As after a boot that was cut off: it had disarmed the boot-failure guard.
    machine.install(
        &place,
        &[words(&[
            "sh",
            "-c",
            "for guard in \"$0\"/var/lib/headstart/starts/*.guard; do head -c 4096 /dev/zero | tr '\\0' 0 >\"$guard\"; done",
            "{root}",
        ])],
    )?;
    machine.record(&setup, &place, None)?;
    let after = kept(machine.as_mut(), &place, &out)?;
    let (outcome, said) = (after.last_outcome()?, after.said()?);
    assert_eq!(outcome.mode, Mode::Declined, "{said}");
    assert_eq!(
        outcome.not_learned.as_deref(),
        Some("it was left alone"),
        "{said}"
    );
    for says in ["did not come to its end", "\"recorder\": null"] {
        assert!(said.contains(says), "{says}: {said}");
    }
    assert!(after.is_armed(), "the boot-failure guard acts once");

    // Bypassed for one boot: nothing more is kept.
    let outcomes = after.files("outcome")?.len();
    setup.kernel = words(&["headstart=off"]);
    machine.record(&setup, &place, None)?;
    let after = kept(machine.as_mut(), &place, &out)?;
    assert_eq!(after.files("outcome")?.len(), outcomes, "{}", after.said()?);
    setup.kernel = words(&["headstart=on"]);

    // Whatever is in headstart's place, the real init comes, with its arguments: without them its lines would
    // name targets otherwise.
    for (what, in_its_place, least) in [
        ("ends", "#!/bin/false\n", 0.0),
        // The unit's it would hang too.
        (
            "hangs",
            "#!/bin/sh\ncase \"$*\" in *--init*) sleep 60;; esac\n",
            10.0,
        ),
        ("is damaged", "\u{7f}ELF", 0.0),
        ("is missing", "", 0.0),
    ] {
        let script = if in_its_place.is_empty() {
            "rm \"$0\"/usr/bin/headstart"
        } else {
            "printf %s \"$1\" >\"$0\"/usr/bin/headstart"
        };
        machine.install(&place, &[words(&["sh", "-c", script, "{root}", in_its_place])])?;
        let booted = machine
            .run(&setup, &place)
            .with_context(|| format!("headstart {what}"))?;
        assert!(
            booted.marks.iter().any(|mark| mark.name == "multi-user"),
            "headstart {what}: {:?}",
            booted.marks
        );
        let seconds = booted.marks.last().context("a mark")?.seconds;
        println!("headstart {what}: {seconds:.2} s");
        assert!(
            // Not for the 60 s that what hangs would take.
            seconds >= least && seconds < 55.0,
            "headstart {what}: {seconds:.2} s"
        );
    }
    Ok(())
}

/// What a console was told by `boot status`, without the ends of its lines and the times that they begin
/// with.
pub(crate) fn unwrapped(said: &str) -> String {
    let without_time = |line: &str| -> String {
        let line = line.trim_start();
        match line.split_once(' ') {
            Some((time, rest)) if time.parse::<f64>().is_ok() => rest.into(),
            _ => line.into(),
        }
    };
    let lines: Vec<String> = said.lines().map(without_time).collect();
    let said = lines.join(" ").replace("status: ", " ");
    said.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn boots_that_can_gain_nothing_are_bypassed_until_they_can() -> Result<()> {
    let registry = Registry::open(&paths::base()?)?;
    let image = concat!(env!("CARGO_MANIFEST_DIR"), "/images/cut.toml");
    let mut boots = Boots::new(image, "none", &registry)?;
    boots.shell("rm $R/etc/headstart/headstart.toml")?;
    // With all in memory already there is nothing to gain on any host, however slow its own disk.
    boots.setup.cache = Cache::Warm;
    boots.boot()?;
    let recorded = boots.state()?;
    let why = recorded.bypass.lines().last().unwrap_or_default();
    println!("{why}");
    assert!(why.contains("for disks; about half"), "{}", recorded.bypass);
    for init in [None, Some("/usr/sbin/headstart-init".to_owned())] {
        boots.setup.init = init;
        // One in ten re-evaluates.
        let bypassed = (0..6).find_map(|_| match boots.boot() {
            Ok((said, _)) => {
                let said = unwrapped(&said);
                said.contains("is bypassed").then_some(Ok(said))
            }
            Err(error) => Some(Err(error)),
        });
        let said = bypassed.context("a boot that is bypassed")??;
        assert!(
            said.contains("for disks; about half"),
            "`boot status` says why: {said}"
        );
        assert!(
            said.contains("ran: 0"),
            "nothing in /run: neither recorder nor replay: {said}"
        );
    }
    let before = boots.state()?;

    // Who asks for it has it read ahead.
    boots.setup.kernel = words(&["headstart=on"]);
    boots.boot()?;
    let state = boots.state()?;
    let outcome = state.outcome.context("an outcome")?;
    assert_eq!(
        (outcome.mode, state.outcomes),
        (Mode::Replay, before.outcomes + 1)
    );
    boots.setup.kernel = Vec::new();

    // The boot that re-evaluates finds that the disk is slow, and the next is read ahead.
    boots.change_disk("flash4ms", &registry)?;
    boots.setup.cache = Cache::Cold;
    boots.shell("sed -i '1s/.*/1/' $R/var/lib/headstart/keys/*/bypass")?;
    boots.boot()?;
    let state = boots.state()?;
    assert_eq!(
        state.outcome.context("an outcome")?.mode,
        Mode::Control,
        "{}",
        state.last
    );
    assert_eq!(state.bypass, "");
    boots.boot()?;
    let state = boots.state()?;
    assert_eq!(
        state.outcome.context("an outcome")?.mode,
        Mode::Replay,
        "{}",
        state.last
    );
    assert_eq!(state.bypass, "");
    Ok(())
}

/// A unit that changes the mount of the state directory, in place of a root that is read-only at first.
fn change(when: &str, how: &str) -> String {
    format!(
        "cat >$R/etc/systemd/system/{how}.service <<'END'\n[Unit]\nDefaultDependencies=no\n{when}\n[Service]\nType=oneshot\n\
         ExecStart=/bin/mount -o remount,bind,{how} /var/lib/headstart\nEND\n\
         ln -s ../{how}.service $R/etc/systemd/system/sysinit.target.wants/\n"
    )
}

#[test]
fn what_starts_when_the_state_is_writable_waits_for_the_replay() -> Result<()> {
    let registry = Registry::open(&paths::base()?)?;
    let image = concat!(env!("CARGO_MANIFEST_DIR"), "/images/cut.toml");
    let mut boots = Boots::new(image, "none", &registry)?;
    // It would have begun before any unit.
    boots.shell("rm $R/usr/lib/systemd/system-generators/headstart-boot")?;
    boots.boot()?;
    let first = "Before=headstart-boot.service\n[Service]\nExecStartPre=/bin/mount --bind /var/lib/headstart /var/lib/headstart";
    boots.shell(&change(first, "ro"))?;
    // It stays read-only: nobody waits for what cannot begin.
    let (said, _) = boots.boot()?;
    assert!(!said.contains("headstart-barrier.service"), "{said}");
    assert!(
        unwrapped(&said).contains("the boot-failure guard cannot be taken"),
        "{said}"
    );
    let then = "After=headstart-boot.service\nBefore=headstart-barrier.service";
    boots.shell(&change(then, "rw"))?;
    let (said, _) = boots.boot()?;
    assert!(said.contains("Finished headstart-barrier.service"), "{said}");
    let state = boots.state()?;
    let outcome = state.outcome.context("an outcome")?;
    assert_eq!(outcome.mode, Mode::Replay, "{}", state.last);
    Ok(())
}
