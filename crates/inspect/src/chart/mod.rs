//! Pictures of starts: when each process ran and waited for a disk, what was read, and whether what the start
//! used had been read ahead in time. One self-contained SVG or HTML file; nothing is loaded from anywhere.
//!
//! ```text
//! Trace ──▶ Picture (rows, dots, requests) ──▶ SVG: added up by pixel
//!                                          └──▶ HTML: added up by slots, as many as fit, drawn by a script
//! ```
//!
//! Pure: no system call, no clock. Whatever a trace says, a picture is at most [`MOST_BYTES`] long: no event
//! has an element of its own. Every text of a trace is anybody's, and is drawn as text.

mod bins;
mod html;
mod layout;
mod picture;
mod svg;
mod text;

pub use picture::Pages;
pub use text::xml;

use headstart_model::Trace;
use layout::Layout;
use picture::Picture;

/// The most bytes of a picture: what a mail or a page in a repository takes without a thought.
pub const MOST_BYTES: usize = 1 << 20;

/// A start to draw.
pub struct Start<'a> {
    /// What happened.
    pub trace: &'a Trace,
    /// What it is called in the picture.
    pub name: String,
    /// The least time it could have taken, where that is known.
    pub floor: Option<FloorLine>,
}

/// The least time that any order of reads could give a start on its device, and what it took beyond that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FloorLine {
    /// That time, nanoseconds since the start began.
    pub ns: u64,
    /// What the time above it is due to: names, and nanoseconds each, in the order in which they are drawn.
    pub causes: Vec<(String, u64)>,
}

/// One or two starts as an SVG, side by side on one scale.
pub fn svg(starts: &[Start<'_>]) -> String {
    let picture = Picture::new(starts);
    svg::draw(&picture, &Layout::new(&picture))
}

/// One or two starts as an HTML page, side by side on one scale, with zoom, search and what is under the
/// pointer.
pub fn html(starts: &[Start<'_>]) -> String {
    let picture = Picture::new(starts);
    html::page(&picture, &Layout::new(&picture))
}

/// Pages that a start used, by what a replay had done for them.
pub fn pages(trace: &Trace) -> Pages {
    picture::pages(trace)
}
