//! What a user who is not root cannot do by the daemon's socket.

use crate::common::{Case, finish, is_root};
use crate::harness::*;
use crate::users::theirs;
use headstart_model::Key;
use headstart_model::outcome::Mode;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

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
