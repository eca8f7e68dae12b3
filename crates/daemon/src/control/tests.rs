//! The socket as clients find it: what they may ask, and what they cannot do to others.

mod bounds;

use super::*;
use crate::service::{App, Peer, Reading, Service, ServiceError};
use headstart_model::Key;
use headstart_system::testing::is_root;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// A daemon that knows some programs and notes what it is asked.
#[derive(Default)]
struct Noting {
    keys: Vec<String>,
    asked: Mutex<Vec<String>>,
}

impl Noting {
    fn note<T>(&self, what: String, answer: T) -> Result<T, ServiceError> {
        self.asked.lock().unwrap().push(what);
        Ok(answer)
    }

    fn known(&self, key: &Key) -> Result<(), ServiceError> {
        let known = self.keys.iter().any(|one| one == key.as_str());
        known
            .then_some(())
            .ok_or_else(|| ServiceError::UnknownKey(key.to_string()))
    }
}

impl Service for Noting {
    fn apps(&self, user: Option<u32>, after: Option<&str>, most: usize) -> Result<Vec<App>, ServiceError> {
        let app = |key: &String| App {
            key: key.clone(),
            enabled: true,
            starts: u64::from(user.unwrap_or(0)),
            ..App::default()
        };
        let behind = self
            .keys
            .iter()
            .filter(|key| after.is_none_or(|after| key.as_str() > after));
        Ok(behind.take(most).map(app).collect())
    }

    fn app(&self, key: &Key) -> Result<App, ServiceError> {
        self.known(key)?;
        let key = key.to_string();
        Ok(App {
            key,
            ..App::default()
        })
    }

    fn set_enabled(&self, key: &Key, on: bool) -> Result<(), ServiceError> {
        self.note(format!("enabled {key} {on}"), ())
    }

    fn forget(&self, key: &Key) -> Result<(), ServiceError> {
        self.known(key)?;
        self.note(format!("forget {key}"), ())
    }

    fn now(&self, key: &Key) -> Result<Reading, ServiceError> {
        let reading = Reading {
            requests: 3,
            bytes: 4096,
        };
        self.note(format!("now {key}"), reading)
    }

    fn begin_operation(&self, peer: &Peer, name: &str) -> Result<u64, ServiceError> {
        self.note(format!("begin {name} {} {}", peer.uid, peer.pid), 7)
    }

    fn end_operation(&self, peer: &Peer, id: u64) -> Result<(), ServiceError> {
        match id {
            7 => self.note(format!("end {id} {}", peer.uid), ()),
            _ => Err(ServiceError::UnknownOperation(id)),
        }
    }
}

/// A server of its own, which ends with the value.
struct Served {
    _dir: tempfile::TempDir,
    path: PathBuf,
    noting: Arc<Noting>,
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    fn new(keys: impl IntoIterator<Item = String>) -> Served {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let noting = Arc::new(Noting {
            keys: keys.into_iter().collect(),
            ..Noting::default()
        });
        let (read, write) = rustix::pipe::pipe().unwrap();
        let service = noting.clone();
        let patience = server::Patience {
            within: Duration::from_millis(300),
            idle: Duration::from_secs(2),
        };
        let thread =
            std::thread::spawn(move || server::serve_with(listener, service, read, patience).unwrap());
        Served {
            _dir: dir,
            path,
            noting,
            stop: Some(write),
            thread: Some(thread),
        }
    }

    fn raw(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream
    }

    fn client(&self) -> Client {
        Client::connect_to(&self.path).unwrap()
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.noting.asked.lock().unwrap())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.take();
        self.thread.take().unwrap().join().unwrap();
    }
}

fn send(stream: &mut UnixStream, call: &Value) {
    stream.write_all(format!("{call}\0").as_bytes()).unwrap();
}

fn receive(stream: &mut UnixStream) -> Value {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while stream.read(&mut byte).unwrap() == 1 && byte[0] != 0 {
        bytes.push(byte[0]);
    }
    serde_json::from_slice(&bytes).unwrap_or(Value::Null)
}

/// One call by somebody, without a socket.
fn call_as(uid: u32, service: &Noting, method: &str, parameters: Value) -> Result<Value, String> {
    let pid = std::process::id() as i32;
    let peer = Peer {
        uid,
        gid: uid,
        pid,
        pidfd: None,
    };
    let call = json!({ "method": method, "parameters": parameters });
    let answer = dispatch::Dispatch {
        service,
        peer: &peer,
        operations: &mut operations::Operations::default(),
    }
    .answer(serde_json::from_value(call).unwrap());
    answer.map_err(|fault| fault.name)
}

#[test]
fn the_service_tells_of_itself() {
    let served = Served::new([]);
    let mut stream = served.raw();
    send(&mut stream, &json!({ "method": "org.varlink.service.GetInfo" }));
    let info = &receive(&mut stream)["parameters"];
    assert_eq!(info["interfaces"], json!(["org.varlink.service", INTERFACE]));
    for field in ["vendor", "product", "version", "url"] {
        assert!(info[field].is_string(), "{field}");
    }
    for interface in ["org.varlink.service", INTERFACE] {
        let parameters = json!({ "interface": interface });
        let call =
            json!({ "method": "org.varlink.service.GetInterfaceDescription", "parameters": parameters });
        send(&mut stream, &call);
        let text = receive(&mut stream)["parameters"]["description"].take();
        assert!(
            text.as_str()
                .unwrap()
                .contains(&format!("interface {interface}\n"))
        );
    }
}

#[test]
fn every_method_that_is_described_is_there_and_errors_are_those_described() {
    let text = include_str!("headstart.Control.varlink");
    let methods: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("method ")?.split('(').next())
        .collect();
    assert_eq!(methods.len(), 7);
    for method in methods {
        let answer = call_as(
            0,
            &Noting::default(),
            &format!("{INTERFACE}.{method}"),
            json!({ "no": 1 }),
        );
        assert_eq!(
            answer,
            Err("org.varlink.service.InvalidParameter".into()),
            "{method}"
        );
    }
    for (method, error) in [
        ("headstart.Control.None", "MethodNotFound"),
        ("org.varlink.service.None", "MethodNotFound"),
        ("some.Other.GetInfo", "InterfaceNotFound"),
        ("nothing", "InvalidParameter"),
        ("", "InvalidParameter"),
    ] {
        let answer = call_as(0, &Noting::default(), method, json!({}));
        assert_eq!(answer, Err(format!("org.varlink.service.{error}")), "{method}");
    }
    let own = [
        "UnknownKey",
        "UnknownOperation",
        "TooManyOperations",
        "NotYourProcess",
        "TooManyConnections",
        "Failed",
    ];
    for error in own {
        assert!(text.contains(&format!("\nerror {error} (")), "{error}");
    }
}

#[test]
fn root_may_do_everything() {
    let served = Served::new(["/usr/bin/x".to_string()]);
    let mut client = served.client();
    if !rustix::process::geteuid().is_root() {
        assert!(matches!(
            client.call("Forget", json!({ "key": "/usr/bin/x" })),
            Err(ClientError::Denied)
        ));
        return;
    }
    let key = json!({ "key": "/usr/bin/x" });
    assert_eq!(
        client.call("Show", key.clone()).unwrap()["app"]["key"],
        "/usr/bin/x"
    );
    client
        .call("SetEnabled", json!({ "key": "/usr/bin/y", "enabled": false }))
        .unwrap();
    client.call("Forget", key.clone()).unwrap();
    assert_eq!(
        client.call("ReadNow", key).unwrap(),
        json!({ "requests": 3, "bytes": 4096 })
    );
    assert_eq!(
        served.asked(),
        ["enabled /usr/bin/y false", "forget /usr/bin/x", "now /usr/bin/x"]
    );
    let unknown = client.call("Forget", json!({ "key": "none" }));
    let Err(ClientError::Fault { name, message }) = unknown else {
        panic!("{unknown:?}")
    };
    assert!(
        name == "UnknownKey" && message.contains("headstart apps list"),
        "{message}"
    );
}

#[test]
fn a_user_may_only_list_and_mark_operations() {
    let service = Noting {
        keys: vec!["/usr/bin/x".into()],
        ..Noting::default()
    };
    let call =
        |method: &str, parameters| call_as(1000, &service, &format!("{INTERFACE}.{method}"), parameters);
    let key = json!({ "key": "/usr/bin/x" });
    for method in ["Show", "SetEnabled", "Forget", "ReadNow"] {
        let denied = Err("org.varlink.service.PermissionDenied".into());
        assert_eq!(call(method, key.clone()), denied, "{method}");
        // Whether a key is known is not told either.
        assert_eq!(call(method, json!({ "key": "none" })), denied, "{method}");
    }
    assert_eq!(*service.asked.lock().unwrap(), [""; 0]);
    // The daemon is asked for this user's.
    assert_eq!(call("List", json!({})).unwrap()["apps"][0]["starts"], 1000);
    call("BeginOperation", json!({ "name": "open" })).unwrap();
    call("EndOperation", json!({ "id": 7 })).unwrap();
    let pid = std::process::id();
    assert_eq!(
        *service.asked.lock().unwrap(),
        [format!("begin open 1000 {pid}"), "end 7 1000".into()]
    );
}

#[test]
fn operations_are_of_ones_own_processes() {
    let served = Served::new([]);
    let mut client = served.client();
    let (own, parent) = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getppid().unwrap(),
    );
    let parent = parent.as_raw_nonzero().get();
    let begin =
        |client: &mut Client, pid: i64| client.call("BeginOperation", json!({ "name": "build", "pid": pid }));
    assert_eq!(begin(&mut client, parent.into()).unwrap()["id"], 7);
    assert_eq!(served.asked(), [format!("begin build {own} {parent}")]);
    client.call("EndOperation", json!({ "name": "build" })).unwrap();
    assert_eq!(served.asked(), [format!("end 7 {own}")]);
    let again = client.call("EndOperation", json!({ "name": "build" }));
    assert!(matches!(again, Err(ClientError::Fault { name, .. }) if name == "UnknownOperation"));
    for pid in [0, -1, i64::from(i32::MAX), i64::MAX] {
        let refused = begin(&mut client, pid);
        assert!(
            matches!(refused, Err(ClientError::Fault { .. })),
            "{pid}: {refused:?}"
        );
    }
    for name in ["", "a\nb", " x"] {
        assert!(
            client.call("BeginOperation", json!({ "name": name })).is_err(),
            "{name:?}"
        );
    }
    // Of process 1, which is root's.
    let of_another = json!({ "name": "build", "pid": 1 });
    let refused = call_as(
        1000,
        &served.noting,
        "headstart.Control.BeginOperation",
        of_another,
    );
    assert_eq!(refused, Err("headstart.Control.NotYourProcess".into()));
    assert_eq!(served.asked(), [""; 0]);
}

#[test]
fn where_nobody_serves_the_way_out_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let told = |path: &std::path::Path| Client::connect_to(path).err().unwrap().to_string();
    assert!(told(&path).starts_with("the daemon does not run"));
    drop(UnixListener::bind(&path).unwrap());
    assert!(told(&path).starts_with("the daemon does not run"));
}

/// Calls methods one after the other and prints each reply, as another program would.
const PYTHON: &str = "
import json, socket, sys
s = socket.socket(socket.AF_UNIX)
s.settimeout(10)
s.connect(sys.argv[1])
for call in sys.argv[2:]:
    s.sendall(call.encode() + b'\\0')
    reply = b''
    while not reply.endswith(b'\\0'):
        reply += s.recv(4096)
    print(json.dumps(json.loads(reply[:-1])))
";

#[test]
fn another_user_is_known_by_the_kernels_word() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65534;
    if !is_root() {
        return;
    }
    let served = Served::new(["/usr/bin/x".to_string()]);
    for (path, mode) in [(served.path.parent().unwrap(), 0o755), (&served.path, 0o666)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let call = |method: &str, parameters: Value| {
        json!({ "method": format!("{INTERFACE}.{method}"), "parameters": parameters }).to_string()
    };
    let ran = std::process::Command::new("python3")
        .args(["-c", PYTHON, served.path.to_str().unwrap()])
        .arg(call("Forget", json!({ "key": "/usr/bin/x" })))
        .arg(call("BeginOperation", json!({ "name": "open", "pid": 1 })))
        .arg(call("BeginOperation", json!({ "name": "open" })))
        .arg(call("List", json!({})))
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir("/")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    let replies: Vec<Value> = said
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let [forget, of_another, own, list] = &replies[..] else {
        panic!("{said}{}", String::from_utf8_lossy(&ran.stderr))
    };
    assert_eq!(forget["error"], "org.varlink.service.PermissionDenied");
    assert_eq!(of_another["error"], "headstart.Control.NotYourProcess");
    assert_eq!(own["parameters"]["id"], 7);
    assert_eq!(list["parameters"]["apps"][0]["starts"], NOBODY);
    let asked = served.asked();
    assert!(
        asked.len() == 1 && asked[0].starts_with(&format!("begin open {NOBODY} ")),
        "{asked:?}"
    );
}
