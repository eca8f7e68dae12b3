//! headstart killed at any moment: what it knows is the old or the new, whole, and the command's own work is
//! unharmed.

use anyhow::{Context, Result, ensure};
use headstart_acceptance::{headstart, long};
use headstart_model::Profile;
use rustix::process::Signal;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Kills in a run of all tests, and in one of those that everybody runs before a commit.
const KILLS: (u32, u32) = (200, 40);

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
            // Every one: so small a command gains nothing, and would be bypassed.
            "--control-every",
            "0",
            "--",
            "/bin/sh",
            "-c",
        ])
        .arg(script(dir))
        .env("HEADSTART_EVEN_WARM", "1")
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

/// A process's state, parent and group, as /proc/PID/stat has them.
fn facts(process: &Path) -> Option<(String, u32, u32)> {
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((
        fields.next()?.to_owned(),
        fields.next()?.parse().ok()?,
        fields.next()?.parse().ok()?,
    ))
}

/// Ends the processes of headstart's that this start left: those of its group, by id, that run headstart
/// itself.
fn kill_headstart(group: u32) -> Result<()> {
    let own = headstart()?;
    let is_own = |process: &Path| fs::read_link(process.join("exe")).is_ok_and(|exe| exe == own);
    let send = |pid, signal| {
        // It may have ended just now.
        let _ = rustix::process::kill_process(pid, signal);
    };
    // First all are found: the helper, in a session of its own, is known by its parent, which is the first to
    // be killed.
    let mut processes = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else {
            continue;
        };
        let Some((_, parent, of)) = facts(&entry.path()) else {
            continue;
        };
        if is_own(&entry.path()) && (of == group || parent == group || pid as u32 == group) {
            processes.extend(rustix::process::Pid::from_raw(pid).map(|pid| (pid, entry.path())));
        }
    }
    // A held process may become the command at any moment, and that is not to be killed: all stand still
    // first.
    for (pid, process) in &processes {
        send(*pid, Signal::STOP);
        let limit = Instant::now() + Duration::from_secs(1);
        while running(process) && Instant::now() < limit {
            std::thread::yield_now();
        }
    }
    let (mut own, commands): (Vec<_>, Vec<_>) =
        processes.into_iter().partition(|(_, process)| is_own(process));
    // It also continues it, and where SIGHUP is ignored (nohup) one that is held would become the command
    // before it is killed: the parent is the last.
    own.sort_by_key(|(pid, _)| pid.as_raw_pid() as u32 == group);
    // The kernel hangs up on a stopped process whose parent dies, so this comes first.
    commands.iter().for_each(|(pid, _)| send(*pid, Signal::CONT));
    own.iter().for_each(|(pid, _)| send(*pid, Signal::KILL));
    Ok(())
}

/// Whether a process has neither stopped nor ended.
fn running(process: &Path) -> bool {
    facts(process).is_some_and(|(state, ..)| !matches!(state.as_str(), "T" | "Z" | "X"))
}

#[test]
fn kills_at_any_moment() -> Result<()> {
    let kills = if long() { KILLS.0 } else { KILLS.1 };
    let state = tempfile::tempdir()?;
    let work = tempfile::tempdir()?;
    let [done, part] = ["done", "part"].map(|name| work.path().join(name));
    let run = || -> Result<Duration> {
        let begun = Instant::now();
        ensure!(
            start(state.path(), work.path())?.wait()?.success(),
            "a run that nobody killed failed"
        );
        Ok(begun.elapsed())
    };
    // The first one takes longer than those that are killed.
    run()?;
    let whole = run()?;
    let (mut runs, _) = profile(state.path())?;
    let expected = fs::read(&done)?;
    let (mut learned, mut harmless) = (0, 0);
    // A fixed sequence of moments spread over a whole run (xorshift).
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for kill in 0..kills {
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
        while !done.exists() && Instant::now() < limit && part_of(child.id()) {
            std::thread::sleep(Duration::from_millis(5));
        }
        if done.exists() {
            ensure!(
                fs::read(&done)? == expected,
                "kill {kill}: the command's own work was harmed"
            );
            harmless += 1;
        } else {
            ensure!(!part.exists(), "kill {kill}: the command was ended amid its work");
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
    println!("{kills} kills: {harmless} commands ended their work, {learned} starts were learned from");
    ensure!(harmless > 0 && learned < kills, "no kill fell into a run");
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

/// Whether a process of the start's group still runs. One that ended and that nobody has waited for yet does
/// not.
fn part_of(group: u32) -> bool {
    let Ok(all) = fs::read_dir("/proc") else {
        return false;
    };
    all.flatten()
        .filter_map(|entry| facts(&entry.path()))
        .any(|(state, _, of)| of == group && !matches!(state.as_str(), "Z" | "X"))
}
