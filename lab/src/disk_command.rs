//! `headstart-lab disk …`: parse, call, print.

use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use headstart_lab::disk::{self, Check, Entry, LATENCY_LIMIT_US, Options, Served, TOLERANCE, Writes};
use headstart_lab::model::{BUILT_IN, Model};
use headstart_lab::registry::Registry;
use headstart_lab::{paths, print, tools};

#[derive(Debug, Subcommand)]
pub enum DiskCommand {
    /// List the built-in models.
    List,
    /// Serve an image as DIR/disk at a model's pace until interrupted; attach it with
    /// `losetup --direct-io=on`, or give it to QEMU with `cache=none`.
    Serve {
        /// A built-in model, or a TOML file.
        #[arg(long)]
        model: String,
        /// The bytes of the disk.
        #[arg(long)]
        image: PathBuf,
        /// Where to mount.
        #[arg(long)]
        mount: PathBuf,
        /// Write one line per request: time, operation, sector, sectors, depth, service time.
        #[arg(long)]
        log: Option<PathBuf>,
        /// Keep what is written in this file, the image unchanged, when ended by a signal other than SIGKILL;
        /// without --delta and --keep writes are in memory and forgotten.
        #[arg(long)]
        delta: Option<PathBuf>,
        /// Write into the image.
        #[arg(long, conflicts_with = "delta")]
        keep: bool,
    },
    /// Measure models with fio, beside what they predict and what the data sheet says; fails when one is off
    /// by more than 10 %.
    Check {
        /// Models; all when none is given.
        models: Vec<String>,
        /// Seconds for each pattern, at least; slow devices get more.
        #[arg(long, default_value_t = 3)]
        seconds: u32,
    },
}

/// Runs one of them.
pub fn run(command: DiskCommand) -> Result<()> {
    match command {
        DiskCommand::List => list(),
        DiskCommand::Serve {
            model,
            image,
            mount,
            log,
            delta,
            keep,
        } => {
            let options = Options {
                model: Model::load(&model)?,
                image,
                directory: mount,
                writes: match delta {
                    Some(path) => Writes::Delta(path),
                    None if keep => Writes::Image,
                    None => Writes::Forget,
                },
            };
            serve(&options, log.as_deref())
        }
        DiskCommand::Check { models, seconds } => check(&models, seconds),
    }
}

fn list() -> Result<()> {
    for (name, _) in BUILT_IN {
        let model = Model::load(name)?;
        print::line(format_args!("{name:<14} {}", model.description))?;
        print::line(format_args!("{:<14}   from: {}", "", model.source))?;
        if let Some(cap) = &model.cap {
            print::line(format_args!("{:<14}   cap: {cap}", ""))?;
        }
    }
    Ok(())
}

fn serve(options: &Options, log: Option<&Path>) -> Result<()> {
    tools::require_root()?;
    let registry = Registry::open(&paths::base()?)?;
    // Not the registry's handler, which exits at once: first what was written is kept.
    let stop = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stop);
    ctrlc::set_handler(move || told.store(true, Ordering::Relaxed))
        .context("installing the signal handler")?;
    let mut log = match log {
        None => None,
        Some(path) => {
            let file = fs::File::create(path).with_context(|| format!("creating {}", path.display()))?;
            let mut log = BufWriter::new(file);
            writeln!(log, "{}", Entry::CSV_HEADER)?;
            Some(log)
        }
    };
    let served = Served::new(options, &registry)?;
    print::line(served.file().display())?;
    loop {
        let last = stop.load(Ordering::Relaxed);
        let entries = served.take_log();
        if let Some(log) = &mut log {
            for entry in entries {
                writeln!(log, "{}", entry.csv())?;
            }
            log.flush()?;
        }
        if last {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    if options.writes == Writes::Forget {
        drop(served);
    } else {
        served.commit_and_end()?;
    }
    // As the shell has it for a command that SIGINT ended.
    std::process::exit(130);
}

fn check(names: &[String], seconds: u32) -> Result<()> {
    let _lock = paths::lock()?;
    let registry = super::registry()?;
    let names: Vec<&str> = if names.is_empty() {
        BUILT_IN.iter().map(|(name, _)| *name).collect()
    } else {
        names.iter().map(String::as_str).collect()
    };
    let models = names
        .into_iter()
        .map(Model::load)
        .collect::<Result<Vec<_>, _>>()?;
    print::line(format_args!(
        "{:<14} {:<25} {:>9} {:>9} {:>7} {:>9} {:>7}  {:<8} {:>7} {:>7}",
        "model", "pattern", "measured", "model", "", "sheet", "", "", "lead us", "waiting"
    ))?;
    let mut off = Vec::new();
    for model in models {
        for row in disk::check(&model, &paths::base()?, &registry, seconds)? {
            print::line(format_args!("{:<14} {}", model.name, line(&row)))?;
            if !row.holds() {
                off.push(format!("{} {}", model.name, row.pattern));
            }
        }
        if let Some(cap) = &model.cap {
            print::line(format_args!("{:<14} cap: {cap}", ""))?;
        }
    }
    if off.is_empty() {
        return Ok(());
    }
    bail!(
        "off by more than {:.0} % or {LATENCY_LIMIT_US:.0} us: {}; where programs waited for a processor much of the time \
         (last column), try again on an idle machine",
        TOLERANCE * 100.0,
        off.join(", ")
    )
}

fn line(row: &Check) -> String {
    let figure = |value: Option<f64>| match value {
        Some(value) if value < 100.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.0}"),
        None => "-".into(),
    };
    let error = |error: Option<f64>| error.map_or_else(String::new, |e| format!("{:+.1} %", e * 100.0));
    let note = match row.latency_us() {
        Some(us) => format!("  the chain itself: {us:.0} us"),
        None => String::new(),
    };
    format!(
        "{:<25} {:>9} {:>9} {:>7} {:>9} {:>7}  {:<8} {:>7.0} {:>5.0} %{note}",
        row.pattern,
        figure(Some(row.measured)),
        figure(row.predicted),
        error(row.from_model()),
        figure(row.sheet),
        error(row.from_sheet()),
        row.unit,
        row.lead_us,
        row.waited * 100.0
    )
}
