//! What this kernel offers to a recorder, for `headstart doctor`.

use crate::kernel::bpf::{btf, load, missing, running_kernel, watched};
use crate::kernel::tracefs;
use headstart_model::trace::{Backend, Evidence};
use libbpf_rs::MapType;
use serde::{Deserialize, Serialize};

/// One thing a recorder may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Feature {
    /// What it is, such as `tracepoint mm_filemap_get_pages`.
    pub name: String,
    /// Whether this kernel offers it to this process.
    pub present: bool,
    /// What it is for, or what its absence means.
    pub note: String,
}

/// What this kernel offers to a recorder, and what would record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Features {
    /// Everything looked at.
    pub features: Vec<Feature>,
    /// What would record with `--backend auto`, and what its events would mean; `None` if nothing can.
    pub chosen: Option<(Backend, Evidence)>,
    /// Why.
    pub because: String,
}

/// Tracepoints the recorder can use, and what for.
const TRACEPOINTS: &[(&str, &str)] = &[
    ("mm_filemap_get_pages", "pages asked for by read (6.12 and later)"),
    (
        "mm_filemap_map_pages",
        "pages mapped around a fault (6.12 and later)",
    ),
    ("mm_filemap_fault", "pages faulted in (6.12 and later)"),
    (
        "mm_filemap_add_to_page_cache",
        "metadata that had to be read; without use events, files too",
    ),
    ("sched_process_fork", "the process tree"),
    ("sched_process_exec", "what processes run"),
    ("sched_process_exit", "the ends of processes"),
    ("sched_switch", "time blocked on block devices"),
    ("page_fault_user", "the page that a fault was for (x86)"),
    ("sys_exit", "paths looked up"),
];

/// Looks at this kernel, and attaches for a moment what notices starts. Changes nothing.
pub fn features() -> Features {
    let mut features = Vec::new();
    let mut note = |name: &str, present: bool, note: &str| {
        features.push(Feature {
            name: name.into(),
            present,
            note: note.into(),
        });
        present
    };
    let refusal = missing::capability()
        .map(|(name, what)| format!("{name} is missing ({what})"))
        .or_else(missing::lockdown)
        .or_else(missing::filter);
    let permitted = refusal.as_deref().unwrap_or("this process may load programs");
    let allowed = note("BPF permitted", refusal.is_none(), permitted);
    let kernel = running_kernel();
    note("BPF type information", kernel.is_ok(), btf::VMLINUX);
    let ring = allowed && MapType::RingBuf.is_supported().unwrap_or(false);
    note(
        "BPF ring buffer",
        ring,
        match allowed {
            true => "events without loss of order (5.8 and later)",
            false => "not known: BPF is not permitted",
        },
    );
    let lacks = match ring {
        true => "this kernel's BTF has no page cache event",
        false => "this kernel has no BPF ring buffer",
    };
    let without = refusal.unwrap_or_else(|| lacks.into());
    let mut evidence = Vec::new();
    if let Ok(kernel) = &kernel {
        for (name, what) in TRACEPOINTS {
            note(&format!("tracepoint {name}"), kernel.has_tracepoint(name), what);
        }
        evidence = load::evidence(kernel);
        if !evidence.contains(&Evidence::Uses) {
            let name = "functions that can be traced (fentry)";
            note(
                name,
                evidence.contains(&Evidence::Fentry),
                match load::functions_call() {
                    true => "pages asked for, where there are no use events",
                    false => {
                        "kernel.ftrace_enabled is 0: they would not be called, and what enters memory is recorded instead"
                    }
                },
            );
        }
    }
    // Some kernels have the functions, and refuse to trace them.
    let noticed = match ring {
        true => watched::Programs::start()
            .map(drop)
            .map_err(|error| error.to_string()),
        false => Err(without.clone()),
    };
    note(
        "starts noticed by BPF",
        noticed.is_ok(),
        &match noticed {
            Ok(()) => "what the daemon learns from".into(),
            Err(why) => format!("the daemon cannot serve here, only `headstart run`: {why}"),
        },
    );
    let no_tracefs = tracefs::cannot_open().map(|why| why.to_string());
    let what = no_tracefs.as_deref().unwrap_or("what records where BPF cannot");
    let tracefs = note("tracefs", no_tracefs.is_none(), what);
    let root = rustix::process::geteuid().is_root();
    let without = kernel.map_or_else(|error| error.to_string(), |_| without);
    let (chosen, because) = match evidence.first() {
        Some(best) if ring => (
            Some((Backend::Bpf, *best)),
            "BPF works here, and its events are the cheapest".into(),
        ),
        _ if tracefs && root => {
            let evidence = if evidence.contains(&Evidence::Uses) {
                Evidence::Uses
            } else {
                Evidence::Adds
            };
            (Some((Backend::Tracefs, evidence)), without)
        }
        _ if root => (None, format!("{without}; and {}", no_tracefs.unwrap_or_default())),
        _ => (
            None,
            "BPF needs CAP_BPF and CAP_PERFMON, tracefs needs root: run as root".into(),
        ),
    };
    Features {
        features,
        chosen,
        because,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_chosen_is_what_there_is() {
        let report = features();
        let has = |name: &str| report.features.iter().any(|f| f.name == name && f.present);
        match report.chosen {
            Some((Backend::Bpf, evidence)) => {
                assert!(has("BPF permitted") && has("BPF ring buffer"));
                assert_eq!(evidence == Evidence::Uses, has("tracepoint mm_filemap_get_pages"));
            }
            Some((Backend::Tracefs, _)) => assert!(has("tracefs") && !has("BPF ring buffer")),
            None => assert!(!rustix::process::geteuid().is_root() || !has("tracefs")),
        }
        assert!(!report.because.is_empty());
    }
}
