//! File systems of their own, and a child that is recorded from before its exec.
#![allow(dead_code)] // Each test program uses its part.
#![allow(clippy::unwrap_used)] // Helpers of tests may fail as tests do.

use headstart_model::trace::{File, LookupKind, Trace, UseKind};
use headstart_record::{BackendChoice, Options, Recorder};
use headstart_system::testing::{LoopFs, Mounted, Process, Scratch, Spec, can_mount, needs};
use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Whether BPF can be used here, on file systems of their own.
#[track_caller]
pub fn can_record() -> bool {
    let features = headstart_record::features();
    let missing: Vec<&str> = features
        .features
        .iter()
        .filter(|f| !f.present && f.name.starts_with("BPF"))
        .map(|f| &*f.name)
        .collect();
    can_mount() && needs(&format!("recording with {missing:?}"), missing.is_empty())
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

/// A new file system on a loop device, and where it is mounted.
pub fn with_disk(fstype: &'static str) -> (LoopFs, PathBuf) {
    let mounted = LoopFs::create(&Spec::new(fstype), |_| Ok(())).unwrap();
    let at = mounted.mount_point();
    (mounted, at)
}

/// The path of its device, as long as it is not mounted anew.
pub fn node(mounted: &LoopFs) -> String {
    mounted.node().to_str().unwrap().to_owned()
}

/// The numbers of its device, as long as it is not mounted anew.
pub fn numbers(mounted: &LoopFs) -> (u32, u32) {
    let rdev = std::fs::metadata(mounted.node()).unwrap().rdev();
    (rustix::fs::major(rdev), rustix::fs::minor(rdev))
}

/// Writes so many bytes to a file, with its directories.
pub fn write(below: &Path, name: &str, bytes: usize) {
    let path = below.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, vec![b'x'; bytes]).unwrap();
}

/// Held by a test that floods the kernel's trace buffers, and by one that may lose none of everybody's
/// events.
pub fn flood() -> MutexGuard<'static, ()> {
    static FLOOD: Mutex<()> = Mutex::new(());
    FLOOD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// tracefs, mounted for a test alone until this is dropped.
pub struct Tracefs {
    mount: Mounted,
    _dir: Scratch,
}

impl Tracefs {
    pub fn new() -> Tracefs {
        let dir = Scratch::new().unwrap();
        let mount = Mounted::new(&["-t", "tracefs", "tracefs"], &dir.path().join("tracefs")).unwrap();
        Tracefs { mount, _dir: dir }
    }

    /// Where its instances are.
    pub fn instances(&self) -> PathBuf {
        self.mount.path().join("instances")
    }
}

/// A shell that waits for a word before it becomes the script's.
pub struct Waiting(Process);

impl Waiting {
    /// Starts it.
    pub fn start(script: &str) -> Waiting {
        let child = Command::new("/bin/sh")
            .args(["-c", "read go || exit 1; exec /bin/sh -c \"$1\"", "sh", script])
            .env("HELPER", std::env::current_exe().unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn();
        Waiting(Process(child.unwrap()))
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Lets it go on.
    pub fn go(&mut self) {
        self.0.stdin.take().unwrap().write_all(b"go\n").unwrap();
    }

    /// Lets it go and waits for its end; the status as wait(2) has it.
    pub fn run(mut self) -> i32 {
        self.go();
        self.0.wait().unwrap().into_raw()
    }
}

/// A tree recording by BPF.
pub fn tree() -> Options {
    Options {
        backend: BackendChoice::Bpf,
        ..Options::tree(vec![])
    }
}

/// Records a shell script. The recorder knows the shell before it begins; `meanwhile` runs before the script.
pub fn record_beside(options: &Options, script: &str, meanwhile: impl FnOnce()) -> Trace {
    let mut recorder = Recorder::start(options).unwrap_or_else(|e| panic!("{e}"));
    let mut shell = Waiting::start(script);
    recorder.add_root(shell.id()).unwrap();
    meanwhile();
    shell.go();
    let exited = || shell.0.try_wait().unwrap().map(ExitStatusExt::into_raw);
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
pub fn looked_up(trace: &Trace, path: &Path, kind: LookupKind, found: bool) -> bool {
    trace
        .lookups
        .iter()
        .any(|l| l.path.as_path() == path && l.kind == kind && l.found == found)
}
