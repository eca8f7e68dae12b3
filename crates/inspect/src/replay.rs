//! What a replay did, as text and as a JSON document.

use crate::human::{bytes, duration, percent};
use crate::outcome::{decisions, skipped};
use crate::table::facts;
use headstart_model::outcome::{Decisions, ReplayReport, Skipped};
use headstart_model::plan::{Plan, RequestKind};
use serde::Serialize;

/// What a replay did.
#[derive(Debug, Serialize)]
pub struct View {
    /// Whose plan.
    pub key: String,
    /// How long it took.
    pub replay_ns: u64,
    /// Metadata requests issued.
    pub metadata_requests: u64,
    /// Paths looked up, opened or listed.
    pub opens: u64,
    /// Data requests issued.
    pub data_requests: u64,
    /// Data bytes asked for.
    pub data_bytes: u64,
    /// Pages they touch.
    pub data_pages: u64,
    /// Data pages that were in memory before.
    pub resident_pages: u64,
    /// Data pages in memory at its end.
    pub arrived_pages: u64,
    /// Granules of lazily filled volumes that were fetched.
    pub fetched: u64,
    /// What was not issued.
    pub skipped: Skipped,
    /// Memory available when it began, bytes.
    pub memory_available: u64,
    /// Share of time in which some task waited for memory, percent.
    pub memory_pressure: Option<f32>,
    /// What its governor decided.
    pub decisions: Decisions,
    /// Why it stopped before its end.
    pub stopped: Option<String>,
}

/// Sums a report up.
pub fn view(plan: &Plan<'_>, report: &ReplayReport) -> View {
    let mut view = View {
        key: plan.key().into(),
        replay_ns: report.replay_ns,
        metadata_requests: 0,
        opens: 0,
        data_requests: 0,
        data_bytes: 0,
        data_pages: 0,
        resident_pages: 0,
        arrived_pages: 0,
        fetched: report.fetched,
        skipped: report.skipped,
        memory_available: report.memory_available,
        memory_pressure: report.memory_pressure,
        decisions: report.decisions,
        stopped: report.stopped.clone(),
    };
    let requests: Vec<_> = plan.requests().collect();
    let page_size = u64::from(plan.page_size().max(1));
    for issued in &report.issued {
        let Some(request) = requests.get(issued.request as usize) else {
            continue;
        };
        match request.kind {
            RequestKind::Metadata => view.metadata_requests += 1,
            RequestKind::Stat | RequestKind::List => view.opens += 1,
            RequestKind::Data => {
                view.data_requests += 1;
                view.data_bytes = view.data_bytes.saturating_add(request.length);
                let end = request.offset.saturating_add(request.length).div_ceil(page_size);
                view.data_pages += end.saturating_sub(request.offset / page_size);
                view.resident_pages += issued
                    .resident
                    .iter()
                    .map(|r| r.end.saturating_sub(r.start))
                    .sum::<u64>();
                view.arrived_pages += issued.arrived_pages;
            }
        }
    }
    view
}

/// The sum for people.
pub fn text(view: &View) -> String {
    facts([
        (
            "replayed",
            format!("{} in {}", view.key, duration(view.replay_ns)),
        ),
        (
            "metadata",
            format!(
                "{} requests, {} paths looked up",
                view.metadata_requests, view.opens
            ),
        ),
        (
            "data",
            format!("{} in {} requests", bytes(view.data_bytes), view.data_requests),
        ),
        (
            "in memory",
            format!(
                "{} before, {} after",
                percent(view.resident_pages, view.data_pages),
                percent(view.arrived_pages, view.data_pages)
            ),
        ),
        ("governor", decisions(&view.decisions)),
        ("skipped", skipped(&view.skipped)),
        (
            "stopped early",
            view.stopped.clone().unwrap_or_else(|| "no".into()),
        ),
    ])
}
