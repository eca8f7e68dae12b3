//! The worker: replays and records beside the command, then learns.

use crate::complain_once::is_news;
use crate::fate::{Fate, Watch};
use crate::message::{Message, receive, send};
use crate::{Job, Purpose};
use anyhow::Context;
use headstart_model::outcome::Mode;
use headstart_model::plan::PlanFile;
use headstart_model::trace::EndReason;
use headstart_model::{NamedFiles, Trace};
use headstart_record::{RecordError, Recorder};
use headstart_replay::{Forks, Options, Replay};
use headstart_start::config;
use headstart_start::deadline::{self, Deadline, LastLimit};
use headstart_start::decide::record_every;
use headstart_start::finish::{self, Finished, Rules};
use headstart_start::keys::{self, StartKey};
use headstart_start::notes::Notes;
use headstart_start::{Over, Start, StartRequest};
use headstart_system::fault_around::NoFaultAround;
use headstart_system::limits::{self, bound_memory};
use headstart_system::mounts::MountTable;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// What is read ahead is closed within this time after the command's end, as a rule: a read that is under way
/// comes to its end first, and where others wait for the same disk there are some before it (0.26 s with
/// three writers beside). A caller is not kept for longer.
pub(crate) const LETS_GO_WITHIN: Duration = Duration::from_secs(1);

/// How often the process looks around while nothing records.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Why a start whose beginning was not seen teaches nothing.
const AHEAD: &str = "the command was released before its recorder was ready";

/// Does the job; `stream` leads to the supervisor.
pub fn work(stream: UnixStream, job: Job, mut start: Start, last: &LastLimit) -> i32 {
    let mut notes = Notes::default();
    // Where it cannot be said memory runs out for all alike.
    let _ = limits::goes_first();
    if let Err(error) = bound_memory(limits::MEMORY) {
        notes.add(format!("the memory of this process is not bounded: {error}"));
    }
    for line in std::mem::take(&mut start.lines) {
        notes.add(line);
    }
    let options = Options {
        forks: Forks::Caller,
        ..Options::new(job.origin.instant)
    };
    if let Err(error) = start.start_replay(options) {
        notes.add(format!("not replaying: {error}"));
    }
    let Some(attached) = attach(&stream, &job, &start, &mut notes) else {
        return 1;
    };
    let Attached {
        recorder,
        exact,
        wait,
    } = attached;
    let Ok(answer) = stream.try_clone() else { return 1 };
    // A supervisor that is gone cannot be told; the watch notices.
    let _ = send(&answer, Message::Ready(line_if_new(&job, notes.take())));
    let stopper = start.replay().map(Replay::stopper);
    let may_be_unmounted = start
        .replay()
        .is_some_and(|replay| reads_what_may_be_unmounted(replay.plan()));
    let watch = Watch::start(stream, move || match stopper {
        Some(stopper) if may_be_unmounted => stopper.and_wait(LETS_GO_WITHIN),
        Some(stopper) => stopper.stop_requests(),
        None => {}
    });
    let stop = || {
        if let (Some(replay), true) = (start.replay(), watch.fate() != Fate::Running) {
            replay.stop();
        }
    };
    let (recorded, reason, _deadline) = match recorder {
        Some(recorder) => record_to_the_end(recorder, &watch, stop, last),
        None => {
            let (reason, deadline) = wait_for_the_end(&watch, job.record.limit, stop, last);
            (None, reason, deadline)
        }
    };
    let was_exact = exact.is_some();
    drop(exact);
    if watch.fate() == Fate::NotStarted {
        let _ = send(&answer, Message::Done(String::new()));
        return 0;
    }
    let result = match &job.purpose {
        Purpose::Trace { .. } if watch.went_ahead() => Err(anyhow::anyhow!("no trace was written: {AHEAD}")),
        Purpose::Trace { path, summarize } => save(path, recorded, *summarize),
        Purpose::Loop(asked) => {
            let over = start.end(watch.fate() != Fate::Running, was_exact);
            finish(&job, asked, over, (&watch, wait), recorded, reason, &mut notes)
        }
    };
    report(&answer, &job, result, notes)
}

/// The line, unless it was printed for an earlier start. Who records a trace always gets it.
fn line_if_new(job: &Job, line: String) -> String {
    match &job.purpose {
        Purpose::Loop(asked) if !line.is_empty() && !job.document && !is_news(Some(&asked.store), &line) => {
            String::new()
        }
        _ => line,
    }
}

/// What records a start, and how long the command waited for that.
struct Attached {
    /// The recorder, or why there is none; `None` where the start is not to be recorded.
    recorder: Option<Result<Recorder, RecordError>>,
    /// What has the kernel map nothing around a fault meanwhile.
    exact: Option<NoFaultAround>,
    wait: Wait,
}

/// How long a command waited before its first instruction.
#[derive(Clone, Copy)]
struct Wait {
    /// When it was let go.
    until: Instant,
    /// What of it was for the recorder alone.
    for_recorder: Duration,
    /// How long attaching took, beside a replay or alone.
    attach: Duration,
}

/// Attaches the recorder before the command's first instruction, and waits for the barrier. Nothing where
/// nothing is to be done any more.
fn attach(stream: &UnixStream, job: &Job, start: &Start, notes: &mut Notes) -> Option<Attached> {
    let mut record = job.record.clone();
    record.replayed = start.replay().is_some();
    let begun = Instant::now();
    // A chart is asked for of this start; and one whose replay could not begin is recorded, as others are.
    let is_recorded = start.is_to_be_recorded() || record.activity || start.mode() == Mode::Declined;
    let recorder = is_recorded.then(|| Recorder::start(&record));
    let attach = begun.elapsed();
    // Where it cannot be, the start is recorded as others are.
    let exact = start.is_to_be_exact() && matches!(recorder, Some(Ok(_)));
    let exact = exact.then(|| NoFaultAround::start(record.limit).ok()).flatten();
    let Ok(Message::Command(pid)) = receive(stream) else {
        // The supervisor is gone, and the command with it or on its own.
        return None;
    };
    let recorder =
        recorder.map(|recorder| recorder.and_then(|mut running| running.add_root(pid).map(|()| running)));
    let released = start.replay().and_then(|replay| {
        let stands = replay.barrier_up();
        replay.wait_released();
        stands.then(Instant::now).or(replay.released_at())
    });
    let until = Instant::now();
    let alone_since = released.map_or(begun, |at| at.max(begun));
    let wait = Wait {
        until,
        for_recorder: until.duration_since(alone_since).min(attach),
        attach,
    };
    if let (Some(Err(error)), Purpose::Trace { .. }) = (&recorder, &job.purpose) {
        // Nothing to do without: the supervisor is told, or is gone.
        let _ = send(stream, Message::Refused(error.to_string()));
        return None;
    }
    if let Some(Err(error)) = &recorder {
        notes.add(format!("not recording: {error}"));
    }
    let activity = recorder.as_ref().and_then(|recorder| recorder.as_ref().ok());
    if let Some(why) = activity.and_then(Recorder::no_activity) {
        notes.add(format!("recording without what a chart needs: {why}"));
    }
    Some(Attached {
        recorder,
        exact,
        wait,
    })
}

/// Reviews the start, learns from it and plans the next; the document of what was done.
fn finish(
    job: &Job,
    asked: &StartRequest,
    over: Over,
    (watch, wait): (&Watch, Wait),
    recorded: Option<Result<Trace, RecordError>>,
    reason: EndReason,
    notes: &mut Notes,
) -> anyhow::Result<String> {
    let StartRequest {
        store,
        key,
        control_every,
        arguments,
        ..
    } = asked;
    let unanswered = over.replayed.iter().flat_map(|it| &it.report.unanswered);
    unanswered.for_each(|mount| {
        notes.add(format!(
            "{mount} did not answer what was read ahead there: it was given up"
        ));
    });
    let whose = StartKey {
        key: key.clone(),
        rest: job.rest.clone(),
    };
    let turned_out = match &recorded {
        Some(Ok(trace)) => {
            keys::turned_out(store, &whose, &keys::LocalNames, trace).unwrap_or_else(|error| {
                notes.add(error.to_string());
                None
            })
        }
        _ => None,
    };
    let took = match watch.fate() {
        Fate::Ended(ended, at) => Some((ended.status, at.duration_since(job.origin.instant))),
        _ => None,
    };
    // How long one takes that goes on only its recording tells.
    let record_every = took.map_or(1, |(_, took)| record_every(ns(wait.attach), Some(ns(took))));
    let configured = config::read(Path::new(config::FILE), &mut |line| notes.add(line)).programs;
    let finished = Finished {
        store,
        origin_unix_ns: job.origin.unix_ns,
        key: turned_out.as_ref().unwrap_or(key),
        ended: took.map(|(status, took)| {
            let held_ns = match over.mode {
                Mode::Replay => ns(wait.for_recorder) - ns(wait.for_recorder) / u64::from(record_every),
                // Without headstart it would not have waited at all.
                _ => ns(wait.until.duration_since(job.origin.instant)),
            };
            (Some(status), took.saturating_sub(Duration::from_nanos(held_ns)))
        }),
        over,
        recorded,
        reason,
        rules: Rules {
            unfit: watch.went_ahead().then(|| AHEAD.into()),
            named: MountTable::read()
                .map_or_else(|_| NamedFiles::default(), |mounts| arguments.named(&mounts)),
            record_every,
            ..Rules::of_programs(*control_every, configured.exact_pages)
        },
    };
    let outcome = finish::work(finished, notes)?;
    serde_json::to_string(&outcome).context("cannot make JSON of what was done")
}

/// Tells the supervisor what was done; the status of this process. Whoever does not listen any more has not
/// asked.
fn report(answer: &UnixStream, job: &Job, result: anyhow::Result<String>, mut notes: Notes) -> i32 {
    match result {
        Ok(text) => {
            if job.document {
                let _ = send(answer, Message::Document(text));
            }
            let _ = send(answer, Message::Done(line_if_new(job, notes.take())));
            0
        }
        Err(error) => {
            let why = format!("{error:#}");
            notes.add(why.clone());
            let _ = send(answer, Message::Failed(line_if_new(job, why)));
            1
        }
    }
}

/// Whether some of a plan's files are on another file system than the root's, which nobody can unmount.
fn reads_what_may_be_unmounted(plan: &PlanFile) -> bool {
    let Ok(plan) = plan.plan() else { return false };
    let mut devices = (0..plan.device_count()).filter_map(|index| plan.device(index));
    devices.any(|device| device.mount_point.as_bytes() != b"/")
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Waits for the command's end, so long at most, and calls `over` at once then. What follows has a deadline.
fn wait_for_the_end(
    watch: &Watch,
    limit: Duration,
    over: impl FnOnce(),
    last: &LastLimit,
) -> (EndReason, Deadline) {
    let begun = Instant::now();
    let reason = loop {
        last.renew();
        let left = limit.saturating_sub(begun.elapsed());
        match watch.wait(LOOK_EVERY.min(left)) {
            Fate::Ended(ended, _) => break EndReason::Exit(ended.status),
            Fate::Running if left.is_zero() => break EndReason::Limit,
            Fate::Running => {}
            Fate::NotStarted | Fate::Unknown => break EndReason::Interrupted,
        }
    };
    over();
    (reason, Deadline::arm(deadline::FINISH))
}

/// Records until the start has ended, and calls `over` at once then; where nothing can record, waits for the
/// command's end. What follows has a deadline.
fn record_to_the_end(
    recorder: Result<Recorder, RecordError>,
    watch: &Watch,
    over: impl FnOnce(),
    last: &LastLimit,
) -> (Option<Result<Trace, RecordError>>, EndReason, Deadline) {
    let status = || {
        if last.renew() {
            watch.check();
        }
        match watch.fate() {
            Fate::Ended(ended, _) => Some(ended.status),
            // Only to come to an end: nothing is made of it.
            Fate::NotStarted => Some(0),
            Fate::Running | Fate::Unknown => None,
        }
    };
    match recorder {
        Ok(recorder) => {
            // The supervisor tells of the end; a pidfd would only tell without the status.
            let reason = recorder.run_until(&watch.lost, None, status);
            over();
            let deadline = Deadline::arm(deadline::FINISH);
            let so_far = (recorder.progress().cpu_seconds * 1e9) as u64;
            let cpu_ns = match watch.fate() {
                Fate::Ended(ended, _) => ended.cpu_ns,
                _ => so_far,
            };
            let trace = recorder.finish(reason).map(|mut trace| {
                trace.lost.late = watch.went_ahead();
                trace.end.cpu_ns = Some(cpu_ns).filter(|ns| *ns > 0);
                trace
            });
            (Some(trace), reason, deadline)
        }
        Err(error) => {
            let (reason, deadline) = wait_for_the_end(watch, Duration::MAX, over, last);
            (Some(Err(error)), reason, deadline)
        }
    }
}

/// Writes the trace that was asked for, and gives the document of it.
fn save(
    path: &Path,
    recorded: Option<Result<Trace, RecordError>>,
    summarize: fn(&Trace, usize) -> anyhow::Result<String>,
) -> anyhow::Result<String> {
    let recorded = recorded.context("no trace was written: nothing was recorded")?;
    let trace = recorded.map_err(|error| anyhow::anyhow!("no trace was written: {error}"))?;
    let bytes = trace.to_bytes()?;
    headstart_store::write_output(path, &bytes)?;
    match trace.unfit() {
        Some(reason) => anyhow::bail!("{} teaches nothing: {reason}", path.display()),
        None => summarize(&trace, bytes.len()),
    }
}
