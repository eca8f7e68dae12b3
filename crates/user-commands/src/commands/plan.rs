//! `headstart plan`: a profile becomes a plan for this machine.

use crate::{files, ranges};
use anyhow::{Context, Result, bail};
use headstart_inspect::human::bytes;
use headstart_inspect::plan::issued;
use headstart_model::machine::DeviceClass;
use headstart_model::plan::{PlanFile, RequestKind};
use headstart_plan::{PlanOptions, recorded_metadata};
use headstart_start::complain;
use headstart_start::machine::{self, Costs};
use headstart_start::now_unix_ns;
use headstart_start_commands::context::Output;
use headstart_start_commands::options;
use headstart_store::{Store, write_output};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Make a plan (where the profile's pages are on this machine) from a profile.
///
/// Every path is looked up now. A device whose cost is not known yet is measured, which takes a second, and
/// the result kept in the state directory.
///
/// With --ranges-of it writes a list of what keys need of one volume, by address and in the order of first
/// use, for `headstart hydrate` (headstart-ranges(5)): data, directories, inodes and other metadata. The file
/// system on DEVICE is mounted, and has ext2/3/4 or XFS.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The profile; with --ranges-of keys, in the order in which their ranges are listed [default: boot].
    #[arg(value_name = "PROFILE|KEY", required_unless_present = "ranges_of")]
    of: Vec<PathBuf>,
    /// The plan or list to write [default with --ranges-of: standard output].
    #[arg(short, long, value_name = "FILE", required_unless_present = "ranges_of")]
    output: Option<PathBuf>,
    /// List what the keys need of the volume on this block device.
    #[arg(long, value_name = "DEVICE", conflicts_with_all = ["device", "memory", "trace"])]
    ranges_of: Option<PathBuf>,
    /// What the devices are taken for: what was measured (auto), moving heads (disk), solid state (flash), or
    /// high latency and many requests at once (network).
    #[arg(long, value_enum, default_value_t = Device::Auto)]
    device: Device,
    /// Memory the replay may fill, such as 256M [default: half of what is available beyond 64M].
    #[arg(long, value_name = "SIZE", value_parser = options::size)]
    memory: Option<u64>,
    /// Traces whose metadata reads are planned too, beside those computed from the files.
    #[arg(long, value_name = "TRACE")]
    trace: Vec<PathBuf>,
    #[command(flatten)]
    output_form: Output,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Device {
    Auto,
    Disk,
    Flash,
    Network,
}

/// What was planned.
#[derive(Serialize)]
struct Planned {
    plan: PathBuf,
    key: String,
    requests: usize,
    issued: usize,
    metadata_bytes: u64,
    data_bytes: u64,
    bridged_bytes: u64,
    budget: u64,
}

/// What was listed.
#[derive(Serialize)]
struct Listed {
    list: Option<PathBuf>,
    ranges: Vec<[u64; 2]>,
    bytes: u64,
    checks: usize,
}

pub fn run(args: Args, store: &Store) -> Result<()> {
    if let Some(device) = &args.ranges_of {
        return list(&args, device, store);
    }
    let ([profile], Some(output)) = (&args.of[..], &args.output) else {
        bail!("a plan is made from one profile, given: {}", args.of.len());
    };
    plan(&args, profile, output, store)
}

fn list(args: &Args, device: &Path, store: &Store) -> Result<()> {
    let boot = [PathBuf::from("boot")];
    let keys = match args.of.is_empty() {
        true => &boot,
        false => &args.of[..],
    };
    let list = ranges::of_device(device, keys, store)?;
    let text = list.to_string();
    if let Some(output) = &args.output {
        write_output(output, text.as_bytes())?;
    }
    let listed = Listed {
        list: args.output.clone(),
        ranges: list
            .ranges
            .iter()
            .map(|range| [range.start, range.length])
            .collect(),
        bytes: list.bytes(),
        checks: list.checks.len(),
    };
    args.output_form.print(&listed, || match &args.output {
        None => text,
        Some(output) => format!(
            "{}: {} in {} ranges of {}, {} checks\n",
            output.display(),
            bytes(listed.bytes),
            listed.ranges.len(),
            device.display(),
            listed.checks
        ),
    })
}

fn plan(args: &Args, profile: &Path, output: &Path, store: &Store) -> Result<()> {
    let profile = files::profile(profile)?;
    let mut metadata = Vec::new();
    for path in &args.trace {
        metadata.extend(recorded_metadata(&files::trace(path)?));
    }
    let class = match args.device {
        Device::Auto => None,
        Device::Disk => Some(DeviceClass::Disk),
        Device::Flash => Some(DeviceClass::Flash),
        Device::Network => Some(DeviceClass::Network),
    };
    let costs = Costs::new(store, class);
    let machine = machine::snapshot(&profile, &costs, &mut |line| complain(&line))?;
    let options = PlanOptions {
        budget: args.memory,
        ..PlanOptions::new(now_unix_ns())
    };
    let draft = headstart_plan::plan(&profile, &machine, &metadata, &options);
    let file = PlanFile::new(draft.to_bytes().with_context(|| output.display().to_string())?);
    write_output(output, file.bytes())?;
    let plan = file.plan().with_context(|| output.display().to_string())?;
    let (_, data_bytes, bridged_bytes) = issued(&plan, RequestKind::Data);
    let planned = Planned {
        plan: output.to_owned(),
        key: plan.key().into(),
        requests: plan.request_count(),
        issued: plan.cut(),
        metadata_bytes: issued(&plan, RequestKind::Metadata).1,
        data_bytes,
        bridged_bytes,
        budget: plan.budget(),
    };
    args.output_form.print(&planned, || {
        format!(
            "{}: {} of data and {} of metadata in {} requests; {} more lie beyond the memory budget\n",
            output.display(),
            bytes(data_bytes),
            bytes(planned.metadata_bytes),
            planned.issued,
            planned.requests - planned.issued
        )
    })
}
