//! The `headstart-lab` command: parse, call, print.

mod builds;
mod disk_command;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Parser, Subcommand};
use headstart_lab::experiment::{self, Experiment};
use headstart_lab::image::{self, Fs, Recipe};
use headstart_lab::machine::{BootArgs, ChartArgs};
use headstart_lab::registry::{self, Registry};
use headstart_lab::report::{self, Report};
use headstart_lab::{page, paths, print, tools};

use builds::Builds;
use disk_command::DiskCommand;

/// Slow disks, programs that start on them, and honest measurements.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Block devices whose timing follows a model.
    #[command(subcommand)]
    Disk(DiskCommand),
    /// Root file systems with a program to start in them, or to boot.
    #[command(subcommand)]
    Image(ImageCommand),
    /// Machines by hand.
    #[command(subcommand)]
    Machine(MachineCommand),
    /// Make the runs of an experiment that are not made yet, one line each, and print its report.
    Run {
        /// The experiment: a TOML file, such as those in lab/experiments.
        experiment: PathBuf,
        /// Directory for its runs; an interrupted experiment goes on there.
        #[arg(long)]
        out: PathBuf,
        #[command(flatten)]
        builds: Builds,
        /// Go on in a directory begun by another experiment file or other binaries.
        #[arg(long, conflicts_with = "again")]
        mixed: bool,
        /// Forget the runs that the directory holds, and all that setups learned there.
        #[arg(long)]
        again: bool,
        /// Make so many rounds, not as many as the experiment asks for; the report says so.
        #[arg(long, value_name = "N")]
        rounds: Option<usize>,
        /// Check that everything is there, and run nothing.
        #[arg(long)]
        check: bool,
    },
    /// Sum up the runs in a directory: print a table, write results.json beside them.
    Report {
        /// The directory of an experiment.
        directory: PathBuf,
    },
    /// Measure programs side by side: an experiment without a file, begun anew each time.
    Bench {
        /// Workloads, separated by commas: built-in names or TOML files.
        #[arg(long, default_value = "libreoffice", value_delimiter = ',')]
        workload: Vec<String>,
        /// File systems, separated by commas: ext4, xfs, btrfs, squashfs, erofs, overlay.
        #[arg(long, default_value = "ext4", value_delimiter = ',')]
        fs: Vec<Fs>,
        /// Disk models, separated by commas: built-in names or TOML files.
        #[arg(long, default_value = "flash4ms", value_delimiter = ',')]
        disk: Vec<String>,
        /// Setups, separated by commas: none, headstart, before, warm, …, or TOML files. The others are
        /// compared with the first.
        #[arg(long, default_value = "none,headstart,before,warm", value_delimiter = ',')]
        setup: Vec<String>,
        /// Rounds; each has every setup once.
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// Directory for the results.
        #[arg(long, default_value = "target/bench")]
        out: PathBuf,
        #[command(flatten)]
        builds: Builds,
    },
    /// The whole loop on one real program: cold, with headstart, and warm.
    Demo {
        /// A built-in workload, or a TOML file.
        #[arg(long, default_value = "libreoffice")]
        workload: String,
        /// Starts of each kind.
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// Directory for the results.
        #[arg(long, default_value = "target/demo")]
        out: PathBuf,
        #[command(flatten)]
        builds: Builds,
    },
    /// Start something cold without and with a replay, and draw both starts beside one another.
    Chart(ChartArgs),
    /// Keep the figures of a directory's runs in a small file, of which the project's pages are made.
    Keep {
        /// The directory of an experiment.
        directory: PathBuf,
        /// The commit of the build that was measured.
        #[arg(long)]
        commit: String,
        /// The commit of the build measured beside it.
        #[arg(long, value_name = "COMMIT")]
        earlier: Option<String>,
        /// Where kept figures are.
        #[arg(long, default_value = "docs/results")]
        results: PathBuf,
    },
    /// Make the project's pages of figures anew: docs/measurements.md, the pages behind it, their pictures,
    /// docs/demo.svg, and the demo's parts of README.md.
    Page {
        /// The project's directory.
        #[arg(long, default_value = ".")]
        root: PathBuf,
        /// Write nothing; fail if a page is not what the kept figures and its template make.
        #[arg(long)]
        check: bool,
    },
    /// Remove what a killed lab left: mounts, loop devices, processes, scratch files.
    Clean,
}

#[derive(Debug, Subcommand)]
enum ImageCommand {
    /// List the built-in workloads.
    List,
    /// Build an image, or find it in the cache, and print its path.
    Build {
        /// A built-in workload, or a TOML file.
        workload: String,
        /// File system: ext4, xfs, btrfs, squashfs, erofs.
        #[arg(long, default_value = "ext4")]
        fs: Fs,
    },
}

#[derive(Debug, Subcommand)]
enum MachineCommand {
    /// Boot a machine from cold and print when it had come how far.
    Boot(BootArgs),
}

fn main() {
    let cli = Cli::parse();
    if let Err(error) = run(cli.command).or_else(print::unless_unread) {
        print::note(format_args!("headstart-lab: {error:#}"));
        std::process::exit(1);
    }
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Disk(command) => disk_command::run(command),
        Command::Image(ImageCommand::List) => {
            for (name, _) in image::BUILT_IN {
                print::line(format_args!("{name:<12} {}", Recipe::load(name)?.description))?;
            }
            Ok(())
        }
        Command::Image(ImageCommand::Build { workload, fs }) => {
            let recipe = Recipe::load(&workload)?;
            let image = image::build(&recipe, fs, &registry()?, &|step| print::note(step))?;
            print::line(image.display())?;
            Ok(())
        }
        Command::Machine(MachineCommand::Boot(arguments)) => {
            let _lock = paths::lock()?;
            arguments.run(&registry()?)
        }
        Command::Chart(arguments) => {
            let _lock = paths::lock()?;
            arguments.run(&registry()?)
        }
        Command::Run {
            experiment,
            out,
            builds,
            mixed,
            again,
            rounds,
            check,
        } => {
            let mut experiment = experiment::load(&experiment)?;
            if let Some(rounds) = rounds {
                experiment = experiment.with_rounds(rounds)?;
            }
            let experiment = builds.measured(experiment)?;
            let options = builds.options(&out, mixed, again)?;
            if check {
                experiment::check(&experiment, &options)?;
                print::line(format_args!("{}: everything is there", experiment.name))?;
                return Ok(());
            }
            make(&experiment, &options)
        }
        Command::Report { directory } => {
            let report = Report::read(&directory)?;
            report.write(&directory)?;
            print::line(report::table(&report).trim_end())
        }
        Command::Bench {
            workload,
            fs,
            disk,
            setup,
            rounds,
            out,
            builds,
        } => {
            let experiment = experiment::side_by_side(&workload, &fs, &disk, &setup, rounds)?;
            make(&builds.measured(experiment)?, &builds.options(&out, false, true)?)
        }
        Command::Demo {
            workload,
            rounds,
            out,
            builds,
        } => {
            let experiment = builds.measured(experiment::demo(&workload, rounds)?)?;
            let report = made(&experiment, &builds.options(&out, false, true)?)?;
            print::line(page::short(&page::PublishedResult::new(&report, "", None))?.trim_end())
        }
        Command::Keep {
            directory,
            commit,
            earlier,
            results,
        } => {
            let kept = page::PublishedResult::new(&Report::read(&directory)?, &commit, earlier.as_deref());
            print::line(kept.write(&results)?.display())
        }
        Command::Page { root, check } => make_pages(&root, check),
        Command::Clean => clean(),
    }
}

fn make_pages(root: &Path, check: bool) -> Result<()> {
    for page in page::pages(root)?.iter().filter(|page| page.stale()) {
        anyhow::ensure!(
            !check,
            "{} is stale: `headstart-lab page` makes it anew",
            page.path.display()
        );
        page.write()?;
        print::line(page.path.display())?;
    }
    Ok(())
}

/// Makes the missing runs of an experiment, and its report.
fn made(experiment: &Experiment, options: &experiment::Options) -> Result<Report> {
    let _lock = paths::lock()?;
    experiment::run(experiment, options, &registry()?)?;
    let report = Report::read(&options.out)?;
    report.write(&options.out)?;
    Ok(report)
}

/// Makes the missing runs of an experiment and prints its report.
fn make(experiment: &Experiment, options: &experiment::Options) -> Result<()> {
    let report = made(experiment, options)?;
    let written = options.out.join("results.json");
    print::line(format_args!("{}{}", report::table(&report), written.display()))
}

/// A registry whose contents go away with the process.
fn registry() -> Result<Registry> {
    tools::require_root()?;
    let registry = Registry::open(&paths::base()?)?;
    registry.undo_on_signals()?;
    Ok(registry)
}

fn clean() -> Result<()> {
    tools::require_root()?;
    let cleaned = registry::clean(&paths::base()?)?;
    let mut lines: Vec<String> = cleaned
        .removed
        .iter()
        .map(|item| format!("removed {item:?}"))
        .collect();
    let running = cleaned.running.iter();
    lines.extend(running.map(|pid| format!("left alone: lab process {pid} is still running")));
    if lines.is_empty() && cleaned.failures.is_empty() {
        lines.push("nothing to clean".into());
    }
    let told = lines.into_iter().try_for_each(print::line);
    anyhow::ensure!(
        cleaned.failures.is_empty(),
        "not removed: {}",
        cleaned.failures.join("; ")
    );
    told
}
