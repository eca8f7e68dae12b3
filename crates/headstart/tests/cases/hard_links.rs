//! A file of several names is learned by the name that the program used.

use crate::common::{Case, can_record};
use headstart_system::testing::{LoopFs, Mounted, Spec, can_mount};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// A disk on which `live` is used, and `cache` has other names of what is in it.
struct Links {
    case: Case,
    disk: LoopFs,
}

impl Links {
    fn new(fstype: &'static str) -> Links {
        let fill = |root: &Path| {
            for dir in ["live", "cache"] {
                fs::create_dir(root.join(dir))?;
            }
            fs::write(root.join("live/data"), vec![5; 100_000])?;
            fs::copy("/bin/cat", root.join("live/program"))?;
            fs::copy("/usr/bin/perl", root.join("live/perl"))?;
            for name in ["data", "program", "perl"] {
                fs::hard_link(root.join("live").join(name), root.join("cache").join(name))?;
            }
            Ok(())
        };
        Links {
            case: Case::new(),
            disk: LoopFs::create(&Spec::new(fstype), fill).unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.disk.mount_point().join(name)
    }

    /// The other names are the last that were looked up.
    fn look_up_others(&self) {
        for dir in ["live", "cache"] {
            for entry in fs::read_dir(self.path(dir)).unwrap() {
                fs::metadata(entry.unwrap().path()).unwrap();
            }
        }
    }

    /// The files of the disk that a recording of a shell's command names.
    fn recorded(&self, backend: &str, command: &str) -> BTreeSet<String> {
        let root = self.disk.mount_point();
        let command = format!("cd {} && {command}", root.display());
        let words = [
            "record",
            "--backend",
            backend,
            "-o",
            "trace",
            "--",
            "sh",
            "-c",
            &command,
        ];
        let ran = self.case.headstart(&words);
        assert_eq!(ran.code(), 0, "{}", ran.err);
        let trace = self.case.json(&["show", "trace", "--json"]);
        let files = trace["files"].as_array().unwrap().iter();
        let path = |file: &Value| file["path"].as_str().unwrap().to_owned();
        let below = files.filter(|file| file["state"] == "Present").map(path);
        below
            .filter_map(|path| Some(path.strip_prefix(root.to_str()?)?.to_owned()))
            .collect()
    }
}

fn names_of(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn the_name_that_was_used_is_recorded_whichever_was_looked_up_last() {
    if !can_record() || !can_mount() {
        return;
    }
    for fstype in ["ext4", "squashfs"] {
        let mut links = Links::new(fstype);
        for memory in ["cold", "warm"] {
            if memory == "cold" {
                links.disk.remount_cold().unwrap();
            }
            for (command, used) in [
                ("cat live/data >/dev/null", "/live/data"),
                ("cat cache/data >/dev/null", "/cache/data"),
                // By mmap, and by sendfile(2).
                ("cat live/data | live/perl -e 'while (<STDIN>) {}'", "/live/perl"),
                ("cache/program </dev/null", "/cache/program"),
                ("live/program </dev/null", "/live/program"),
            ] {
                links.look_up_others();
                let seen = links.recorded("bpf", command);
                assert!(seen.contains(used), "{fstype}, {memory}: {command}: {seen:?}");
                let other = match used.strip_prefix("/live") {
                    Some(rest) => format!("/cache{rest}"),
                    None => used.replace("/cache", "/live"),
                };
                assert!(!seen.contains(&other), "{fstype}, {memory}: {command}: {seen:?}");
            }
        }
    }
}

/// A name that another process looks up meanwhile is not the one that the program has open.
#[test]
fn a_name_looked_up_amid_the_start_changes_nothing() {
    if !can_record() || !can_mount() {
        return;
    }
    let links = Links::new("ext4");
    let command = "exec 3<live/data; ls -l cache >/dev/null; cat <&3 >/dev/null";
    assert_eq!(links.recorded("bpf", command), names_of(&["/live/data"]));
    // Nor is one that is gone by the end: then another is told that leads there.
    let command = "exec 3<live/data; mv live/data live/moved; cat <&3 >/dev/null; ls -l cache >/dev/null";
    let seen = links.recorded("bpf", command);
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert!(links.path(&seen.first().unwrap()[1..]).exists(), "{seen:?}");
}

/// Where the descriptor came from somebody else, no look-up tells the name.
#[test]
fn what_is_open_already_has_the_name_it_was_opened_by() {
    if !can_record() || !can_mount() {
        return;
    }
    let links = Links::new("ext4");
    let data = links.path("live/data");
    let script = format!(
        "$H record --backend bpf -o trace -- cat <{} >/dev/null",
        data.display()
    );
    links.look_up_others();
    assert_eq!(links.case.script(&script).code(), 0);
    let trace = links.case.json(&["show", "trace", "--json"]);
    let files = trace["files"].as_array().unwrap();
    assert!(
        files.iter().any(|file| file["path"] == data.to_str().unwrap()),
        "{files:?}"
    );
}

/// As in trees of ostree, pnpm or uv, where all have many names, also beside a bind mount of one of them.
#[test]
fn trees_of_links_are_recorded_by_their_own_names() {
    if !can_record() || !can_mount() {
        return;
    }
    let links = Links::new("ext4");
    let mut names = vec![];
    for dir in ["store", "one", "two", "bound"] {
        fs::create_dir(links.path(dir)).unwrap();
    }
    for i in 0..300 {
        let store = links.path(&format!("store/{i:x}"));
        fs::write(&store, format!("{i} ").repeat(3000)).unwrap();
        for tree in ["one", "two"] {
            fs::hard_link(&store, links.path(&format!("{tree}/{i}"))).unwrap();
        }
        names.push(format!("/one/{i}"));
    }
    symlink("one", links.path("current")).unwrap();
    let bound = Mounted::new(
        &["--bind", links.path("two").to_str().unwrap()],
        &links.path("bound"),
    )
    .unwrap();
    let names: BTreeSet<String> = names.into_iter().collect();
    for command in [
        "cat current/* >/dev/null; ls -lR store two >/dev/null",
        "cat one/* >/dev/null",
    ] {
        assert_eq!(links.recorded("bpf", command), names, "{command}");
    }
    // By tracefs only what somebody still has open, or runs.
    let seen = links.recorded(
        "tracefs",
        "exec 3<one/7; cat one/7 <&3 >/dev/null; ls -l store two >/dev/null; sleep 1",
    );
    assert_eq!(seen, names_of(&["/one/7"]));
    drop(bound);
}

/// The report: the other name is learned, and when that is gone nothing is read ahead for good.
#[test]
fn when_the_other_name_is_gone_the_start_is_still_read_ahead() {
    if !can_record() || !can_mount() {
        return;
    }
    let mut links = Links::new("ext4");
    let data = links.path("live/data");
    let command = ["cat", data.to_str().unwrap()];
    for _ in 0..2 {
        links.disk.remount_cold().unwrap();
        links.look_up_others();
        assert_eq!(links.case.run("h", &command).code(), 0);
    }
    let explain = |name: &str| {
        links.case.json(&[
            "explain",
            "--name",
            "h",
            "--json",
            links.path(name).to_str().unwrap(),
        ])
    };
    let is_known = || {
        let known = explain("live/data");
        assert_eq!(known[0]["entry"]["ranges"][0]["pages"], 25, "{known}");
        assert_eq!(known[0]["prefetched"], true, "{known}");
    };
    is_known();
    fs::remove_file(links.path("cache/data")).unwrap();
    let open = fs::File::open(&data).unwrap();
    rustix::fs::fadvise(&open, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    assert_eq!(links.case.run("h", &command).code(), 0);
    is_known();
}
