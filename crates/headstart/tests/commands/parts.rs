//! The programs of the package execute one another.

use crate::common::{self, Case};
use std::fs;
use std::process::Command;

#[test]
fn one_program_executes_another_that_is_beside_it_or_installed() {
    let case = Case::new();
    let place = case.path("usr");
    let (sbin, parts) = (place.join("sbin"), place.join("libexec/headstart"));
    fs::create_dir_all(&sbin).unwrap();
    fs::create_dir_all(&parts).unwrap();
    let run = |words: &[&str]| {
        let mut command = Command::new(sbin.join("headstart"));
        // Neither is looked at.
        command.args(words).env("PATH", &place).current_dir(&place);
        common::finish(command, &[])
    };
    fs::copy(common::binary(), sbin.join("headstart")).unwrap();
    for name in ["headstart-inspect", "headstart-layout"] {
        fs::copy("/bin/true", place.join(name)).unwrap();
    }
    let missing = parts.join("headstart-inspect");
    run(&["--help"]).refused(&[missing.to_str().unwrap(), "install the package headstart"]);
    run(&["layout", "status"]).refused(&["libexec/headstart/headstart-layout", "is not there"]);
    // By itself it does what starts and boots need.
    assert_eq!(run(&["run", "--help"]).code(), 0);
    assert_eq!(run(&["boot", "run", "--nothing"]).code(), 2);
    common::copy_programs(&parts);
    for words in [
        &["--help"][..],
        &["help", "run"],
        &["layout", "--help"],
        &["boot", "status", "--help"],
    ] {
        let (here, there) = (run(words), case.headstart(words));
        assert_eq!((here.code(), here.out), (0, there.out), "{words:?}");
    }
    let wrong = run(&["statsu"]);
    assert_eq!(wrong.code(), 2);
    assert!(
        wrong.err.contains("Usage: headstart ") && wrong.err.contains("'status'"),
        "{}",
        wrong.err
    );
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&missing, Some(65534), None).unwrap();
        run(&["status"]).refused(&["belongs to user 65534"]);
    }
}
