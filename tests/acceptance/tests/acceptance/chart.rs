//! `headstart-lab chart`: the pictures of the guide are of a start without a replay and one with.

use anyhow::{Context, Result};
use headstart_acceptance::{headstart, registry};
use headstart_lab::image::Fs;
use headstart_lab::machine::ChartArgs;
use headstart_lab::paths;

/// The texts of the picture that the lab draws of a workload.
fn drawn(workload: &str, learn: u32) -> Result<Vec<String>> {
    let base = paths::base()?;
    let directory = tempfile::tempdir()?;
    let output = directory.path().join("both.svg");
    let arguments = ChartArgs {
        workload: workload.into(),
        output: output.clone(),
        disk: "flash4ms".into(),
        fs: Fs::Ext4,
        learn,
        limit: 300,
        headstart: Some(headstart()?),
    };
    arguments.run(&registry(&base)?)?;
    let picture = std::fs::read_to_string(&output)?;
    let texts = picture.split("</text>").filter_map(|part| part.rsplit_once('>'));
    Ok(texts.map(|(_, text)| text.to_owned()).collect())
}

/// Both starts are there, and what the second used had been read ahead.
fn both(texts: &[String], with: &str) -> Result<()> {
    for name in ["none.trace", with] {
        assert!(texts.iter().any(|text| text == name), "{name}: {texts:?}");
    }
    let share = texts
        .iter()
        .filter_map(|text| text.strip_prefix("read ahead in time: "));
    let share: Vec<&str> = share.collect();
    assert_eq!(share.len(), 1, "{texts:?}");
    let share: f64 = share[0].split(' ').next().context("a share")?.parse()?;
    assert!(share > 80.0, "{texts:?}");
    // Recorded with what a chart needs.
    let lanes = ["processors", "processes", "memory"];
    assert!(
        lanes.iter().all(|lane| texts.iter().any(|text| text == lane)),
        "{texts:?}"
    );
    Ok(())
}

#[test]
fn a_program_without_and_with_a_replay_is_drawn() -> Result<()> {
    both(&drawn("python", 1)?, "python")
}

#[test]
fn a_containers_boot_without_and_with_a_replay_is_drawn() -> Result<()> {
    both(&drawn("container", 1)?, "boot")
}
