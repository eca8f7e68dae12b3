//! What `headstart chart` promises.

use crate::common::{Case, can_record};
use headstart_model::trace::Ahead;
use headstart_model::{Key, Trace, testing};
use headstart_store::{Change, Store, Turns};
use std::os::unix::fs::PermissionsExt;

/// A start that used three times four pages, of which two had been read ahead, one too late.
fn trace() -> Trace {
    let mut trace = testing::trace();
    trace.files = vec![
        testing::file("/usr/lib/<one>.so"),
        testing::file("/usr/lib/two.so"),
    ];
    trace.uses = vec![
        testing::used(100, 0, 0, 4),
        testing::used(200, 1, 0, 4),
        testing::used(500, 1, 8, 4),
    ];
    let ahead = |file, issued_ms: u64| Ahead {
        file,
        start: 0,
        pages: 4,
        issued_ns: issued_ms * 1_000_000,
        done_ns: issued_ms * 1_000_000,
    };
    trace.ahead = Some(vec![ahead(0, 10), ahead(1, 300)]);
    trace
}

fn with_trace() -> Case {
    let case = Case::new();
    case.write("t.trace", trace().to_bytes().unwrap());
    case
}

#[test]
fn a_trace_becomes_a_picture_of_either_form() {
    let case = with_trace();
    for (name, begins) in [("t.svg", "<svg xmlns="), ("t.html", "<!doctype html>")] {
        let drawn = case.json(&["chart", "t.trace", "-o", name, "--json"]);
        let picture = std::fs::read_to_string(case.path(name)).unwrap();
        assert!(picture.starts_with(begins), "{name}");
        assert!(picture.contains("/usr/lib/") || name == "t.svg");
        assert!(!picture.contains("<one>"), "it is text");
        assert_eq!(drawn["picture"], name);
        assert_eq!(drawn["bytes"], picture.len());
        let start = &drawn["starts"][0];
        assert_eq!((&start["name"], &start["uses"]), (&"t.trace".into(), &3.into()));
        let pages = serde_json::json!({"in_time": 4, "late": 4, "missed": 4, "not_prefetched": 0});
        assert_eq!(start["pages"], pages);
        let mode = std::fs::metadata(case.path(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "paths tell what somebody runs");
    }
}

#[test]
fn two_starts_are_drawn_beside_one_another() {
    let case = with_trace();
    let mut other = trace();
    other.end.elapsed_ns *= 2;
    case.write("other.trace", other.to_bytes().unwrap());
    let drawn = case.json(&[
        "chart",
        "t.trace",
        "--compare",
        "other.trace",
        "-o",
        "both.svg",
        "--json",
    ]);
    assert_eq!(drawn["starts"][1]["elapsed_ns"], 2_000_000_000u64);
    let picture = std::fs::read_to_string(case.path("both.svg")).unwrap();
    assert!(picture.contains(">t.trace<") && picture.contains(">other.trace<"));
}

#[test]
fn of_a_key_the_last_trace_is_drawn() {
    let case = Case::new();
    case.headstart(&["chart"])
        .refused(&["boot", "neither a key nor a file", "headstart status"]);
    let store = Store::new(case.state());
    for (key, count) in [("boot", 2), ("mine", 1)] {
        let lock = store.key(&Key::new(key).unwrap()).lock().unwrap();
        for number in 1..=count {
            let mut trace = trace();
            trace.meta.started_unix_ns = number;
            trace.end.elapsed_ns = number * 1_000_000;
            lock.add_trace(&trace).unwrap();
        }
    }
    let drawn = case.json(&["chart", "--json"]);
    assert_eq!(
        (&drawn["picture"], &drawn["starts"][0]["elapsed_ns"]),
        (&"boot.html".into(), &2_000_000.into())
    );
    let drawn = case.json(&["chart", "mine", "--json"]);
    assert_eq!(drawn["picture"], "mine.html");
    assert!(case.path("boot.html").is_file() && case.path("mine.html").is_file());
    let lock = store.key(&Key::new("bare").unwrap()).lock().unwrap();
    lock.change(&Change {
        turns: Some(Turns {
            replays_since_control: 1,
            ..Turns::default()
        }),
        ..Change::default()
    })
    .unwrap();
    case.headstart(&["chart", "bare"])
        .refused(&["no trace is kept", "bare"]);
}

#[test]
fn what_is_being_done_is_told_on_a_terminal_and_nowhere_else() {
    let case = with_trace();
    let ran = case.headstart(&["chart", "t.trace", "--no-floor", "-o", "t.svg"]);
    assert_eq!((ran.code(), ran.err.as_str()), (0, ""));
    let on = |terminal: &str| {
        let script = format!(
            "TERM={terminal} NO_COLOR=1 script -qec '\"$H\" chart t.trace --no-floor -o t.svg' /dev/null"
        );
        let ran = case.script(&script);
        assert_eq!(ran.code(), 0, "{}", ran.err);
        ran.out
    };
    let told = on("xterm");
    // The last line is taken away before the result is printed.
    let (progress, result) = told.rsplit_once("\r\x1b[K").unwrap();
    assert!(progress.contains("\rdrawing 3 uses\x1b[K"), "{told:?}");
    assert!(
        result.starts_with("t.svg: ") && !progress.contains("\x1b[3"),
        "{told:?}"
    );
    assert!(!on("dumb").contains('\x1b'));
}

#[test]
fn nothing_but_a_picture_is_written_over() {
    let case = with_trace();
    case.write("precious", "text");
    std::os::unix::fs::symlink(case.path("precious"), case.path("link.svg")).unwrap();
    case.headstart(&["chart", "t.trace", "-o", "link.svg"]).refused(&[
        "link.svg",
        "no regular file",
        "name another file",
    ]);
    assert_eq!(std::fs::read(case.path("precious")).unwrap(), b"text");
    std::fs::create_dir(case.path("directory.svg")).unwrap();
    case.headstart(&["chart", "t.trace", "-o", "directory.svg"])
        .refused(&["directory.svg", "no regular file"]);
    case.headstart(&["chart", "t.trace", "-o", "picture.png"])
        .refused(&["picture.png", ".svg or .html"]);
    case.headstart(&["chart", "t.trace", "-o", "nowhere/t.svg"])
        .refused(&["nowhere"]);
    case.write("text.trace", "some text");
    case.headstart(&["chart", "text.trace", "-o", "t.svg"])
        .refused(&["text.trace", "no headstart trace"]);
    assert!(!case.path("t.svg").exists() && !case.path("picture.png").exists());
    // A picture that is there is drawn anew.
    for _ in 0..2 {
        assert_eq!(case.headstart(&["chart", "t.trace", "-o", "again.svg"]).code(), 0);
    }
}

#[test]
fn what_a_replay_did_is_in_the_trace_that_is_kept() {
    if !can_record() {
        return;
    }
    let case = Case::new();
    case.write("data", vec![7u8; 4 << 20]);
    for _ in 0..3 {
        case.evict("data");
        let ran = case.run("reader", &["cat", "data"]);
        assert_eq!(ran.code(), 0, "{}", ran.err);
    }
    let drawn = case.json(&["chart", "reader", "-o", "reader.svg", "--json"]);
    let pages = &drawn["starts"][0]["pages"];
    let outcome = &case.json(&["status", "reader", "--json"])["outcomes"];
    let stages = outcome.as_array().unwrap().last().unwrap()["stages"]
        .as_array()
        .unwrap()
        .clone();
    let sum = |name: &str| -> u64 { stages.iter().map(|stage| stage[name].as_u64().unwrap()).sum() };
    assert!(
        sum("used_pages") + sum("late_pages") > 900,
        "it was replayed: {outcome}"
    );
    let pages_named = |name: &str| pages[name].as_u64().unwrap();
    // What was only mapped around a fault counts there; the file is read whole.
    let served = pages_named("in_time") + pages_named("late");
    assert!(
        served >= 1024 && served <= sum("used_pages") + sum("late_pages"),
        "{pages}"
    );
    assert_eq!(pages_named("missed"), sum("missed_pages"), "{pages}");
}
