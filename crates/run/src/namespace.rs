//! Pid namespaces, as far as the processes of a start depend on them.

/// Whether this is the first process of its pid namespace, as in a container made for one command: when it
/// ends the kernel ends all others there, who learn from the start too.
pub fn is_first() -> bool {
    std::process::id() == 1
}

/// Whether what this process forks is in another pid namespace than itself (`unshare --pid` without
/// `--fork`). What is forked first there is its first process, and all others end with it.
pub fn forks_elsewhere() -> bool {
    let namespace = |name: &str| std::fs::read_link(format!("/proc/self/ns/{name}")).ok();
    let own = namespace("pid");
    // Without a process in it, it has no name yet.
    own.is_some() && namespace("pid_for_children") != own
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_test_forks_where_it_is() {
        assert!(!super::forks_elsewhere() && !super::is_first());
    }
}
