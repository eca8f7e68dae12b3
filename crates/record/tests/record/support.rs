//! Private file systems, and a child that is recorded from before its exec.
#![allow(dead_code)] // Each test binary uses its part.
#![allow(clippy::unwrap_used)] // Helpers of tests may fail as tests do.

use headstart_model::trace::{File, Trace, UseKind};
use headstart_record::{BackendChoice, Options, Recorder};
use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;

/// Whether BPF can be used here. If not that is a failure, or with `HEADSTART_TESTS_SKIP` in the environment said.
#[track_caller]
pub fn can_record() -> bool {
    let root = rustix::process::geteuid().is_root();
    let features = headstart_record::features();
    let mut missing: Vec<&str> = features
        .features
        .iter()
        .filter(|f| !f.present && f.name.starts_with("BPF"))
        .map(|f| &*f.name)
        .collect();
    if !root {
        missing.insert(0, "root");
    }
    if missing.is_empty() {
        return true;
    }
    assert!(
        std::env::var_os("HEADSTART_TESTS_SKIP").is_some(),
        "recording with BPF lacks {missing:?}; HEADSTART_TESTS_SKIP=1 leaves out what cannot be tested here"
    );
    eprintln!("skipped: recording with BPF lacks {missing:?}");
    false
}

/// Runs a command that must succeed; its output without the last newline.
pub fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .unwrap_or_else(|e| panic!("{program}: {e}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

/// A scratch directory on a disk file system, with what is mounted in it. All is undone when it is dropped.
pub struct Lab {
    pub dir: PathBuf,
    mounts: Vec<PathBuf>,
    loops: Vec<String>,
}

impl Lab {
    pub fn new() -> Lab {
        let dir = tempfile::Builder::new()
            .prefix("headstart-test.")
            .tempdir_in("/var/tmp")
            .unwrap()
            .keep();
        Lab {
            dir,
            mounts: vec![],
            loops: vec![],
        }
    }

    /// A lab with a new file system on a loop device; gives its mount point and the device.
    pub fn with_disk(fstype: &str) -> (Lab, PathBuf, String) {
        let mut lab = Lab::new();
        let image = lab.dir.join("image");
        std::fs::File::create(&image).unwrap().set_len(300 << 20).unwrap();
        run(&format!("mkfs.{fstype}"), &["-q", image.to_str().unwrap()]);
        let device = run("losetup", &["--find", "--show", image.to_str().unwrap()]);
        lab.loops.push(device.clone());
        let at = lab.mount(&["-t", fstype, &device], "disk");
        (lab, at, device)
    }

    /// Mounts something on a new directory of this name.
    pub fn mount(&mut self, arguments: &[&str], name: &str) -> PathBuf {
        let at = self.dir.join(name);
        std::fs::create_dir_all(&at).unwrap();
        run("mount", &[arguments, &[at.to_str().unwrap()]].concat());
        self.mounts.push(at.clone());
        at
    }

    /// Unmounts and mounts again, so that nothing of the disk is cached.
    pub fn cool(&mut self, at: &Path, device: &str) {
        run("umount", &[at.to_str().unwrap()]);
        run("mount", &[device, at.to_str().unwrap()]);
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for at in self.mounts.iter().rev() {
            let _ = Command::new("umount").arg("-l").arg(at).status();
        }
        for device in &self.loops {
            let _ = Command::new("losetup").args(["--detach", device]).status();
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A tree recording by BPF.
pub fn tree() -> Options {
    Options {
        backend: BackendChoice::Bpf,
        ..Options::tree(vec![])
    }
}

/// Records a shell script. The recorder knows the shell before it begins; `meanwhile` runs beside it, then the script.
pub fn record_beside(options: &Options, script: &str, meanwhile: impl FnOnce()) -> Trace {
    let mut recorder = Recorder::start(options).unwrap_or_else(|e| panic!("{e}"));
    let mut child = Command::new("/bin/sh")
        .args(["-c", "read go; exec /bin/sh -c \"$1\"", "sh", script])
        .env("HELPER", std::env::current_exe().unwrap())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    recorder.add_root(child.id()).unwrap();
    meanwhile();
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let exited = || child.try_wait().unwrap().map(ExitStatusExt::into_raw);
    let reason = recorder.run_until(&AtomicBool::new(false), None, exited);
    recorder.finish(reason).unwrap()
}

pub fn record(script: &str) -> Trace {
    let trace = record_beside(&tree(), script, || {});
    assert_eq!(trace.lost, Default::default());
    trace
}

/// The file that was at this path.
pub fn file<'a>(trace: &'a Trace, path: &Path) -> Option<(usize, &'a File)> {
    trace
        .files
        .iter()
        .enumerate()
        .find(|(_, f)| f.path.as_path() == path)
}

/// Its pages that were used, in one of these ways.
pub fn pages(trace: &Trace, path: &Path, kinds: &[UseKind]) -> BTreeSet<u64> {
    let Some((index, _)) = file(trace, path) else {
        return BTreeSet::new();
    };
    let uses = trace
        .uses
        .iter()
        .filter(|u| u.file as usize == index && kinds.contains(&u.kind));
    uses.flat_map(|u| u.start..u.start + u64::from(u.pages)).collect()
}

/// Whether a path was looked up so.
pub fn looked_up(trace: &Trace, path: &Path, kind: headstart_model::trace::LookupKind, found: bool) -> bool {
    trace
        .lookups
        .iter()
        .any(|l| l.path.as_path() == path && l.kind == kind && l.found == found)
}
