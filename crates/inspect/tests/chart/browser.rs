//! The page in Chromium without a window, from file://: what it paints, and what it does for who reads it.

use crate::chromium::{Browser, browser};
use crate::common::{hostile, named, start};
use headstart_inspect::chart::html;
use headstart_model::Trace;
use serde_json::json;
use std::collections::BTreeMap;

/// A browser that shows a picture of the traces, and the file it shows.
fn shown(starts: &[(&str, &Trace)]) -> Option<(Browser, tempfile::TempDir)> {
    let mut browser = browser(1200, 900)?;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("picture.html");
    let starts: Vec<_> = starts.iter().map(|(name, trace)| named(name, trace)).collect();
    std::fs::write(&path, html(&starts)).unwrap();
    browser.open(&path);
    Some((browser, dir))
}

/// How many pixels of the picture, or of one lane, have each colour, as `#rrggbb`.
fn colours(browser: &mut Browser, lane: &str) -> BTreeMap<String, u64> {
    let script = format!(
        "(() => {{ const c = document.getElementById('picture'), lane = headstartChart.lanes().find((l) => l.shows === '{lane}');
         const x = headstartChart.columns()[0], w = headstartChart.width();
         const [t, h] = lane ? [lane.y, lane.height] : [0, c.height];
         const d = new Uint32Array(c.getContext('2d').getImageData(lane ? x : 0, t, lane ? w : c.width, h).data.buffer);
         const n = {{}};
         for (const v of d) n[v] = (n[v] || 0) + 1;
         return Object.entries(n); }})()"
    );
    let value = browser.value(&script);
    let hex = |value: &str| {
        let value: u32 = value.parse().unwrap();
        format!(
            "#{:02x}{:02x}{:02x}",
            value & 255,
            value >> 8 & 255,
            value >> 16 & 255
        )
    };
    let pairs = value.as_array().unwrap().iter();
    pairs
        .map(|pair| (hex(pair[0].as_str().unwrap()), pair[1].as_u64().unwrap()))
        .collect()
}

/// From when to when the picture shows, nanoseconds.
fn view(browser: &mut Browser) -> (f64, f64) {
    let value = browser.value("[headstartChart.view.from, headstartChart.view.to]");
    (value[0].as_f64().unwrap(), value[1].as_f64().unwrap())
}

/// Where the centre of a first use is in the window, and its path: of the one of this number.
fn place_of(browser: &mut Browser, number: usize) -> (f64, f64, String) {
    let script = format!(
        "(() => {{ const v = headstartChart, f = v.data.runs[0].files, lane = v.lanes().find((l) => l.shows === 'files');
         lane && scrollTo(0, 0);
         const box = document.getElementById('picture').getBoundingClientRect(), slot = v.data.span / f.slots;
         const x = ((f.times[{number}] + 0.5) * slot - v.view.from) / (v.view.to - v.view.from) * v.width();
         scrollTo(0, box.top + lane.y - 200);
         const now = document.getElementById('picture').getBoundingClientRect();
         return [now.left + v.columns()[0] + x, now.top + lane.y + (f.rows[{number}] + 0.4) * lane.height / f.lines, f.names[f.rows[{number}]]]; }})()"
    );
    let value = browser.value(&script);
    let number = |i: usize| value[i].as_f64().unwrap();
    (number(0), number(1), value[2].as_str().unwrap().to_owned())
}

fn nothing_is_wrong(browser: &Browser) {
    assert!(browser.complaints.is_empty(), "{:?}", browser.complaints);
}

const IN_TIME: &str = "#009e73";
const LATE: &str = "#e69f00";
const MISSED: &str = "#d55e00";
const PLAIN: &str = "#6e7b8a";
const RUNS: &str = "#0072b2";

#[test]
fn a_page_paints_every_lane_in_its_colours() {
    let trace = start(20_000, 5_000, true);
    let Some((mut browser, _dir)) = shown(&[("office", &trace)]) else {
        return;
    };
    let files = colours(&mut browser, "files");
    let count = |colour: &str| files.get(colour).copied().unwrap_or(0);
    // Of eight in ten pages in time, one late and one missed, few lie on the same pixels.
    let coloured = count(IN_TIME) + count(LATE) + count(MISSED);
    assert!(coloured > 3_000, "{files:?}");
    assert!(
        count(IN_TIME) > 3 * count(LATE) && count(IN_TIME) > 3 * count(MISSED),
        "{files:?}"
    );
    assert!(count(LATE) > 100 && count(MISSED) > 100, "{files:?}");
    assert_eq!(count(PLAIN), 0);
    for (lane, colour) in [
        ("processes", RUNS),
        ("processes", MISSED),
        ("cpu", RUNS),
        ("throughput", RUNS),
        ("busy", "#56b4e9"),
        ("depth", RUNS),
        ("map", "#56b4e9"),
        ("memory", "#56b4e9"),
        ("uses", IN_TIME),
        ("services", LATE),
        ("floor", "#b2549a"),
    ] {
        let shown = colours(&mut browser, lane);
        assert!(
            shown.get(colour).is_some_and(|count| *count > 30),
            "{lane} lacks {colour}: {shown:?}"
        );
    }
    nothing_is_wrong(&browser);
}

#[test]
fn a_start_without_a_replay_is_grey() {
    let mut trace = start(5_000, 5_000, false);
    trace.activity = None;
    let Some((mut browser, _dir)) = shown(&[("office", &trace)]) else {
        return;
    };
    let files = colours(&mut browser, "files");
    assert!(files.get(PLAIN).is_some_and(|count| *count > 1000), "{files:?}");
    for colour in [IN_TIME, LATE, MISSED] {
        assert_eq!(files.get(colour), None);
    }
    let processes = colours(&mut browser, "processes");
    assert!(
        processes.get(PLAIN).is_some_and(|count| *count > 100),
        "{processes:?}"
    );
    nothing_is_wrong(&browser);
}

#[test]
fn keys_zoom_and_move_and_show_all_again() {
    let trace = start(20_000, 5_000, true);
    let Some((mut browser, _dir)) = shown(&[("office", &trace)]) else {
        return;
    };
    let whole_view = view(&mut browser);
    assert_eq!(whole_view, (0.0, 5e9));
    let before = colours(&mut browser, "");
    // The keyboard reaches the picture.
    for _ in 0..12 {
        if browser.value("document.activeElement.id") == json!("picture") {
            break;
        }
        browser.call(
            "Input.dispatchKeyEvent",
            json!({"type": "keyDown", "key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9}),
        );
        browser.call(
            "Input.dispatchKeyEvent",
            json!({"type": "keyUp", "key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9}),
        );
    }
    assert_eq!(browser.value("document.activeElement.id"), json!("picture"));
    browser.press(&["+", "+"]);
    let near = view(&mut browser);
    let length = near.1 - near.0;
    assert!((length - 5e9 * 0.36).abs() < 1e6, "{near:?}");
    assert!(
        ((near.0 + near.1) / 2.0 - 2.5e9).abs() < 1e6,
        "about the middle: {near:?}"
    );
    browser.press(&["ArrowRight"]);
    let later = view(&mut browser);
    assert!((later.0 - near.0 - length * 0.15).abs() < 1e6, "{later:?}");
    browser.press(&["ArrowLeft", "ArrowLeft"]);
    assert!(view(&mut browser).0 < near.0);
    browser.press(&["Home"]);
    assert_eq!(view(&mut browser).0, 0.0);
    browser.press(&["End"]);
    assert_eq!(view(&mut browser).1, 5e9);
    browser.press(&["-", "0"]);
    assert_eq!(view(&mut browser), whole_view);
    assert_eq!(colours(&mut browser, ""), before, "the same picture again");
    for _ in 0..60 {
        browser.press(&["+"]);
    }
    let nearest = view(&mut browser);
    assert!(
        nearest.1 - nearest.0 >= 5e9 / 20_001.0,
        "zoom has an end: {nearest:?}"
    );
    nothing_is_wrong(&browser);
}

#[test]
fn wheel_and_drag_zoom_and_move() {
    let trace = start(20_000, 5_000, true);
    let Some((mut browser, _dir)) = shown(&[("office", &trace)]) else {
        return;
    };
    let under = "(() => { const v = headstartChart, x = 600 - v.columns()[0]; return v.view.from + x / v.width() * (v.view.to - v.view.from); })()";
    let before = browser.value(under).as_f64().unwrap();
    browser.mouse("mouseWheel", 600.0, 500.0, json!({"deltaX": 0, "deltaY": -200}));
    let near = view(&mut browser);
    assert!(near.1 - near.0 < 3e9, "{near:?}");
    let after = browser.value(under).as_f64().unwrap();
    assert!(
        (after - before).abs() < 1e6,
        "what is under the pointer stays: {before} {after}"
    );
    browser.mouse(
        "mousePressed",
        600.0,
        500.0,
        json!({"button": "left", "buttons": 1, "clickCount": 1}),
    );
    browser.mouse(
        "mouseMoved",
        500.0,
        500.0,
        json!({"button": "left", "buttons": 1}),
    );
    browser.mouse(
        "mouseReleased",
        500.0,
        500.0,
        json!({"button": "left", "clickCount": 1}),
    );
    let moved = view(&mut browser);
    let width = browser.value("headstartChart.width()").as_f64().unwrap();
    let by = (near.1 - near.0) * 100.0 / width;
    assert!((moved.0 - near.0 - by).abs() < 1e6, "{near:?} {moved:?}");
    // Over the names at the left the page moves.
    browser.mouse("mouseWheel", 40.0, 500.0, json!({"deltaX": 0, "deltaY": 200}));
    assert_eq!(view(&mut browser), moved);
    nothing_is_wrong(&browser);
}

#[test]
fn what_is_under_the_pointer_is_told() {
    let trace = start(600, 5_000, true);
    let Some((mut browser, _dir)) = shown(&[("office", &trace)]) else {
        return;
    };
    let (x, y, path) = place_of(&mut browser, 40);
    assert!(path.starts_with("/usr/"), "{path}");
    browser.mouse("mouseMoved", x, y, json!({}));
    let tip = browser.value("document.getElementById('tip').textContent");
    let tip = tip.as_str().unwrap();
    assert!(tip.starts_with(&path), "{tip} is not of {path}");
    for part in ["page", "KiB", "\nby ", "/usr/lib/office/program/"] {
        assert!(tip.contains(part), "{tip} lacks {part:?}");
    }
    assert!(
        ["read ahead in time", "late", "missed"]
            .iter()
            .any(|word| tip.contains(word)),
        "{tip}"
    );
    assert_eq!(
        browser.value("document.getElementById('tip').hidden"),
        json!(false)
    );
    // Every lane tells something.
    for lane in [
        "floor",
        "stages",
        "processes",
        "cpu",
        "throughput",
        "busy",
        "depth",
        "map",
        "memory",
        "uses",
        "services",
    ] {
        let script = format!(
            "(() => {{ const v = headstartChart, lane = v.lanes().find((l) => l.shows === '{lane}');
             return v.find(v.columns()[0] + 300, lane.y + lane.height / 2); }})()"
        );
        let value = browser.value(&script);
        let text = value["text"].as_str().unwrap_or_default();
        assert!(text.contains("s") && text.len() > 6, "{lane}: {value}");
        assert_eq!(value["lane"], json!(lane));
    }
    browser.mouse("mouseMoved", 20.0, 20.0, json!({}));
    assert_eq!(
        browser.value("document.getElementById('tip').hidden"),
        json!(true)
    );
    nothing_is_wrong(&browser);
}

#[test]
fn search_dims_what_does_not_match_and_steps_through_what_does() {
    let trace = start(5_000, 5_000, true);
    let Some((mut browser, _dir)) = shown(&[("office", &trace)]) else {
        return;
    };
    let coloured = |browser: &mut Browser| -> u64 {
        let shown = colours(browser, "files");
        [IN_TIME, LATE, MISSED]
            .iter()
            .filter_map(|colour| shown.get(*colour))
            .sum()
    };
    let before = coloured(&mut browser);
    browser.press(&["/"]);
    assert_eq!(browser.value("document.activeElement.id"), json!("search"));
    browser.call("Input.insertText", json!({"text": "NUMBER-77.so"}));
    browser.settled();
    assert_eq!(
        browser.value("document.getElementById('found').textContent"),
        json!("1 files, 0 processes")
    );
    let dimmed = coloured(&mut browser);
    assert!(dimmed > 0 && dimmed < before / 20, "{before} {dimmed}");
    browser.press(&["Enter"]);
    let said = browser.value("document.getElementById('said').textContent");
    let first = said.as_str().unwrap().to_owned();
    assert!(first.contains("lib-of-number-77.so"), "{first}");
    assert_eq!(
        browser.value("headstartChart.hover().file"),
        json!("/usr/share/fonts/truetype/lib-of-number-77.so")
    );
    browser.value("document.getElementById('picture').focus()");
    browser.press(&["n"]);
    let second = browser.value("document.getElementById('said').textContent");
    assert_ne!(second, json!(first));
    browser.press(&["p"]);
    assert_eq!(
        browser.value("document.getElementById('said').textContent"),
        json!(first)
    );
    // What is found outside of what is shown is shown.
    browser.press(&["Escape", "+", "+", "+", "+", "+", "+", "End", "n"]);
    let (from, to) = view(&mut browser);
    let at = browser.value("headstartChart.hover().ns").as_f64().unwrap();
    assert!(from <= at && at <= to);
    // By process, too.
    browser.press(&["/"]);
    browser.call("Input.insertText", json!({"text": "gvfsd"}));
    browser.settled();
    let text = browser.value("document.getElementById('found').textContent");
    assert!(
        text.as_str().unwrap().starts_with("0 files, ") && text != json!("0 files, 0 processes"),
        "{text}"
    );
    browser.press(&["Escape", "0"]);
    assert_eq!(
        browser.value("document.getElementById('found').textContent"),
        json!("")
    );
    assert_eq!(coloured(&mut browser), before, "all is as it was");
    nothing_is_wrong(&browser);
}

#[test]
fn files_have_lines_of_their_own_on_request() {
    let trace = start(2_000, 5_000, true);
    let Some((mut browser, _dir)) = shown(&[("office", &trace)]) else {
        return;
    };
    let height = "headstartChart.lanes().find((l) => l.shows === 'files').height";
    let low = browser.value(height).as_f64().unwrap();
    browser.press(&["f"]);
    let high = browser.value(height).as_f64().unwrap();
    assert!(high > 2.0 * low, "{low} {high}");
    browser.press(&["f"]);
    assert_eq!(browser.value(height).as_f64().unwrap(), low);
    nothing_is_wrong(&browser);
}

#[test]
fn the_reader_chooses_light_or_dark() {
    let trace = start(2_000, 5_000, true);
    let Some((mut browser, _dir)) = shown(&[("office", &trace)]) else {
        return;
    };
    let most = |browser: &mut Browser| {
        let shown = colours(browser, "");
        shown.into_iter().max_by_key(|(_, count)| *count).unwrap().0
    };
    let ground = |browser: &mut Browser| colours(browser, "").remove("#ffffff").unwrap_or(0);
    assert!(["#ffffff", "#f4f6f8"].contains(&most(&mut browser).as_str()));
    assert!(ground(&mut browser) > 100_000);
    browser.scheme("dark");
    browser.settled();
    assert!(["#0d1117", "#161c24"].contains(&most(&mut browser).as_str()));
    assert!(ground(&mut browser) < 1000);
    assert!(
        colours(&mut browser, "files").contains_key("#2fc596"),
        "in time, on dark ground"
    );
    nothing_is_wrong(&browser);
}

#[test]
fn two_starts_stand_side_by_side_on_one_scale() {
    let slow = start(10_000, 8_000, false);
    let fast = start(10_000, 4_000, true);
    let Some((mut browser, _dir)) = shown(&[("none", &slow), ("headstart", &fast)]) else {
        return;
    };
    assert_eq!(view(&mut browser), (0.0, 8e9));
    assert_eq!(browser.value("headstartChart.columns().length"), json!(2));
    // Behind its end a start has no ground: the right half of the second column is bare.
    let script = "(() => { const v = headstartChart, lane = v.lanes().find((l) => l.shows === 'map'), c = document.getElementById('picture');
        return v.columns().map((x) => [...c.getContext('2d').getImageData(x + v.width() * 0.8, lane.y + 3, 1, 1).data].slice(0, 3)); })()";
    let value = browser.value(script);
    assert_ne!(value[0], json!([255, 255, 255]));
    assert_eq!(value[1], json!([255, 255, 255]));
    nothing_is_wrong(&browser);
}

#[test]
fn a_hostile_name_is_text_in_a_browser_too() {
    let trace = hostile();
    let Some((mut browser, _dir)) = shown(&[("</script><script>window.hacked=9</script>", &trace)]) else {
        return;
    };
    let path = "/</script><script>window.hacked=1</script>";
    let rows = browser
        .value("headstartChart.data.runs[0].files.names.length")
        .as_u64()
        .unwrap();
    let mut seen = false;
    for number in 0..rows as usize {
        let (x, y, name) = place_of(&mut browser, number);
        browser.mouse("mouseMoved", x, y, json!({}));
        seen |= name == path;
    }
    assert!(
        seen || browser.value(&format!(
            "headstartChart.data.runs[0].files.names.includes({})",
            json!(path)
        )) == json!(true)
    );
    browser.press(&["f", "n", "n", "n", "/"]);
    browser.call("Input.insertText", json!({"text": "</script><script>"}));
    browser.settled();
    let text = browser.value("document.getElementById('found').textContent");
    assert!(!text.as_str().unwrap().starts_with("0 files"), "{text}");
    assert_eq!(browser.value("typeof window.hacked"), json!("undefined"));
    assert_eq!(
        browser.value("document.querySelectorAll('script').length"),
        json!(2)
    );
    assert_eq!(
        browser.value("document.querySelectorAll('img, iframe, object').length"),
        json!(0)
    );
    // What somebody would put into the page all the same may not run.
    browser.value("(() => { const s = document.createElement('script'); s.textContent = 'window.hacked = 4'; document.body.append(s); })()");
    assert_eq!(
        browser.value("typeof window.hacked"),
        json!("undefined"),
        "the policy names one script"
    );
    let forbidden = browser
        .complaints
        .iter()
        .filter(|text| text.contains("Content Security Policy"));
    assert_eq!(forbidden.count(), 1, "{:?}", browser.complaints);
}

#[test]
fn a_picture_of_the_page_is_a_picture_of_the_canvas() {
    let trace = start(2_000, 5_000, true);
    let Some((mut browser, _dir)) = shown(&[("office", &trace)]) else {
        return;
    };
    browser.value("scrollTo(0, 0)");
    let screenshot = browser.screenshot(false);
    // The browser itself reads the PNG, beside what its canvas has.
    let script = format!(
        "(async () => {{ const bytes = Uint8Array.from(atob('{screenshot}'), (c) => c.charCodeAt(0));
         const map = await createImageBitmap(new Blob([bytes], {{type: 'image/png'}}));
         const canvas = document.getElementById('picture'), box = canvas.getBoundingClientRect();
         const own = document.createElement('canvas'); own.width = map.width; own.height = map.height;
         const to = own.getContext('2d'); to.drawImage(map, 0, 0);
         const top = Math.ceil(box.top), height = Math.min(map.height - top, canvas.height);
         const a = to.getImageData(0, top, map.width, height).data, b = canvas.getContext('2d').getImageData(0, 0, map.width, height).data;
         let differ = 0;
         for (let i = 0; i < a.length; i += 4) if (Math.abs(a[i] - b[i]) + Math.abs(a[i + 1] - b[i + 1]) + Math.abs(a[i + 2] - b[i + 2]) > 12) differ++;
         return [differ, a.length / 4]; }})()"
    );
    let value = browser.value(&script);
    let (differ, all) = (value[0].as_f64().unwrap(), value[1].as_f64().unwrap());
    assert!(all > 500_000.0, "{value}");
    assert!(differ / all < 0.001, "{differ} of {all} pixels differ");
}
