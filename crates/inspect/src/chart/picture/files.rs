//! Files in the order in which they were first used, and their first uses.

use crate::chart::bins::Bins;
use crate::chart::text::clean;
use headstart_learn::{Served, served};
use headstart_model::Trace;
use serde::Serialize;

/// What a replay had done for pages when they were used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    /// They had been asked for.
    InTime,
    /// They were asked for afterwards.
    Late,
    /// The replay did not ask for them.
    Missed,
    /// There was no replay, or none could ask for them.
    NotPrefetched,
}

/// All of them, in the order in which they are drawn: name in the picture's style, and for people.
pub const SERVICES: [(Service, &str, &str); 4] = [
    (Service::InTime, "intime", "read ahead in time"),
    (Service::Late, "late", "late"),
    (Service::Missed, "missed", "missed"),
    (Service::NotPrefetched, "plain", "not read ahead"),
];

/// Pages used, by what a replay had done for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pages {
    /// Asked for before they were used.
    pub in_time: u64,
    /// Asked for after they were used.
    pub late: u64,
    /// Not asked for by a replay that could have.
    pub missed: u64,
    /// Without a replay, or of what none may ask for.
    pub not_prefetched: u64,
}

impl Pages {
    /// Whether a replay could have served any.
    pub fn served(&self) -> bool {
        self.in_time + self.late + self.missed > 0
    }

    /// All of them.
    pub fn all(&self) -> u64 {
        let Pages {
            in_time,
            late,
            missed,
            not_prefetched,
        } = *self;
        in_time + late + missed + not_prefetched
    }
}

/// Files and their first uses.
pub struct Files {
    /// By their first use.
    pub rows: Vec<FileRow>,
    /// By time.
    pub dots: Vec<Dot>,
    /// All pages.
    pub pages: Pages,
}

/// A file.
pub struct FileRow {
    /// Its path, harmless.
    pub path: String,
    /// Pages of it that were used.
    pub pages: u64,
}

/// First uses of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dot {
    /// When.
    pub time_ns: u64,
    /// Index of the row.
    pub row: u32,
    /// What had been done for them; of a use with several, each is a dot of its own.
    pub service: Service,
    /// Index of the process, of the trace.
    pub process: u32,
    /// How many.
    pub pages: u64,
}

/// Characters of a path.
const PATH: usize = 1024;

/// What the replay had done for all pages used.
pub fn pages(trace: &Trace) -> Pages {
    sum(&served(trace))
}

fn sum(served: &[Served]) -> Pages {
    served.iter().fold(Pages::default(), |sum, pages| Pages {
        in_time: sum.in_time + pages.in_time,
        late: sum.late + pages.late,
        missed: sum.missed + pages.missed,
        not_prefetched: sum.not_prefetched + pages.not_prefetched,
    })
}

impl Files {
    /// Collects the files of a trace.
    pub fn from_trace(trace: &Trace) -> Files {
        let served = served(trace);
        let pages = sum(&served);
        const NONE: u32 = u32::MAX;
        let mut row_of = vec![NONE; trace.files.len()];
        let mut rows: Vec<FileRow> = Vec::new();
        let mut dots = Vec::with_capacity(served.len());
        for (used, served) in trace.all_uses().zip(served) {
            let parts = [
                (Service::InTime, served.in_time),
                (Service::Late, served.late),
                (Service::Missed, served.missed),
                (Service::NotPrefetched, served.not_prefetched),
            ];
            for (service, pages) in parts.into_iter().filter(|(_, pages)| *pages > 0) {
                let index = used.file as usize;
                if row_of[index] == NONE {
                    row_of[index] = rows.len() as u32;
                    let path = clean(&trace.files[index].path.to_string(), PATH);
                    rows.push(FileRow { path, pages: 0 });
                }
                let row = row_of[index];
                rows[row as usize].pages += pages;
                dots.push(Dot {
                    time_ns: used.time_ns,
                    row,
                    service,
                    process: used.process,
                    pages,
                });
            }
        }
        dots.sort_by_key(|dot| dot.time_ns);
        Files { rows, dots, pages }
    }

    /// Pages of which a replay had done that, in so many intervals.
    pub fn by_time(&self, service: Service, span_ns: u64, count: usize) -> Vec<f64> {
        let mut bins = Bins::new(span_ns, count);
        for dot in self.dots.iter().filter(|dot| dot.service == service) {
            bins.add(dot.time_ns, dot.time_ns, dot.pages as f64);
        }
        bins.sums()
    }
}
