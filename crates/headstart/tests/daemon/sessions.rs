//! What is learned of a user's session, which begins with the user's manager.

use crate::common::{Case, eventually, is_root, process_state};
use crate::harness::*;
use crate::services::Waiting;
use headstart_model::Key;
use headstart_model::outcome::Mode;
use headstart_system::testing::{ControlGroup, LoopFs, undisturbed};
use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A user of whom systemd, if it runs here, knows nothing: a person by the number.
fn a_user() -> u32 {
    2_000_000 + std::process::id()
}

/// The control groups of a user, as systemd and logind make them.
struct Groups {
    /// Of a service that the manager starts.
    app: ControlGroup,
    /// Of what a login screen starts.
    scope: ControlGroup,
    /// The last to go: it has made what the others lie in.
    manager: ControlGroup,
}

impl Groups {
    fn of(uid: u32) -> Groups {
        let slice = format!("user.slice/user-{uid}.slice");
        let manager = format!("{slice}/user@{uid}.service");
        let made = ControlGroup::named(&manager).unwrap();
        let groups = Groups {
            app: ControlGroup::named(&format!("{manager}/app.slice")).unwrap(),
            scope: ControlGroup::named(&format!("{slice}/session-1.scope")).unwrap(),
            manager: made,
        };
        // Those of the manager are its user's.
        for group in [&groups.manager, &groups.app] {
            for path in [group.path().to_owned(), group.path().join("cgroup.procs")] {
                chown(path, Some(uid), Some(uid)).unwrap();
            }
        }
        groups
    }
}

/// The same command, by this user.
fn by(uid: u32, program: &Path) -> Command {
    let mut command = Command::new("/usr/bin/setpriv");
    let uid = uid.to_string();
    command.args(["--reuid", &uid, "--regid", &uid, "--clear-groups"]);
    command.arg(program);
    command
}

/// Where a program of this user's and its files are read by.
fn words(program: &Path, files: &[PathBuf]) -> String {
    let all = std::iter::once(program).chain(files.iter().map(PathBuf::as_path));
    all.map(|path| format!(" {}", path.display())).collect()
}

/// A user's manager that runs: it has started a service, and ends when it is told to.
struct Manager {
    waiting: Waiting,
    line: PathBuf,
}

impl Manager {
    /// Process 1 begins it as root, in its control group.
    fn begin(case: &Case, fs: &LoopFs, uid: u32, groups: &Groups) -> Manager {
        let at = fs.mount_point();
        let line = at.join("line");
        let _ = fs::remove_file(&line);
        run({
            let mut command = Command::new("mkfifo");
            command.args(["-m", "666"]).arg(&line);
            command
        });
        let mut manager = by(uid, &at.join("manager"));
        manager.arg("-c").arg(format!(
            "(echo 0 >{}/cgroup.procs; exec{}); read line <{}",
            groups.app.path().display(),
            words(&at.join("service"), &files(fs, "service")),
            line.display()
        ));
        let waiting = Waiting::with(case, "manager", groups.manager.path(), &manager);
        waiting.begin();
        Manager { waiting, line }
    }

    fn lives(&self) -> bool {
        !matches!(process_state(self.waiting.pid), None | Some('Z'))
    }

    fn ends(self) {
        fs::write(&self.line, "\n").unwrap();
        self.waiting.ends();
    }
}

/// What somebody else has forked executes this user's desktop in the session's scope.
fn desktop(fs: &LoopFs, uid: u32, groups: &Groups) {
    let (mut login, desktop) = (Command::new("sh"), by(uid, &fs.mount_point().join("desktop")));
    login.args(["-c", "echo 0 >\"$0\"/cgroup.procs; exec \"$@\""]);
    login.arg(groups.scope.path()).arg(desktop.get_program());
    login
        .args(desktop.get_args())
        .args(files(fs, "desktop"))
        .stdout(Stdio::null());
    run(login);
}

/// A disk with a user's manager, a service and a desktop.
fn disk_of_user() -> LoopFs {
    let fs = disk(&["manager", "service", "desktop"]);
    fs::copy("/bin/sh", fs.mount_point().join("manager")).unwrap();
    let_all_into(&fs.mount_point());
    fs
}

#[test]
fn what_a_user_starts_after_a_login_is_one_start_whoever_has_forked_it() {
    undisturbed(|| {
        if !can_watch() || !is_root() {
            return;
        }
        let (case, mut fs, uid) = (Case::new(), disk_of_user(), a_user());
        let groups = Groups::of(uid);
        let daemon = Daemon::start(&case);
        let session = Key::new(format!("session of user {uid}")).unwrap();
        let desktop_of_user = key(&fs, "desktop").of_user(uid).unwrap();
        for login in 1..=2 {
            fs.remount_cold().unwrap();
            let manager = Manager::begin(&case, &fs, uid, &groups);
            match login {
                // Until the daemon has answered and the service has begun.
                1 => std::thread::sleep(Duration::from_millis(500)),
                // Before anybody asks for it.
                _ => {
                    let desktops = files(&fs, "desktop");
                    eventually("the desktop is read ahead", || resident(&desktops) >= 19 * 256);
                }
            }
            desktop(&fs, uid, &groups);
            manager.ends();
            let outcomes = kept(&case, &session, login);
            assert_eq!(outcomes[login - 1].mode, [Mode::Record, Mode::Replay][login - 1]);
            let read = last_trace(&case, &session);
            let has = |name: &str| read.files.iter().any(|file| file.path.to_string().contains(name));
            assert!(has("/service-00") && has("/desktop-19"), "{:?}", read.files);
        }
        assert_eq!(finished(&case, &desktop_of_user), 0, "it is no start of its own");
        // Whatever a person calls it.
        let file = files(&fs, "desktop").swap_remove(3);
        for words in [
            &["status", "session"][..],
            &["apps", "show", "session"],
            &["explain", "--name", "session", file.to_str().unwrap()],
        ] {
            let told = case.headstart(words);
            assert_eq!(told.code(), 0, "{words:?}: {}", told.err);
            assert!(
                told.out.contains(&format!("session of user {uid}")),
                "{words:?}: {}",
                told.out
            );
        }
        daemon.stop();
    });
}

#[test]
fn what_a_user_starts_later_is_a_start_of_its_own_and_a_second_login_is_none() {
    if !can_watch() || !is_root() {
        return;
    }
    let (case, mut fs, uid) = (Case::new(), disk_of_user(), a_user() + 1);
    let groups = Groups::of(uid);
    let daemon = Daemon::start(&case);
    let session = Key::new(format!("session of user {uid}")).unwrap();
    let desktop_of_user = key(&fs, "desktop").of_user(uid).unwrap();
    fs.remount_cold().unwrap();
    let manager = Manager::begin(&case, &fs, uid, &groups);
    // It falls quiet, and its manager lives on.
    kept(&case, &session, 1);
    assert!(manager.lives());
    eventually("a program that comes later is kept", || {
        evict(&files(&fs, "desktop"));
        desktop(&fs, uid, &groups);
        (0..300).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            finished(&case, &desktop_of_user) > 0
        })
    });
    assert_eq!(finished(&case, &session), 1);
    manager.ends();
    // Who does not want it.
    let disabled = case.headstart(&["apps", "disable", session.as_str()]);
    assert_eq!(disabled.code(), 0, "{}", disabled.err);
    fs.remount_cold().unwrap();
    let manager = Manager::begin(&case, &fs, uid, &groups);
    std::thread::sleep(Duration::from_millis(500));
    manager.ends();
    let forgotten = case.headstart(&["forget", "session"]);
    assert_eq!(forgotten.code(), 0, "{}", forgotten.err);
    assert_eq!(finished(&case, &session), 0);
    daemon.stop();
}
