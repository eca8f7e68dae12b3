//! `headstart hydrate`, as it is called: `headstart-hydrate` does it, a small program that also runs in an
//! initramfs (decision 48).

use anyhow::{Context, Result};
use headstart_start_commands::{context::Output, part};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// Touch the ranges of a list on a volume that is filled as it is read.
///
/// A cloud volume that was made from a snapshot fetches each part of it when that part is first read. This
/// reads one block of each part that the list names, in the list's order and many at once, past the page
/// cache, so that the volume fetches them before the boot asks for them. `headstart plan --ranges-of` makes
/// lists (headstart-ranges(5)).
///
/// A list of another volume is refused: by the size of the device, the UUID of the file system, and the
/// contents of some blocks, which are compared first. Nothing more is read after the first difference. On a
/// volume that is filled already it ends after some reads.
///
/// It ends at SIGTERM, at once. Called in the background, it works beside the boot. The exit status is 0 also
/// where the time was up.
///
/// The initramfs calls it for each list in /usr/lib/headstart/ranges before the root is mounted, unless
/// headstart=off is on the kernel command line, and ends it when headstart begins to read a plan ahead.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The list.
    #[arg(value_name = "FILE")]
    list: PathBuf,
    /// The block device of the volume.
    #[arg(value_name = "DEVICE")]
    device: PathBuf,
    /// End after so many seconds.
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u16).range(1..=3600))]
    seconds: u16,
    #[command(flatten)]
    output_form: Output,
}

pub fn run(args: Args) -> Result<()> {
    let path = part::find("headstart-hydrate")?;
    let mut command = Command::new(&path);
    command.arg("--seconds").arg(args.seconds.to_string());
    if args.output_form.json {
        command.arg("--json");
    }
    let error = command.arg("--").arg(&args.list).arg(&args.device).exec();
    Err(error).with_context(|| format!("cannot execute {}", path.display()))
}
