//! A boot as it is served: what its process survives, and what it may take.

use crate::common::is_root;
use crate::root::{process_1, root};
use std::fs;
use std::path::Path;

/// Serves a boot with this configuration, its complaints going nowhere, until it has begun, and ends it; what
/// it says of the boot, its limits as the kernel lists them, and its status.
fn serve(config: &str) -> (String, String, String) {
    let dir = root();
    let left = serve_in(dir.path(), config, ":", "/dev/full");
    (left("last.json"), left("limits"), left("status"))
}

/// The same in a root, after a script of which the root is the first word, with the complaints there; what
/// each file has that it left.
fn serve_in(root: &Path, config: &str, before: &str, log: &str) -> impl Fn(&str) -> String {
    for path in ["dev", "proc", "etc/headstart"] {
        fs::create_dir_all(root.join(path)).unwrap();
    }
    fs::write(root.join("etc/headstart/headstart.toml"), config).unwrap();
    let command = root.join("usr/bin/headstart");
    fs::remove_file(&command).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_headstart"), &command).unwrap();
    let script = format!(
        "{before}; mount -t proc proc $0/proc; mount --bind /dev $0/dev; mount -t tmpfs run $0/run
        timeout 60 chroot $0 /usr/bin/headstart boot run 2>{log} &
        for i in $(seq 600); do test -s $0/run/headstart/last.json && break; sleep 0.05; done
        for pid in $0/proc/[0-9]*; do
            case $(tr '\\0' ' ' <$pid/cmdline) in /usr/bin/headstart*) cp $pid/limits $0 ;; esac
        done
        kill $!; wait $! && status=0 || status=$?; echo $status >$0/status
        cp $0/run/headstart/last.json $0"
    );
    assert!(process_1(root, &script, &[]).status().unwrap().success());
    let root = root.to_owned();
    move |name| fs::read_to_string(root.join(name)).unwrap_or_default()
}

#[test]
fn a_state_that_cannot_be_kept_is_told_in_one_line() {
    if !is_root() {
        return;
    }
    let full = "mkdir -p $0/var/lib/headstart; mount -t tmpfs -o size=32k tmpfs $0/var/lib/headstart
        ! cat /dev/zero >$0/var/lib/headstart/zeros 2>&-";
    let no_directory = "mkdir -p $0/var/lib; rm -rf $0/var/lib/headstart; : >$0/var/lib/headstart";
    for before in [full, no_directory] {
        let dir = root();
        // No boot is bypassed, as one would be of which nothing could be kept.
        let config = "[boot]\ncontrol_every = 0\n";
        let left = serve_in(dir.path(), config, before, "$0/log");
        let log = left("log");
        let lines = log.lines().filter(|line| line.contains("/var/lib/headstart"));
        assert_eq!(lines.count(), 1, "{before}: {log}");
        assert!(log.contains("what was learned cannot be kept"), "{log}");
    }
}

#[test]
fn a_boot_is_served_where_its_log_cannot_be_written() {
    if !is_root() {
        return;
    }
    // Longer than the kernel's log takes in a line.
    let long = "x".repeat(2000);
    let (said, limits, status) = serve(&format!("[boot]\nexclude = [\"{long}\"]\n"));
    assert!(
        said.contains(&long) && said.contains("the default holds"),
        "{said}"
    );
    // `timeout` tells that it passed the signal on, unless headstart had ended before.
    assert!(
        status == "124\n" || status == "0\n",
        "neither a panic nor a signal: {status}"
    );
    assert!(
        said.contains("headstart was told to end"),
        "it came to its own end: {said}"
    );
    let data = limits.lines().find(|line| line.starts_with("Max data size"));
    let bound = (headstart_system::limits::MEMORY).to_string();
    assert!(data.is_some_and(|line| line.contains(&bound)), "{limits}");
}
