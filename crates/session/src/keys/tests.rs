//! Keys of command lines: what a user may type before `headstart run`, and what the kernel then starts.

use super::*;

fn key(words: &[&str]) -> String {
    derive(&words.iter().map(OsString::from).collect::<Vec<_>>())
}

/// An executable under a name of its own, so that the tests need no interpreter.
fn with_programs(names: &[&str], test: impl FnOnce(&dyn Fn(&str) -> String)) {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    for name in names {
        std::fs::write(root.join(name), "").unwrap();
        std::fs::set_permissions(root.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    test(&|name| root.join(name).to_str().unwrap().to_string());
}

#[test]
fn a_program_is_its_real_path() {
    with_programs(&["tool-1.2"], |at| {
        std::os::unix::fs::symlink(at("tool-1.2"), at("tool")).unwrap();
        assert_eq!(key(&[&at("tool"), "--option", "file"]), at("tool-1.2"));
    });
    assert_eq!(key(&["no-such-program-anywhere"]), "no-such-program-anywhere");
    assert!(key(&["sh"]).starts_with('/'), "found in PATH");
}

#[test]
fn an_interpreter_is_what_it_interprets() {
    with_programs(
        &[
            "python3.11",
            "java",
            "perl",
            "dash",
            "node",
            "ruby",
            "dotnet",
            "script.py",
            "app.jar",
        ],
        |at| {
            let (python, script) = (at("python3.11"), at("script.py"));
            for (words, expected) in [
                (vec![&*python], python.clone()),
                (
                    vec![&python, "-I", "-X", "dev", &script, "-m", "x"],
                    format!("{python} {script}"),
                ),
                (
                    vec![&python, "-m", "http.server", "80"],
                    format!("{python} -m http.server"),
                ),
                (vec![&python, "-mtimeit"], format!("{python} -m timeit")),
                (vec![&python, "-c", "import os"], format!("{python} -c import os")),
                (vec![&python, "--", &script], format!("{python} {script}")),
                (
                    vec![&at("java"), "-Xmx1g", "-jar", &at("app.jar"), "x"],
                    format!("{} -jar {}", at("java"), at("app.jar")),
                ),
                (
                    vec![&at("java"), "-cp", "a:b", "org.Main", "x"],
                    format!("{} org.Main", at("java")),
                ),
                (
                    vec![&at("java"), "--module", "m/c"],
                    format!("{} --module m/c", at("java")),
                ),
                (
                    vec![&at("perl"), "-w", "-I", "lib", &script],
                    format!("{} {script}", at("perl")),
                ),
                (
                    vec![&at("perl"), "-MTest::More", "-i.e", &script],
                    format!("{} {script}", at("perl")),
                ),
                (
                    vec![&at("ruby"), "-W:no-deprecated", &script],
                    format!("{} {script}", at("ruby")),
                ),
                (
                    vec![&at("dotnet"), "exec", &at("app.jar")],
                    format!("{} {}", at("dotnet"), at("app.jar")),
                ),
                (
                    vec![&at("node"), "--experimental-loader", "l", &script],
                    format!("{} {script}", at("node")),
                ),
                (
                    vec![&at("perl"), "-lane", "print"],
                    format!("{} -e print", at("perl")),
                ),
                (
                    vec![&at("dash"), "-ec", "exit 7"],
                    format!("{} -c exit 7", at("dash")),
                ),
                (
                    vec![&at("dash"), "-o", "errexit", &script],
                    format!("{} {script}", at("dash")),
                ),
                (
                    vec![&at("node"), "-r", "x", &script],
                    format!("{} {script}", at("node")),
                ),
            ] {
                assert_eq!(key(&words), expected);
            }
        },
    );
}

#[test]
fn long_one_liners_are_their_hash() {
    let sh = key(&["sh"]);
    let (a, b) = (key(&["sh", "-c", "a\nb"]), key(&["sh", "-c", "a\nc"]));
    assert!(a.starts_with(&format!("{sh} -c sha256:")) && a != b, "{a} {b}");
    assert!(Key::new(a).is_ok());
}

#[test]
fn env_and_multi_call_programs_are_seen_through() {
    with_programs(&["env", "busybox", "tool", "script"], |at| {
        assert_eq!(
            key(&[&at("env"), "-i", "A=b", "-u", "X", &at("tool"), "x"]),
            at("tool")
        );
        assert_eq!(key(&[&at("env"), "--block-signal", "x y"]), at("env"));
        assert_eq!(
            key(&[&at("busybox"), "sh", &at("script")]),
            format!("{} sh {}", at("busybox"), at("script"))
        );
        std::os::unix::fs::symlink(at("busybox"), at("ls")).unwrap();
        assert_eq!(key(&[&at("ls"), "-l"]), format!("{} ls", at("busybox")));
    });
}

#[test]
fn a_program_that_one_user_alone_starts_is_meant_by_its_path() {
    with_programs(&["program"], |at| {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        let of = |user| Key::new(at("program")).unwrap().of_user(user).unwrap();
        let keep = |key: &Key| {
            let lock = store.key(key).lock().unwrap();
            lock.save_turns(&headstart_store::Turns::default()).unwrap();
        };
        let meant = || known(&at("program"), &store).map(|kept| kept.key().clone());
        assert!(meant().unwrap_err().to_string().contains("is not known"));
        keep(&of(1000));
        assert_eq!(meant().unwrap(), of(1000));
        keep(&of(1001));
        assert!(meant().unwrap_err().to_string().contains("several users"));
        // root's is the program's own key and comes first, and a whole key is what it says.
        let own = Key::new(at("program")).unwrap();
        keep(&own);
        assert_eq!(meant().unwrap(), own);
        assert_eq!(known(of(1001).as_str(), &store).unwrap().key(), &of(1001));
    });
}
