//! The lanes of one start.

use super::paper::{Paper, Path};
use super::shapes::{Area, Cells, filled, line};
use crate::chart::bins::{Bins, place, sampled};
use crate::chart::layout::{CHARACTER, LINE, Lane, ROW, Shows};
use crate::chart::picture::{Device, Kind, Picture, Run, SERVICES};
use crate::chart::text::shortened;
use headstart_model::activity::BlockRequest;
use headstart_model::human::{bytes, duration};

/// Commands of paths that all lanes of points, and all rows of processes, may have: eight bytes each.
const POINTS: usize = 40_000;

/// Where a start's part of a lane is drawn.
pub struct Column<'a> {
    pub picture: &'a Picture<'a>,
    pub run: &'a Run<'a>,
    pub area: Area,
    /// How many parts the commands are shared among.
    pub parts: usize,
}

impl Column<'_> {
    /// Draws its part of a lane.
    pub fn draw(&self, paper: &mut Paper, lane: &Lane) {
        let device = self.run.devices.get(lane.device);
        match (lane.shows, device) {
            (Shows::Floor, _) => self.floor(paper),
            (Shows::Stages, _) => self.stages(paper),
            (Shows::Processes, _) => self.processes(paper),
            (Shows::Cpu, _) => self.cpu(paper),
            (Shows::Uses, _) => self.uses(paper),
            (Shows::Files, _) => self.files(paper),
            (Shows::Services, _) => self.services(paper),
            (Shows::Throughput, Some(device)) => self.throughput(paper, device, lane.device),
            (Shows::Busy, Some(device)) => {
                let busy = device.rates(self.picture.span_ns, self.pixels()).busy;
                paper.path("busy", &filled(self.area, &busy, 1.0, false));
                self.most(paper, "100 %");
            }
            (Shows::Depth, Some(device)) => self.depth(paper, device, lane.device),
            (Shows::Map, Some(device)) => self.map(paper, device, lane.device),
            (Shows::Memory, _) => self.memory(paper),
            // The other start has this device.
            (Shows::Throughput | Shows::Busy | Shows::Depth | Shows::Map, None) => {}
        }
    }

    fn pixels(&self) -> usize {
        self.area.width as usize
    }

    fn x_at(&self, ns: u64) -> f64 {
        self.area.x_at(ns, self.picture.span_ns)
    }

    /// What the upper edge stands for.
    fn most(&self, paper: &mut Paper, text: &str) {
        paper.text("most", self.area.x + 3.0, self.area.y + 11.0, text);
    }

    fn floor(&self, paper: &mut Paper) {
        let Some(floor) = &self.run.floor else {
            return;
        };
        const BAR: f64 = 14.0;
        let y = self.area.y;
        let x = self.x_at(floor.ns);
        paper.rect("floorline", self.area.x, y, x - self.area.x, BAR);
        let label = format!("floor {}", duration(floor.ns));
        if label.len() as f64 * CHARACTER + 8.0 < x - self.area.x {
            paper.text("label", self.area.x + 4.0, y + 11.0, &label);
        }
        let mut from = floor.ns;
        for (number, (cause, ns)) in floor.causes.iter().enumerate() {
            let to = from.saturating_add(*ns).min(self.run.end_ns);
            let (left, right) = (self.x_at(from), self.x_at(to));
            paper.open_group(&format!("{cause}: {}", duration(*ns)));
            paper.rect(&format!("cause{}", number % 4), left, y, right - left, BAR);
            let fits = ((right - left - 6.0) / CHARACTER).max(0.0) as usize;
            if fits >= 4 {
                let whole = format!("{cause} {}", duration(*ns));
                let text = if whole.chars().count() <= fits {
                    &whole
                } else {
                    cause
                };
                paper.text("label", left + 3.0, y + 11.0, &shortened(text, fits));
            }
            paper.end();
            from = to;
        }
        let factor = self.run.end_ns as f64 / floor.ns.max(1) as f64;
        let text = format!("{factor:.2} times the floor of {}", duration(floor.ns));
        paper.text("dim", self.area.x + 4.0, y + BAR + 13.0, &text);
    }

    fn stages(&self, paper: &mut Paper) {
        // Two lines, so that neighbours need not overlap; what has no room on either has no name.
        let mut free = [f64::MIN; 2];
        for (ns, stage) in &self.run.marks {
            let x = self.x_at(*ns);
            let text = shortened(stage, 24);
            let Some(line) = (0..2).find(|line| free[*line] <= x) else {
                continue;
            };
            let width = text.chars().count() as f64 * CHARACTER + 10.0;
            free[line] = x + width;
            let y = self.area.y + 12.0 + LINE as f64 * line as f64;
            match x + width > self.area.x + self.area.width {
                true => paper.text("labelend", x - 3.0, y, &text),
                false => paper.text("label", x + 3.0, y, &text),
            }
        }
    }

    fn processes(&self, paper: &mut Paper) {
        let processes = &self.run.processes;
        let row_area = |index: usize| Area {
            y: self.area.y + 2.0 + (index * ROW) as f64,
            height: ROW as f64 - 2.0,
            ..self.area
        };
        let mut tree = Path::default();
        for (index, row) in processes.rows.iter().enumerate() {
            if let Some(parent) = row.parent {
                let x = self.x_at(row.from_ns);
                let parent = row_area(parent as usize);
                tree.go(x, parent.y + parent.height / 2.0).down(row_area(index).y);
            }
        }
        paper.path("tree", &tree);
        // Coarser, where there is more to draw than fits.
        let (mut pixels, mut rows) = (1, self.rows(1));
        while rows.iter().flatten().map(Path::commands).sum::<usize>() > POINTS / self.picture.runs.len() {
            pixels *= 2;
            rows = self.rows(pixels);
        }
        for (index, (row, [run, wait])) in processes.rows.iter().zip(rows).enumerate() {
            let area = row_area(index);
            let (left, right) = (
                self.x_at(row.from_ns),
                self.x_at(row.to_ns).max(self.x_at(row.from_ns) + 1.0),
            );
            paper.open_group(&format!(
                "{} {}: {} to {}",
                row.label(),
                shortened(&row.path, 200),
                duration(row.from_ns),
                duration(row.to_ns)
            ));
            let thick = if processes.has_slices { area.height } else { 4.0 };
            paper.rect(
                "alive",
                left,
                area.y + (area.height - thick) / 2.0,
                right - left,
                thick,
            );
            paper.path(if processes.has_slices { "run" } else { "plain" }, &run);
            paper.path("wait", &wait);
            let label = row.label();
            let width = label.chars().count() as f64 * CHARACTER;
            let (x, class) = match left + width + 6.0 > self.area.x + self.area.width {
                true => ((left - 4.0).max(self.area.x + width), "labelend"),
                false => (left + 4.0, "label"),
            };
            paper.text(class, x, area.y + 10.0, &label);
            paper.end();
        }
    }

    /// What the rows of processes did, in intervals of so many pixels: running from below, waiting from
    /// above; or when they used pages, where no more is known.
    fn rows(&self, pixels: usize) -> Vec<[Path; 2]> {
        let count = (self.pixels() / pixels).max(1);
        let span_ns = self.picture.span_ns;
        let one = |(index, row): (usize, &crate::chart::picture::Row)| {
            let area = Area {
                y: self.area.y + 2.0 + (index * ROW) as f64,
                height: ROW as f64 - 2.0,
                ..self.area
            };
            if !self.run.processes.has_slices {
                let mut uses = Bins::new(span_ns, count);
                for ns in &row.uses {
                    uses.add(*ns, *ns, 1.0);
                }
                return [filled(area, &uses.sums(), 1.0, false), Path::default()];
            }
            let (run, wait): (Vec<f64>, Vec<f64>) = row.shares(span_ns, count).into_iter().unzip();
            [filled(area, &run, 1.0, false), filled(area, &wait, 1.0, true)]
        };
        self.run.processes.rows.iter().enumerate().map(one).collect()
    }

    fn cpu(&self, paper: &mut Paper) {
        let samples = self.run.processors.iter();
        let path = self.sampled(
            samples.map(|sample| (sample.time_ns, f64::from(sample.busy))),
            1.0,
            true,
        );
        paper.path("run", &path);
        self.most(paper, "100 %");
    }

    /// Samples, each of the interval before it, or of the moment: filled, or a line.
    fn sampled(&self, samples: impl Iterator<Item = (u64, f64)>, most: f64, fill: bool) -> Path {
        let count = self.pixels().max(1);
        let values = sampled(self.picture.span_ns, count, samples);
        let area = Area {
            width: self.area.width * values.len() as f64 / count as f64,
            ..self.area
        };
        match fill {
            true => filled(area, &values, most, false),
            false => line(area, &values, most),
        }
    }

    fn memory(&self, paper: &mut Paper) {
        let most = self.picture.most_memory();
        let samples_of = |value: fn(&headstart_model::activity::MemorySample) -> u64| {
            self.run
                .memory
                .iter()
                .map(move |sample| (sample.time_ns, value(sample) as f64))
        };
        paper.path(
            "cache",
            &self.sampled(samples_of(|sample| sample.page_cache), most, true),
        );
        paper.path(
            "dirty",
            &self.sampled(samples_of(|sample| sample.dirty), most, true),
        );
        paper.path(
            "freeline",
            &self.sampled(samples_of(|sample| sample.free), most, false),
        );
        self.most(paper, &bytes(most as u64));
    }

    fn uses(&self, paper: &mut Paper) {
        let most = self.picture.most_pages();
        let count = self.pixels();
        let mut sums = vec![0.0; count];
        let mut stacks = Vec::new();
        for (service, class, _) in SERVICES {
            let fresh = self.run.files.by_time(service, self.picture.span_ns, count);
            let mut so_far = 0.0;
            for (sum, fresh) in sums.iter_mut().zip(fresh) {
                so_far += fresh;
                *sum += so_far;
            }
            stacks.push((class, sums.clone(), so_far > 0.0));
        }
        let ended = place(self.run.end_ns, self.picture.span_ns, count) + 1;
        let area = Area {
            width: self.area.width * ended as f64 / count.max(1) as f64,
            ..self.area
        };
        // The highest first: the others are drawn over it.
        for (class, values, any) in stacks.into_iter().rev() {
            if any {
                paper.path(
                    class,
                    &filled(area, &values[..ended.min(count)], most as f64, false),
                );
            }
        }
        self.most(paper, &bytes(most.saturating_mul(u64::from(self.run.page_size))));
    }

    /// Points in as many cells as may be drawn.
    fn points(&self, tallest: f64, add: impl Fn(&mut Cells)) -> [Path; 4] {
        let mut pixels = 2.0;
        loop {
            let mut cells = Cells::new(self.area, pixels, tallest);
            add(&mut cells);
            let paths = cells.paths();
            if paths.iter().map(Path::commands).sum::<usize>() <= POINTS / self.parts {
                return paths;
            }
            pixels *= 1.5;
        }
    }

    fn files(&self, paper: &mut Paper) {
        let rows = self.picture.most_files().max(1);
        let paths = self.points(self.area.height / rows as f64, |cells| {
            let (columns, lines) = cells.size();
            for dot in &self.run.files.dots {
                let column = place(dot.time_ns, self.picture.span_ns, columns);
                let line = place(u64::from(dot.row), rows as u64, lines);
                cells.add(column, line, dot.service as usize, dot.pages);
            }
        });
        for ((_, class, _), path) in SERVICES.iter().zip(&paths) {
            paper.path(class, path);
        }
        self.most(paper, &format!("{} files", self.run.files.rows.len()));
    }

    fn services(&self, paper: &mut Paper) {
        let most = self.picture.most_pages_of_service(self.pixels());
        for (index, (service, class, _)) in SERVICES.into_iter().enumerate() {
            let area = Area {
                y: self.area.y + (index * LINE) as f64,
                height: LINE as f64 - 2.0,
                ..self.area
            };
            let sums = self
                .run
                .files
                .by_time(service, self.picture.span_ns, self.pixels());
            // By its root, so that few pages are seen beside many.
            let roots: Vec<f64> = sums.into_iter().map(f64::sqrt).collect();
            paper.path(class, &filled(area, &roots, most.sqrt(), false));
        }
    }

    fn throughput(&self, paper: &mut Paper, device: &Device<'_>, number: usize) {
        let (most, _) = self.picture.most_rates(number, self.pixels());
        let rates = device.rates(self.picture.span_ns, self.pixels());
        paper.path("read", &filled(self.area, &rates.read, most, false));
        paper.path("write", &filled(self.area, &rates.written, most, false));
        self.most(paper, &format!("{}/s", bytes(most as u64)));
    }

    fn depth(&self, paper: &mut Paper, device: &Device<'_>, number: usize) {
        let (_, most) = self.picture.most_rates(number, self.pixels());
        let rates = device.rates(self.picture.span_ns, self.pixels());
        paper.path("depth", &filled(self.area, &rates.depth, most, false));
        self.most(paper, &format!("{most:.0}"));
    }

    fn map(&self, paper: &mut Paper, device: &Device<'_>, number: usize) {
        let (first, end) = self.picture.sectors(number);
        let span = (end - first).max(1);
        paper.path("head", &self.head(device, first, span));
        let paths = self.points(0.0, |cells| {
            let (columns, lines) = cells.size();
            for request in device.placed() {
                let column = place(request.issued_ns, self.picture.span_ns, columns);
                // Low addresses below, as on any axis.
                let line = lines - 1 - place(request.sector - first, span, lines);
                cells.add(column, line, Kind::from_request(request) as usize, 1);
            }
        });
        for ((_, class, _), path) in Kind::ALL.iter().zip(&paths) {
            paper.path(class, path);
        }
        self.most(paper, &bytes(end.saturating_mul(512)));
        let low = bytes(first.saturating_mul(512));
        paper.text("most", self.area.x + 3.0, self.area.bottom() - 3.0, &low);
    }

    /// The way from the end of each request to the next: by pixel the highest and lowest address, between
    /// them a line.
    fn head(&self, device: &Device<'_>, first: u64, span: u64) -> Path {
        let count = self.pixels().max(1);
        let mut reach: Vec<Option<(f64, f64)>> = vec![None; count];
        let mut last_at: Vec<f64> = vec![0.0; count];
        let y = |sector: u64| {
            let share = sector.saturating_sub(first) as f64 / span as f64;
            self.area.bottom() - share.min(1.0) * self.area.height
        };
        let mut previous = None;
        for request in device.placed() {
            let column = place(request.issued_ns, self.picture.span_ns, count);
            let (from, to) = (y(request.sector), y(end(request)));
            let before: f64 = previous.unwrap_or(from);
            let (low, high) = reach[column].unwrap_or((f64::MAX, f64::MIN));
            reach[column] = Some((
                low.min(before).min(from).min(to),
                high.max(before).max(from).max(to),
            ));
            last_at[column] = to;
            previous = Some(to);
        }
        let mut path = Path::default();
        let mut before = None;
        for (column, reach) in reach.into_iter().enumerate() {
            let Some((low, high)) = reach else {
                continue;
            };
            let x = self.area.x + column as f64 + 0.5;
            if before.is_some_and(|before| column - before > 1) {
                path.across(x);
            }
            path.go(x, low).down(high).go(x, last_at[column]);
            before = Some(column);
        }
        path
    }
}

fn end(request: &BlockRequest) -> u64 {
    request.sector.saturating_add(u64::from(request.sectors))
}
