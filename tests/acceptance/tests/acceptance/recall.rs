//! After a replay a start reads next to nothing, and what the replay read is used: real programs, on every
//! file system that headstart serves.

use anyhow::Result;
use headstart_acceptance::{Case, certain_pages, pages_in_both, planned_pages};
use headstart_lab::image::Fs;
use headstart_model::outcome::Mode;

/// Learns from two cold starts and returns the requests of a cold start, those of a start after a replay, and
/// the share of the pages brought in by a replay beside a start that the start did not use.
fn measure(workload: &str, fs: Fs) -> Result<(u64, u64, f64)> {
    let mut case = Case::new(workload, fs)?;
    for _ in 0..2 {
        case.run_cold(&["--control-every", "0"])?;
    }
    let program = case.machine.program();
    let (cold, mounted) = case.cold(&program)?;
    case.machine.check_product()?;
    drop(mounted);

    let replay = case.headstart(&["replay", workload, "--wait"])?;
    let (replayed, mounted) = case.cold(&replay)?;
    assert!(replayed.reads > 0, "the replay read nothing");
    let after = case.machine.stage("start", &program)?;
    case.machine.check_product()?;
    drop(mounted);

    let planned = planned_pages(&case.profile()?);
    case.run_cold(&["--control-every", "0"])?;
    let outcome = case.last_outcome()?;
    assert_eq!(outcome.mode, Mode::Replay);
    let (mut brought, mut wasted) = (0, 0);
    for stage in &outcome.stages {
        let needed = stage.issued_pages.saturating_sub(stage.resident_pages);
        brought += needed.saturating_sub(stage.bridged_pages);
        wasted += stage.wasted_pages;
    }
    assert!(brought > 0, "the replay brought nothing in: {:?}", outcome.stages);
    let wasted = wasted as f64 / brought as f64;
    let certain = pages_in_both(&planned, &certain_pages(&case.last_trace()?));
    let planned: u64 = planned.iter().map(|(_, pages)| pages.pages()).sum();
    println!(
        "{workload:<12} {fs:<9} cold {:>5} reads, replay {:>5}, left {:>4} ({:.1} %), not used {:.1} %, \
         of what was planned {:.1} % certainly used",
        cold.reads,
        replayed.reads,
        after.reads,
        after.reads as f64 * 100.0 / cold.reads as f64,
        wasted * 100.0,
        certain as f64 * 100.0 / planned as f64
    );
    Ok((cold.reads, after.reads, wasted))
}

fn check(workload: &str, fs: Fs, most: f64) {
    let (cold, left, wasted) = measure(workload, fs).unwrap_or_else(|e| panic!("{workload} on {fs}: {e:#}"));
    assert!(
        left as f64 <= cold as f64 * most,
        "{left} of {cold} reads are left"
    );
    assert!(
        wasted <= 0.05,
        "{:.1} % of the pages were not used",
        wasted * 100.0
    );
}

#[test]
fn libreoffice_on_ext4() {
    check("libreoffice", Fs::Ext4, 0.02);
}

#[test]
fn python_on_ext4() {
    check("python", Fs::Ext4, 0.02);
}

#[test]
#[ignore = "make test-all runs it"]
fn python_on_xfs() {
    check("python", Fs::Xfs, 0.10);
}

#[test]
fn python_on_btrfs() {
    check("python", Fs::Btrfs, 0.10);
}

#[test]
#[ignore = "make test-all runs it"]
fn python_on_squashfs() {
    check("python", Fs::Squashfs, 0.05);
}

#[test]
#[ignore = "make test-all runs it"]
fn python_on_erofs() {
    check("python", Fs::Erofs, 0.05);
}

#[test]
fn python_on_an_overlay() {
    check("python", Fs::Overlay, 0.10);
}
