//! headstart killed at any moment: what it knows is the old or the new, whole, and the command's own work is unharmed.

use anyhow::{Context, Result, ensure};
use headstart_acceptance::headstart;
use headstart_model::Profile;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const KILLS: u32 = 200;

/// The command: reads a handful of files, then writes one whose last line says that it ended.
fn script(dir: &Path) -> String {
    format!(
        "cat /etc/passwd /etc/services /bin/ls > {0}/part && echo end >> {0}/part && mv {0}/part {0}/done",
        dir.display()
    )
}

fn start(state: &Path, dir: &Path) -> Result<std::process::Child> {
    Command::new(headstart()?)
        .arg("--state")
        .arg(state)
        .args([
            "run",
            "--wait",
            "--name",
            "victim",
            "--control-every",
            "3",
            "--",
            "/bin/sh",
            "-c",
        ])
        .arg(script(dir))
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .context("starting headstart")
}

fn profile(state: &Path) -> Result<(u32, Vec<u8>)> {
    let key = fs::read_dir(state.join("keys"))?
        .next()
        .context("no key")??
        .path();
    let bytes = fs::read(key.join("profile"))?;
    Ok((Profile::from_bytes(&bytes)?.runs, bytes))
}

/// Ends the processes of headstart's that this start left: those of its group, by id, that run headstart itself.
fn kill_headstart(group: u32) -> Result<()> {
    let own = headstart()?;
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else {
            continue;
        };
        let pid_of_group = fs::read_to_string(entry.path().join("stat"))
            .ok()
            .and_then(|stat| {
                let fields: Vec<String> = stat
                    .rsplit_once(')')?
                    .1
                    .split_whitespace()
                    .map(str::to_owned)
                    .collect();
                // Group and session: the helper may have made a session of its own, its parent is then still known.
                Some((fields[1].parse::<u32>().ok()?, fields[2].parse::<u32>().ok()?))
            });
        let Some((parent, of)) = pid_of_group else {
            continue;
        };
        let is_own = fs::read_link(entry.path().join("exe")).is_ok_and(|exe| exe == own);
        if is_own
            && (of == group || parent == group || pid as u32 == group)
            && let Some(pid) = rustix::process::Pid::from_raw(pid)
        {
            // It may have ended just now.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
    Ok(())
}

#[test]
fn two_hundred_kills() -> Result<()> {
    let state = tempfile::tempdir()?;
    let work = tempfile::tempdir()?;
    let done = work.path().join("done");
    let begun = Instant::now();
    ensure!(
        start(state.path(), work.path())?.wait()?.success(),
        "the first run failed"
    );
    let whole = begun.elapsed();
    let (mut runs, _) = profile(state.path())?;
    let expected = fs::read(&done)?;
    let (mut learned, mut harmless) = (0, 0);
    // A fixed sequence of moments spread over a whole run (xorshift).
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for kill in 0..KILLS {
        fs::remove_file(&done)?;
        let mut child = start(state.path(), work.path())?;
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        std::thread::sleep(whole.mul_f64((random % 1200) as f64 / 1000.0));
        kill_headstart(child.id())?;
        child.wait()?;
        // A command that was not let go yet never ran; one that was let go ends its work.
        let limit = Instant::now() + Duration::from_secs(5);
        while !done.exists() && Instant::now() < limit && part_of(work.path(), child.id()) {
            std::thread::sleep(Duration::from_millis(5));
        }
        if done.exists() {
            ensure!(
                fs::read(&done)? == expected,
                "kill {kill}: the command's own work was harmed"
            );
            harmless += 1;
        } else {
            ensure!(
                !work.path().join("part").exists(),
                "kill {kill}: the command was ended amid its work"
            );
            fs::write(&done, &expected)?;
        }
        let (now, _) = profile(state.path()).with_context(|| format!("kill {kill}: the stored profile"))?;
        ensure!(
            now == runs || now == runs + 1,
            "kill {kill}: the profile went from {runs} runs to {now}"
        );
        learned += u32::from(now > runs);
        runs = now;
    }
    println!("{KILLS} kills: {harmless} commands ended their work, {learned} starts were learned from");
    ensure!(harmless > 0 && learned < KILLS, "no kill fell into a run");
    // What all those kills left does not hinder the next start.
    fs::remove_file(&done)?;
    ensure!(
        start(state.path(), work.path())?.wait()?.success(),
        "the last run failed"
    );
    ensure!(
        profile(state.path())?.0 == runs + 1,
        "the last run taught nothing"
    );
    Ok(())
}

/// Whether a process of the start's group is still there.
fn part_of(_work: &Path, group: u32) -> bool {
    rustix::process::Pid::from_raw(group as i32)
        .is_some_and(|pid| rustix::process::test_kill_process_group(pid).is_ok())
}
