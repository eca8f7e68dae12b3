//! `headstart doctor`: what this kernel and machine offer, what falls back, and why.

use crate::program::recorder_features;
use anyhow::{Result, bail};
use headstart_daemon::units::State;
use headstart_inspect::human::{bytes, duration};
use headstart_inspect::table::{Table, facts, section};
use headstart_model::machine::Cost;
use headstart_model::trace::Backend;
use headstart_start::machine::{KnownDevice, of_root_and_state};
use headstart_start_commands::context::Output;
use headstart_store::Store;
use headstart_system::container;
use headstart_system::features::{Available, Features, Selinux};
use headstart_system::mounts::notes::{MountNote, notes};
use serde::Serialize;

/// Report what this kernel and machine offer, what falls back, and why.
///
/// Changes nothing. The exit status is 1 only if headstart can neither record nor replay here.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    output_form: Output,
}

/// One thing that may be there or not.
#[derive(Serialize)]
struct Check {
    name: String,
    present: bool,
    /// What it is for, what is used instead, or how to get it.
    note: String,
}

#[derive(Serialize)]
struct DeviceCheck {
    path: String,
    mount_point: String,
    fstype: String,
    node: String,
    cost: Cost,
    /// Whether the cost was measured; else it is what devices of the class commonly cost.
    measured: bool,
    /// Why the class was guessed.
    reason: String,
    metadata_by_block: bool,
    request_limit: u32,
}

#[derive(Serialize)]
pub(super) struct Report {
    kernel: String,
    machine: String,
    lockdown: Option<String>,
    /// What SELinux makes of this process; null where it is not in use. A service or a boot has another
    /// context.
    selinux: Option<Selinux>,
    /// What would record; null if nothing can.
    backend: Option<String>,
    /// What its events mean: `uses`, `fentry` or `adds`.
    evidence: Option<String>,
    because: String,
    missing_capabilities: Vec<&'static str>,
    /// What this process has too little of: `headstart run` bypasses what it starts here; null if it has
    /// enough.
    limits: Option<String>,
    /// What made the container that this is, if it is one.
    container: Option<&'static str>,
    /// How to start such a container so that headstart records in it, where it cannot.
    container_line: Option<String>,
    capabilities: Vec<Check>,
    recording: Vec<Check>,
    replaying: Vec<Check>,
    devices: Vec<DeviceCheck>,
    /// Mounts on which starts gain little or nothing.
    mounts: Vec<MountNote>,
    state: String,
    /// Whether an earlier version kept names of files whose directories are not there now, so that it cannot
    /// be told if they are encrypted.
    unknown_names: bool,
    /// Whether the daemon runs.
    daemon: State,
}

/// The capabilities that headstart uses, and for what.
const CAPABILITIES: [(&str, &str); 4] = [
    ("BPF", "to load the recorder's BPF programs; without: tracefs"),
    (
        "PERFMON",
        "to attach them to the kernel's tracepoints; without: tracefs",
    ),
    (
        "SYS_ADMIN",
        "to record with tracefs, to read metadata through block devices",
    ),
    (
        "DAC_READ_SEARCH",
        "to find, plan and read ahead files of others; without: only one's own",
    ),
];

/// What is said where encrypted volumes may have been locked when names that are kept were looked at.
const UNKNOWN_NAMES: &str = "some are below directories of people that are not there now: if those are encrypted, `headstart forget KEY` removes them";

pub fn run(args: Args, store: &Store) -> Result<()> {
    let report = examine(store)?;
    let (can_record, can_replay) = (report.backend.is_some(), !report.devices.is_empty());
    args.output_form.print(&report, || text(&report))?;
    if !can_record && !can_replay {
        bail!("nothing works here: {}", report.because);
    }
    Ok(())
}

/// What is to be told, as a document.
pub(super) fn examine(store: &Store) -> Result<Report> {
    let (recorder, system) = (recorder_features()?, headstart_system::features::features());
    let names = ["CAP_BPF", "CAP_PERFMON", "CAP_SYS_ADMIN", "CAP_DAC_READ_SEARCH"];
    let capabilities = capabilities(&system);
    let replaying = replaying(&system);
    let recording = recorder
        .features
        .into_iter()
        .map(|feature| Check {
            name: feature.name,
            present: feature.present,
            note: feature.note,
        })
        .collect();
    let manager = container::manager();
    let by_bpf = recorder
        .chosen
        .is_some_and(|(backend, _)| backend == Backend::Bpf);
    let lower = |text: String| text.to_lowercase();
    Ok(Report {
        kernel: system.kernel,
        machine: system.machine,
        lockdown: system.lockdown,
        selinux: system.selinux,
        backend: recorder.chosen.map(|(backend, _)| lower(format!("{backend:?}"))),
        evidence: recorder
            .chosen
            .map(|(_, evidence)| lower(format!("{evidence:?}"))),
        because: recorder.because,
        missing_capabilities: names
            .into_iter()
            .zip(&capabilities)
            .filter(|(_, c)| !c.present)
            .map(|(n, _)| n)
            .collect(),
        limits: headstart_system::limits::lacking(),
        container: manager.map(|manager| manager.name),
        container_line: manager.filter(|_| !by_bpf).map(|manager| manager.line()),
        capabilities,
        recording,
        replaying,
        devices: devices(store),
        mounts: notes(),
        state: store.root().display().to_string(),
        unknown_names: headstart_start::are_some_unknown(store),
        daemon: State::read(),
    })
}

fn capabilities(system: &Features) -> Vec<Check> {
    let is_held = |name: &str| {
        let mut held = system.capabilities.iter();
        held.any(|known| known.eq_ignore_ascii_case(name))
    };
    let check = |(name, note): &(&str, &str)| Check {
        name: format!("CAP_{name}"),
        present: is_held(name),
        note: (*note).into(),
    };
    CAPABILITIES.iter().map(check).collect()
}

fn replaying(system: &Features) -> Vec<Check> {
    [
        (
            "openat2",
            &system.openat2,
            "opens that cannot be led astray by links",
        ),
        (
            "io_uring",
            &system.io_uring,
            "batches of opens; without: a few threads",
        ),
        (
            "cachestat",
            &system.cachestat,
            "cheap residency checks; without: mincore",
        ),
        (
            "pressure (PSI)",
            &system.psi,
            "stops a replay that harms; without: by free memory alone",
        ),
        (
            "delay accounting",
            &system.delay_accounting,
            "time blocked on I/O in outcomes",
        ),
    ]
    .map(|(name, available, note)| Check {
        name: name.into(),
        present: available.yes(),
        note: match available {
            Available::Yes => note.into(),
            Available::No(why) => format!("{why}; {note}"),
        },
    })
    .into()
}

fn devices(store: &Store) -> Vec<DeviceCheck> {
    let check = |known: KnownDevice| DeviceCheck {
        path: known.path.to_string(),
        mount_point: known.device.mount_point.to_string(),
        fstype: known.device.fstype,
        node: known.device.node.to_string(),
        cost: known.device.cost,
        measured: known.measured,
        reason: known.reason,
        metadata_by_block: known.device.metadata_by_block,
        request_limit: known.device.request_limit,
    };
    of_root_and_state(store).into_iter().map(check).collect()
}

/// What is seen here holds for this process: a policy may refuse to boots and to the daemon what it allows to
/// a login.
fn selinux_text(selinux: &Selinux) -> String {
    match selinux.enforces {
        true => format!(
            "enforces: this holds for {}. Boots and the daemon have other contexts: `headstart boot status` says what a boot was refused, `ausearch -m avc,user_avc -ts boot` all",
            selinux.context
        ),
        false => format!("permissive, this process is {}", selinux.context),
    }
}

fn facts_text(report: &Report) -> String {
    let record = match (&report.backend, &report.evidence) {
        (Some(backend), Some(evidence)) => format!("with {backend}, evidence {evidence}: {}", report.because),
        _ => format!("not possible: {}", report.because),
    };
    let missing = match report.missing_capabilities.is_empty() {
        true => "none".into(),
        false => report.missing_capabilities.join(", "),
    };
    let unknown = report
        .unknown_names
        .then(|| ("names kept before", UNKNOWN_NAMES.to_owned()));
    let limits = report
        .limits
        .as_ref()
        .map(|why| ("limits", format!("`headstart run` bypasses starts here: {why}")));
    let container = report.container.map(|name| ("container", name.to_string()));
    let way = report.container_line.as_ref().and(container::manager());
    let line = way.map(|way| ("to record here", way.description()));
    facts(
        [
            ("kernel", format!("Linux {} on {}", report.kernel, report.machine)),
            (
                "lockdown",
                report.lockdown.clone().unwrap_or_else(|| "not known".into()),
            ),
            ("recording", record),
            ("missing capabilities", missing),
            ("state", report.state.clone()),
            ("daemon", report.daemon.text().into()),
        ]
        .into_iter()
        .chain(unknown)
        .chain(
            report
                .selinux
                .as_ref()
                .map(|selinux| ("SELinux", selinux_text(selinux))),
        )
        .chain(limits)
        .chain(container)
        .chain(line),
    )
}

fn devices_table(devices: &[DeviceCheck]) -> Table {
    let mut table = Table::new(&[
        "mounted at",
        "type",
        "answers like",
        ">latency",
        ">bandwidth",
        ">depth",
        "metadata",
        "known by",
    ]);
    for device in devices {
        table.row([
            device.mount_point.clone(),
            device.fstype.clone(),
            format!("{:?}", device.cost.class).to_lowercase(),
            duration((device.cost.latency * 1e9) as u64),
            format!("{}/s", bytes(device.cost.bandwidth as u64)),
            device.cost.depth.to_string(),
            if device.metadata_by_block {
                "by block"
            } else {
                "by look-ups"
            }
            .into(),
            if device.measured {
                "measurement".into()
            } else {
                format!("a guess: {}", device.reason)
            },
        ]);
    }
    table
}

fn text(report: &Report) -> String {
    let mut out = facts_text(report);
    for (title, checks) in [
        ("Capabilities", &report.capabilities),
        ("Recording", &report.recording),
        ("Replaying", &report.replaying),
    ] {
        let mut table = Table::new(&["feature", "here", "what for, and what falls back"]);
        for check in checks {
            table.row([
                check.name.as_str(),
                if check.present { "yes" } else { "no" },
                &check.note,
            ]);
        }
        out += &section(title, &table);
    }
    out += &section("Devices", &devices_table(&report.devices));
    if !report.mounts.is_empty() {
        let mut table = Table::new(&["mounted at", "type", "what starts gain"]);
        for mount in &report.mounts {
            table.row([mount.mount_point.as_str(), &mount.fstype, mount.note]);
        }
        out += &section("Mounts", &table);
    }
    out
}
