//! What this kernel and this process's privileges offer, for `headstart doctor` and for choosing fallbacks.

use std::path::Path;

/// Whether something can be used, and if not, why.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub enum Available {
    /// It can.
    Yes,
    /// It cannot, for this reason.
    No(String),
}

impl Available {
    /// Whether it can be used.
    pub fn yes(&self) -> bool {
        *self == Available::Yes
    }

    fn available_if(condition: bool, reason: &str) -> Available {
        if condition {
            Available::Yes
        } else {
            Available::No(reason.into())
        }
    }
}

/// What this kernel and this process's privileges offer.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Features {
    /// Release, as `uname -r` has it.
    pub kernel: String,
    /// Machine, as `uname -m` has it.
    pub machine: String,
    /// openat2(2), 5.6.
    pub openat2: Available,
    /// cachestat(2), 6.5.
    pub cachestat: Available,
    /// io_uring.
    pub io_uring: Available,
    /// Pressure stall information.
    pub psi: Available,
    /// Type information of the kernel, which CO-RE BPF programs need.
    pub btf: Available,
    /// A tracefs to make an instance in.
    pub tracefs: Available,
    /// Time blocked on I/O, by process.
    pub delay_accounting: Available,
    /// Kernel lockdown: `none`, `integrity`, `confidentiality`; `None` where it cannot be read.
    pub lockdown: Option<String>,
    /// What SELinux makes of this process; `None` where it is not in use.
    pub selinux: Option<Selinux>,
    /// Effective capabilities, without the prefix `CAP_`.
    pub capabilities: Vec<String>,
}

/// What SELinux makes of this process.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Selinux {
    /// Whether what its policy does not allow is refused; else it is only logged.
    pub enforces: bool,
    /// The context of this process, as `id -Z` has it.
    pub context: String,
}

/// Looks whether SELinux is in use; `None` too where this process may not even ask.
pub fn selinux() -> Option<Selinux> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let context = read("/proc/self/attr/current")?;
    selinux_of(&read("/sys/fs/selinux/enforce")?, &context)
}

fn selinux_of(enforce: &str, context: &str) -> Option<Selinux> {
    let context = context.trim_end_matches(['\0', '\n']);
    (!context.is_empty()).then(|| Selinux {
        enforces: enforce.trim() == "1",
        context: context.to_owned(),
    })
}

/// Whether cachestat(2) is there.
pub fn cachestat() -> Available {
    system_call(crate::sys::SYS_CACHESTAT, (6, 5))
}

/// The same without a look at why not, which a start has no use for.
pub fn has_cachestat() -> bool {
    ![libc::ENOSYS, libc::EPERM].contains(&crate::sys::probe(crate::sys::SYS_CACHESTAT))
}

/// Whether a filter of system calls refuses bpf(2) to this process, which has the capability for it.
pub fn is_bpf_filtered() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let held = capabilities(&status);
    // Either is enough: to a kernel before 5.8 CAP_SYS_ADMIN.
    let may = held.iter().any(|name| matches!(&**name, "BPF" | "SYS_ADMIN"));
    // What the kernel itself makes of no known command is EINVAL.
    let refusals = [libc::EPERM, libc::ENOSYS];
    may && refusals.contains(&crate::sys::probe(libc::SYS_bpf)) && crate::limits::is_filtered()
}

/// Looks.
pub fn features() -> Features {
    let name = rustix::system::uname();
    let tracefs = [
        "/sys/kernel/tracing/instances",
        "/sys/kernel/debug/tracing/instances",
    ];
    Features {
        kernel: name.release().to_string_lossy().into_owned(),
        machine: name.machine().to_string_lossy().into_owned(),
        openat2: system_call(libc::SYS_openat2, (5, 6)),
        cachestat: cachestat(),
        io_uring: io_uring(),
        psi: Available::available_if(
            std::fs::read("/proc/pressure/memory").is_ok(),
            "the kernel keeps no pressure information: boot with psi=1",
        ),
        btf: Available::available_if(
            Path::new("/sys/kernel/btf/vmlinux").exists(),
            "/sys/kernel/btf/vmlinux is missing: the kernel was built without CONFIG_DEBUG_INFO_BTF",
        ),
        tracefs: Available::available_if(
            tracefs.iter().any(|dir| Path::new(dir).is_dir()),
            "no tracefs at /sys/kernel/tracing: mount -t tracefs tracefs /sys/kernel/tracing",
        ),
        delay_accounting: Available::available_if(
            crate::blocked::delay_accounting(),
            "off: sysctl kernel.task_delayacct=1",
        ),
        lockdown: std::fs::read_to_string("/sys/kernel/security/lockdown")
            .ok()
            .and_then(|t| bracketed(&t)),
        selinux: selinux(),
        capabilities: capabilities(&std::fs::read_to_string("/proc/self/status").unwrap_or_default()),
    }
}

/// Whether a call can be made that kernels have since this version. Filters of system calls refuse what they
/// do not know with either error.
fn system_call(number: libc::c_long, since: (u32, u32)) -> Available {
    let release = rustix::system::uname();
    let is_since = || version(&release.release().to_string_lossy()) >= Some(since);
    match crate::sys::probe(number) {
        libc::ENOSYS if is_since() && crate::limits::is_filtered() => Available::No(FILTERED.into()),
        libc::ENOSYS => Available::No(format!("the kernel lacks it (since {}.{})", since.0, since.1)),
        libc::EPERM => Available::No(FILTERED.into()),
        _ => Available::Yes,
    }
}

const FILTERED: &str = "a filter of system calls (seccomp) refuses it";

/// The first two numbers of a kernel's release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn io_uring() -> Available {
    let disabled = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
    match (disabled.trim(), system_call(libc::SYS_io_uring_setup, (5, 1))) {
        ("2", _) => Available::No("switched off: sysctl kernel.io_uring_disabled is 2".into()),
        ("1", Available::No(_)) => {
            Available::No("for CAP_SYS_ADMIN and a group only: sysctl kernel.io_uring_disabled is 1".into())
        }
        (_, found) => found,
    }
}

/// The chosen one of `none [integrity] confidentiality`.
fn bracketed(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_string())
}

/// linux/capability.h, by bit.
const CAPABILITIES: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

fn capabilities(status: &str) -> Vec<String> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let set = line
        .and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
        .unwrap_or(0);
    let held = |(bit, name): (usize, &&str)| (set >> bit & 1 == 1).then(|| name.to_string());
    CAPABILITIES.iter().enumerate().filter_map(held).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_have_their_names() {
        assert_eq!(
            capabilities("CapEff:\t0000000000000005\n"),
            ["CHOWN", "DAC_READ_SEARCH"]
        );
        let names = capabilities("CapPrm:\t0\nCapEff:\t000001ffffffffff\n");
        assert_eq!(
            (names.len(), names[39].as_str(), names[21].as_str()),
            (41, "BPF", "SYS_ADMIN")
        );
        assert_eq!(capabilities("nonsense"), [""; 0]);
    }

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert_eq!(version("6.18.5-amd64"), Some((6, 18)));
        assert!(version("6.18.5") > Some((6, 5)) && version("5.10.0-28-cloud") < Some((6, 5)));
        assert_eq!([version("6"), version("next-6.5")], [None, None]);
    }

    #[test]
    fn lockdown_is_what_stands_in_brackets() {
        assert_eq!(
            bracketed("none [integrity] confidentiality\n"),
            Some("integrity".into())
        );
        assert_eq!(bracketed("none"), None);
    }

    #[test]
    fn selinux_is_told_by_its_switch_and_this_processs_context() {
        let context = "system_u:system_r:init_t:s0\n\0";
        let parsed =
            |enforce| selinux_of(enforce, context).map(|selinux| (selinux.enforces, selinux.context));
        assert_eq!(parsed("1"), Some((true, "system_u:system_r:init_t:s0".into())));
        assert!(!parsed("0\n").unwrap().0);
        assert_eq!(selinux_of("1", "\0"), None);
    }

    #[test]
    fn this_kernel_has_what_its_release_says() {
        let features = features();
        assert!(features.openat2.yes(), "{features:?}");
        assert_eq!(
            features.kernel,
            std::fs::read_to_string("/proc/sys/kernel/osrelease")
                .unwrap()
                .trim()
        );
        assert_ne!(crate::sys::probe(libc::SYS_close), libc::ENOSYS);
        assert_eq!(crate::sys::probe(1_000_000), libc::ENOSYS);
    }
}
