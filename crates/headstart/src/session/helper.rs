//! The helper process: replays and records beside the command, then learns.

use super::after::{After, Replayed};
use super::message::{Message, receive, send};
use super::watch::{Fate, Watch};
use super::{Job, Purpose, after, gate, turns};
use anyhow::Context;
use headstart_model::outcome::Mode;
use headstart_model::plan::PlanFile;
use headstart_model::trace::EndReason;
use headstart_model::{Key, Trace};
use headstart_record::{RecordError, Recorder};
use headstart_replay::{Options, Replay};
use headstart_report::trace::Summary;
use headstart_store::{KeyDir, Pass, Store};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Lines for the user: the first one is shown, all go to the log, which is this process's standard error.
#[derive(Default)]
pub struct Notes {
    first: Option<String>,
    all: Vec<String>,
}

impl Notes {
    /// Notes a line.
    pub fn tell(&mut self, line: String) {
        self.log(&line);
        self.all.push(line.clone());
        self.first.get_or_insert(line);
    }

    /// All lines that were told so far.
    pub fn all(&self) -> &[String] {
        &self.all
    }

    /// Writes a line to the log only.
    fn log(&self, line: &str) {
        eprintln!(
            "{}: {line}",
            headstart_report::human::date(crate::context::now_unix_ns())
        );
    }

    /// The first line since the last call.
    pub fn take(&mut self) -> String {
        self.first.take().unwrap_or_default()
    }
}

/// Does the job, told through `stream` of the command.
pub fn work(stream: UnixStream, job: Job) -> i32 {
    let mut notes = Notes::default();
    let (mode, replaying) = match &job.purpose {
        Purpose::Loop {
            store,
            key,
            control_every,
        } => match begin(store, key, *control_every, job.origin, &mut notes) {
            Begun::Shut(why) => return leave_alone(stream, &job, key, &why, &notes),
            Begun::Helped(mode, replaying) => (mode, replaying),
        },
        Purpose::Trace(_) => (Mode::Record, None),
    };
    let mut record = job.record;
    record.replayed = replaying.is_some();
    let mut recorder = Recorder::start(&record);
    let pid = match receive(&stream) {
        Ok(Message::Command(pid)) => pid,
        // headstart is gone, and the command with it or on its own.
        _ => return 1,
    };
    recorder = recorder.and_then(|mut running| running.add_root(pid).map(|()| running));
    if let Some(replaying) = &replaying {
        replaying.replay.wait_held();
    }
    if let (Err(error), Purpose::Trace(_)) = (&recorder, &job.purpose) {
        // Nothing to do without: headstart is told, or is gone.
        let _ = send(&stream, &Message::Refused(error.to_string()));
        return 1;
    }
    if let Err(error) = &recorder {
        notes.tell(format!("not recording: {error}"));
    }
    let Ok(answer) = stream.try_clone() else { return 1 };
    // A headstart that is gone cannot be told; the watch notices.
    let _ = send(&answer, &Message::Ready(notes.take()));
    let watch = Watch::begin(stream);
    let (recorded, reason) = record_to_the_end(recorder, &watch);
    if watch.fate() == Fate::NotStarted {
        let _ = send(&answer, &Message::Done(String::new()));
        return 0;
    }
    let result = match &job.purpose {
        Purpose::Trace(path) => save(path, recorded).and_then(|summary| document(&summary)),
        Purpose::Loop {
            store,
            key,
            control_every,
        } => {
            let replayed = replaying.map(|replaying| replaying.end(&watch));
            let ended = ended(watch.fate(), job.origin);
            let after = After {
                store,
                origin_unix_ns: job.origin_unix_ns,
                key,
                mode,
                recorded,
                reason,
                replayed,
                ended,
                rules: after::Rules::of_programs(*control_every),
            };
            after::work(after, &mut notes).and_then(|outcome| document(&outcome))
        }
    };
    let failed = result.is_err();
    match result {
        Ok(text) if job.document => drop(send(&answer, &Message::Document(text))),
        Ok(_) => {}
        Err(error) => notes.tell(format!("{error:#}")),
    }
    let _ = send(&answer, &Message::Done(notes.take()));
    i32::from(failed)
}

/// A replay that runs, and what it follows.
struct Replaying {
    replay: Replay,
    plan: PlanFile,
}

impl Replaying {
    /// Lets it come to its end, or stops it if the command has ended before.
    fn end(self, watch: &Watch) -> Replayed {
        if watch.fate() != Fate::Running {
            self.replay.stop();
        }
        Replayed {
            report: self.replay.finish(),
            plan: self.plan,
        }
    }
}

/// The command's status, and how long it took, once it has ended.
fn ended(fate: Fate, origin: Instant) -> Option<(Option<i32>, Duration)> {
    match fate {
        Fate::Ended(ended, at) => Some((Some(ended.status), at.duration_since(origin))),
        _ => None,
    }
}

/// What is done for a start.
enum Begun {
    /// Nothing, and why.
    Shut(String),
    /// This.
    Helped(Mode, Option<Replaying>),
}

/// The plan, if it reads anything. That memory has no room for what it would read is told.
pub fn plan_of(kept: &KeyDir, notes: &mut Notes) -> Option<PlanFile> {
    let file = kept.plan().or_tell(|line| notes.tell(line))?;
    let plan = file.plan().ok()?;
    let (cut, requests) = (plan.cut(), plan.requests().count());
    if cut == 0 && requests > 0 {
        notes.tell(
            "when it was planned memory had no room for anything that is known: nothing is read ahead".into(),
        );
    }
    (cut > 0).then_some(file)
}

/// Reads what is known and starts to replay it at once.
fn begin(store: &Store, key: &Key, control_every: u32, origin: Instant, notes: &mut Notes) -> Begun {
    let kept = store.key(key);
    let recorded = |mode| Begun::Helped(mode, None);
    if control_every > 0 {
        let draw = RandomState::new().build_hasher().finish();
        match gate::pass(&kept, draw) {
            (Pass::Shut, gate) => return Begun::Shut(gate.map(|gate| gate.why).unwrap_or_default()),
            (Pass::Look, _) => return recorded(Mode::Control),
            (Pass::Open, _) => {}
        }
    }
    let Some(plan) = plan_of(&kept, notes) else {
        return recorded(Mode::Record);
    };
    if turns::is_control(kept.turns(), control_every) {
        return recorded(Mode::Control);
    }
    let copy = PlanFile(plan.0.clone());
    match Replay::start(copy, Options::new(origin)) {
        Ok(replay) => Begun::Helped(Mode::Replay, Some(Replaying { replay, plan })),
        Err(error) => {
            notes.tell(format!("not replaying: {error}"));
            recorded(Mode::Record)
        }
    }
}

/// Lets the command go at once, and stays only if headstart wants to know how it went.
fn leave_alone(stream: UnixStream, job: &Job, key: &Key, why: &str, notes: &Notes) -> i32 {
    notes.log(&format!("{key}: left alone: {why}"));
    let (Ok(Message::Command(_)), Ok(answer)) = (receive(&stream), stream.try_clone()) else {
        return 1;
    };
    // A headstart that is gone cannot be told.
    let _ = send(&answer, &Message::Ready(String::new()));
    if job.document {
        let fate = Watch::begin(stream).wait();
        if fate != Fate::NotStarted {
            let ended = ended(fate, job.origin);
            let why = format!("left alone: {why}");
            let outcome = after::without_trace(key, Mode::Control, None, ended, job.origin_unix_ns, why);
            if let Ok(text) = document(&outcome) {
                let _ = send(&answer, &Message::Document(text));
            }
        }
    }
    let _ = send(&answer, &Message::Done(String::new()));
    0
}

/// Records until the start has ended; where nothing records, waits for the command's end.
fn record_to_the_end(
    recorder: Result<Recorder, RecordError>,
    watch: &Watch,
) -> (Result<Trace, RecordError>, EndReason) {
    let status = || match watch.fate() {
        Fate::Ended(ended, _) => Some(ended.status),
        // Only to come to an end: nothing is made of it.
        Fate::NotStarted => Some(0),
        Fate::Running | Fate::Unknown => None,
    };
    match recorder {
        Ok(recorder) => {
            // headstart tells of the end; a pidfd would only tell without the status.
            let reason = recorder.run_until(&watch.lost, None, status);
            let so_far = (recorder.activity().cpu_seconds * 1e9) as u64;
            let cpu_ns = match watch.fate() {
                Fate::Ended(ended, _) => ended.cpu_ns,
                _ => so_far,
            };
            let trace = recorder.finish(reason).map(|mut trace| {
                trace.end.cpu_ns = Some(cpu_ns).filter(|ns| *ns > 0);
                trace
            });
            (trace, reason)
        }
        Err(error) => match watch.wait() {
            Fate::Ended(ended, _) => (Err(error), EndReason::Exit(ended.status)),
            _ => (Err(error), EndReason::Interrupted),
        },
    }
}

/// What was done, for whoever asked for it.
fn document(done: &impl serde::Serialize) -> anyhow::Result<String> {
    serde_json::to_string(done).context("cannot make JSON of what was done")
}

/// Writes the trace that was asked for.
fn save(path: &std::path::Path, recorded: Result<Trace, RecordError>) -> anyhow::Result<Summary> {
    let trace = recorded.map_err(|error| anyhow::anyhow!("no trace was written: {error}"))?;
    let bytes = trace.to_bytes()?;
    headstart_store::write_whole(path, &bytes)?;
    match trace.unfit() {
        Some(reason) => anyhow::bail!("{} teaches nothing: {reason}", path.display()),
        None => Ok(Summary::of(&trace, bytes.len())),
    }
}
