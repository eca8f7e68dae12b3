//! What keeps this process from using BPF.

/// Capabilities as in the kernel's `include/uapi/linux/capability.h`.
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// The capability that is missing, and what it is for. CAP_SYS_ADMIN stands for both of the others. What a
/// process has in a user namespace is none over BPF.
pub(crate) fn capability() -> Option<(&'static str, String)> {
    if headstart_system::container::is_user_namespace() {
        let what = "to load programs, and this is a user namespace, whose root has no rights over the kernel";
        return Some(("CAP_BPF", what.into()));
    }
    let effective = effective()?;
    let has = |capability: u32| effective >> capability & 1 == 1;
    if has(CAP_SYS_ADMIN) {
        None
    } else if !has(CAP_BPF) {
        Some(("CAP_BPF", "to load programs".into()))
    } else if !has(CAP_PERFMON) {
        Some(("CAP_PERFMON", "to let them see what other processes do".into()))
    } else {
        None
    }
}

/// What the kernel's lockdown forbids, where it forbids BPF programs to read kernel memory.
pub(crate) fn lockdown() -> Option<String> {
    let modes = std::fs::read_to_string("/sys/kernel/security/lockdown").ok()?;
    modes
        .contains("[confidentiality]")
        .then(|| "it is locked down to confidentiality".to_owned())
}

/// What refuses bpf(2) where the capabilities allow it, and the way out.
pub(crate) fn filter() -> Option<String> {
    headstart_system::features::is_bpf_filtered().then(|| {
        "a filter of system calls (seccomp) refuses bpf(2): have it let that pass (podman and docker: --security-opt seccomp=unconfined)".into()
    })
}

/// The effective capabilities of this process.
fn effective() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_lacks_nothing_and_others_lack_bpf() {
        let effective = effective().unwrap();
        match capability() {
            None => assert_ne!(effective & (1 << CAP_SYS_ADMIN | 1 << CAP_BPF), 0),
            Some((name, _)) => assert!(name == "CAP_BPF" || effective >> CAP_BPF & 1 == 1),
        }
    }
}
