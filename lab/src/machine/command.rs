//! `headstart-lab machine boot`: one machine by hand, stage by stage.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;

use super::{LIMIT, Machine, Measured, Place, Spec, check, open};
use crate::image::{Fs, Recipe};
use crate::model::Model;
use crate::registry::Registry;
use crate::setup::Setup;
use crate::{paths, stats};

/// What to boot.
#[derive(Debug, Args)]
pub struct BootArgs {
    /// A built-in image that boots (see `headstart-lab image list`), or a TOML file.
    #[arg(long, default_value = "container")]
    machine: String,
    /// A built-in disk model, or a TOML file.
    #[arg(long, default_value = "disk7200")]
    disk: String,
    /// The root's file system.
    #[arg(long, default_value = "ext4")]
    fs: Fs,
    /// A built-in setup, or a TOML file: installed and learned before the first boot that is shown.
    #[arg(long, default_value = "none")]
    setup: String,
    /// Boots.
    #[arg(long, default_value_t = 1)]
    times: usize,
    /// Seconds after which a boot has failed.
    #[arg(long, default_value_t = LIMIT.as_secs())]
    limit: u64,
    /// The headstart binary: a static one, for it runs inside.
    #[arg(long)]
    headstart: Option<PathBuf>,
}

impl BootArgs {
    /// Boots as asked and prints what came of it.
    pub fn run(&self, registry: &Registry) -> Result<()> {
        let base = paths::base()?;
        let recipe = Recipe::load(&self.machine)?;
        let Some(boot) = &recipe.boot else {
            bail!(
                "{} does not boot: headstart-lab image list tells which do",
                recipe.name
            );
        };
        let setup = Setup::load(&self.setup)?;
        let spec = Spec {
            kind: boot.machine,
            fs: self.fs,
            model: Model::load(&self.disk)?,
            memory_mb: None,
            limit: Duration::from_secs(self.limit),
            output: base.join("console.log"),
            base: base.clone(),
            recipe,
        };
        check(&spec, &setup)?;
        let place = Place {
            state: base.join("by-hand").join(&setup.name),
            headstart: self.headstart(&setup)?,
            workload: spec.recipe.name.clone(),
        };
        for old in [&place.state, &spec.output] {
            remove(old)?;
        }
        std::fs::create_dir_all(&place.state)?;
        let mut machine = open(&spec, registry, &|step| eprintln!("{step}"))?;
        let result = boots(machine.as_mut(), &setup, &place, self.times);
        eprintln!("console: {}", spec.output.display());
        result
    }

    fn headstart(&self, setup: &Setup) -> Result<PathBuf> {
        let path = match &self.headstart {
            Some(path) => path.clone(),
            None => std::env::current_exe()?.with_file_name("headstart"),
        };
        if setup.needs_headstart() {
            return std::fs::canonicalize(&path).with_context(|| format!("--headstart {}", path.display()));
        }
        Ok(path)
    }
}

fn boots(machine: &mut dyn Machine, setup: &Setup, place: &Place, times: usize) -> Result<()> {
    if !setup.install.is_empty() {
        machine.install(place, &setup.install)?;
    }
    for command in setup.record.commands() {
        println!("learning {}", line(&machine.record(setup, place, command)?));
    }
    let mut seconds = Vec::new();
    for _ in 0..times {
        let measured = machine.run(setup, place)?;
        println!("{}", line(&measured));
        seconds.push(measured.stages.iter().map(|stage| stage.seconds).sum::<f64>());
    }
    if times > 1 {
        let (mean, sd) = (
            stats::mean(&seconds),
            stats::deviation(&seconds).unwrap_or(f64::NAN),
        );
        println!(
            "{times} boots: mean {mean:.3} s, sd {sd:.3} s ({:.1} %), median {:.3} s",
            100.0 * sd / mean,
            stats::median(&seconds)
        );
    }
    Ok(())
}

/// One run: its marks in seconds, and what its disk did.
fn line(measured: &Measured) -> String {
    let mut words: Vec<String> = measured
        .marks
        .iter()
        .map(|mark| format!("{} {:.3}", mark.name, mark.seconds))
        .collect();
    for stage in &measured.stages {
        words.push(format!(
            "[{} {:.3} s: {} reads, {:.1} MiB, disk busy {:.3} s{}]",
            stage.name,
            stage.seconds,
            stage.reads,
            stage.bytes as f64 / f64::from(1 << 20),
            stage.busy_seconds,
            stage
                .stalled_seconds
                .map_or(String::new(), |seconds| format!(", stalled {seconds:.3} s"))
        ));
    }
    words.join("  ")
}

fn remove(path: &Path) -> Result<()> {
    let result = if path.is_dir() {
        std::fs::remove_dir_all(path)
    } else {
        std::fs::remove_file(path)
    };
    match result {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", path.display()))
        }
        _ => Ok(()),
    }
}
