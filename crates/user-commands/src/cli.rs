//! The whole command line, of all programs of the package: help, man pages and completions are made of it.

use crate::commands::{
    apps, bench, chart, compare, diff, doctor, estimate, explain, export, fleet, floor, forget, hydrate,
    keys, learn, plan, profile, replay, report_bug, show, status,
};
use clap::Subcommand;
use headstart_start_commands::commands::{boot, daemon, features, layout, mark, op, record, run};

/// The subcommands; what each does is said where its arguments are.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(run::Args),
    Record(record::Args),
    Learn(learn::Args),
    Plan(plan::Args),
    Replay(replay::Args),
    Hydrate(hydrate::Args),
    Show(show::Args),
    Explain(explain::Args),
    Diff(diff::Args),
    Chart(chart::Args),
    Export(export::Args),
    Compare(compare::Args),
    Status(status::Args),
    Bench(bench::Args),
    Estimate(estimate::Args),
    Floor(floor::Args),
    Layout(layout::Args),
    Profile(profile::Args),
    Fleet(fleet::Args),
    Forget(forget::Args),
    Boot(boot::Args),
    Daemon(daemon::Args),
    Apps(apps::Args),
    Op(op::Args),
    Mark(mark::Args),
    Doctor(doctor::Args),
    ReportBug(report_bug::Args),
    #[command(hide = true)]
    Features(features::Args),
    #[command(hide = true)]
    Keys(keys::Args),
}
