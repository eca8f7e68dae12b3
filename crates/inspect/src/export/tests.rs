//! That exports are whole whatever the paths are, and say what the trace says. That other programs read them,
//! too, is what tests/report/export.rs tests.

use super::{Waits, csv, perfetto};
use headstart_model::activity::ThreadState;
use headstart_model::trace::{LookupKind, Mark, MetadataMiss};
use headstart_model::{FilePath, Trace, testing};
use std::collections::BTreeMap;

/// Paths that break what is written carelessly; all differ in what is left of them as UTF-8.
fn hostile() -> Vec<FilePath> {
    let mut long = b"/long".to_vec();
    long.resize(4095, b'x');
    let paths: [&[u8]; 8] = [
        b"/usr/share/a\"b,c.txt",
        b"/line\nfeed\r\n/return",
        b"/invalid/\xff\xfe\x80",
        b"/<script>alert('&amp;')</script>",
        b"/semi;colon 12345",
        "/\u{202e}txt.exe/\u{1f600}".as_bytes(),
        b"/tab\tand\x01\x1b[2J",
        &long,
    ];
    paths
        .into_iter()
        .map(|path| FilePath::from(path.to_vec()))
        .collect()
}

/// A use and a look-up of each of the paths, and one of everything else.
pub(super) fn trace() -> Trace {
    let mut trace = testing::trace();
    trace.processes[0].executable = hostile()[0].clone();
    for (index, path) in hostile().into_iter().enumerate() {
        trace.files.push(headstart_model::trace::File {
            path: path.clone(),
            inode: u64::MAX - index as u64,
            ..testing::file("/")
        });
        trace
            .uses
            .push(testing::used(10 * index as u64, index as u32, 3, 2));
        let mut lookup = testing::lookup(10 * index as u64 + 1, "/");
        lookup.path = path;
        lookup.found = index % 3 == 0;
        lookup.kind = LookupKind::Open;
        trace.lookups.push(lookup);
    }
    trace.files[1].filesystem = None;
    trace.metadata.push(MetadataMiss {
        time_ns: 500_000,
        major: 8,
        minor: 1,
        start: 9,
        pages: 1,
    });
    trace.marks.push(Mark {
        time_ns: 5,
        stage: "login\n\"".into(),
    });
    let mut activity = testing::activity();
    activity.slices = vec![
        testing::slice(0, 3, ThreadState::WaitingForDisk),
        testing::slice(12, 14, ThreadState::WaitingForDisk),
        testing::slice(600, 700, ThreadState::WaitingForDisk),
        testing::slice(700, 710, ThreadState::Running),
    ];
    trace.activity = Some(activity);
    trace
}

fn lossy(path: &FilePath) -> String {
    String::from_utf8_lossy(path.as_bytes()).into_owned()
}

/// The fields of each line of a file of comma-separated values, by RFC 4180.
fn read_csv(text: &str) -> Vec<Vec<String>> {
    let (mut lines, mut line, mut field, mut quoted) = (Vec::new(), Vec::new(), String::new(), false);
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => field.extend(letters.next()),
            '"' => quoted = !quoted,
            ',' if !quoted => line.push(std::mem::take(&mut field)),
            '\n' if !quoted => {
                line.push(std::mem::take(&mut field));
                lines.push(std::mem::take(&mut line));
            }
            letter => field.push(letter),
        }
    }
    assert!(
        !quoted && field.is_empty() && line.is_empty(),
        "it ends with a line"
    );
    lines
}

#[test]
fn comma_separated_values_are_whole_whatever_the_paths_are() {
    let trace = trace();
    let mut out = Vec::new();
    csv(&trace, &mut out).unwrap();
    let lines = read_csv(std::str::from_utf8(&out).unwrap());
    assert_eq!(lines.len(), 1 + 8 + 8 + 1);
    assert!(lines.iter().all(|line| line.len() == 13));
    assert_eq!(lines[0][..3], ["time_ns", "what", "kind"]);
    let lines_of =
        |what: &str| -> Vec<&Vec<String>> { lines.iter().filter(|line| line[1] == what).collect() };
    let paths: Vec<String> = hostile().iter().map(lossy).collect();
    for rows in [lines_of("use"), lines_of("look-up")] {
        assert!(rows.iter().map(|row| &row[5]).eq(&paths));
        assert!(rows.iter().all(|row| row[4] == paths[0] && row[3] == "7"));
    }
    assert_eq!(
        lines_of("use")[1][6..],
        ["1", "", "", "18446744073709551614", "3", "2", ""]
    );
    assert_eq!(lines_of("metadata")[0][..4], ["500000", "metadata", "", ""]);
    assert_eq!(lines_of("look-up")[0][12], "true");
}

#[test]
fn a_perfetto_trace_is_json_and_names_every_path() {
    let trace = trace();
    let mut out = Vec::new();
    perfetto(&trace, &mut out).unwrap();
    let read: serde_json::Value = serde_json::from_slice(&out).unwrap();
    let events = read["traceEvents"].as_array().unwrap();
    assert!(
        events
            .iter()
            .all(|event| event["ph"].is_string() && event["pid"].is_u64())
    );
    let named = |name: &str| -> Vec<_> { events.iter().filter(|event| event["name"] == name).collect() };
    for path in hostile() {
        let (use_of, lookup) = match named(&lossy(&path))[..] {
            [use_of, lookup] => (use_of, lookup),
            ref other => panic!("{path}: {other:?}"),
        };
        assert_eq!((&use_of["ph"], &use_of["pid"]), (&"i".into(), &7.into()));
        assert_eq!(use_of["args"]["pages"], 2);
        assert!(lookup["args"]["found"].is_boolean(), "{lookup}");
    }
    // Two of three waits lie within the first: a thread does one thing at a time.
    let waits = named("waiting for disk");
    assert_eq!((&waits[0]["ts"], &waits[0]["dur"]), (&0.0.into(), &3000.0.into()));
    assert_eq!(named("running").len(), 1);
    let [begin, end] = named("read ahead")[..] else {
        panic!("a request begins and ends");
    };
    assert_eq!((&begin["ph"], &end["ph"]), (&"b".into(), &"e".into()));
    assert_eq!((&begin["id"], &begin["pid"]), (&end["id"], &end["pid"]));
    assert_eq!(named("login\n\"")[0]["s"], "g");
    assert_eq!(named("page cache, bytes")[0]["ph"], "C");
}

#[test]
fn a_wait_counts_for_the_nearest_use_or_look_up() {
    let trace = trace();
    let waits = Waits::from_trace(&trace).unwrap();
    let owners = BTreeMap::from([(hostile()[0].as_bytes().to_vec(), "pack;age".to_string())]);
    let mut out = Vec::new();
    waits.folded(&owners, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    // The first wait lasts while the first file is used (0 ms) and looked up (1 ms), the last is far from
    // anything.
    assert_eq!(
        lines,
        [
            "(unknown) 100000000",
            "/line\\nfeed\\r\\n;/line\\nfeed\\r\\n/return;look-up 2000000",
            "pack\\u{3b}age;/usr/share/a\"b,c.txt;look-up 3000000",
        ]
    );
    assert!(waits.paths().eq([&hostile()[1], &hostile()[0]]));
    assert!(Waits::from_trace(&testing::trace()).is_none());
}

#[test]
fn stacks_have_one_number_and_no_stray_semicolon_whatever_the_paths_are() {
    let mut trace = trace();
    let own = trace.activity.as_mut().unwrap();
    own.slices = (0..8)
        .map(|index| testing::slice(10 * index, 10 * index, ThreadState::WaitingForDisk))
        .map(|slice| headstart_model::activity::Slice {
            to_ns: slice.to_ns + 1,
            ..slice
        })
        .collect();
    let mut out = Vec::new();
    let waits = Waits::from_trace(&trace).unwrap();
    waits.folded(&BTreeMap::new(), &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert_eq!(text.lines().count(), 8);
    for line in text.lines() {
        let (stack, number) = line.rsplit_once(' ').unwrap();
        assert_eq!(number, "1", "{line}");
        assert_eq!(stack.split(';').count(), 2, "{line}");
        assert!(!stack.contains(char::is_control));
    }
}

#[test]
fn a_small_trace_does_not_become_gigabytes() {
    let mut trace = trace();
    // The last file has the longest path.
    trace.uses = (0..100_000).map(|ms| testing::used(ms, 7, ms, 1)).collect();
    for export in [csv, perfetto] {
        let refused = export(&trace, &mut std::io::sink()).unwrap_err();
        assert!(refused.to_string().contains("bytes of paths"), "{refused}");
    }
}
