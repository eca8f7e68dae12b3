//! What a large picture costs:
//! `cargo run --release -p headstart-inspect --example measure [EVENTS [DIRECTORY]]` draws a made-up start of
//! so many events (1,000,000), and tells time, memory and bytes; then Chromium shows the page, and tells when
//! it had painted first and how many frames a second it paints while it moves. With a directory the pictures
//! are kept there.

#[path = "../tests/chart/chromium.rs"]
mod chromium;
#[path = "../tests/chart/common.rs"]
mod common;

use headstart_inspect::chart::{html, svg};
use peak_alloc::PeakAlloc;
use std::path::PathBuf;
use std::time::Instant;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let events = arguments.next().map_or(Ok(1_000_000), |text| text.parse())?;
    let kept = arguments.next().map(PathBuf::from);
    let trace = common::start(events, 30_000, true);
    let other = common::start(events, 45_000, false);
    let dir = tempfile::tempdir()?;
    for count in [1, 2] {
        let mut starts = vec![common::named("with a replay", &trace)];
        if count == 2 {
            starts.insert(0, common::named("without", &other));
        }
        for (form, draw) in [
            ("svg", svg as fn(&[headstart_inspect::chart::Start<'_>]) -> String),
            ("html", html),
        ] {
            MEMORY.reset_peak_usage();
            let (before, begun) = (MEMORY.current_usage(), Instant::now());
            let picture = draw(&starts);
            println!(
                "{count} of {events} events as {form}: {:.2} s, {} MiB beside the trace's {} MiB, {} bytes",
                begun.elapsed().as_secs_f64(),
                (MEMORY.peak_usage() - before) >> 20,
                before >> 20,
                picture.len()
            );
            let path = kept
                .as_deref()
                .unwrap_or(dir.path())
                .join(format!("{count}.{form}"));
            std::fs::write(&path, picture)?;
            if form == "html" {
                browse(&path.canonicalize()?);
            }
        }
    }
    Ok(())
}

fn browse(path: &std::path::Path) {
    let Some(mut browser) = chromium::browser(1200, 900) else {
        return;
    };
    browser.open(path);
    let painted = browser.value("headstartChart.view.painted").as_f64();
    // All, and a quarter that moves to and fro.
    let script = "(async (share) => { const v = headstartChart, span = v.data.span, frames = 120;
        v.look(0, span * share);
        const frame = () => new Promise((done) => requestAnimationFrame(done));
        await frame();
        const begun = performance.now(), first = v.view.frames;
        let cost = 0;
        for (let i = 0; i < frames; i++) {
            const from = span * (1 - share) * (0.5 + 0.5 * Math.sin(i / 20));
            v.look(from, from + span * share);
            await frame();
            cost += v.view.cost;
        }
        return [(v.view.frames - first) / (performance.now() - begun) * 1000, cost / frames]; })";
    for share in [0.9, 0.25, 0.02] {
        let value = browser.value(&format!("{script}({share})"));
        println!(
            "  {:.0} % of it shown: {:.1} frames/s, {:.1} ms a frame in the script",
            share * 100.0,
            value[0].as_f64().unwrap_or(0.0),
            value[1].as_f64().unwrap_or(0.0)
        );
    }
    println!("  first paint after {:.0} ms", painted.unwrap_or(0.0));
    for complaint in &browser.complaints {
        println!("  {complaint}");
    }
}
