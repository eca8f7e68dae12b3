//! A boot as it is served: what its process survives, and what it may take.

use crate::common::{binary, is_root};
use crate::root::{process_1, root};
use headstart_model::profile::Entry;
use headstart_model::profile_set::of_size;
use headstart_model::{Profile, ProfileSet, testing};
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

#[test]
fn a_machines_first_boot_is_read_ahead_by_what_was_imported() {
    if !is_root() {
        return;
    }
    let dir = root();
    let root = dir.path();
    fs::write(root.join("data"), vec![b'x'; 1 << 18]).unwrap();
    let page_size = rustix::param::page_size() as u32;
    let mut set = ProfileSet::default();
    set.add(Profile {
        key: testing::key("boot"),
        page_size,
        ..testing::profile(vec![Entry {
            version: Some(of_size(1 << 18)),
            ranges: vec![testing::range(0, (1 << 18) / page_size, 1.0)],
            ..testing::entry("/data")
        }])
    })
    .unwrap();
    fs::write(root.join("boot.profiles"), set.to_bytes().unwrap()).unwrap();
    fs::create_dir_all(root.join("usr/libexec/headstart")).unwrap();
    let inspect = root.join("usr/libexec/headstart/headstart-inspect");
    fs::copy(binary().with_file_name("headstart-inspect"), inspect).unwrap();
    // A root that is no mount point has no mount, and so no file that is known to be local.
    let import = "mount --rbind $0 $0; mount -t proc proc $0/proc
        chroot $0 /usr/bin/headstart profile import /boot.profiles >$0/imported 2>&1
        chroot $0 /usr/bin/headstart boot status >$0/known 2>&1";
    let left = serve_in(root, "", import, "$0/log");
    let imported = left("imported");
    assert!(imported.contains("boot: 256 KiB"), "{imported}");
    let known = left("known");
    assert!(known.contains("No boot here has taught that yet"), "{known}");
    let said: serde_json::Value = serde_json::from_str(&left("last.json")).unwrap();
    assert_eq!(said["mode"], "replay", "{said}: {}", left("log"));
}
