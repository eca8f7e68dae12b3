//! A picture as SVG: added up by pixel, so that its size does not depend on how much happened.

mod lanes;
mod paper;
mod shapes;

use crate::chart::layout::{CHARACTER, LINE, Lane, Layout, Shows, WIDTH, ticks};
use crate::chart::picture::{Picture, Run};
use crate::chart::text::shortened;
use headstart_model::human::duration;
use lanes::Column;
use paper::{Paper, Path};
use shapes::Area;

/// The picture.
pub fn draw(picture: &Picture<'_>, layout: &Layout) -> String {
    let title: Vec<&str> = picture.runs.iter().map(|run| run.title.as_str()).collect();
    let style = concat!(include_str!("../style.css"), include_str!("svg.css"));
    let mut paper = Paper::new(WIDTH, layout.height, style, &title.join(" and "));
    for lane in &layout.lanes {
        name(&mut paper, lane);
    }
    for (run, x) in picture.runs.iter().zip(&layout.columns) {
        head(&mut paper, run, layout, *x);
        let area = Area {
            x: *x as f64,
            y: layout.top as f64,
            width: layout.width as f64,
            height: (layout.bottom - layout.top) as f64,
        };
        ground(&mut paper, run, picture, layout, area);
        for lane in &layout.lanes {
            let area = Area {
                y: lane.y as f64,
                height: lane.height as f64,
                ..area
            };
            Column {
                picture,
                run,
                area,
                parts: picture.runs.len() * dense(layout),
            }
            .draw(&mut paper, lane);
        }
        lines(&mut paper, run, picture, area);
    }
    paper.finish()
}

/// How many lanes share the room for points.
fn dense(layout: &Layout) -> usize {
    let is_dense = |lane: &&Lane| matches!(lane.shows, Shows::Map | Shows::Files);
    layout.lanes.iter().filter(is_dense).count().max(1)
}

/// The name of a lane and what its colours mean.
fn name(paper: &mut Paper, lane: &Lane) {
    const LEFT: f64 = 10.0;
    let mut y = lane.y as f64;
    let mut apart = 14.0;
    if lane.shows == Shows::Services {
        apart = LINE as f64;
        y += 12.0;
    } else {
        paper.text("name", LEFT, y + 11.0, &lane.title);
        y += 11.0 + LINE as f64;
    }
    for (class, text) in &lane.legend {
        paper.rect(class, LEFT, y - 8.0, 9.0, 9.0);
        paper.text("dim", LEFT + 14.0, y, text);
        y += apart;
    }
}

/// What stands above a start.
fn head(paper: &mut Paper, run: &Run<'_>, layout: &Layout, x: usize) {
    let fits = |character: f64| (layout.width as f64 / character) as usize;
    let mut y = layout.head as f64 - 6.0;
    paper.text(
        "title",
        x as f64,
        y,
        &shortened(&run.title, fits(CHARACTER * 1.5)),
    );
    let lines = run.facts.iter().map(|fact| ("dim", fact));
    for (class, line) in lines.chain(run.notes.iter().map(|note| ("note", note))) {
        y += LINE as f64;
        paper.text(class, x as f64, y, &shortened(line, fits(CHARACTER)));
    }
}

/// The ground of the lanes, until the start had ended, and the times.
fn ground(paper: &mut Paper, run: &Run<'_>, picture: &Picture<'_>, layout: &Layout, area: Area) {
    let end = area.x_at(run.end_ns, picture.span_ns);
    for lane in &layout.lanes {
        paper.rect("lane", area.x, lane.y as f64, end - area.x, lane.height as f64);
    }
    let mut grid = Path::default();
    for (ns, label) in ticks(picture.span_ns, layout.width) {
        let x = area.x_at(ns, picture.span_ns);
        grid.go(x, area.y - 4.0).down(area.bottom() + 4.0);
        paper.text("tick", x, area.y - 8.0, &label);
        paper.text("tick", x, area.bottom() + 17.0, &label);
    }
    paper.path("grid", &grid);
    if let Some(floor) = &run.floor {
        let (mut from, mut number) = (floor.ns, 0);
        for (_, ns) in &floor.causes {
            let to = from.saturating_add(*ns).min(run.end_ns);
            let (left, right) = (area.x_at(from, picture.span_ns), area.x_at(to, picture.span_ns));
            paper.rect(
                &format!("shade{}", number % 4),
                left,
                area.y,
                right - left,
                area.height,
            );
            (from, number) = (to, number + 1);
        }
    }
}

/// What goes through all lanes.
fn lines(paper: &mut Paper, run: &Run<'_>, picture: &Picture<'_>, area: Area) {
    let at = |ns: u64| area.x_at(ns, picture.span_ns);
    let mut stages = Path::default();
    for (ns, _) in &run.marks {
        stages.go(at(*ns), area.y).down(area.bottom());
    }
    paper.path("stage", &stages);
    if let Some(floor) = &run.floor {
        let mut line = Path::default();
        line.go(at(floor.ns), area.y).down(area.bottom());
        paper.path("floor", &line);
    }
    let mut end = Path::default();
    let x = at(run.end_ns);
    end.go(x, area.y - 4.0).down(area.bottom() + 4.0);
    paper.path("end", &end);
    // Where the end is not at the edge it has a label of its own, below the times.
    if x < area.x + area.width - 60.0 {
        paper.text(
            "label",
            x + 4.0,
            area.bottom() - 4.0,
            &format!("ended at {}", duration(run.end_ns)),
        );
    }
}
