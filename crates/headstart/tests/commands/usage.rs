//! How commands are called, and what they refuse.

use crate::common::Case;

#[test]
fn wrong_usage_is_2() {
    let case = Case::new();
    for words in [
        &[][..],
        &["no-such-command"],
        &["run"],
        &["run", "--"],
        &["run", "--name", "", "--", "echo", "started"],
        &["run", "--control-every", "x", "--", "true"],
        &["record", "--", "true"],
        &["record", "-o", "t", "--until", "soon", "--", "true"],
        &["record", "-o", "t", "--limit", "0", "--", "true"],
        &["learn", "t", "-o", "p", "--policy", "3/2"],
        &["plan", "p", "-o", "x", "--memory", "much"],
        &["plan", "p", "-o", "x", "--device", "tape"],
        &["diff", "one"],
        &["chart", "one", "two"],
        &["export", "t", "-o", "x"],
        &["export", "t", "-o", "x", "--to", "paper"],
        &["export", "p", "-o", "x", "--for", "cpio"],
        &["export", "p", "-o", "x", "--for", "iso"],
        &["export", "p", "-o", "x", "--for", "nydus3"],
        &["export", "p", "-o", "x", "--for", "desync", "--image", "i"],
        &["export", "p", "-o", "x", "--to", "csv", "--image", "i"],
        &["export", "p", "-o", "x", "--for", "squashfs", "--to", "csv"],
        &["export", "t", "-o", "x", "--to", "csv", "--root", "/"],
        &["show"],
        &["forget"],
    ] {
        let ran = case.headstart(words);
        assert_eq!(ran.code(), 2, "{words:?}: {}{}", ran.out, ran.err);
        assert!(!ran.err.is_empty() && ran.out.is_empty(), "{words:?}");
    }
}

#[test]
fn help_and_version_are_0() {
    let case = Case::new();
    for words in [
        &["--help"][..],
        &["--version"],
        &["run", "--help"],
        &["help", "plan"],
    ] {
        let ran = case.headstart(words);
        assert_eq!(ran.code(), 0, "{words:?}");
        assert!(!ran.out.is_empty() && ran.err.is_empty(), "{words:?}");
    }
}

#[test]
fn what_is_not_known_is_said_with_the_way_out() {
    let case = Case::new();
    case.headstart(&["status", "nobody"])
        .refused(&["nobody", "headstart status"]);
    case.headstart(&["forget", "nobody"])
        .refused(&["nobody", "headstart status"]);
    case.headstart(&["replay", "nobody", "--wait"])
        .refused(&["nobody", "headstart status"]);
    case.headstart(&["explain", "/etc/passwd"])
        .refused(&["nothing is known", "headstart run"]);
    case.headstart(&["show", "missing"])
        .refused(&["missing", "no such file"]);
    assert_eq!(case.json(&["status", "--json"]), serde_json::json!([]));
    assert!(case.headstart(&["status"]).out.contains("Nothing is known yet"));
    assert!(!case.state().exists(), "asking leaves nothing");
}

#[test]
fn files_of_another_kind_are_named() {
    let case = Case::new();
    case.write("text", "some text");
    case.headstart(&["show", "text"])
        .refused(&["text", "no file of headstart's"]);
    case.headstart(&["learn", "text", "-o", "p"])
        .refused(&["text", "no headstart trace"]);
    case.headstart(&["plan", "text", "-o", "x"])
        .refused(&["text", "no headstart profile"]);
    case.headstart(&["show", "."]).refused(&["regular file"]);
    assert!(!case.path("p").exists() && !case.path("x").exists());
}

#[test]
fn doctor_says_what_there_is() {
    let case = Case::new();
    let report = case.json(&["doctor", "--json"]);
    for field in [
        "kernel",
        "because",
        "capabilities",
        "recording",
        "replaying",
        "devices",
        "missing_capabilities",
    ] {
        assert!(!report[field].is_null(), "{field}: {report}");
    }
    let text = case.headstart(&["doctor"]).out;
    for words in ["CAP_BPF", "BPF", "io_uring", "tracefs", "Devices"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn what_packages_install_is_made() {
    let case = Case::new();
    // Examples are built with the tests, beside their directory.
    let test = std::env::current_exe().unwrap();
    let example = test.parent().unwrap().parent().unwrap().join("examples/generate");
    let made = std::process::Command::new(&example)
        .arg(case.path("made"))
        .status();
    assert!(made.unwrap().success(), "{}", example.display());
    for file in [
        "man/headstart.1",
        "man/headstart-run.1",
        "man/headstart-doctor.1",
        "completions/headstart.bash",
        "completions/_headstart",
        "completions/headstart.fish",
        "systemd/headstart-boot.service",
        "systemd/headstart-barrier.service",
    ] {
        assert!(
            std::fs::metadata(case.path("made").join(file)).is_ok_and(|m| m.len() > 200),
            "{file}"
        );
    }
    let page = std::fs::read_to_string(case.path("made/man/headstart-run.1")).unwrap();
    assert!(page.contains("control") && page.contains("127"), "{page}");
}
