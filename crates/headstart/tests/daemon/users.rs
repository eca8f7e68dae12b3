//! What a user who is not root cannot do by way of the daemon.

use crate::common::{Case, eventually, finish, is_root};
use crate::harness::*;
use headstart_model::Key;
use headstart_model::outcome::Mode;
use headstart_store::Store;
use headstart_system::testing::Process;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A start of a program by nobody, from the second of its files on.
fn theirs(fs: &headstart_system::testing::LoopFs, name: &str) -> Command {
    let mut command = Command::new(fs.mount_point().join(name));
    command.args(&files(fs, name)[1..]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    by_nobody(command)
}

/// The same, which reads a file as well that its arguments do not name: that is read ahead for later starts,
/// too.
fn theirs_with(fs: &headstart_system::testing::LoopFs, name: &str, input: &Path) -> Command {
    let mut command = theirs(fs, name);
    command.arg("-").stdin(File::open(input).unwrap());
    command
}

#[test]
fn what_root_reads_is_not_read_for_another_user() {
    if !can_watch() || !is_root() {
        return;
    }
    let case = Case::new();
    let mut fs = disk(&["one"]);
    let private = fs.mount_point().join("one-00");
    fs::set_permissions(&private, PermissionsExt::from_mode(0o600)).unwrap();
    let_all_into(&fs.mount_point());
    let daemon = Daemon::start(&case);
    let one = key(&fs, "one");
    run(command(&fs, "one"));
    kept(&case, &one, 1);
    fs.remount_cold().unwrap();
    run(theirs(&fs, "one"));
    let of_nobody = key_of_nobody(&fs, "one");
    assert_eq!(kept(&case, &of_nobody, 1)[0].mode, Mode::Record);
    assert_eq!(resident(&[private]), 0);
    let users = Store::new(case.state()).key(&of_nobody).users();
    assert_eq!((users.len(), users[0].uid), (1, NOBODY));
    daemon.stop();
}

#[test]
fn what_a_user_may_not_read_any_more_is_not_read_for_that_user() {
    if !can_watch() || !is_root() {
        return;
    }
    let case = Case::new();
    let mut fs = disk(&["one"]);
    let_all_into(&fs.mount_point());
    let daemon = Daemon::start(&case);
    let paths = files(&fs, "one");
    let owned = |by: u32| {
        fs::set_permissions(&paths[0], PermissionsExt::from_mode(0o600)).unwrap();
        chown(&paths[0], Some(by), None).unwrap();
    };
    let of_nobody = key_of_nobody(&fs, "one");
    for turn in 1..=2 {
        fs.remount_cold().unwrap();
        run(theirs_with(&fs, "one", &paths[0]));
        kept(&case, &of_nobody, turn);
    }
    // What is the user's own is read, whoever else may.
    owned(NOBODY);
    fs.remount_cold().unwrap();
    run(theirs(&fs, "one"));
    assert_eq!(kept(&case, &of_nobody, 3)[2].mode, Mode::Replay);
    assert_eq!(resident(&paths[..1]), 256);
    // The same file, which is another's by now.
    owned(0);
    fs.remount_cold().unwrap();
    run(theirs(&fs, "one"));
    assert_eq!(kept(&case, &of_nobody, 4)[3].mode, Mode::Replay);
    assert_eq!(resident(&paths[..1]), 0);
    daemon.stop();
}

#[test]
fn what_lies_where_a_user_may_not_go_any_more_is_not_read_for_that_user() {
    if !can_watch() || !is_root() {
        return;
    }
    let case = Case::new();
    let mut fs = disk(&["one"]);
    let_all_into(&fs.mount_point());
    let another = fs.mount_point().join("another");
    let public = another.join("public");
    fs::create_dir(&another).unwrap();
    fs::copy(&files(&fs, "one")[0], &public).unwrap();
    let let_in = |mode| fs::set_permissions(&another, PermissionsExt::from_mode(mode)).unwrap();
    let_in(0o755);
    let daemon = Daemon::start(&case);
    let of_nobody = key_of_nobody(&fs, "one");
    for turn in 1..=2 {
        fs.remount_cold().unwrap();
        run(theirs_with(&fs, "one", &public));
        kept(&case, &of_nobody, turn);
    }
    fs.remount_cold().unwrap();
    run(theirs(&fs, "one"));
    assert_eq!(kept(&case, &of_nobody, 3)[2].mode, Mode::Replay);
    assert_eq!(resident(std::slice::from_ref(&public)), 256);
    let_in(0o700);
    fs.remount_cold().unwrap();
    run(theirs(&fs, "one"));
    assert_eq!(kept(&case, &of_nobody, 4)[3].mode, Mode::Replay);
    assert_eq!(resident(&[public]), 0);
    daemon.stop();
}

#[test]
fn what_a_program_with_the_setuid_bit_reads_is_not_learned_for_root_nor_read_for_its_user() {
    if !can_watch() || !is_root() {
        return;
    }
    let case = Case::new();
    let mut fs = disk(&["one"]);
    let_all_into(&fs.mount_point());
    let private = files(&fs, "one").swap_remove(0);
    fs::set_permissions(&private, PermissionsExt::from_mode(0o600)).unwrap();
    fs::set_permissions(fs.mount_point().join("one"), PermissionsExt::from_mode(0o4755)).unwrap();
    let daemon = Daemon::start(&case);
    let of_nobody = key_of_nobody(&fs, "one");
    for turn in 1..=2 {
        fs.remount_cold().unwrap();
        run(theirs_with(&fs, "one", &private));
        kept(&case, &of_nobody, turn);
    }
    assert!(
        resident(std::slice::from_ref(&private)) > 0,
        "it has root's rights"
    );
    fs.remount_cold().unwrap();
    run(theirs(&fs, "one"));
    assert_eq!(kept(&case, &of_nobody, 3)[2].mode, Mode::Replay);
    assert_eq!(resident(&[private]), 0);
    assert_eq!(finished(&case, &key(&fs, "one")), 0);
    daemon.stop();
}

#[test]
fn a_start_of_roots_in_which_a_person_executes_something_teaches_nothing() {
    if !can_watch() || !is_root() {
        return;
    }
    let case = Case::new();
    let mut fs = disk(&["one"]);
    fs::copy("/usr/bin/setpriv", fs.mount_point().join("one")).unwrap();
    let_all_into(&fs.mount_point());
    let daemon = Daemon::start(&case);
    let paths = files(&fs, "one");
    let one = key(&fs, "one");
    let mut start_as = |user: &str, files: &[std::path::PathBuf]| {
        fs.remount_cold().unwrap();
        let mut command = Command::new(fs.mount_point().join("one"));
        command
            .args(["--reuid", user, "--clear-groups", "--", "cat"])
            .args(files);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        run(command);
    };
    start_as("1000", &paths[..10]);
    // It only executes what its arguments name, so its starts are told apart by all that it is given, once
    // that is known.
    let kept = || -> Vec<Key> {
        let keys = Store::new(case.state()).keys().unwrap();
        let of_one = keys
            .into_iter()
            .filter(|key| key.as_str().starts_with(one.as_str()));
        of_one.filter(|key| finished(&case, key) > 0).collect()
    };
    // Finished in their turn: so the first is over when the second is. Too much that is new elsewhere on the
    // machine, and one is not noticed.
    eventually("a start of root's alone is kept", || {
        start_as("0", &paths[10..]);
        (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            !kept().is_empty()
        })
    });
    let kept = kept();
    assert_eq!(kept.len(), 1, "{kept:?}");
    let trace = last_trace(&case, &kept[0]);
    let has = |path: &Path| trace.files.iter().any(|file| file.path.as_path() == path);
    assert!(has(&paths[10]) && !has(&paths[0]));
    daemon.stop();
}

/// Calls methods one after the other and prints each reply.
const CALLS: &str = "
import json, socket, sys
s = socket.socket(socket.AF_UNIX)
s.settimeout(30)
s.connect(sys.argv[1])
for call in sys.argv[2:]:
    s.sendall(call.encode() + b'\\0')
    reply = b''
    while not reply.endswith(b'\\0'):
        got = s.recv(4096)
        assert got, reply
        reply += got
    print(json.dumps(json.loads(reply[:-1])))
";

/// A script of Python's, by nobody, with the socket for its first argument.
fn script(case: &Case, script: &str) -> Command {
    let mut python = Command::new("python3");
    python.args(["-c", script]).arg(case.path("control"));
    by_nobody(python)
}

/// Lets everybody connect.
fn open_control(case: &Case) {
    let control = case.path("control");
    let_all_into(control.parent().unwrap());
    fs::set_permissions(control, PermissionsExt::from_mode(0o666)).unwrap();
}

fn method(name: &str, parameters: &Value) -> String {
    json!({ "method": format!("headstart.Control.{name}"), "parameters": parameters }).to_string()
}

#[test]
fn what_others_run_is_not_told_and_cannot_be_changed() {
    if !can_watch() || !is_root() {
        return;
    }
    let case = Case::new();
    let fs = disk(&["one", "other"]);
    let_all_into(&fs.mount_point());
    let (daemon, mut control) = Daemon::start_with_control(&case);
    open_control(&case);
    let (roots, own) = (key(&fs, "one"), key_of_nobody(&fs, "other"));
    start_until_kept(&case, &fs, "one");
    evict(&files(&fs, "other"));
    run(theirs(&fs, "other"));
    kept(&case, &own, 1);
    let began = call(&mut control, "BeginOperation", json!({ "name": "load" }))["id"].clone();
    let mut asks = script(&case, CALLS);
    asks.arg(method("List", &json!({})));
    let unknown = Key::new("/usr/bin/never-started").unwrap();
    let ways = ["Show", "Forget", "ReadNow"];
    for key in [&roots, &unknown] {
        for way in ways {
            asks.arg(method(way, &json!({ "key": key })));
        }
        asks.arg(method("SetEnabled", &json!({ "key": key, "enabled": false })));
    }
    asks.arg(method("EndOperation", &json!({ "id": began })));
    asks.arg(method("EndOperation", &json!({ "id": 4711 })));
    asks.arg(method(
        "BeginOperation",
        &json!({ "name": "x", "pid": std::process::id() }),
    ));
    asks.arg(method(
        "BeginOperation",
        &json!({ "name": "x", "pid": 4_000_000 }),
    ));
    let ran = finish(asks, b"");
    assert_eq!(ran.code(), 0, "{}", ran.err);
    let replies: Vec<Value> = ran
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let apps = replies[0]["parameters"]["apps"].as_array().unwrap();
    assert_eq!(apps.len(), 1, "{apps:?}");
    assert_eq!(apps[0]["key"], own.as_str());
    for field in ["secondsSaved", "verdict", "bypassed"] {
        assert!(apps[0].get(field).is_none_or(Value::is_null), "{apps:?}");
    }
    let [.., of_root, of_nothing, roots_process, no_process] = &replies[..] else {
        panic!("{replies:?}")
    };
    // Of what is there one learns no more than of what is not.
    for (one, other) in replies[1..5].iter().zip(&replies[5..9]) {
        assert_eq!(one["error"], "org.varlink.service.PermissionDenied");
        assert_eq!(one, other);
    }
    assert_eq!(of_root["error"], "headstart.Control.UnknownOperation");
    assert_eq!(of_root["error"], of_nothing["error"]);
    assert_eq!(roots_process["error"], "headstart.Control.NotYourProcess");
    assert_eq!(roots_process["error"], no_process["error"]);
    // Nothing has come of it, and none of the files tells either.
    let shown = call(&mut control, "Show", json!({ "key": roots }));
    assert_eq!(shown["app"]["enabled"], true);
    call(&mut control, "EndOperation", json!({ "id": began }));
    assert_eq!(
        fs::metadata(case.state()).unwrap().permissions().mode() & 0o077,
        0
    );
    daemon.stop();
}

/// Says what no client would, keeps as many connections as it gets, and then tries as often as it is told to.
const HOSTILE: &str = "
import json, random, resource, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
random.seed(4711)
info = json.dumps({'method': 'org.varlink.service.GetInfo'}).encode()
def call(parameters, name='BeginOperation'):
    return json.dumps({'method': 'headstart.Control.' + name, 'parameters': parameters}).encode() + b'\\0'
said = [
    b'\\0', b'\\0' * 60000, random.randbytes(60000), b'[' * 60000 + b'\\0', b'{\"a\":' * 12000 + b'\\0', b'x' * (1 << 20),
    b'\\xff\\xfe\\0', b'null\\0', b'[]\\0', b'{}\\0', b'{\"method\":7}\\0', b'{\"method\":\"' + b'.' * 60000 + b'\"}\\0',
    call({'name': 'x' * 60000}), call({'name': '../../etc'}), call({'name': 'a', 'pid': -1}), call({'name': 'a', 'pid': 1e308}),
    call({'name': 'a', 'pid': 1 << 63}), call({'name': ['a']}), call([], 'List'), call({'after': '\\u0000'}, 'List'),
    call({'after': 'x' * 65000}, 'List'), call({'id': 1 << 64}, 'EndOperation'), (info + b'\\0') * 800, info[:-3],
    call({'name': 'a'}) * 200,
]
held = []
for turn in range(int(sys.argv[2])):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(30)
    try:
        s.connect(sys.argv[1])
        s.settimeout(0.01)
        s.sendall(said[turn % len(said)])
        if turn % 3 == 0:
            s.recv(100)
    except OSError:
        pass
    held.append(s)
    if len(held) > 900:
        held.pop(random.randrange(len(held))).close()
print('done', flush=True)
sys.stdin.read()
";

#[test]
fn hostile_messages_and_thousands_of_connections_do_not_end_it() {
    if !can_watch() || !is_root() {
        return;
    }
    let case = Case::new();
    let fs = disk(&["one"]);
    let (daemon, mut control) = Daemon::start_with_control(&case);
    open_control(&case);
    start_until_kept(&case, &fs, "one");
    let mut hostile = script(&case, HOSTILE);
    hostile
        .arg(rounds(2000, 20_000).to_string())
        .stdin(Stdio::piped());
    let (mut hostile, mut lines) = crate::common::start(hostile);
    assert_eq!(lines.next().unwrap().unwrap(), "done");
    // While all that a user may have open is: who is connected, and who comes, are served, and starts are
    // noticed.
    let shown = call(&mut control, "Show", json!({ "key": key(&fs, "one") }));
    assert_eq!(shown["app"]["key"], key(&fs, "one").as_str());
    let mut another = std::os::unix::net::UnixStream::connect(case.path("control")).unwrap();
    assert_eq!(
        call(&mut another, "Show", json!({ "key": key(&fs, "one") })),
        shown
    );
    assert!(daemon.memory() < 64 << 10, "{} KiB", daemon.memory());
    assert_eq!(start_until_kept(&case, &fs, "one").mode, Mode::Replay);
    drop(hostile.stdin.take());
    assert!(hostile.wait().unwrap().success());
    daemon.stop();
}

#[test]
fn who_takes_all_there_is_keeps_no_other_user_from_anything() {
    if !can_watch() || !is_root() {
        return;
    }
    let case = Case::new();
    let fs = disk(&["one"]);
    let point = fs.mount_point();
    let_all_into(&point);
    let daemon = Daemon::start(&case);
    start_until_kept(&case, &fs, "one");
    // More programs than can be recorded at a time, each of them for two seconds.
    let programs: Vec<_> = (0..60).map(|n| point.join(format!("program-{n}"))).collect();
    for program in &programs {
        fs::copy("/bin/sleep", program).unwrap();
    }
    let sleeping = |program: &std::path::PathBuf| {
        let mut command = Command::new(program);
        command.arg("1000");
        Process(by_nobody(command).spawn().unwrap())
    };
    evict(&files(&fs, "one"));
    let crowd = programs.iter().map(sleeping).collect::<Vec<_>>();
    // `finish` bounds how long these may take.
    assert_eq!(finish(command(&fs, "one"), b"").code(), 0);
    let mut many = Command::new("sh");
    many.args(["-c", "i=0; while [ $i -lt 200 ]; do /bin/true; i=$((i+1)); done"]);
    assert_eq!(finish(many, b"").code(), 0);
    drop(crowd);
    let one = key(&fs, "one");
    eventually("the start beside the crowd is kept", || {
        outcomes(&case, &one).len() == 2
    });
    assert_eq!(outcomes(&case, &one)[1].mode, Mode::Replay);
    let said = daemon.stop();
    assert!(!said.contains("for too many at once: 0,"), "{said}");
}

/// So many programs of a user's that live for longer than their starts are recorded.
fn slow(
    fs: &headstart_system::testing::LoopFs,
    count: usize,
    run_as: impl Fn(usize, Command) -> Command,
) -> Vec<Process> {
    let point = fs.mount_point();
    let sleeping = |n| {
        let program = point.join(format!("slow-{n}"));
        fs::copy("/bin/sleep", &program).unwrap();
        let mut command = Command::new(program);
        command.arg("1000");
        Process(run_as(n, command).spawn().unwrap())
    };
    (0..count).map(sleeping).collect()
}

/// Another user's new programs are learned beside them.
#[track_caller]
fn anothers_are_learned(case: &Case, fs: &headstart_system::testing::LoopFs, names: &[&str]) {
    use std::os::unix::process::CommandExt;
    for name in names {
        let mut command = command(fs, name);
        command.uid(4711).gid(4711).current_dir("/");
        evict(&files(fs, name));
        run(command);
    }
    for name in names {
        let theirs = Key::new(format!("{} of user 4711", key(fs, name))).unwrap();
        kept(case, &theirs, 1);
    }
}

#[test]
fn who_starts_many_new_programs_keeps_no_other_users_from_being_learned() {
    if !can_watch() || !is_root() {
        return;
    }
    let case = Case::new();
    let names = ["a", "b", "c"];
    let fs = disk(&names);
    let_all_into(&fs.mount_point());
    let daemon = Daemon::start(&case);
    let _crowd = slow(&fs, 40, |_, command| by_nobody(command));
    anothers_are_learned(&case, &fs, &names);
    daemon.stop();
}

#[test]
fn ids_in_a_users_namespace_have_that_users_share_together() {
    if !can_watch() || !is_root() {
        return;
    }
    let case = Case::new();
    let names = ["a", "b", "c"];
    let fs = disk(&names);
    let_all_into(&fs.mount_point());
    // As newuidmap(1) does it for nobody, with ids of its own.
    let mut space = Command::new("unshare");
    space.args(["-U", "sleep", "1000"]);
    let space = Process(by_nobody(space).spawn().unwrap());
    let pid = space.id();
    eventually("the namespace is there", || {
        let namespace_of = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/user")).unwrap();
        namespace_of(&pid.to_string()) != namespace_of("self")
    });
    for map in ["uid_map", "gid_map"] {
        fs::write(format!("/proc/{pid}/{map}"), "0 100000 16").unwrap();
    }
    let daemon = Daemon::start(&case);
    let crowd = slow(&fs, 40, |n, command| {
        let mut inside = Command::new("nsenter");
        inside.args([
            &format!("--user=/proc/{pid}/ns/user"),
            "--setuid",
            &(n % 16).to_string(),
            "--setgid",
            "0",
        ]);
        inside.arg(command.get_program()).args(command.get_args());
        inside
    });
    anothers_are_learned(&case, &fs, &names);
    drop((crowd, space));
    daemon.stop();
}

/// The bytes of all files below a directory.
fn bytes(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(facts) if facts.is_dir() => bytes(&entry.path()),
        facts => facts.map_or(0, |facts| facts.len()),
    };
    entries.map(size).sum()
}

#[test]
fn what_is_kept_of_a_users_programs_does_not_fill_the_disk() {
    if !can_watch() || !is_root() {
        return;
    }
    let case = Case::new();
    let fs = disk(&["one", "two"]);
    let_all_into(&fs.mount_point());
    let daemon = Daemon::start(&case);
    // As many starts as it takes: what each leaves is as large as it may be.
    let store = Store::new(case.state());
    for number in 0..70 {
        let kept = store.key(&Key::new(format!("operation {number} of user {NOBODY}")).unwrap());
        let lock = kept.lock().unwrap();
        lock.add_user(NOBODY, number).unwrap();
        fs::write(kept.path().join(format!("{number:020}.trace")), vec![7; 1 << 20]).unwrap();
    }
    assert!(bytes(&case.state()) > 64 << 20);
    // On a busy machine one start may not be noticed.
    let start = |name: &str| {
        evict(&files(&fs, name));
        run(theirs(&fs, name));
        std::thread::sleep(Duration::from_secs(1));
    };
    // It is tidied when nothing was finished for some seconds.
    eventually("what is kept is within its bounds", || {
        start("one");
        (0..100).any(|_| {
            std::thread::sleep(Duration::from_millis(100));
            bytes(&case.state()) <= 64 << 20
        })
    });
    // What was learned last is worth as little, and is there still or again.
    let two = key_of_nobody(&fs, "two");
    eventually("another start is kept", || {
        start("two");
        finished(&case, &two) > 0
    });
    assert!(bytes(&case.state()) <= 64 << 20);
    daemon.stop();
}

#[test]
fn what_grew_since_is_read_ahead_no_further_than_it_was_used() {
    if !can_watch() || !is_root() {
        return;
    }
    let case = Case::new();
    let mut fs = disk(&["one"]);
    fs::copy("/usr/bin/head", fs.mount_point().join("one")).unwrap();
    let paths = files(&fs, "one");
    for file in &paths {
        chown(file, Some(NOBODY), None).unwrap();
    }
    let_all_into(&fs.mount_point());
    let daemon = Daemon::start(&case);
    let of_nobody = key_of_nobody(&fs, "one");
    for turn in 1..=4 {
        fs.remount_cold().unwrap();
        if turn == 2 {
            for file in &paths {
                let mut more = File::options().append(true).open(file).unwrap();
                std::io::Write::write_all(&mut more, &vec![9; 9 << 20]).unwrap();
            }
            fs.remount_cold().unwrap();
        }
        let mut part = Command::new(fs.mount_point().join("one"));
        part.args(["-q", "-c", "65536"])
            .args(&paths)
            .stdout(Stdio::null());
        run(by_nobody(part));
        kept(&case, &of_nobody, turn);
    }
    assert_eq!(outcomes(&case, &of_nobody)[3].mode, Mode::Replay);
    // 200 MiB are there. A start without a replay has the kernel read some more than it uses, too.
    let pages = resident(&paths);
    assert!((20 * 16..20 * 256).contains(&pages), "{pages}");
    daemon.stop();
}
