//! Each step by itself: record, learn, plan, replay, and what is told of their files.

use crate::common::{Case, can_record};
use crate::runs::program;
use headstart_model::floor::Need;
use headstart_model::testing;

#[test]
fn the_pipeline_step_by_step() {
    if !can_record() {
        return;
    }
    let case = Case::new();
    let program = program(&case);
    let recorded = case.headstart(&["record", "-o", "t.trace", "--", &program]);
    assert_eq!(
        (recorded.code(), recorded.out.as_str(), recorded.err.as_str()),
        (0, "16384\n", "")
    );
    let trace = case.json(&["show", "--json", "t.trace"]);
    assert_eq!(trace["meta"]["command"][0], *program);
    let data = case.path("data").canonicalize().unwrap();
    let file = trace["files"]
        .as_array()
        .unwrap()
        .iter()
        .position(|f| f["path"] == data.to_str().unwrap());
    let file = file.expect("the file that was read is in the trace");
    let uses = trace["uses"].as_array().unwrap();
    let pages: Vec<u64> = uses
        .iter()
        .filter(|u| u["file"] == file)
        .flat_map(|u| (0..u["pages"].as_u64().unwrap()).map(|i| u["start"].as_u64().unwrap() + i))
        .collect();
    assert!((8..12).all(|page| pages.contains(&page)), "{pages:?}");

    let learned = case.json(&["learn", "t.trace", "t.trace", "-o", "p.profile", "--json"]);
    assert_eq!(learned["runs"], 2);
    // What the kernel makes of a script: its interpreter's command.
    let real = |path: &str| {
        std::path::Path::new(path)
            .canonicalize()
            .unwrap()
            .display()
            .to_string()
    };
    assert_eq!(learned["key"], format!("{} {}", real("/bin/sh"), real(&program)));
    let profile = case.json(&["show", "p.profile", "--json"]);
    assert_eq!(profile["key"], learned["key"]);
    // On a file system in memory there is nothing to plan, and nothing else is wrong.
    let planned = case.json(&["plan", "p.profile", "-o", "x.plan", "--device", "flash", "--json"]);
    assert_eq!(planned["key"], learned["key"]);
    let plan = case.json(&["show", "x.plan", "--json", "--pages"]);
    assert_eq!(
        plan["requests"].as_array().unwrap().len() as u64,
        planned["requests"].as_u64().unwrap()
    );
    let replayed = case.json(&["replay", "x.plan", "--wait", "--json"]);
    assert_eq!(replayed["key"], learned["key"]);
    assert!(replayed["data_requests"].as_u64().unwrap() + replayed["opens"].as_u64().unwrap() > 0);
    assert_eq!(
        case.headstart(&["replay", "x.plan"]).out,
        "",
        "in the background it says nothing"
    );

    for file in ["t.trace", "p.profile", "x.plan"] {
        let shown = case.headstart(&["show", file, "--pages"]);
        assert_eq!(shown.code(), 0, "{}", shown.err);
        assert!(shown.out.contains(&program), "{file}: {}", shown.out);
        let same = case.json(&["diff", file, file, "--json"]);
        assert_eq!(same["common_share"], 1.0);
        assert_eq!(same["files"], serde_json::json!([]));
    }
    case.headstart(&["diff", "t.trace", "x.plan"])
        .refused(&["trace", "plan"]);
    case.headstart(&["replay", "p.profile"])
        .refused(&["p.profile", "no plan"]);
}

#[test]
fn what_a_chart_needs_is_recorded_on_request_and_exported() {
    if !can_record() {
        return;
    }
    let case = Case::new();
    let program = program(&case);
    let record = |words: &[&str]| {
        let ran = case.headstart(&[&["record"], words, &["--", &program]].concat());
        assert_eq!(ran.code(), 0, "{}", ran.err);
        ran.err
    };
    assert_eq!(record(&["-o", "plain"]), "");
    assert_eq!(record(&["-o", "chart", "--chart"]), "");
    assert_eq!(
        case.json(&["show", "--json", "plain"])["activity"],
        serde_json::Value::Null
    );
    let trace = case.json(&["show", "--json", "chart"]);
    assert_eq!(trace["activity"]["lost"], 0);
    assert!(!trace["activity"]["slices"].as_array().unwrap().is_empty());
    // Where it cannot be recorded one line says so, and the recording is as any other.
    let said = record(&["-o", "without", "--chart", "--backend", "tracefs"]);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("tracefs"), "{said}");
    assert_eq!(
        case.json(&["show", "--json", "without"])["activity"],
        serde_json::Value::Null
    );

    for form in ["csv", "perfetto", "folded"] {
        let made = case.headstart(&["export", "chart", "--to", form, "-o", form]);
        assert_eq!((made.code(), &*made.out, &*made.err), (0, "", ""), "{form}");
    }
    let table = std::fs::read_to_string(case.path("csv")).unwrap();
    let data = case.path("data").canonicalize().unwrap();
    let read = format!(",{},", data.display());
    assert!(
        table
            .lines()
            .any(|line| line.contains(",use,read,") && line.contains(&read))
    );
    let events = std::fs::read(case.path("perfetto")).unwrap();
    let events: serde_json::Value = serde_json::from_slice(&events).unwrap();
    assert!(events["traceEvents"].as_array().unwrap().len() > 10);
    // A table needs no waits, stacks do.
    assert_eq!(
        case.headstart(&["export", "plain", "--to", "csv", "-o", "csv"])
            .code(),
        0
    );
    let stacks = case.headstart(&["export", "plain", "--to", "folded", "-o", "none"]);
    stacks.refused(&["plain", "record --chart"]);
    assert!(!case.path("none").exists());
}

#[test]
fn a_start_of_files_that_are_gone_has_no_floor() {
    let case = Case::new();
    let mut trace = testing::trace();
    trace.files = vec![testing::file("/no such directory/program")];
    trace.uses = vec![testing::used(1, 0, 0, 4)];
    case.write("t.trace", trace.to_bytes().unwrap());
    case.headstart(&["floor", "t.trace"])
        .refused(&["none of the files that it read is there now"]);
}

#[test]
fn a_floor_tells_what_is_used_when_if_it_is_asked() {
    let case = Case::new();
    let data = case.write("data", vec![1; 4 * 4096]);
    std::fs::File::open(&data).unwrap().sync_all().unwrap();
    let mut trace = testing::trace();
    trace.files = vec![testing::file(data.to_str().unwrap())];
    trace.uses = vec![testing::used(1, 0, 2, 1), testing::used(9, 0, 0, 2)];
    case.write("t.trace", trace.to_bytes().unwrap());
    let told = case.json(&["floor", "t.trace", "--json", "--needs"]);
    let needs: Vec<Need> = serde_json::from_value(told["needs"].clone()).unwrap();
    assert!(needs.is_sorted_by_key(|need| need.time_ns), "{told}");
    // Times count from the first use; directories and inodes are needed before.
    let of_data: Vec<u64> = needs
        .iter()
        .filter(|need| need.time_ns == 8_000_000)
        .map(|need| need.end - need.start)
        .collect();
    assert_eq!(of_data, [2 * 4096], "{told}");
    let needed: u64 = needs.iter().map(|need| need.end - need.start).sum();
    assert!(needed >= told["floor"]["bytes"].as_u64().unwrap(), "{told}");
    let devices = told["devices"].as_array().unwrap().len();
    assert!(
        needs.iter().all(|need| (need.device as usize) < devices),
        "{told}"
    );
    assert!(case.json(&["floor", "t.trace", "--json"]).get("needs").is_none());
    assert_eq!(case.headstart(&["floor", "t.trace", "--needs"]).code(), 2);
}
