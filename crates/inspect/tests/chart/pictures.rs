//! What a picture promises whatever a trace says: valid, small, harmless, and nothing left out that counts.

use crate::common::{hostile, hostile_paths, named, start};
use headstart_inspect::chart::{FloorLine, MOST_BYTES, Start, html, pages, svg};
use headstart_model::Trace;
use headstart_model::activity::{RequestKind, ThreadState};
use headstart_model::testing;
use headstart_model::trace::{Ahead, UseKind};

/// Reads it as XML and gives its texts.
fn texts(svg: &str) -> Vec<String> {
    let document = roxmltree::Document::parse(svg).unwrap_or_else(|e| panic!("no valid XML: {e}"));
    for node in document.descendants().filter(roxmltree::Node::is_element) {
        let name = node.tag_name().name();
        assert!(
            ["svg", "title", "style", "rect", "path", "text", "g"].contains(&name),
            "<{name}>"
        );
        for attribute in node.attributes() {
            let name = attribute.name();
            assert!(!name.starts_with("on") && !name.contains("href"), "{name}");
        }
    }
    let is_text = |node: &roxmltree::Node| ["text", "title"].contains(&node.tag_name().name());
    let texts = document.descendants().filter(is_text);
    texts.filter_map(|node| node.text().map(str::to_owned)).collect()
}

fn attribute_of<'a>(document: &'a roxmltree::Document, class: &str, name: &str) -> Vec<&'a str> {
    let element = document
        .descendants()
        .filter(|node| node.attribute("class") == Some(class));
    element
        .filter_map(|node| {
            node.attributes()
                .find(|attribute| attribute.name() == name)
                .map(|attribute| attribute.value())
        })
        .collect()
}

/// The document in a page.
fn data(html: &str) -> serde_json::Value {
    let (_, rest) = html
        .split_once("<script type=\"application/json\" id=\"data\">")
        .unwrap();
    let (json, _) = rest.split_once("</script>").unwrap();
    serde_json::from_str(json).unwrap()
}

fn one(trace: &Trace) -> [Start<'_>; 1] {
    [Start {
        trace,
        name: "a start".into(),
        floor: None,
    }]
}

#[test]
fn hostile_names_make_valid_xml_and_stay_text() {
    let mut trace = hostile();
    // What has no activity shows paths of processes, too.
    for _ in 0..2 {
        let name: String = hostile_paths().iter().map(|path| path.to_string()).collect();
        let starts = [named(&name, &trace), named("</title>", &trace)];
        let drawn = svg(&starts);
        let texts = texts(&drawn);
        assert!(
            texts
                .iter()
                .any(|text| text.contains("</script><script>window.hacked=1</script>"))
        );
        assert!(texts.iter().any(|text| text.contains("</title>")));
        assert!(!drawn.contains("<script") && !drawn.contains("<img") && !drawn.contains("]]>"));
        trace.activity = None;
    }
}

#[test]
fn hostile_names_do_not_leave_the_pages_data() {
    let trace = hostile();
    let name: String = hostile_paths().iter().map(|path| path.to_string()).collect();
    let page = html(&[named(&name, &trace)]);
    assert_eq!(page.matches("<script").count(), 2, "the data and the script");
    assert_eq!(page.matches("</script>").count(), 2);
    for forbidden in ['\u{2028}', '\u{2029}', '\u{202e}', '\u{1b}', '\u{0}', '\u{fffe}'] {
        assert!(!page.contains(forbidden), "{forbidden:?}");
    }
    assert!(!page.contains("<img") && !page.contains("<!--"));
    let data = data(&page);
    let names = data["runs"][0]["files"]["names"].as_array().unwrap();
    let mut before: Vec<u16> = Vec::new();
    let names: Vec<String> = (names.iter())
        .map(|pair| {
            before.truncate(pair[0].as_u64().unwrap() as usize);
            before.extend(pair[1].as_str().unwrap().encode_utf16());
            String::from_utf16(&before).unwrap()
        })
        .collect();
    assert_eq!(names.len(), hostile_paths().len());
    assert!(names.contains(&"/</script><script>window.hacked=1</script>".to_owned()));
    assert!(names.contains(&"/line\\nfeed\\r\\ttab\\u{1b}[2Jescape\\u{7f}\\u{1}\\u{2}".to_owned()));
    assert!(names.contains(&"/invalid\u{fffd}\u{fffd}\u{fffd}(utf8".to_owned()));
    assert!(names.iter().all(|name| name.chars().count() <= 1024));
}

#[test]
fn a_page_may_load_nothing_and_runs_no_script_but_its_own() {
    let trace = start(500, 100, true);
    let page = html(&one(&trace));
    let (_, rest) = page
        .split_once("http-equiv=\"Content-Security-Policy\" content=\"")
        .unwrap();
    let (policy, _) = rest.split_once('"').unwrap();
    assert!(
        policy.starts_with("default-src 'none'; base-uri 'none'; form-action 'none';"),
        "{policy}"
    );
    assert!(
        !policy.contains("unsafe") && !policy.contains("http") && !policy.contains('*'),
        "{policy}"
    );
    for address in ["http://", "https://", "src=", "href=", "@import", "url("] {
        assert!(!page.contains(address), "{address}");
    }
    let picture = svg(&one(&trace));
    assert_eq!(picture.matches("http").count(), 1, "the name of SVG's elements");
    assert!(!picture.contains("@import") && !picture.contains("url("));
}

#[test]
fn a_hundred_thousand_events_and_ten_times_as_many_fit() {
    for events in [100_000, 1_000_000] {
        let trace = start(events, 60_000, true);
        let other = start(events, 90_000, false);
        for starts in [
            vec![named("one", &trace)],
            vec![named("one", &trace), named("other", &other)],
        ] {
            let (svg, html) = (svg(&starts), html(&starts));
            assert!(svg.len() <= MOST_BYTES, "{events}: SVG of {} bytes", svg.len());
            assert!(html.len() <= MOST_BYTES, "{events}: HTML of {} bytes", html.len());
            roxmltree::Document::parse(&svg).unwrap();
            assert_eq!(data(&html)["runs"].as_array().unwrap().len(), starts.len());
        }
    }
}

#[test]
fn texts_that_fill_a_trace_fit_all_the_same() {
    let mut trace = start(120_000, 10_000, true);
    for (i, file) in trace.files.iter_mut().enumerate() {
        file.path = format!("/{i}{}", "<\"&\u{1}".repeat(150)).as_str().into();
    }
    for (i, process) in trace.processes.iter_mut().enumerate() {
        process.executable = format!("/{i}{}", "<\"&'".repeat(900)).as_str().into();
    }
    trace.marks = (0..1024)
        .map(|i| headstart_model::trace::Mark {
            time_ns: i * 9_000_000,
            stage: "<&\"".repeat(80),
        })
        .collect();
    let causes = (0..5000).map(|_| ("<&'\"".repeat(99), 1_000_000)).collect();
    let start = Start {
        trace: &trace,
        name: "<".repeat(100_000),
        floor: Some(FloorLine { ns: 5, causes }),
    };
    let starts = [start];
    let (svg, html) = (svg(&starts), html(&starts));
    assert!(svg.len() <= MOST_BYTES, "{}", svg.len());
    assert!(html.len() <= MOST_BYTES, "{}", html.len());
    texts(&svg);
    let data = data(&html);
    let names = data["runs"][0]["files"]["names"].as_array().unwrap();
    let used: std::collections::BTreeSet<u32> = trace.uses.iter().map(|used| used.file).collect();
    let per = data["runs"][0]["files"]["per"].as_u64().unwrap() as usize;
    assert_eq!(
        names.len(),
        used.len().div_ceil(per),
        "each file used is in a row"
    );
    let named = names.iter().filter(|name| name[1] != "").count();
    assert!(named > 10, "{named} names");
}

#[test]
fn a_trace_may_say_anything() {
    let mut trace = start(3000, 1000, true);
    trace.end.elapsed_ns = u64::MAX;
    trace.end.blocked_ns = Some(u64::MAX);
    for (i, used) in trace.uses.iter_mut().enumerate() {
        used.time_ns = [0, u64::MAX, 1][i % 3];
        used.pages = u32::MAX;
        used.process = u32::MAX - (i as u32 % 2);
    }
    for file in &mut trace.files {
        file.size = u64::MAX;
    }
    for process in &mut trace.processes {
        process.start_ns = u64::MAX;
        process.parent = Some(process.pid % 60);
    }
    let ahead = Ahead {
        file: u32::MAX,
        start: u64::MAX,
        pages: u32::MAX,
        issued_ns: u64::MAX,
        done_ns: 0,
    };
    trace.ahead.as_mut().unwrap().push(ahead);
    trace.ahead.as_mut().unwrap().push(Ahead { file: 0, ..ahead });
    let activity = trace.activity.as_mut().unwrap();
    for (i, request) in activity.requests.iter_mut().enumerate() {
        request.completed_ns = [None, Some(0), Some(u64::MAX)][i % 3];
        request.sector = [0, u64::MAX][i % 2];
        request.sectors = u32::MAX;
        request.device = [0, 7, u32::MAX][i / 7 % 3];
        request.kind = [RequestKind::Flush, RequestKind::Discard, RequestKind::Read][i / 5 % 3];
    }
    for (i, slice) in activity.slices.iter_mut().enumerate() {
        (slice.from_ns, slice.to_ns) = [(u64::MAX, 0), (0, u64::MAX), (5, 5)][i % 3];
        slice.process = [0, u32::MAX, 59][i % 3];
        slice.state = ThreadState::Running;
    }
    for sample in &mut activity.processors {
        sample.busy = f32::NAN;
    }
    for sample in &mut activity.memory {
        (sample.free, sample.page_cache, sample.dirty) = (u64::MAX, 0, u64::MAX);
    }
    activity.lost = u64::MAX;
    let floor = FloorLine {
        ns: u64::MAX,
        causes: vec![("x".into(), u64::MAX); 3],
    };
    for span in [u64::MAX, 0, 1] {
        trace.end.elapsed_ns = span;
        for floor in [None, Some(floor.clone())] {
            let starts = [Start {
                trace: &trace,
                name: String::new(),
                floor,
            }];
            let drawn = svg(&starts);
            texts(&drawn);
            assert!(!drawn.contains("NaN") && !drawn.contains("inf"));
            let page = data(&html(&starts));
            assert!(page["span"].as_u64().unwrap() > 0);
        }
    }
}

#[test]
fn an_empty_trace_has_a_picture() {
    let mut trace = testing::trace();
    trace.processes.clear();
    texts(&svg(&one(&trace)));
    data(&html(&one(&trace)));
    texts(&svg(&[]));
    data(&html(&[]));
}

#[test]
fn what_a_trace_lacks_is_said() {
    let mut trace = start(1000, 1000, true);
    trace.activity = None;
    trace.ahead = None;
    trace.lost.events = 7;
    let texts = texts(&svg(&one(&trace)));
    let says = |words: &str| texts.iter().any(|text| text.contains(words));
    assert!(says("were not recorded"));
    assert!(says("what it read ahead is not in the trace"));
    assert!(says("7 events were lost"));
    assert!(!says("sda"), "no lane of a disk");
    assert!(says("files by first use"));
}

#[test]
fn the_lanes_of_a_whole_trace_are_all_there() {
    let trace = start(5000, 4000, true);
    let other = start(5000, 8000, false);
    let texts = texts(&svg(&[named("with a replay", &trace), named("without", &other)]));
    for lane in [
        "floor, and above it",
        "stages",
        "processors",
        "sda: throughput",
        "sda: busy",
        "sda: queue",
        "sda: addresses",
        "memory",
        "bytes used so far",
        "files by first use",
        "processes",
        "with a replay",
        "without",
    ] {
        assert!(texts.iter().any(|text| text == lane), "{lane}");
    }
    assert!(
        texts
            .iter()
            .any(|text| text.contains("200.0 % of the time of the start on the left"))
    );
}

#[test]
fn uses_have_the_colour_of_what_a_replay_did_for_them() {
    let mut trace = testing::trace();
    trace.files = vec![testing::file("/f")];
    trace.uses = vec![
        testing::used(100, 0, 0, 4),
        testing::used(300, 0, 10, 2),
        testing::used(600, 0, 20, 1),
    ];
    let whole = |trace: &Trace| {
        let drawn = svg(&one(trace));
        let document = roxmltree::Document::parse(&drawn).unwrap();
        // Of the paths of a class the second is that of the lane of files: the first sums up, the third is a
        // strip.
        ["intime", "late", "missed", "plain"].map(|class| {
            let paths = attribute_of(&document, class, "d");
            paths
                .get(1)
                .map(|path| path[1..].split(' ').next().unwrap().parse::<f64>().unwrap() as u64)
        })
    };
    // The picture's columns begin at 158 pixels and are 1,028 wide, for a second.
    assert_eq!(whole(&trace), [None, None, None, Some(260)]);
    let ahead = |start, issued_ms: u64| Ahead {
        file: 0,
        start,
        pages: 4,
        issued_ns: issued_ms * 1_000_000,
        done_ns: issued_ms * 1_000_000,
    };
    trace.ahead = Some(vec![ahead(0, 50), ahead(10, 400)]);
    assert_eq!(whole(&trace), [Some(260), Some(466), Some(774), None]);
    let counted = pages(&trace);
    assert_eq!(
        (
            counted.in_time,
            counted.late,
            counted.missed,
            counted.not_prefetched
        ),
        (4, 2, 1, 0)
    );
    trace.uses[2].kind = UseKind::Around;
    assert_eq!(pages(&trace).missed, 0, "nobody may have touched it");
}
