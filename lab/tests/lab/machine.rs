//! Machines that boot, on Debian's packages, which are fetched once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{attached, kill_and_clean, scratch};
use headstart_lab::image::{Fs, Recipe};
use headstart_lab::kind::Kind;
use headstart_lab::machine::{LIMIT, Machine, Place, Spec, check};
use headstart_lab::model::Model;
use headstart_lab::registry::Registry;
use headstart_lab::setup::Setup;
use headstart_system::testing::is_root;

/// The tests of this crate run in its own directory: images belong into the workspace's cache.
fn cache() -> PathBuf {
    std::env::var_os("HEADSTART_LAB_CACHE").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/lab"),
        PathBuf::from,
    )
}

fn lab(base: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart-lab"));
    command
        .env("HEADSTART_LAB_DIR", base)
        .env("HEADSTART_LAB_CACHE", cache())
        .env("HEADSTART_LAB_UNTIMED", "1");
    command
}

fn spec(base: &Path) -> Spec {
    Spec {
        kind: Kind::Container,
        recipe: Recipe::load("container").unwrap(),
        fs: Fs::Ext4,
        model: Model::load("none").unwrap(),
        memory_mb: None,
        processors: None,
        answer: None,
        limit: LIMIT,
        base: base.to_owned(),
        output: base.join("console.log"),
    }
}

fn place(base: &Path, name: &str) -> Place {
    Place {
        state: base.join("state").join(name),
        headstart: PathBuf::new(),
        workload: "container".into(),
        disk: String::new(),
        at_once: false,
        profile: None,
    }
}

fn install(machine: &mut dyn Machine, place: &Place, line: &str) {
    let words = ["sh", "-c", line].map(str::to_owned).to_vec();
    machine.install(place, &[words]).unwrap();
}

#[test]
fn a_container_boots_cold_every_time_and_keeps_what_is_to_stay() {
    if !is_root() {
        return;
    }
    let scratch = scratch();
    let base = fs::canonicalize(scratch.path()).unwrap();
    // The image is built by the program, for its cache is found by the environment.
    let built = lab(&base).args(["image", "build", "container"]).output().unwrap();
    assert!(built.status.success(), "{built:?}");
    let registry = Registry::open(&base).unwrap();
    let mut spec = spec(&base);
    let image = String::from_utf8(built.stdout).unwrap();
    let mut setup = Setup::load("none").unwrap();
    check(&spec, &setup).unwrap();
    let mut machine =
        headstart_lab::machine::Booting::with_image(&spec, Path::new(image.trim()), &registry).unwrap();

    let (one, other) = (place(&base, "one"), place(&base, "other"));
    install(&mut machine, &one, "echo installed >{root}/srv/by-one");
    let learned = machine.record(&setup, &one, None).unwrap();
    let measured = machine.run(&setup, &one).unwrap();
    let mut names: Vec<&str> = measured.marks.iter().map(|mark| mark.name.as_str()).collect();
    // The container says by a socket that it is ready, and the rest by a console, which may be late on a busy
    // machine: what comes after the end is no mark of the boot.
    names.retain(|name| *name != "multi-user");
    assert_eq!(
        names,
        ["root", "systemd", "local-fs", "sysinit", "basic", "ready"]
    );
    assert!(
        measured
            .marks
            .windows(2)
            .all(|pair| pair[0].seconds <= pair[1].seconds)
    );
    // Cold both times: a warm boot reads next to nothing.
    for boot in [&learned, &measured] {
        assert!(boot.stages[0].reads > 500, "{:?}", boot.stages);
        assert!(!boot.requests.is_empty());
    }

    // What the boot to learn from wrote has stayed, with the installed file; what the measured one wrote has
    // not, nor is any of it in the other setup's image.
    let boots = "grep -c 'Startup finished in' {root}/var/log/syslog || true";
    install(
        &mut machine,
        &one,
        &format!("test -s {{root}}/srv/by-one && [ $({boots}) -eq 1 ]"),
    );
    install(
        &mut machine,
        &other,
        "test ! -e {root}/srv/by-one -a ! -s {root}/var/log/syslog",
    );
    setup.keep = true;
    machine.run(&setup, &one).unwrap();
    install(&mut machine, &one, &format!("[ $({boots}) -eq 2 ]"));

    // A boot that fails leaves the machine fit for the next one.
    install(&mut machine, &other, "rm {root}/lib/systemd/systemd");
    let error = format!("{:#}", machine.run(&setup, &other).unwrap_err());
    assert!(error.contains("\"ready\""), "{error}");
    machine.run(&setup, &one).unwrap();
    drop(machine);
    spec.kind = Kind::Chroot;
    let error = check(&spec, &setup).unwrap_err().to_string();
    assert!(error.contains("container"), "{error}");
    assert_eq!(fs::read_dir(base.join("registry")).unwrap().count(), 0);
}

/// Mounts, loop devices, control groups and processes that name `base` or the lab process `pid`.
fn left(base: &Path, pid: u32) -> Vec<String> {
    let mut left = attached(base);
    let name = format!("headstart-lab-{pid}");
    for hierarchy in ["", "systemd", "unified"] {
        let path = Path::new("/sys/fs/cgroup").join(hierarchy).join(&name);
        left.extend(path.exists().then(|| path.display().to_string()));
    }
    for entry in fs::read_dir("/proc").unwrap() {
        let command = fs::read(entry.unwrap().path().join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        left.extend(command.contains(&format!("--machine={name}")).then_some(command));
    }
    left
}

/// The loop devices on record below `base` that are attached to what the record says.
fn loops(base: &Path) -> Vec<(String, u64)> {
    let mut residues = Vec::new();
    for record in fs::read_dir(base.join("registry")).into_iter().flatten() {
        let path = record.unwrap().path();
        // The lab is at work: one may be being written, under another name, or gone since.
        let Some(text) = fs::read(&path)
            .ok()
            .filter(|_| path.extension() == Some("json".as_ref()))
        else {
            continue;
        };
        let record: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let items = record["items"].as_object().unwrap().values();
        for item in items.filter(|item| item["kind"] == "loop") {
            let device = item["device"].as_str().unwrap().to_owned();
            residues.push((device, item["inode"].as_u64().unwrap()));
        }
    }
    residues.retain(is_attached);
    residues
}

fn is_attached((device, inode): &(String, u64)) -> bool {
    let mut command = Command::new("losetup");
    command.args(["--noheadings", "--output", "BACK-INO", device]);
    String::from_utf8_lossy(&command.output().unwrap().stdout).trim() == inode.to_string()
}

/// In the host's mount namespace and, every other time, in one of its own, which ends with the lab.
#[test]
fn a_lab_killed_at_any_moment_of_a_boot_is_cleaned_up_after() {
    if !is_root() {
        return;
    }
    let scratch = scratch();
    let base = fs::canonicalize(scratch.path()).unwrap();
    let built = lab(&base).args(["image", "build", "container"]).output().unwrap();
    assert!(built.status.success(), "{built:?}");
    let (mut something, mut hidden) = (false, 0);
    // The disk is served and attached within some 0.3 s; then one boot follows the other, each in some 0.7 s.
    for (number, milliseconds) in [100, 300, 500, 700, 900, 1100, 1400, 1700]
        .into_iter()
        .enumerate()
    {
        let own = number % 2 == 1;
        let mut command = match own {
            true => Command::new("unshare"),
            false => Command::new("env"),
        };
        command.args(["--mount", "--propagation", "private"].iter().filter(|_| own));
        command.arg(env!("CARGO_BIN_EXE_headstart-lab"));
        command.args(["machine", "boot", "--disk", "none", "--times", "100"]);
        let running = command
            .env("HEADSTART_LAB_DIR", &base)
            .env("HEADSTART_LAB_CACHE", cache())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(milliseconds));
        let pid = running.id();
        something |= !left(&base, pid).is_empty();
        let devices = loops(&base);
        hidden += devices.len() * usize::from(own);
        kill_and_clean(running, || lab(&base));
        let patience = Instant::now() + Duration::from_secs(5);
        while !left(&base, pid).is_empty() && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(left(&base, pid), [""; 0], "after {milliseconds} ms");
        let still: Vec<_> = devices.into_iter().filter(is_attached).collect();
        assert!(still.is_empty(), "after {milliseconds} ms: {still:?}");
    }
    assert!(something && hidden > 0, "no kill came while anything was there");
    let again = lab(&base).arg("clean").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&again.stdout).trim(), "nothing to clean");
}
