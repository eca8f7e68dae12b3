//! `headstart daemon`: the service that notices every start of a program.

use anyhow::{Context as _, Result};
use headstart_daemon::{control, serve};
use headstart_start::{complain, config, forget_secret_names, shutdown_unit, store};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Notice every start of a program, learn those that wait for the disk, and read ahead for them from then on.
///
/// A program is recorded as it starts for the first time. If it waited for devices for 50 ms or more, what it
/// read is kept, and is read ahead when it starts the next time and does not find it in memory. Programs that
/// do not wait cost next to nothing: the kernel reports none of their starts for an hour, or until one has
/// much to read.
///
/// The daemon ignores programs that `headstart run` starts, and does not read ahead for a second instance of
/// a running program. It records no programs whose executable is in no directory any more, and in other
/// mount namespaces (containers) only what belongs to a start that began outside. A login is one start,
/// called `session`: all that is executed in the user's control groups, for ten seconds or until it is quiet.
///
/// All is kept in the state directory, as by `headstart run`, at most 64 MiB: what has gained least goes
/// first. It needs root, and a kernel with BTF and BPF that tells which pages are used, as `headstart doctor`
/// says: Linux 5.10 or later on x86. Elsewhere `headstart run` alone serves programs. It ends on SIGTERM, and
/// tells a service manager that it is ready and alive (sd_notify(3)).
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Do not read ahead at every Nth cold start of a program, to have something to compare with; 0 for no
    /// such starts [default: as headstart.toml has it, or 10; a multiple of it once a gain is shown].
    #[arg(long, value_name = "N")]
    control_every: Option<u32>,
    /// Learn programs whose start waits at least so long for devices, milliseconds, all its threads added up.
    #[arg(long, value_name = "MS", default_value_t = serve::LEAST_WAIT_MS)]
    least_wait: u64,
    /// Keep a file of sums in this directory, for the textfile collector of Prometheus [default: as
    /// headstart.toml has it].
    #[arg(long, value_name = "DIR")]
    metrics: Option<PathBuf>,
    /// Do not serve the socket by which `headstart apps` and `headstart op` ask.
    #[arg(long)]
    no_control: bool,
}

/// The daemon looks for names that builds before it kept for so long; the next goes on from there.
const FORGETS_WITHIN: Duration = Duration::from_secs(120);

/// Serves until it is told to end.
///
/// # Errors
/// Starts cannot be noticed, or the socket cannot be served.
pub fn run(args: Args, state: Option<PathBuf>) -> Result<()> {
    let control = (!args.no_control).then(control::listen).transpose();
    let configured = config::read(Path::new(config::FILE), &mut |line| complain(&line)).programs;
    serve::run(serve::Options {
        store: store(state)?,
        at_begin: |store| {
            shutdown_unit::go_on(store);
            if let Err(error) = forget_secret_names(store, FORGETS_WITHIN, true) {
                complain(&error.to_string());
            }
        },
        control_every: match configured.observe {
            true => 1,
            false => args.control_every.unwrap_or(configured.control_every),
        },
        fixed_rate: configured.observe || args.control_every.is_some(),
        exact_pages: configured.exact_pages,
        least_wait: Duration::from_millis(args.least_wait),
        metrics: args.metrics.or(configured.metrics),
        control: control.context("cannot serve the control socket")?,
    })
}
