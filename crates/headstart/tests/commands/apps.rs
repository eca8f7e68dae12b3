//! What a user can say about programs, and what is told of them.

use crate::common::{Case, can_record, is_root};
use serde_json::json;

#[test]
fn a_disabled_program_is_bypassed_until_it_is_enabled() {
    if !can_record() {
        return;
    }
    let case = Case::new();
    // Before its first start, and as it is before any is recorded.
    let done = case.json(&["apps", "disable", "build", "--json"]);
    assert_eq!(done, json!({ "key": "build", "done": "disabled" }));
    // Nothing is done for it, also where all starts are to be read ahead.
    let ran = case.run("build", &["echo", "out"]);
    assert_eq!((ran.code(), &*ran.out, &*ran.err), (0, "out\n", ""));
    let app = case.json(&["apps", "show", "build", "--json"]);
    assert_eq!((&app["enabled"], &app["starts"]), (&json!(false), &json!(0)));
    let status = case.json(&["status", "build", "--json"]);
    assert_eq!(
        (&status["enabled"], &status["traces"]),
        (&json!(false), &json!(0))
    );
    for words in [&["status"][..], &["status", "build"]] {
        let told = case.headstart(words);
        assert!(told.out.contains("apps enable"), "{}", told.out);
    }
    case.json(&["apps", "enable", "build", "--json"]);
    case.run("build", &["true"]);
    let app = case.json(&["apps", "show", "build", "--json"]);
    assert_eq!((&app["enabled"], &app["starts"]), (&json!(true), &json!(1)));
    assert_eq!(app["verdict"], "too-few");
    let apps = case.json(&["apps", "list", "--json"]);
    assert_eq!(apps, json!([app]));
    assert!(case.headstart(&["apps", "list"]).out.contains("build"));
    case.json(&["apps", "forget", "build", "--json"]);
    assert_eq!(case.json(&["apps", "list", "--json"]), json!([]));
}

#[test]
fn a_program_is_named_by_its_path_or_its_script() {
    let case = Case::new();
    let script = case.program("script", "#!/bin/sh\nexit 0\n");
    let script = script.canonicalize().unwrap();
    let sh = std::path::Path::new("/bin/sh").canonicalize().unwrap();
    let expected = format!("{} {}", sh.display(), script.display());
    let done = case.json(&["apps", "disable", script.to_str().unwrap(), "--json"]);
    assert_eq!(done["key"], *expected);
    let app = case.json(&["apps", "show", script.to_str().unwrap(), "--json"]);
    assert_eq!(app["key"], *expected);
    let done = case.json(&["apps", "disable", "postgresql.service", "--json"]);
    assert_eq!(done["key"], "postgresql.service");
}

#[test]
fn a_program_by_its_path_is_that_of_the_user_who_starts_it() {
    let case = Case::new();
    let key_of = |user: u32| format!("/usr/bin/gimp of user {user}");
    let done = |what: &str, key: &str| case.json(&["apps", what, key, "--json"])["key"].clone();
    done("disable", &key_of(1000));
    let app = case.json(&["apps", "show", "/usr/bin/gimp", "--json"]);
    assert_eq!(
        (&app["key"], &app["enabled"]),
        (&json!(key_of(1000)), &json!(false))
    );
    assert_eq!(done("enable", "/usr/bin/gimp"), *key_of(1000));
    let app = case.json(&["apps", "show", &key_of(1000), "--json"]);
    assert_eq!(app["enabled"], true);
    done("disable", &key_of(1001));
    for what in ["show", "enable", "forget", "now"] {
        let said = case.headstart(&["apps", what, "/usr/bin/gimp"]);
        said.refused(&["several users", "headstart apps list"]);
    }
    // By its path alone for everybody, and that is then what the path means.
    assert_eq!(done("disable", "/usr/bin/gimp"), "/usr/bin/gimp");
    assert_eq!(done("enable", "/usr/bin/gimp"), "/usr/bin/gimp");
    assert_eq!(done("forget", &key_of(1001)), *key_of(1001));
}

#[test]
fn what_cannot_be_done_is_said_with_the_way_out() {
    let case = Case::new();
    for what in ["show", "forget", "now"] {
        case.headstart(&["apps", what, "nobody"])
            .refused(&["nobody", "headstart apps list"]);
    }
    case.headstart(&["apps", "disable", "boot"])
        .refused(&["headstart boot"]);
    assert!(!case.state().exists(), "asking leaves nothing");
    assert!(case.headstart(&["apps", "list"]).out.contains("headstart run"));
    let disabled = case.headstart(&["apps", "disable", "x"]);
    assert!(
        disabled.out.starts_with("x is disabled, a name for"),
        "{}",
        disabled.out
    );
    case.headstart(&["apps", "now", "x"])
        .refused(&["does not run", "headstart replay"]);
    for words in [
        &["apps"][..],
        &["apps", "show"],
        &["apps", "list", "x"],
        &["op"],
        &["op", "start"],
    ] {
        assert_eq!(case.headstart(words).code(), 2, "{words:?}");
    }
}

#[test]
fn an_operation_without_the_daemon_fails_nobody() {
    if !is_root() {
        return;
    }
    let case = Case::new();
    // A machine on which the daemon runs has its socket elsewhere then.
    let script = "unshare --mount sh -c 'mount -t tmpfs none /run && $H op start open && $H op end open'";
    let ran = case.script(script);
    assert_eq!((ran.code(), &*ran.out), (0, ""), "{}", ran.err);
    assert_eq!(ran.err.lines().count(), 2, "{}", ran.err);
    assert!(ran.err.contains("the daemon does not run"), "{}", ran.err);
}

/// Serves the socket in the daemon's place, and answers each call with one of these errors.
const REFUSING: &str = r#"
import socket, sys
server = socket.socket(socket.AF_UNIX)
server.bind("/run/headstart.socket")
server.listen(8)
open("/run/ready", "w")
for error in sys.argv[1:]:
    client, _ = server.accept()
    while not client.recv(4096).endswith(b"\0"):
        pass
    client.sendall(b'{"error": "%s", "parameters": {"message": "it is refused"}}\0' % error.encode())
"#;

#[test]
fn an_operation_that_the_daemon_refuses_fails_nobody_unless_it_has_no_such_name() {
    if !is_root() {
        return;
    }
    let case = Case::new();
    case.write("refusing.py", REFUSING);
    let ran = case.script(
        "unshare --mount sh -c 'mount -t tmpfs none /run
         python3 refusing.py headstart.Control.TooManyOperations headstart.Control.UnknownOperation \\
             org.varlink.service.InvalidParameter &
         while ! [ -e /run/ready ]; do sleep 0.01; done
         $H op start open && $H op end open && ! $H op start open'",
    );
    assert_eq!((ran.code(), &*ran.out), (0, ""), "{}", ran.err);
    let lines: Vec<&str> = ran.err.lines().collect();
    assert_eq!(lines.len(), 3, "{}", ran.err);
    assert!(
        lines.iter().all(|line| line.contains("it is refused")),
        "{}",
        ran.err
    );
    let marked = |line: &&str| !line.contains("is not marked");
    assert_eq!(lines.iter().map(marked).collect::<Vec<_>>(), [false, false, true]);
}

#[test]
fn a_report_of_a_fault_holds_what_is_known_and_no_path_of_a_person() {
    let case = Case::new();
    for key in ["/usr/bin/python3 /home/anna/my secret.py", "/usr/bin/gimp"] {
        case.json(&["apps", "disable", key, "--json"]);
    }
    case.write(
        "state/log",
        "could not read /home/anna/letter: no permission\nwell\n",
    );
    let said = case.headstart(&["report-bug", "-o", "report"]);
    assert_eq!(said.code(), 0, "{}", said.err);
    let text = std::fs::read_to_string(case.path("report")).unwrap();
    assert!(
        !text.contains("anna") && !text.contains("secret") && !text.contains("letter"),
        "{text}"
    );
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["keys"], 2);
    assert!(report["doctor"]["kernel"].is_string() && report["doctor"]["daemon"].is_string());
    assert!(
        text.contains("/usr/bin/gimp") && report["log"][1] == "well",
        "{text}"
    );
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(case.path("report"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    case.headstart(&["report-bug", "-o", "no/such/directory/x"])
        .refused(&["no/such/directory"]);
}
