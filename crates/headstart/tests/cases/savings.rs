//! What cannot gain is not kept, what is declined is no control, and a saving is called one by one threshold.

use crate::common::{Case, can_record};
use headstart_model::outcome::{Mode, Outcome, Resident};
use headstart_model::{Key, Outcome as Kept};
use headstart_store::Store;

/// Keeps cold starts of a program, milliseconds with a replay or without.
fn keep(case: &Case, key: &str, starts: &[(Mode, u64)]) {
    let key = Key::new(key).unwrap();
    let lock = Store::new(case.state()).key(&key).lock().unwrap();
    for (at, (mode, ms)) in starts.iter().enumerate() {
        let outcome = Outcome {
            started_unix_ns: at as u64 + 1,
            elapsed_ns: ms * 1_000_000,
            status: Some(0),
            resident_before: Some(Resident {
                sampled_pages: 100,
                resident_pages: 0,
            }),
            ..Outcome::new(key.clone(), *mode)
        };
        lock.add_outcome(&outcome).unwrap();
    }
}

#[test]
fn a_saving_is_called_one_everywhere_or_nowhere() {
    use Mode::{Control, Record, Replay};
    let case = Case::new();
    let few = [(Record, 9000), (Replay, 4000), (Control, 9000), (Replay, 4000)];
    keep(&case, "/usr/bin/few", &few);
    let many: Vec<(Mode, u64)> = (0..12)
        .map(|turn| {
            if turn % 2 == 0 {
                (Replay, 3000)
            } else {
                (Control, 10_000)
            }
        })
        .collect();
    keep(&case, "/usr/bin/many", &many);
    let none: Vec<(Mode, u64)> = (0..12)
        .map(|turn| {
            if turn % 4 < 2 {
                (Replay, 3000)
            } else {
                (Control, 3000)
            }
        })
        .collect();
    keep(&case, "/usr/bin/none", &none);
    let apps = case.json(&["apps", "list", "--json"]);
    let saved = |name: &str| {
        let mut apps = apps.as_array().unwrap().iter();
        apps.find(|app| app["key"] == name).unwrap()["seconds_saved"].clone()
    };
    assert!(
        saved("/usr/bin/few").is_null() && saved("/usr/bin/none").is_null(),
        "{apps}"
    );
    assert_eq!(saved("/usr/bin/many"), 42.0);
    let list = case.headstart(&["apps", "list"]).out;
    let line_of = |name: &str| list.lines().find(|line| line.ends_with(name)).unwrap();
    assert!(
        line_of("few").contains("too few")
            && line_of("none").contains("nothing")
            && line_of("many").contains("42"),
        "{list}"
    );
    let status = |name: &str| case.headstart(&["status", name]).out;
    assert!(status("/usr/bin/few").contains("not enough") && !status("/usr/bin/few").contains("gains"));
    assert!(status("/usr/bin/none").contains("no difference") && !status("/usr/bin/none").contains("gains"));
    assert!(
        status("/usr/bin/many").contains("saved 42"),
        "{}",
        status("/usr/bin/many")
    );
}

#[test]
fn what_is_declined_or_bypassed_is_called_so_and_compared_with_nothing() {
    let case = Case::new();
    keep(
        &case,
        "/usr/bin/x",
        &[(Mode::Record, 900), (Mode::Declined, 400), (Mode::Replay, 400)],
    );
    let status = case.headstart(&["status", "/usr/bin/x"]).out;
    assert!(
        status.contains("declined, and recorded") && status.contains("1 that could not be read ahead for"),
        "{status}"
    );
    let modes: Vec<Mode> = Store::new(case.state())
        .key(&Key::new("/usr/bin/x").unwrap())
        .outcomes(|line| panic!("{line}"))
        .iter()
        .map(|one: &Kept| one.mode)
        .collect();
    assert_eq!(modes, [Mode::Record, Mode::Declined, Mode::Replay]);
    if !can_record() {
        return;
    }
    // Bypassed, as somebody has disabled it: nothing is kept of it, and it is no control run.
    case.headstart(&["apps", "disable", "/bin/true"]);
    let to = format!("--json={}", case.path("done").display());
    assert_eq!(case.headstart(&["run", &to, "--", "/bin/true"]).code(), 0);
    let done: serde_json::Value = serde_json::from_slice(&std::fs::read(case.path("done")).unwrap()).unwrap();
    assert_eq!(done["mode"], "bypass", "{done}");
}

#[test]
fn who_disables_or_forgets_a_program_of_several_users_is_told_which() {
    let case = Case::new();
    let (all, theirs) = ("/usr/bin/env", "/usr/bin/env of user 1000");
    keep(&case, all, &[(Mode::Record, 900)]);
    keep(&case, theirs, &[(Mode::Record, 900)]);
    let ran = case.headstart(&["apps", "disable", all]);
    assert_eq!(
        ran.out,
        format!("{all} is disabled\n{theirs} is disabled with it\n")
    );
    let ran = case.headstart(&["apps", "enable", theirs]);
    assert!(
        ran.out.ends_with(&format!(
            "\n{all} is as it was: name it to have it enabled, too\n"
        )),
        "{}",
        ran.out
    );
    let ran = case.headstart(&["forget", all]);
    assert_eq!(
        ran.out,
        format!("{all} is forgotten\n{theirs} is kept: name it to have it forgotten, too\n")
    );
    let ran = case.headstart(&["forget", theirs]);
    assert_eq!(ran.out, format!("{theirs} is forgotten\n"));
}
