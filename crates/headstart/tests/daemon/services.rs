//! What is learned of services, which process 1 starts.

use crate::common::{Case, eventually, process_state};
use crate::harness::*;
use headstart_model::Key;
use headstart_model::outcome::{Mode, Outcome};
use headstart_system::process::ProcessStat;
use headstart_system::testing::{ControlGroup, LoopFs};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A process that has no parent but process 1, in a control group, and waits for a line in a file before it
/// executes a command.
pub struct Waiting {
    pub pid: u32,
    line: PathBuf,
}

impl Waiting {
    /// The command is a program with its files.
    fn new(case: &Case, fs: &LoopFs, name: &str, group: &Path) -> Waiting {
        Waiting::with(case, name, group, &command(fs, name))
    }

    pub fn with(case: &Case, name: &str, group: &Path, command: &Command) -> Waiting {
        let (line, told) = (case.path(name), case.path(&format!("{name}.pid")));
        run({
            let mut command = Command::new("mkfifo");
            command.arg(&line);
            command
        });
        let mut shell = Command::new("sh");
        let waits = "echo $$ >\"$1\"; read line <\"$0\"; echo 0 >\"$2\"/cgroup.procs; shift 2; exec \"$@\"";
        shell.args(["-c", "sh -c \"$@\" &", "sh", waits]);
        shell.args([&line, &told, group]);
        shell.arg(command.get_program()).args(command.get_args());
        shell
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        run(shell);
        let mut pid = None;
        eventually(&format!("{name} waits"), || {
            pid = fs::read_to_string(&told)
                .ok()
                .and_then(|text| text.trim().parse().ok());
            pid.is_some()
        });
        fs::remove_file(told).unwrap();
        Waiting {
            pid: pid.unwrap(),
            line,
        }
    }

    /// Lets it go on, and waits until it has ended.
    fn go_on(self) {
        self.begin();
        self.ends();
    }

    /// Lets it go on.
    pub fn begin(&self) {
        fs::write(&self.line, "\n").unwrap();
    }

    /// Waits until it has ended.
    pub fn ends(self) {
        let until = Instant::now() + Duration::from_secs(60);
        while !matches!(process_state(self.pid), None | Some('Z')) {
            assert!(Instant::now() < until, "{} does not end", self.pid);
            std::thread::yield_now();
        }
        fs::remove_file(self.line).unwrap();
    }
}

/// Starts a service, as process 1 does one with `ExecStartPre=` and `ExecStart=`: the second when the first
/// has ended.
fn serve(case: &Case, fs: &LoopFs, group: &Path) {
    let waiting = ["pre", "main"].map(|name| {
        evict(&files(fs, name));
        Waiting::new(case, fs, name, group)
    });
    for one in &waiting {
        let parent = ProcessStat::for_process(one.pid).unwrap().parent;
        assert_eq!(parent, 1, "this test needs orphans to be process 1's children");
    }
    waiting.into_iter().for_each(Waiting::go_on);
}

/// What is executed for a service so soon after the end of what was before is of the same start
/// (`NEXT_OF_SERVICE` of the daemon).
const NEXT_OF_SERVICE: Duration = Duration::from_millis(50);

#[test]
fn what_a_service_executes_one_after_the_other_is_one_start() {
    if !can_watch() {
        return;
    }
    let case = Case::new();
    let fs = disk(&["pre", "main"]);
    let group = ControlGroup::new("system.slice/headstart-test.service").unwrap();
    let daemon = Daemon::start(&case);
    let name = group.path().file_name().unwrap().to_string_lossy();
    let unit = Key::new(name.as_ref()).unwrap();
    let end_of = |one: &Outcome| one.started_unix_ns + one.elapsed_ns;
    // On a busy machine the second may come too late. Then there are two starts, which say so, and the set-up
    // is made again.
    let is_one_start = |_| {
        let (before, kept) = (finished(&case, &unit), outcomes(&case, &unit).len());
        let begun = Instant::now();
        serve(&case, &fs, group.path());
        let took = begun.elapsed();
        eventually("it is kept", || finished(&case, &unit) > before);
        std::thread::sleep(Duration::from_millis(500));
        let served = outcomes(&case, &unit);
        if let [.., first, second] = &served[kept..] {
            let apart = second.started_unix_ns.saturating_sub(end_of(first));
            assert!(
                apart >= NEXT_OF_SERVICE.as_nanos() as u64,
                "{apart} ns: {first:?} {second:?}"
            );
            return false;
        }
        let last = served.last().unwrap();
        // Not with what was waited for another that did not follow.
        assert!(Duration::from_nanos(last.elapsed_ns) <= took, "{last:?}");
        let read = last_trace(&case, &unit).files;
        let has = |name: &str| read.iter().any(|file| file.path.to_string().contains(name));
        assert_eq!((finished(&case, &unit), last.status), (before + 1, Some(0)));
        assert!(has("/pre-00") && has("/main-00"), "{read:?}");
        true
    };
    for _ in 0..2 {
        assert!((0..10).any(is_one_start), "the second is never in time");
    }
    assert_eq!(outcomes(&case, &unit).pop().unwrap().mode, Mode::Replay);
    daemon.stop();
}

#[test]
fn what_a_service_leaves_to_process_1_is_a_program_of_its_own() {
    if !can_watch() {
        return;
    }
    let case = Case::new();
    let fs = disk(&["job"]);
    let group = ControlGroup::new("system.slice/headstart-jobs.service").unwrap();
    let daemon = Daemon::start(&case);
    // The service itself, which has begun before.
    let mut shell = Command::new("sh");
    shell.args(["-c", "echo 0 >\"$0\"/cgroup.procs; exec sleep 600"]);
    let mut service = shell.arg(group.path()).spawn().unwrap();
    let there = || fs::read_to_string(group.path().join("cgroup.procs")).unwrap_or_default();
    eventually("it is there", || there().trim() == service.id().to_string());
    evict(&files(&fs, "job"));
    let job = Waiting::new(&case, &fs, "job", group.path());
    assert_eq!(ProcessStat::for_process(job.pid).unwrap().parent, 1);
    job.go_on();
    let program = Key::new(fs.mount_point().join("job").display().to_string()).unwrap();
    eventually("it is kept", || finished(&case, &program) > 0);
    let name = group.path().file_name().unwrap().to_string_lossy();
    let unit = Key::new(name.as_ref()).unwrap();
    service.kill().unwrap();
    service.wait().unwrap();
    assert_eq!(finished(&case, &unit), 0);
    daemon.stop();
}
