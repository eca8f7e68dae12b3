//! `headstart-lab machine boot`: one machine by hand, stage by stage.

use std::num::NonZeroU8;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;

use super::{Booting, LIMIT, Machine, Measured, Place, Spec};
use crate::image::{Fs, Recipe};
use crate::model::{Model, cost};
use crate::registry::Registry;
use crate::setup::Setup;
use crate::{paths, print};
use headstart_bench::statistics as stats;

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
    /// Memory of a virtual machine, such as 768M or 2G; the image's own default when not given.
    #[arg(long, value_parser = megabytes)]
    memory: Option<u64>,
    /// A picture (PNG) of the screen at the last mark, for a virtual machine with a display.
    #[arg(long)]
    screenshot: Option<PathBuf>,
    /// Boots.
    #[arg(long, default_value_t = 1)]
    times: usize,
    /// Emulated processors of a virtual machine [default: 2].
    #[arg(long, value_name = "N")]
    processors: Option<NonZeroU8>,
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
            memory_mb: self.memory,
            processors: self.processors,
            answer: None,
            limit: Duration::from_secs(self.limit),
            output: base.join("console.log"),
            base: base.clone(),
            recipe,
        };
        Booting::check(&spec, &setup)?;
        let place = Place {
            state: base.join("by-hand").join(&setup.name),
            headstart: self.headstart(&setup)?,
            workload: spec.recipe.name.clone(),
            disk: cost(&spec.model),
            at_once: false,
            profile: setup.profile.clone(),
        };
        renew(&place, &spec.output)?;
        setup.write_files(&place.files())?;
        let mut machine = Booting::open(&spec, registry, &|step| print::note(step))?;
        if let Some(file) = &self.screenshot {
            machine.take_screenshot(file)?;
        }
        let result = boots(&mut machine, &setup, &place, self.times);
        print::note(format_args!("console: {}", spec.output.display()));
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

/// An empty place, and nothing of what was printed before.
pub(super) fn renew(place: &Place, output: &Path) -> Result<()> {
    for old in [&place.state, &place.delta(), output] {
        remove(old)?;
    }
    let made = std::fs::create_dir_all(&place.state);
    made.with_context(|| format!("creating {}", place.state.display()))
}

fn boots(machine: &mut dyn Machine, setup: &Setup, place: &Place, times: usize) -> Result<()> {
    if !setup.install.is_empty() {
        machine.install(place, &setup.install)?;
    }
    for command in setup.record.commands() {
        print::line(format_args!(
            "learning {}",
            line(&machine.record(setup, place, command)?)
        ))?;
    }
    let mut seconds = Vec::new();
    for _ in 0..times {
        let measured = machine.run(setup, place)?;
        print::line(line(&measured))?;
        seconds.push(measured.stages.iter().map(|stage| stage.seconds).sum::<f64>());
    }
    if times > 1 {
        let (mean, sd) = (
            stats::mean(&seconds),
            stats::deviation(&seconds).unwrap_or(f64::NAN),
        );
        print::line(format_args!(
            "{times} boots: mean {mean:.3} s, sd {sd:.3} s ({:.1} %), median {:.3} s",
            100.0 * sd / mean,
            stats::median(&seconds)
        ))?;
    }
    Ok(())
}

/// One run: its marks in seconds, and what its disk did.
pub(super) fn line(measured: &Measured) -> String {
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

/// MiB, from a number with M or G behind it.
fn megabytes(text: &str) -> Result<u64, String> {
    let (number, factor) = match text.strip_suffix('G') {
        Some(number) => (number, 1024),
        None => (text.strip_suffix('M').unwrap_or(text), 1),
    };
    match number.parse::<u64>() {
        Ok(number @ 1..=1_048_576) => Ok(number * factor),
        _ => Err(format!(
            "{text:?} is no amount of memory: give one such as 768M or 2G"
        )),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_in_mib_or_gib() {
        assert_eq!(megabytes("768M"), Ok(768));
        assert_eq!(megabytes("512"), Ok(512));
        assert_eq!(megabytes("2G"), Ok(2048));
        assert!(megabytes("lots").unwrap_err().contains("lots"));
        assert!(megabytes("0G").is_err());
    }
}
