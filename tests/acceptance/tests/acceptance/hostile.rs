//! An unprivileged user beside a recording and a boot, who does everything that could hurt them
//! (`hostile.pl`): headstart stays within its memory, ends by itself, and knows afterwards what it knew. A
//! minute each in a run of all tests, some seconds otherwise.

use anyhow::{Context, Result, bail, ensure};
use headstart_acceptance::boots::{Boots, whole};
use headstart_acceptance::hostile::{
    HostileReport, MOST_KIB, Pairs, Peak, Sampler, User, decide_as_usual, join_boots,
};
use headstart_acceptance::{headstart, long};
use headstart_lab::paths;
use headstart_lab::registry::Registry;
use headstart_model::Trace;
use headstart_model::outcome::Mode;
use headstart_model::trace::EndReason;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

/// What bounds a hang; nothing here takes a tenth of it.
const HANG: Duration = Duration::from_secs(180);

/// Rounds of boots with headstart and without in a run of all tests.
const ROUNDS: usize = 5;

/// A ratio of boots beyond which something waits for something: no measurement. That is `--example hostile`.
const RATIO_OF_A_HANG: f64 = 1.25;

fn ended(child: &mut Child, what: &str) -> Result<ExitStatus> {
    let limit = Instant::now() + HANG;
    while Instant::now() < limit {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill()?;
    child.wait()?;
    bail!("{what} hangs");
}

/// A command whose output is small.
fn output(command: &mut Command, what: &str) -> Result<Output> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    ended(&mut child, what)?;
    Ok(child.wait_with_output()?)
}

fn within_memory(peak: Peak) -> Result<()> {
    ensure!(peak.processes > 0, "no process of headstart was seen");
    ensure!(
        peak.all <= MOST_KIB,
        "headstart took {peak:?} KiB, more than {MOST_KIB}"
    );
    Ok(())
}

/// headstart under a name of its own, so that its processes are known from all others.
struct Own {
    directory: tempfile::TempDir,
    program: PathBuf,
}

impl Own {
    fn new() -> Result<Own> {
        let directory = tempfile::tempdir_in("/var/tmp")?;
        // Anybody may come as far as headstart's own files.
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755))?;
        let program = directory.path().join("headstart");
        let built = headstart()?;
        fs::copy(&built, &program)?;
        let inspect = "headstart-inspect";
        fs::copy(built.with_file_name(inspect), directory.path().join(inspect))?;
        Ok(Own { directory, program })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--state").arg(self.path("state")).args(words);
        command.env("HEADSTART_EVEN_WARM", "1");
        command
    }

    /// A start of a program that headstart knows: its output and status are its own.
    fn start(&self) -> Result<()> {
        let words = ["run", "--wait", "--name", "known", "--control-every", "0", "--"];
        let program = ["sh", "-c", "cat /etc/passwd | wc -c; exit 7"];
        let output = output(self.command(&words).args(program), "a start of a known program")?;
        let expected = format!("{}\n", fs::metadata("/etc/passwd")?.len());
        ensure!(
            output.status.code() == Some(7) && output.stdout == expected.as_bytes(),
            "{output:?}"
        );
        Ok(())
    }
}

fn wait_for(path: &Path) -> Result<()> {
    let limit = Instant::now() + HANG;
    while !path.exists() {
        ensure!(Instant::now() < limit, "{} does not come", path.display());
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

#[test]
fn a_recording_beside_a_hostile_user_stays_within_its_memory_and_ends_by_its_deadline() -> Result<()> {
    let (seconds, files) = if long() { (60, 100_000) } else { (4, 20_000) };
    let own = Own::new()?;
    own.start()?;
    own.start()?;
    let sampler = Sampler::new(own.program.clone());
    let (trace, begun) = (own.path("t.trace"), own.path("begun"));
    let until = (seconds + 2).to_string();
    let mut recording = own
        .command(&[
            "record", "--scope", "system", "--until", &until, "--limit", "90", "-o",
        ])
        .arg(&trace)
        .args(["--", "sh", "-c", "touch \"$0\"; sleep \"$1\"; exit 5"])
        .arg(&begun)
        .arg((seconds + 4).to_string())
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    wait_for(&begun)?;
    let state = own.path("state");
    let guarded = [
        &state,
        Path::new("/var/lib/headstart"),
        Path::new("/run/headstart"),
    ];
    let mut user = User::start(seconds, files, &guarded)?;
    let mut starts = 0;
    while user.works()? {
        own.start().context("a start beside the user")?;
        starts += 1;
    }
    let deeds = user.finish(HANG)?;
    let status = ended(&mut recording, "the recording")?;
    let said = recording.wait_with_output()?.stderr;
    let said = String::from_utf8_lossy(&said);
    let peak = sampler.finish()?;
    println!("{starts} starts beside the user, who {:?}", deeds.did);
    println!("refused: {:?}", deeds.refused);
    println!("memory: {peak:?} KiB; the recording: {status}, {said:?}");
    deeds.check()?;
    within_memory(peak)?;
    // The trace, whole, or why there is none.
    match fs::read(&trace) {
        Ok(bytes) => {
            let recorded = Trace::from_bytes(&bytes)?;
            println!(
                "the trace: {} bytes, {} files, {:?}, unfit: {:?}",
                bytes.len(),
                recorded.files.len(),
                recorded.lost,
                recorded.unfit()
            );
            ensure!(
                recorded.end.reason == EndReason::Limit,
                "it ended by its deadline, not by {:?}",
                recorded.end
            );
            ensure!(
                status.code() == Some(5),
                "the status is the command's own: {status}, {said}"
            );
        }
        Err(error) => ensure!(
            status.code() == Some(1) && !said.is_empty(),
            "no trace ({error}), and no word of it: {status}, {said}"
        ),
    }
    // What was known is known, and the next starts are as ever.
    let known = output(&mut own.command(&["status", "known"]), "status")?;
    ensure!(known.status.success(), "{known:?}");
    let state = whole(&state)?;
    ensure!(state.profile && state.temporary == 0, "{state:?}");
    own.start()
}

/// A machine that boots beside the user, who works for so many seconds with so many files.
fn boots(registry: &Registry, seconds: u64, files: u32) -> Result<Boots> {
    let image = concat!(env!("CARGO_MANIFEST_DIR"), "/images/cut.toml");
    let disk = if long() { "flash4ms" } else { "none" };
    let mut boots = Boots::new(image, disk, registry)?;
    join_boots(&mut boots, seconds, files)?;
    Ok(boots)
}

/// A whole boot beside the user; what the console said.
fn boot(boots: &mut Boots) -> Result<String> {
    let sampler = Sampler::of_machines();
    let booted = boots.boot();
    let peak = sampler.finish()?;
    let (said, _) = booted?;
    let deeds = HostileReport::parse(&said);
    println!("the user {:?}, refused {:?}", deeds.did, deeds.refused);
    println!("memory: {peak:?} KiB");
    deeds.check()?;
    ensure!(peak.all <= MOST_KIB, "headstart took {peak:?} KiB");
    Ok(said)
}

/// Boots with headstart and without in turn, none of which hangs.
fn none_waits(boots: &mut Boots) -> Result<Pairs> {
    let pairs = Pairs::boot(boots, ROUNDS)?;
    println!("{pairs}");
    ensure!(
        pairs.peak.all <= MOST_KIB && pairs.ratio() <= RATIO_OF_A_HANG,
        "a boot waits for headstart: {pairs}"
    );
    Ok(pairs)
}

#[test]
fn a_boot_beside_a_hostile_user_stays_within_its_memory_and_comes_to_its_end() -> Result<()> {
    let registry = Registry::open(&paths::base()?)?;
    let mut boots = boots(&registry, if long() { 6 } else { 3 }, 2_000)?;
    // The first is recorded, and the second read ahead.
    for mode in [Mode::Record, Mode::Replay]
        .into_iter()
        .take(if long() { 2 } else { 1 })
    {
        boot(&mut boots)?;
        let state = boots.state()?;
        ensure!(state.armed, "it came to its end: {}", state.last);
        ensure!(state.profile && state.plan && state.temporary == 0, "{state:?}");
        let outcome = state.outcome.context("an outcome")?;
        ensure!(outcome.mode == mode, "{:?}: {}", outcome.mode, state.last);
        ensure!(
            outcome.not_learned.is_none(),
            "whatever the user does, it teaches: {:?}",
            outcome.not_learned
        );
    }
    if long() {
        within_memory(none_waits(&mut boots)?.peak)?;
    }
    Ok(())
}

#[test]
#[ignore = "make test-all runs it"]
fn boots_beside_a_hostile_user_who_fills_the_disk_are_bypassed() -> Result<()> {
    let registry = Registry::open(&paths::base()?)?;
    // As many files as the image has inodes, for a minute.
    let mut boots = boots(&registry, 60, 4_000)?;
    decide_as_usual(&mut boots)?;
    boot(&mut boots)?;
    let state = boots.state()?;
    ensure!(
        !state.profile && state.temporary == 0,
        "the disk was full: {state:?}"
    );
    let said = boot(&mut boots)?;
    ensure!(
        said.contains("status: ") && said.contains("boots are bypassed: nothing is known of boots"),
        "{said}"
    );
    let pairs = none_waits(&mut boots)?;
    ensure!(pairs.peak.processes == 0, "headstart ran: {pairs}");
    Ok(())
}
