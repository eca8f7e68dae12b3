//! What is learned is what the start uses: not what a replay brought in, not what others read at the same time.

use anyhow::{Context, Result};
use headstart_acceptance::{Case, in_common, planned_pages};
use headstart_lab::image::Fs;
use std::process::{Command, Stdio};

#[test]
fn ten_alternating_runs_teach_what_ten_cold_runs_teach() -> Result<()> {
    let mut case = Case::new("python", Fs::Ext4)?;
    // Every start is a control start: recorded, never replayed.
    for _ in 0..10 {
        case.run_cold(&["--control-every", "1"])?;
    }
    let cold = planned_pages(&case.profile()?);
    case.forget()?;
    for run in 0..10 {
        case.run_cold(&["--control-every", if run % 2 == 0 { "1" } else { "0" }])?;
    }
    let alternating = planned_pages(&case.profile()?);
    let common = in_common(&cold, &alternating);
    println!("pages in common: {:.2} %", common * 100.0);
    assert!(
        common >= 0.99,
        "{:.2} % of the pages are in common",
        common * 100.0
    );
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
    grep.wait()?;
    compiler.wait()?;
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
