//! `headstart apps`: the programs that are known, and what is done for them.

use crate::people::with_names;
use anyhow::Result;
use clap::Subcommand;
use headstart_daemon::programs::Programs;
use headstart_daemon::service::{App, Pays};
use headstart_inspect::human::{ago, bytes, duration};
use headstart_inspect::table::{Table, facts};
use headstart_start::now_unix_ns;
use headstart_start_commands::context::Output;
use serde::Serialize;
use serde_json::json;
use std::path::PathBuf;

/// The programs whose starts are read ahead for, and what is done for them.
///
/// Asks the daemon; if it does not run, or with --state, reads the state directory itself. root sees all
/// programs and may change what is done for them; other users see their own starts.
///
/// A KEY is a name that `list` prints, or the path of a program or script.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// The programs that are known.
    List {
        #[command(flatten)]
        output_form: Output,
    },
    /// One program.
    Show(OfKey),
    /// From the next start on, read ahead for a program again.
    Enable(OfKey),
    /// From the next start on, do nothing for a program: the daemon and `headstart run` of this state
    /// directory bypass it; what was learned stays.
    Disable(OfKey),
    /// Forget all that is known of a program.
    Forget(OfKey),
    /// Have the daemon read now what a program needs, in the background.
    Now(OfKey),
}

#[derive(Debug, clap::Args)]
struct OfKey {
    /// The program.
    #[arg(value_name = "KEY")]
    key: String,
    #[command(flatten)]
    output_form: Output,
}

/// A program, as documents tell of it.
#[derive(Serialize)]
struct Document {
    key: String,
    enabled: bool,
    starts: u64,
    replays: u64,
    /// Against the median of cold starts without a replay; null until a difference is shown (`verdict`), and
    /// for others than root.
    seconds_saved: Option<f64>,
    last_start_unix_ns: Option<u64>,
    /// null for others than root.
    verdict: Option<&'static str>,
    /// Why its starts are bypassed, if they are.
    bypassed: Option<String>,
}

impl From<App> for Document {
    fn from(app: App) -> Document {
        let verdict = app.verdict.map(|pays| match pays {
            Pays::TooFew => "too-few",
            Pays::NoDifference => "no-difference",
            Pays::Faster => "faster",
            Pays::Slower => "slower",
        });
        Document {
            key: app.key,
            enabled: app.enabled,
            starts: app.starts,
            replays: app.replays,
            seconds_saved: app.seconds_saved,
            last_start_unix_ns: app.last_start_unix_ns,
            verdict,
            bypassed: app.bypassed,
        }
    }
}

/// What was done.
#[derive(Serialize)]
struct Done {
    key: String,
    done: &'static str,
}

pub fn run(args: Args, state: Option<PathBuf>) -> Result<()> {
    let mut programs = Programs::new(state)?;
    let (named, done) = match args.what {
        What::List { output_form } => {
            let listed: Vec<Document> = programs.list()?.into_iter().map(Document::from).collect();
            return output_form.print(&listed, || with_names(list(&listed)));
        }
        What::Show(named) => {
            let app = Document::from(programs.find_known(&named.key)?);
            return named.output_form.print(&app, || with_names(text(&app)));
        }
        What::Now(named) => {
            let key = programs.find_known(&named.key)?.key;
            let reading = programs.now(&key)?;
            let document = json!({ "key": key, "requests": reading.requests, "bytes": reading.bytes });
            return named.output_form.print(&document, || {
                format!(
                    "{key}: {} requests of {} are read now\n",
                    reading.requests,
                    bytes(reading.bytes)
                )
            });
        }
        What::Enable(named) => (named, "enabled"),
        What::Disable(named) => (named, "disabled"),
        What::Forget(named) => (named, "forgotten"),
    };
    let (key, note) = programs.meant(&named.key, done)?;
    // Before it is done: what is forgotten is not listed any more.
    let others = programs.describe_others(&key, done)?;
    programs.change(&key, done)?;
    let document = Done {
        key: key.to_string(),
        done,
    };
    named.output_form.print(&document, || {
        with_names(format!("{key} is {done}{note}\n{others}"))
    })
}

fn state_of(app: &Document) -> String {
    match (app.enabled, &app.bypassed) {
        (false, _) => "disabled".into(),
        (true, Some(_)) => "bypassed".into(),
        (true, None) => "enabled".into(),
    }
}

fn saved(app: &Document) -> String {
    let seconds = |seconds: f64| duration((seconds.abs() * 1e9) as u64);
    match app.seconds_saved {
        None => match app.verdict {
            Some("too-few") => "too few".into(),
            Some("no-difference") => "nothing".into(),
            _ => "-".into(),
        },
        Some(lost) if lost < 0.0 => format!("-{}", seconds(lost)),
        Some(saved) => seconds(saved),
    }
}

fn last(app: &Document) -> String {
    app.last_start_unix_ns
        .map_or("-".into(), |at| ago(at, now_unix_ns()))
}

fn list(documents: &[Document]) -> String {
    if documents.is_empty() {
        return "No program is known yet: the daemon, or `headstart run -- CMD`, learns them.\n".into();
    }
    let mut table = Table::new(&["state", ">starts", ">replays", ">saved", "last", "program"]);
    for app in documents {
        table.row([
            state_of(app),
            app.starts.to_string(),
            app.replays.to_string(),
            saved(app),
            last(app),
            app.key.clone(),
        ]);
    }
    table.to_string()
}

fn text(app: &Document) -> String {
    let verdict = match app.verdict {
        None => "told to root only",
        Some("too-few") => "not enough cold starts yet, with a replay and without",
        Some("no-difference") => "no difference is shown between cold starts with a replay and without",
        Some(word) => word,
    };
    let why = app.bypassed.clone().map(|why| ("bypassed", why));
    facts(
        [
            ("program", app.key.clone()),
            ("state", state_of(app)),
            ("starts", format!("{}, {} with a replay", app.starts, app.replays)),
            ("saved", saved(app)),
            ("last start", last(app)),
            ("replays are", verdict.into()),
        ]
        .into_iter()
        .chain(why),
    )
}
