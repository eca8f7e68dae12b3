//! What is learned is what the start uses: not what a replay brought in, not what others read at the same
//! time.

use anyhow::{Context, Result};
use headstart_acceptance::{Case, in_common, long};
use headstart_lab::image::Fs;
use headstart_model::{FilePath, PageSet, Profile};
use std::process::{Command, Stdio};

/// What ten starts teach, or six where not all tests are run; every `replay_every`th replays, the others only
/// record.
fn many_runs(case: &mut Case, replay_every: Option<usize>) -> Result<Profile> {
    case.forget()?;
    for run in 0..if long() { 10 } else { 6 } {
        let replays = replay_every.is_some_and(|n| run % n == n - 1);
        case.run_cold(&["--control-every", if replays { "0" } else { "1" }])?;
    }
    case.profile()
}

/// The pages that most runs needed, with those that some of them tell not to be needed: which those are does
/// depend on what was in memory.
fn voted_pages(profile: &Profile) -> Vec<(String, PageSet)> {
    let threshold = profile.policy.threshold();
    let entries = profile.entries.iter().filter(|entry| entry.weight >= threshold);
    let voted = entries.map(|entry| (entry.path.to_string(), entry.voted(threshold)));
    voted.filter(|(_, pages)| !pages.is_empty()).collect()
}

/// How many pages are left out of the first one's plans that a run of the second has touched.
fn wrongly_left_out(first: &Profile, second: &Profile) -> u64 {
    let touches = |profile: &Profile, path: &FilePath| {
        let entry = profile.entries.iter().find(|entry| entry.path == *path)?;
        entry.touches.clone()
    };
    let pairs = first
        .entries
        .iter()
        .filter_map(|entry| Some((entry.touches.as_ref()?, touches(second, &entry.path)?)));
    pairs
        .map(|(first, second)| first.unused.intersection(&second.touched).pages())
        .sum()
}

/// Where a library is mapped decides which neighbours of a touched page are mapped with it, and the kernel
/// maps most anywhere; what is in memory decides which touches are seen. Which windows are learned must
/// depend on neither, and what some runs tell not to be needed no other may need.
#[test]
fn alternating_runs_teach_what_cold_runs_teach() -> Result<()> {
    let mut case = Case::new("python", Fs::Ext4)?;
    let cold_runs = many_runs(&mut case, None)?;
    let cold = voted_pages(&cold_runs);
    if long() {
        let again = voted_pages(&many_runs(&mut case, None)?);
        let noise = in_common(&cold, &again);
        println!("pages in common: cold and cold {:.2} %", noise * 100.0);
    }
    let alternating_runs = many_runs(&mut case, Some(2))?;
    let alternating = voted_pages(&alternating_runs);
    report_differences(&cold, &alternating);
    let common = in_common(&cold, &alternating);
    println!("pages in common: cold and alternating {:.2} %", common * 100.0);
    assert!(
        common >= 0.99,
        "{:.2} % of the pages are in common",
        common * 100.0
    );
    let wrong = [(&cold_runs, &alternating_runs), (&alternating_runs, &cold_runs)]
        .map(|(first, second)| wrongly_left_out(first, second));
    let pages: u64 = cold.iter().map(|(_, pages)| pages.pages()).sum();
    println!("left out, though other runs touched them: {wrong:?} of {pages} pages");
    assert!(
        wrong.iter().all(|wrong| wrong * 1000 <= pages),
        "{wrong:?} of {pages}"
    );
    Ok(())
}

/// Prints where two sets of files differ most, for whoever has to find out why.
fn report_differences(cold: &[(String, PageSet)], alternating: &[(String, PageSet)]) {
    let pages = |all: &[(String, PageSet)], path: &str| {
        all.iter()
            .find(|(p, _)| p == path)
            .map(|(_, pages)| pages.clone())
            .unwrap_or_default()
    };
    let paths: std::collections::BTreeSet<&String> = cold.iter().chain(alternating).map(|(p, _)| p).collect();
    let mut rows: Vec<(u64, u64, &String)> = paths
        .into_iter()
        .map(|path| {
            let (a, b) = (pages(cold, path), pages(alternating, path));
            (a.difference(&b).pages(), b.difference(&a).pages(), path)
        })
        .collect();
    rows.sort_by_key(|(only_cold, only_alternating, _)| std::cmp::Reverse(only_cold + only_alternating));
    for (only_cold, only_alternating, path) in rows.iter().take(12).filter(|(a, b, _)| a + b > 0) {
        println!("{only_cold:>6} pages only cold, {only_alternating:>6} only alternating: {path}");
    }
}

/// A program of one thread on a disk of 4 ms a read: what it does not compute it waits.
#[test]
fn time_blocked_is_the_time_waited_for_the_disk() -> Result<()> {
    let mut case = Case::on("flash4ms", "smallfiles", Fs::Ext4)?;
    // To compare with: the disk's own count of the time in which it had something to do. A busy machine adds
    // to what is waited for beyond that, but not beyond the whole.
    let mut share = |replays: &str| -> Result<[f64; 3]> {
        let stage = case.run_cold(&["--control-every", replays])?;
        let outcome = case.last_outcome()?;
        let blocked = outcome.blocked_ns.context("time blocked is not known")?;
        Ok([
            blocked as f64 * 1e-9,
            stage.busy_seconds,
            outcome.elapsed_ns as f64 * 1e-9,
        ])
    };
    let [cold, busy, elapsed] = share("1")?;
    let [replayed, ..] = share("0")?;
    println!(
        "blocked {cold:.2} s of {elapsed:.2} s, the disk busy {busy:.2} s; {replayed:.2} s after a replay"
    );
    assert!(cold >= 0.7 * busy && cold <= elapsed);
    assert!(replayed < cold, "{replayed} s, and {cold} s without a replay");
    Ok(())
}

#[test]
fn a_neighbour_adds_nothing() -> Result<()> {
    let mut case = Case::new("python", Fs::Ext4)?;
    let line = case.run_line(&["--control-every", "1"])?;
    let mounted = case.machine.fresh()?;
    let root = case.machine.root();
    // Reads the same file system from end to end while the program starts, and a compiler works beside it.
    let mut grep = Command::new("grep")
        .args(["-r", "-c", "headstart"])
        .arg(root.join("usr/share/doc"))
        .arg(root.join("usr/share/perl5"))
        .arg(root.join("usr/lib/x86_64-linux-gnu/perl-base"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("grep")?;
    let source = tempfile::Builder::new().suffix(".c").tempfile()?;
    std::fs::write(
        source.path(),
        "#include <stdio.h>\nint main(void) { return puts(\"x\"); }\n",
    )?;
    let mut compiler = Command::new("cc")
        .args(["-c", "-o", "/dev/null"])
        .arg(source.path())
        .spawn()
        .context("cc")?;
    case.machine.stage("start", &line)?;
    // The lab waits for whatever is left of a stage, these two included.
    let _ = (grep.wait(), compiler.wait());
    case.machine.check_product()?;
    drop(mounted);
    let profile = case.profile()?;
    let of_neighbours: Vec<_> = profile
        .entries
        .iter()
        .map(|e| e.path.to_string())
        .filter(|p| {
            [
                "/usr/share/doc",
                "/usr/share/perl5",
                "/perl-base",
                "/cc1",
                "stdio.h",
            ]
            .iter()
            .any(|n| p.contains(n))
        })
        .collect();
    assert!(profile.entries.len() > 500, "the program itself was recorded");
    assert_eq!(of_neighbours, Vec::<String>::new());
    Ok(())
}
