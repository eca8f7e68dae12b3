//! Experiments, on an image of a shell and a few files.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use crate::common::{attached, kill_and_clean, scratch};
use headstart_lab::experiment::{self, Directory};
use headstart_lab::image::Recipe;
use headstart_lab::setup::{BUILT_IN, Setup};
use headstart_system::testing::is_root;

/// A lab of its own: directories, and an image that needs no packages.
struct Lab {
    scratch: tempfile::TempDir,
}

impl Lab {
    fn new() -> Lab {
        let lab = Lab { scratch: scratch() };
        for name in ["dir", "cache"] {
            fs::create_dir(lab.path(name)).unwrap();
        }
        lab.write(
            "tiny.toml",
            "description = 'a shell reads a file'\npackages = []\n[start]\n\
             command = ['/bin/sh', '-c', 'while read -r line; do :; done </data; echo done >/tmp/out']\nproduces = '/tmp/out'\n",
        );
        lab.image();
        lab
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        fs::write(self.path(name), text).unwrap();
        self.path(name)
    }

    /// The image of `tiny.toml`, where the lab looks for it: the host's shell with its libraries.
    fn image(&self) {
        let root = self.path("root");
        for name in ["proc", "dev", "tmp", "bin"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        let shell = fs::canonicalize("/bin/sh").unwrap();
        fs::copy(&shell, root.join("bin/sh")).unwrap();
        let needed = Command::new("ldd").arg(&shell).output().unwrap();
        for word in String::from_utf8(needed.stdout)
            .unwrap()
            .split_whitespace()
            .filter(|w| w.starts_with('/'))
        {
            let target = root.join(word.trim_start_matches('/'));
            fs::create_dir_all(target.parent().unwrap()).unwrap();
            fs::copy(word, target).unwrap();
        }
        fs::write(root.join("data"), "line\n".repeat(1000)).unwrap();
        let recipe = Recipe::load(self.path("tiny.toml").to_str().unwrap()).unwrap();
        let image = self
            .path("cache")
            .join(format!("tiny-{}-ext4.img", recipe.hash()));
        let made = Command::new("mke2fs")
            .args(["-q", "-t", "ext4", "-d"])
            .args([&root, &image])
            .arg("32M")
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_headstart-lab"));
        command.args(arguments).current_dir(self.scratch.path());
        command
            .env("HEADSTART_LAB_DIR", self.path("dir"))
            .env("HEADSTART_LAB_CACHE", self.path("cache"))
            .env("HEADSTART_LAB_UNTIMED", "1");
        command
    }

    fn lab(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Two setups; their starts take 0.2 s, so that a kill meets one.
    fn experiment(&self, rounds: usize) {
        self.write(
            "slow.toml",
            "start = ['sh', '-c', 'sleep 0.2; exec \"$@\"', 'sh', '{program}']\n",
        );
        let text = format!(
            "question = 'does it resume?'\nmachine = 'chroot'\nworkload = 'tiny.toml'\ndisk = 'none'\n\
             setups = ['none', 'slow.toml']\nrounds = {rounds}\nseed = 5\n"
        );
        self.write("e.toml", &text);
    }

    fn runs(&self) -> PathBuf {
        self.path("out/runs.jsonl")
    }

    /// Nothing of the lab's is mounted or attached.
    fn assert_clean(&self) {
        assert_eq!(attached(self.scratch.path()), [""; 0]);
    }
}

#[track_caller]
fn said(output: &Output) -> String {
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_killed_experiment_loses_at_most_the_run_in_flight() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    // On a disk on which a kill meets requests under way.
    let slow = |rounds| {
        lab.experiment(rounds);
        let text = fs::read_to_string(lab.path("e.toml")).unwrap();
        lab.write("e.toml", &text.replace("disk = 'none'", "disk = 'seek5ms'"));
    };
    slow(6);
    let arguments = ["run", "e.toml", "--out", "out"];
    let start = || {
        let said = fs::File::options()
            .create(true)
            .append(true)
            .open(lab.path("said"))
            .unwrap();
        let mut command = lab.command(&arguments);
        command.stdout(Stdio::null()).stderr(said).spawn().unwrap()
    };
    let kill = |running: Child| {
        kill_and_clean(running, || lab.command(&[]));
        lab.assert_clean();
    };
    // While it attaches, mounts, or runs.
    for moment in [60, 250, 400] {
        let running = start();
        std::thread::sleep(Duration::from_millis(moment));
        kill(running);
    }
    let mut running = start();
    let lines = |path: &Path| fs::read_to_string(path).unwrap_or_default().lines().count();
    // However long that takes on a busy machine.
    while lines(&lab.runs()) < 4 {
        let ended = running.try_wait().unwrap();
        let said = || fs::read_to_string(lab.path("said")).unwrap();
        assert!(ended.is_none(), "{ended:?} before four runs: {}", said());
        std::thread::sleep(Duration::from_millis(20));
    }
    kill(running);

    // As if the kill had met the writing of a line.
    let kept = fs::read_to_string(lab.runs()).unwrap();
    fs::write(lab.runs(), format!("{kept}{{\"case\":\"\",\"round\":")).unwrap();
    let resumed = lab.lab(&arguments);
    assert!(resumed.status.success(), "{resumed:?}");
    let text = fs::read_to_string(lab.runs()).unwrap();
    assert!(text.starts_with(&kept), "a run that was made is made again");
    let runs = Directory::runs(&lab.path("out")).unwrap();
    let order: Vec<(usize, String)> = runs.iter().map(|r| (r.round, r.setup.clone())).collect();
    let expected: Vec<(usize, String)> = experiment::schedule(1, 6, 2, 5)
        .iter()
        .map(|step| (step.round, ["none", "slow"][step.setup].to_owned()))
        .collect();
    assert_eq!(order, expected, "the order of one that was not interrupted");
    // Another program that unshares its mounts meanwhile may keep the disk busy; the reason names it.
    let aborted: Vec<_> = runs.iter().filter_map(|r| r.aborted.as_ref()).collect();
    assert!(aborted.is_empty(), "{aborted:?}");
    assert!(runs.iter().all(|r| r.seconds > 0.0));
    let table = String::from_utf8(resumed.stdout).unwrap();
    assert!(table.contains("slow") && table.contains("6 rounds"), "{table}");
    assert!(lab.path("out/results.json").exists());

    // Another experiment does not go on there, unless told to.
    slow(7);
    let refused = said(&lab.lab(&arguments));
    assert!(
        refused.contains("another experiment") && refused.contains("--mixed"),
        "{refused}"
    );
    let mixed = lab.lab(&["run", "e.toml", "--out", "out", "--mixed"]);
    assert!(mixed.status.success(), "{mixed:?}");
    assert_eq!(Directory::runs(&lab.path("out")).unwrap().len(), 14);
    lab.assert_clean();
}

#[test]
fn a_run_that_fails_is_reported_and_in_no_figure() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    lab.write(
        "flaky.toml",
        "start = ['sh', '{files}/start', '{state}/count', '{program}']\n[file]\nstart = '''\n\
         count=$1; shift\necho x >>\"$count\"\nif test \"$(wc -l <\"$count\")\" = 2; then echo no luck; exit 3; fi\nexec \"$@\"\n'''\n",
    );
    lab.write(
        "e.toml",
        "question = 'is it told?'\nmachine = 'chroot'\nworkload = 'tiny.toml'\ndisk = 'none'\n\
         setups = ['none', 'flaky.toml']\nrounds = 3\n",
    );
    let done = lab.lab(&["run", "e.toml", "--out", "out"]);
    assert!(done.status.success(), "{done:?}");
    let table = String::from_utf8(done.stdout).unwrap();
    assert!(
        table.contains("flaky: round 2 aborted, in no figure:") && table.contains("no luck"),
        "{table}"
    );
    let report: serde_json::Value =
        serde_json::from_slice(&fs::read(lab.path("out/results.json")).unwrap()).unwrap();
    let setups = &report["cases"][0]["setups"];
    assert_eq!((&setups[0]["n"], &setups[1]["n"]), (&3.into(), &2.into()));
    assert_eq!(setups[1]["pairs"], 2, "a pair needs both");
    lab.assert_clean();
}

#[test]
fn what_is_missing_is_said_before_anything_runs() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    lab.experiment(2);
    let check = |from: &str, to: &str| {
        let text = fs::read_to_string(lab.path("e.toml")).unwrap();
        assert!(text.contains(from));
        lab.write("bad.toml", &text.replace(from, to));
        // There may be one beside the lab; a directory is none.
        let nowhere = lab.path(".");
        let error = said(&lab.lab(&[
            "run",
            "bad.toml",
            "--out",
            "bad",
            "--headstart",
            nowhere.to_str().unwrap(),
        ]));
        assert!(!lab.path("bad").exists(), "something was begun");
        error
    };
    let error = check("rounds = 2", "rounds = 2\nround = 3");
    assert!(
        error.contains("bad.toml") && error.contains("line 7") && error.contains("`round`"),
        "{error}"
    );
    let error = check("disk = 'none'", "disk = 'nun'");
    assert!(
        error.contains("bad.toml, line 4: disk") && error.contains("flash4ms"),
        "{error}"
    );
    let error = check("'slow.toml'", "'headstart'");
    assert!(
        error.contains("no headstart at") && error.contains("--headstart"),
        "{error}"
    );
    lab.write("tool.toml", "prepare = [['no-such-tool']]\n");
    let error = check("slow.toml", "tool.toml");
    assert!(
        error.contains("setup tool: no-such-tool is not installed"),
        "{error}"
    );
    lab.write("tool.toml", "prepare = [['sh', '{stat}']]\n");
    let error = check("slow.toml", "tool.toml");
    assert!(error.contains("no placeholder {stat}"), "{error}");
    lab.write("tool.toml", "kernel = ['quiet']\n");
    let error = check("slow.toml", "tool.toml");
    assert!(
        error.contains("setup tool") && error.contains("kernel"),
        "{error}"
    );
}

#[test]
fn what_a_machine_cannot_do_is_said_before_anything_runs() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    lab.experiment(2);
    let text = fs::read_to_string(lab.path("e.toml")).unwrap();
    let refused = |more: &str, why: &str| {
        lab.write("bad.toml", &format!("{text}{more}"));
        let error = said(&lab.lab(&["run", "bad.toml", "--out", "bad"]));
        assert!(error.contains(why), "{more}: {error}");
        assert!(!lab.path("bad").exists(), "{more}: something was begun");
    };
    refused(
        "from = 'desktop'\n",
        "from = \"desktop\" is no mark of this machine: it has none",
    );
    refused("memory_mb = 64\n", "memory_mb is not for machine \"chroot\"");
    refused("processors = 1\n", "processors is not for machine \"chroot\"");
    lab.write("slow.toml", "install = [['true']]\n");
    refused(
        "fs = 'squashfs'\n",
        "setup slow: nothing can be installed into squashfs",
    );
    lab.write("slow.toml", "name = '../../out'\n");
    refused("", "must not be empty, begin with a dot or hold a slash");
}

/// A reader that has read enough is no error, and a fault keeps its exit status where nobody reads of it.
#[test]
fn nobody_need_read_what_is_printed() {
    let closed = || {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(ours);
        Stdio::from(OwnedFd::from(theirs))
    };
    let lab = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_headstart-lab"));
        command.args(arguments).stdout(closed());
        command
    };
    for arguments in [["disk", "list"], ["image", "list"]] {
        let output = lab(&arguments).stderr(Stdio::piped()).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    }
    let status = lab(&["report", "/not/there"]).stderr(closed()).status().unwrap();
    assert_eq!(status.code(), Some(1));
}

/// Every file of ours is one, and asks for nothing its machine cannot do. Whether its tools are installed is
/// not asked.
#[test]
fn our_experiments_and_setups_are_well_formed() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = |directory: &str| -> Vec<PathBuf> {
        let entries = fs::read_dir(here.join(directory)).unwrap();
        entries
            .map(|e| e.unwrap().path())
            .filter(|p| p.extension().is_some_and(|e| e == "toml"))
            .collect()
    };
    for path in files("experiments") {
        let experiment = experiment::load(&path).unwrap_or_else(|e| panic!("{e:#}"));
        assert!(
            experiment.question.ends_with('?'),
            "{}: a question",
            path.display()
        );
    }
    assert!(!files("experiments").is_empty());
    for path in files("setups") {
        let setup = Setup::load(path.to_str().unwrap()).unwrap_or_else(|e| panic!("{e:#}"));
        let stem = path.file_stem().unwrap().to_str().unwrap();
        assert!(
            BUILT_IN.iter().any(|(name, _)| *name == stem) && !setup.description.is_empty(),
            "{stem} is not built in, or not described"
        );
    }
}

/// Runs given as a file: one aborted, one outlying, two not made, one line cut short; those of
/// `office` by a lab that did not know of an ideal layout.
#[test]
fn the_report_of_given_runs_is_as_it_should_be() {
    let given = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/report");
    let directory = tempfile::tempdir().unwrap();
    for name in ["experiment.json", "runs.jsonl", "floors.json"] {
        fs::copy(given.join(name), directory.path().join(name)).unwrap();
    }
    let lab = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_headstart-lab"));
        let output = command.args(arguments).arg(directory.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let table = lab(&["report"]);
    assert_eq!(table, fs::read_to_string(given.join("expected.txt")).unwrap());
    // The floor of `plain` is as long as its least warm run. If what headstart reckons is less, that run is
    // the floor.
    let floors = directory.path().join("floors.json");
    let known = fs::read_to_string(&floors).unwrap();
    let less = known.replace("\"floor_seconds\": 2.0", "\"floor_seconds\": 0.5");
    assert_ne!(less, known);
    fs::write(&floors, less).unwrap();
    assert_eq!(lab(&["report"]), table);
}

/// A setup whose "headstart" is a script; the earlier one writes down that it ran.
#[test]
fn an_earlier_build_runs_in_every_round_beside_this_one() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    for (name, script) in [
        ("this", "#!/bin/sh\nexec \"$@\"\n".to_owned()),
        (
            "earlier",
            format!(
                "#!/bin/sh\necho ran >>{}\nexec \"$@\"\n",
                lab.path("ran").display()
            ),
        ),
    ] {
        let path = lab.write(name, &script);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    lab.write("tool.toml", "start = ['{headstart}', '{program}']\n");
    lab.write(
        "e.toml",
        "question = 'is it slower?'\nmachine = 'chroot'\nworkload = 'tiny.toml'\ndisk = 'none'\n\
         setups = ['none', 'tool.toml']\nrounds = 5\n\
         [[goal]]\nsetup = 'tool'\nfigure = 'over-earlier'\nat_most = 1000.0\n",
    );
    let run = |earlier: &str| {
        lab.lab(&[
            "run",
            "e.toml",
            "--out",
            "out",
            "--headstart",
            "this",
            "--earlier",
            earlier,
        ])
    };
    assert!(said(&run("missing")).contains("--earlier missing"));
    let output = run("earlier");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("\ntool-earlier "), "{text}");
    assert!(
        text.contains("tool: time over the earlier build") && text.contains("goal at most 1000.00: met"),
        "{text}"
    );
    assert_eq!(fs::read_to_string(lab.path("ran")).unwrap(), "ran\n".repeat(5));
    lab.assert_clean();
}

#[test]
fn runs_with_a_kept_cache_read_nothing_and_leave_nothing() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    lab.write("other.toml", "start = ['env', '{program}']\n");
    lab.write(
        "e.toml",
        "question = 'what does it cost?'\nmachine = 'chroot'\nworkload = 'tiny.toml'\ndisk = 'flash4ms'\n\
         setups = ['none', 'other.toml', 'warm']\nrounds = 4\n[[case]]\nname = 'kept'\ncache = 'kept'\n",
    );
    let output = lab.lab(&["run", "e.toml", "--out", "out"]);
    assert!(output.status.success(), "{output:?}");
    let runs = Directory::runs(&lab.path("out")).unwrap();
    assert_eq!(runs.len(), 12);
    for run in runs {
        assert!(
            run.aborted.is_none() && run.bytes == 0,
            "round {} of {}: {} bytes, {:?}",
            run.round,
            run.setup,
            run.bytes,
            run.aborted
        );
    }
    lab.assert_clean();
}
