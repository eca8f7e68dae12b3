//! Experiments without a file: programs side by side, and the demo.

use anyhow::{Context, Result};

use super::{Case, Experiment};
use crate::image::{Fs, Recipe};
use crate::kind::Kind;
use crate::machine;
use crate::model::Model;
use crate::setup::Setup;

/// Every workload on every file system and disk with every setup, for `headstart-lab bench`: an experiment
/// without a file.
pub fn side_by_side(
    workloads: &[String],
    systems: &[Fs],
    disks: &[String],
    setups: &[String],
    rounds: usize,
) -> Result<Experiment> {
    let setups = setups
        .iter()
        .map(|name| Setup::load(name))
        .collect::<Result<Vec<_>>>()?;
    let base = setups.first().context("no setup")?.name.clone();
    let mut cases = Vec::new();
    for workload in workloads {
        for fs in systems {
            for disk in disks {
                let (recipe, model) = (Recipe::load(workload)?, Model::load(disk)?);
                cases.push(Case {
                    name: format!("{}-{fs}-{}", recipe.name, model.name),
                    machine: Kind::Chroot,
                    recipe,
                    fs: *fs,
                    model,
                    memory_mb: None,
                    processors: None,
                    answer: None,
                    cache: None,
                    beside: None,
                });
            }
        }
    }
    anyhow::ensure!(rounds > 0, "--rounds 0: at least 1");
    Ok(Experiment {
        name: "bench".into(),
        question: format!(
            "How do {} compare?",
            setups
                .iter()
                .map(|s| s.name.as_str())
                .collect::<Vec<_>>()
                .join(", ")
        ),
        setups,
        base,
        rounds,
        asked: None,
        seed: 1,
        limit: machine::LIMIT,
        from: None,
        cases,
        goals: Vec::new(),
    })
}

/// One program on slow flash: cold, with headstart, and warm. For `headstart-lab demo`.
pub fn demo(workload: &str, rounds: usize) -> Result<Experiment> {
    let setups = ["none", "headstart", "warm"].map(str::to_owned);
    let disk = ["flash4ms".to_owned()];
    let experiment = side_by_side(&[workload.to_owned()], &[Fs::Ext4], &disk, &setups, rounds)?;
    let case = experiment.cases.first().context("no case")?;
    let (what, on) = (&case.recipe.description, &case.model.description);
    Ok(Experiment {
        name: "demo".into(),
        question: format!("{what}.\nDisk: {on}. Starts of each kind: {rounds}, in turn."),
        ..experiment
    })
}
