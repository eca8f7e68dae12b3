//! `headstart chart`: a start as a picture.

use crate::files;
use crate::floor::{Wanted, start_floor};
use crate::starts::{FoundStart, find};
use anyhow::{Result, bail};
use headstart_inspect::chart::{FloorLine, Pages, Start, html, pages, svg};
use headstart_inspect::human::{bytes, duration};
use headstart_start::complain;
use headstart_start::machine::Costs;
use headstart_start::progress::Progress;
use headstart_start_commands::context::Output;
use headstart_store::{Store, write_output};
use serde::Serialize;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Draw a start: who ran and waited, what was read, and whether it had been read ahead in time.
///
/// The picture is one file that loads nothing: an SVG, or an HTML page with zoom, search and what is under
/// the pointer. Lanes share one time axis: stages, processors, throughput, use, queue and addresses of disks,
/// memory, first uses of files in the colour of what a replay had done for them, and processes. What a trace
/// lacks is left out and said. Only its owner can read the file: paths tell what somebody runs.
///
/// The document of --json has the picture's path and bytes, and of each start its name, how long it took, its
/// floor, the pages that it used by what a replay had done for them, and how many uses, requests to devices
/// and slices of threads were drawn.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The start: the last one that is kept of boots or of a key, or a trace.
    #[arg(value_name = "boot|KEY|TRACE", default_value = "boot")]
    start: PathBuf,
    /// The picture to write, *.svg or *.html [default: named after the start, *.html, in this directory].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Another start to draw beside it, on the same scale.
    #[arg(long, value_name = "boot|KEY|TRACE")]
    compare: Option<PathBuf>,
    /// Leave out the floor and what lies above it: for it every file is looked up, and a device whose cost is
    /// not known is measured for a second.
    #[arg(long)]
    no_floor: bool,
    #[command(flatten)]
    output_form: Output,
}

/// What was drawn.
#[derive(Serialize)]
struct Drawn {
    picture: PathBuf,
    bytes: usize,
    starts: Vec<DrawnStart>,
}

#[derive(Serialize)]
struct DrawnStart {
    name: String,
    elapsed_ns: u64,
    floor_ns: Option<u64>,
    pages: Pages,
    uses: usize,
    requests: usize,
    slices: usize,
}

/// The forms of a picture.
#[derive(Clone, Copy)]
enum Form {
    Svg,
    Html,
}

pub fn run(args: Args, store: &Store) -> Result<()> {
    let output = match args.output {
        Some(output) => output,
        None => default_output(&args.start),
    };
    let form = form(&output)?;
    files::refuse_all_but_files(&output)?;
    let progress = Progress::for_terminal();
    progress.show("reading what was recorded");
    let mut recorded = vec![find(&args.start, Wanted::Any, store)?];
    if let Some(other) = &args.compare {
        recorded.push(find(other, Wanted::Any, store)?);
    }
    let starts: Vec<Start<'_>> = (recorded.iter())
        .map(|recorded| {
            let floor = (!args.no_floor).then(|| {
                progress.show(&format!(
                    "looking up {} files of {}",
                    recorded.start.trace.files.len(),
                    recorded.name
                ));
                floor(recorded, store)
            });
            Start {
                trace: &recorded.start.trace,
                name: recorded.name.clone(),
                floor: floor.flatten(),
            }
        })
        .collect();
    let uses: usize = starts.iter().map(|start| start.trace.use_rows()).sum();
    progress.show(&format!("drawing {uses} uses"));
    let picture = match form {
        Form::Svg => svg(&starts),
        Form::Html => html(&starts),
    };
    write_output(&output, picture.as_bytes())?;
    drop(progress);
    let drawn = Drawn {
        bytes: picture.len(),
        starts: starts.iter().map(DrawnStart::from_start).collect(),
        picture: output,
    };
    args.output_form.print(&drawn, || text(&drawn))
}

impl DrawnStart {
    fn from_start(start: &Start<'_>) -> DrawnStart {
        let activity = start.trace.activity.as_ref();
        DrawnStart {
            name: start.name.clone(),
            elapsed_ns: start.trace.end.elapsed_ns,
            floor_ns: start.floor.as_ref().map(|floor| floor.ns),
            pages: pages(start.trace),
            uses: start.trace.use_rows(),
            requests: activity.map_or(0, |activity| activity.requests.len()),
            slices: activity.map_or(0, |activity| activity.slices.len()),
        }
    }
}

fn text(drawn: &Drawn) -> String {
    let mut lines = format!("{}: {}\n", drawn.picture.display(), bytes(drawn.bytes as u64));
    for start in &drawn.starts {
        let took = duration(start.elapsed_ns);
        lines += &format!(
            "  {}: {took}, {} uses, {} requests to devices, {} slices of threads\n",
            start.name, start.uses, start.requests, start.slices
        );
    }
    lines
}

/// The floor of a start, and what lies above it. A picture without is better than none.
fn floor(start: &FoundStart, store: &Store) -> Option<FloorLine> {
    let costs = Costs::new(store, None);
    let floor_of = start.of.as_ref();
    match start_floor(&start.start, floor_of, &costs, None, &mut |line| complain(&line)) {
        Ok(it) => Some(FloorLine {
            ns: it.floor.floor_ns,
            causes: (it.above.iter())
                .flat_map(|above| above.parts())
                .filter(|(_, ns)| *ns > 0)
                .map(|(name, ns)| (name.into(), ns))
                .collect(),
        }),
        Err(error) => {
            complain(&format!("{}: drawn without its floor: {error:#}", start.name));
            None
        }
    }
}

/// Beside whoever asks, named after the start.
fn default_output(start: &Path) -> PathBuf {
    let stem = start.file_stem().unwrap_or(OsStr::new("start"));
    let mut name = stem.to_owned();
    name.push(".html");
    PathBuf::from(name)
}

fn form(output: &Path) -> Result<Form> {
    match output.extension().and_then(OsStr::to_str) {
        Some("svg") => Ok(Form::Svg),
        Some("html" | "htm") => Ok(Form::Html),
        _ => bail!(
            "{}: the name of a picture ends in .svg or .html",
            output.display()
        ),
    }
}
