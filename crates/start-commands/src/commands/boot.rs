//! `headstart boot`: the boot of the whole machine.

use super::mark;
use crate::context::Output;
use crate::part::Part;
use anyhow::{Result, bail};
use clap::Subcommand;
use headstart_boot::install::InstalledWay;
use headstart_boot::wait::who::waiters;
use headstart_boot::{init, install, key, next_root, run as process, state_below};
use headstart_model::trace::Backend;
use headstart_start::{shutdown_unit, store};
use headstart_store::Store;
use headstart_system::container;
use serde::Serialize;
use std::path::PathBuf;

/// Read ahead what a boot needs, on every boot.
///
/// Once enabled, each boot is recorded from its first instant until it is quiet, and learned from; the next
/// one is read ahead. Once three are known, and where recording takes more than a hundredth of the
/// processors' time of a boot, one boot in two to ten is recorded, so that over all of them it takes that
/// much. Where reading ahead cannot make boots faster, boots are bypassed: neither recorded nor read ahead.
/// One in ten, later in forty, re-evaluates that; `boot status` says so, and why. On the kernel command line
/// headstart=off bypasses one boot, headstart=record only records it, and headstart=on has it read ahead and
/// recorded in any case.
///
/// Who builds an image enables boots in it by `boot enable --root DIR`. What is learned travels in the image:
/// one that is captured after three boots is read ahead at the first boot of whatever machine is started from
/// it, whose disk is measured anew then. /usr/share/doc/headstart/examples/golden-image makes such an image.
///
/// From Linux 6.12 on the kernel itself can see what comes before headstart runs, with these two words on its
/// command line:
/// trace_instance=headstart,filemap:*,task:task_newtask,sched:sched_process_exec,sched:sched_process_exit
/// trace_buf_size=32M
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// From the next boot on, read ahead and learn. Where there is an initramfs it says how to have that
    /// begin there.
    Enable(Place),
    /// From the next boot on, do nothing for boots; what was learned stays.
    Disable(Place),
    /// What was recorded, read ahead, used and gained.
    Status(Status),
    /// Forget all that was learned of boots.
    Forget(Place),
    /// As `headstart mark`.
    #[command(hide = true)]
    Mark(mark::Args),
    /// Serve this boot; the unit's work.
    #[command(hide = true)]
    Run {
        /// Where the root is that this initramfs is about to become.
        #[arg(long, value_name = "DIR")]
        next_root: Option<PathBuf>,
        /// The pipe by which process 1 is released.
        #[arg(long, value_name = "FD", conflicts_with = "next_root")]
        init: Option<i32>,
        /// When that began which started this, nanoseconds of CLOCK_MONOTONIC.
        #[arg(long, value_name = "NS", requires = "init")]
        began: Option<String>,
    },
}

/// Which system, and how to tell of it.
#[derive(Debug, clap::Args)]
pub struct Place {
    /// The root of another system, such as an image that is being built.
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// How to print.
    #[command(flatten)]
    pub output_form: Output,
}

#[derive(Debug, clap::Args)]
struct Status {
    #[command(flatten)]
    place: Place,
}

#[derive(Serialize)]
struct Done {
    /// What was written or removed.
    changed: Vec<PathBuf>,
}

impl Args {
    /// Which system `boot status` is to tell of; `None` of another subcommand.
    pub fn into_status(self) -> Option<Place> {
        match self.what {
            What::Status(status) => Some(status.place),
            _ => None,
        }
    }
}

/// Does what is asked.
///
/// # Errors
/// The state or the other system cannot be read or changed.
pub fn run(args: Args, state: Option<PathBuf>) -> Result<()> {
    match args.what {
        What::Enable(place) => {
            let changed = install::enable(place.root.as_deref())?;
            let mut sentence =
                "Enabled: the next boot is recorded, and those after it are read ahead where that pays."
                    .to_owned();
            sentence += &match install::earliest_way(place.root.as_deref()) {
                InstalledWay::Initramfs(command) => {
                    format!("\nTo have that begin when the root is mounted, make the initramfs anew now: {command}")
                }
                InstalledWay::Generator => "\nThat begins as a generator of systemd, before it reads its units; still earlier, before \
                                   systemd itself,\nwith init=/usr/sbin/headstart-init on the kernel command line, or with it \
                                   as a container's command."
                    .into(),
                InstalledWay::Unit => "\nThat begins with the first unit of systemd.".into(),
            };
            let recorder = || headstart_record::features().chosen.map(|(backend, _)| backend);
            let here = container::manager().filter(|_| place.root.is_none());
            if let Some(it) = here.filter(|_| recorder() != Some(Backend::Bpf)) {
                let way = it.description();
                sentence += &format!("\nIn this container boots cannot be recorded. Start it with\n  {way}.");
            }
            place.print(changed, &sentence)
        }
        What::Disable(place) => {
            let changed = install::disable(place.root.as_deref())?;
            let mut sentence = "Disabled from the next boot on; what was learned stays.".to_owned();
            let is_named = || {
                let line = std::fs::read("/proc/cmdline").unwrap_or_default();
                place.root.is_some() || String::from_utf8_lossy(&line).contains("headstart-init")
            };
            if changed.iter().any(|path| path.ends_with("headstart-init")) && is_named() {
                sentence += "\n/usr/sbin/headstart-init is the real init now: where the kernel command line names it, take \
                             that off before you remove it.";
            }
            place.print(changed, &sentence)
        }
        What::Status(_) => Part::Inspect.execute().map(|never| match never {}),
        What::Forget(place) => {
            let kept = place.store(state)?.key(&key()?);
            let (own, imported) = (kept.forget()?, kept.forget_imports()?);
            if !own && !imported {
                bail!("nothing is known of boots: `headstart boot status` tells why");
            }
            place.print(Vec::new(), "All that was learned of boots is forgotten.")
        }
        What::Mark(args) => mark::run(args),
        What::Run {
            next_root: Some(next),
            ..
        } => next_root::enter(&next),
        What::Run { init, began, .. } => {
            let (store, (place, waiters)) = (store(state)?, waiters());
            let is_over = match init {
                Some(pipe) => init::run(&store, pipe, began.as_deref())?,
                None => process::run(&store, place, waiters, None)?,
            };
            is_over.then(|| shutdown_unit::go_on(&store));
            Ok(())
        }
    }
}

impl Place {
    /// The state directory: within the other root, if one is given.
    pub fn store(&self, state: Option<PathBuf>) -> Result<Store> {
        match &self.root {
            Some(root) => store(Some(state.map_or_else(|| state_below(root), Ok)?)),
            // Boots are the machine's, whoever asks.
            None => match state {
                None if std::env::var_os(headstart_store::ENVIRONMENT).is_none() => {
                    Ok(Store::new(headstart_store::MACHINE))
                }
                named => store(named),
            },
        }
    }

    fn print(&self, changed: Vec<PathBuf>, sentence: &str) -> Result<()> {
        self.output_form
            .print(&Done { changed }, || format!("{sentence}\n"))
    }
}
