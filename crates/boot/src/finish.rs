//! The end of a boot: the boot-failure guard is armed for the next, and how it went is found out, learned
//! from and kept.

use crate::boot::{Boot, StateId};
use crate::boot_report::BootReport;
use crate::end_of_boot::{End, Why};
use crate::manager::Manager;
use crate::marks::{self, monotonic_ns};
use crate::persistence::Persistence;
use crate::run::has_one_processor;
use crate::this_boot::RUN;
use crate::units::INIT;
use crate::{ordinary_boot, stages};
use headstart_model::Trace;
use headstart_model::outcome::Mode;
use headstart_model::profile::Policy;
use headstart_model::trace::{EndReason, stage};
use headstart_record::{RecordError, Recorder};
use headstart_start::bypass::Alone;
use headstart_start::deadline::{self, Deadline};
use headstart_start::decide::Decision;
use headstart_start::finish::{self, Finished, Rules};
use headstart_start::{Start, machine, now_unix_ns};
use headstart_store::Guard;
use headstart_system::features::selinux;
use headstart_system::own_program;
use std::path::Path;
use std::time::Duration;

/// How often systemd is asked whether it has finished after all, when a boot takes longer than it is
/// recorded.
const ASK_LATE_EVERY: Duration = Duration::from_secs(10);
/// The same where it refuses to answer, and nothing tells that anything has changed.
const LOOK_LATE_EVERY: Duration = Duration::from_secs(1);

impl Boot<'_> {
    /// Reviews, learns and keeps; whether it could be kept.
    pub fn finish(
        &mut self,
        recorder: Option<Result<Recorder, RecordError>>,
        was_exact: bool,
        why: Option<Why>,
        end: &End,
    ) -> bool {
        let _deadline = Deadline::arm(deadline::FINISH);
        self.last.ended = Some(
            match why {
                Some(Why::Quiet) if recorder.is_some() => "it was quiet",
                Some(Why::Quiet) => "systemd had finished",
                Some(Why::Limit) => "it took as long as any boot is recorded",
                None if end.is_whole() => "the machine was shut down",
                None => "headstart was told to end before the boot had ended",
            }
            .into(),
        );
        // First of all: it may be gone soon.
        let (mut unfit, times, up_ns) = self.ask_systemd(end);
        let start = std::mem::replace(&mut self.start, Start::new(Decision::Record));
        let over = start.end(true, was_exact);
        let stopped = over.replayed.as_ref().and_then(|it| it.report.stopped.as_ref());
        if let Some(why) = stopped {
            self.notes
                .add(format!("the replay stopped before its end: {why}"));
        }
        let waited_ns = up_ns.map_or(0, |_| end.waited().as_nanos() as u64);
        self.last.waited_ns = waited_ns;
        if self.is_left_alone() {
            unfit = Some("it was left alone".into());
        }
        // But what was asked for is recorded all the same.
        if recorder.is_none() {
            unfit = unfit.or_else(|| self.lasts.why_not(self.store));
        }
        let reason = match why {
            Some(Why::Quiet) => EndReason::Quiet,
            Some(Why::Limit) => EndReason::Limit,
            None if end.is_whole() && self.is_as_far_as_others(&times) => EndReason::Limit,
            None => EndReason::Interrupted,
        };
        let mode = over.mode;
        let marks = stages::with_release(times, self.barrier.released_ns());
        let (_, login_ns) = end.sessions();
        let finish = |recorder| finish(recorder, reason, mode, &marks, login_ns);
        let recorded = recorder.map(|recorder| recorder.and_then(finish));
        let trace = recorded.as_ref().and_then(|recorded| recorded.as_ref().ok());
        let record_every = self.spent.record_every(trace.and_then(|trace| trace.end.cpu_ns));
        // Those to come have the recorder attached one time in so many, and where there is one processor this
        // boot has waited for that.
        let attach_ns = match has_one_processor() {
            true => self.spent.attach_ns,
            false => 0,
        };
        let spared_ns = attach_ns - attach_ns / u64::from(record_every);
        // A boot that did not come to its end is not compared with those that did.
        let told = why.is_none().then(|| rustix::process::Signal::TERM.as_raw());
        let earlier = BootReport::load(&self.kept).unwrap_or_default();
        self.last.memory_needed = self.need.with_earlier(earlier.memory_needed);
        let like_others = why.is_some() && unfit.is_none() && mode != Mode::Replay;
        self.last.alone = match (like_others, up_ns) {
            (true, Some(up_ns)) => Some(Alone {
                own_ns: self
                    .free_ns
                    .saturating_sub(self.own_begin_ns.saturating_add(spared_ns)),
                cpu_ns: self.spent.beside_others_ns(),
                rest_ns: up_ns.saturating_sub(self.free_ns).saturating_sub(waited_ns),
                blocked_ns: trace.and_then(|trace| trace.end.blocked_ns),
            }),
            _ => earlier.alone,
        };
        let rules = Rules {
            policy: Policy::Boot,
            exclude: self.config.boot.excluded(self.store.root()),
            named: Default::default(),
            unfit,
            budget: self.last.memory_needed.map(|needed| self.need.budget(needed)),
            alone: self.last.alone,
            control_every: self.config.boot.control_every,
            record_every,
            exact_pages: self.config.boot.exact_pages,
            tidies: true,
        };
        let finished = Finished {
            store: self.store,
            key: &self.key,
            origin_unix_ns: self.origin_unix_ns,
            over,
            recorded,
            reason,
            // One that never came to an empty job queue is compared by when it had come as far as it does.
            ended: (self.last.took_ns.map(|ns| ns.saturating_sub(waited_ns)))
                .or_else(|| Some(self.last.stages.last()?.1))
                .map(|ns| (told, Duration::from_nanos(ns))),
            rules,
        };
        if self.lasts == Persistence::Frozen {
            self.last.not_learned = finished.rules.unfit.or_else(|| self.lasts.why_not(self.store));
            self.last.notes = self.notes.all().to_vec();
            return false;
        }
        let worked = finish::work(finished, &mut self.notes);
        let is_kept = worked.is_ok();
        // What process 1 is on a cold disk finds headstart by this.
        own_program::note_way_to_itself(&Path::new("/").join(INIT), &|device| {
            machine::stored(self.store, device)
        });
        self.last.not_learned = worked.map_or_else(
            |error| {
                let why = format!("what was learned cannot be kept: {error}");
                self.notes.add(why.clone());
                Some(why)
            },
            |outcome| outcome.not_learned,
        );
        self.last.notes = self.notes.all().to_vec();
        is_kept
    }

    /// Why this boot teaches nothing, when its stages began, and when it was up.
    fn ask_systemd(&mut self, end: &End) -> (Option<String>, Vec<(u64, String)>, Option<u64>) {
        let mut manager = end.manager();
        if let Some(why) = end.refused() {
            let selinux = selinux().filter(|it| it.enforces);
            let context = selinux.as_ref().map(|it| it.context.as_str());
            self.notes.add(refusal(why, context));
        }
        // At the end of a shutdown nobody answers any more.
        let told = end
            .before_shutdown()
            .filter(|_| end.is_shut_down() && manager.is_err());
        let began = match (&mut manager, told) {
            (_, Some(told)) => Ok(told.began_ns),
            (Ok(manager), _) => manager.began_ns(),
            (Err(error), _) => Err(std::io::Error::other(error.to_string())),
        };
        // In its place, or before it, process 1 waits for this process: that is part of the boot.
        let began_ns = began.map_or_else(
            |error| {
                if end.refused().is_none() {
                    self.notes
                        .add(format!("systemd does not tell when the boot began: {error}"));
                }
                self.own_begin_ns
            },
            |systemd_ns| systemd_ns.min(self.own_begin_ns),
        );
        let since = |at: u64| at.saturating_sub(began_ns);
        let ago_ns = since(monotonic_ns());
        let unfit = ordinary_boot::unfit(
            manager.as_mut().ok(),
            now_unix_ns().saturating_sub(ago_ns) / 1_000_000_000,
        );
        let is_mended = end.refused().is_some() && end.has_failed();
        let unfit = unfit.or_else(|| is_mended.then(|| "it went to a shell for somebody to mend it".into()));
        let stages = match (&mut manager, told) {
            (_, Some(told)) => Ok(told.stages.clone()),
            _ if end.refused().is_some() => Ok(stages::without_systemd(
                end.finished_ns(),
                end.sessions().0,
                marks::read(Path::new(RUN)),
            )),
            (Ok(manager), _) => stages::stages(
                manager,
                end.finished_ns(),
                end.sessions().0,
                marks::read(Path::new(RUN)),
            ),
            (Err(error), _) => Err(std::io::Error::other(error.to_string())),
        };
        let times = stages.unwrap_or_else(|error| {
            self.notes.add(format!(
                "the boot's stages are not known: systemd does not tell: {error}"
            ));
            Vec::new()
        });
        self.last.stages = times
            .iter()
            .map(|(at, stage)| (stage.clone(), since(*at)))
            .collect();
        let session = times
            .iter()
            .find(|(_, name)| name == stage::SESSION)
            .map(|(at, _)| *at);
        let up_ns = end.finished_ns().map(|at| at.max(session.unwrap_or(0)));
        self.last.took_ns = up_ns.map(since);
        (unfit, times, up_ns)
    }

    /// Whether it has come as far as boots are known to: by one that was shut down before others are up, what
    /// comes then would be forgotten.
    fn is_as_far_as_others(&mut self, times: &[(u64, String)]) -> bool {
        let known = self.kept.profile().or_tell(|line| self.notes.add(line));
        let Some(known) = known else { return true };
        [stage::UP, stage::SESSION]
            .into_iter()
            .filter(|stage| known.stages.iter().any(|known| known == stage))
            .all(|stage| times.iter().any(|(_, came)| came == stage))
    }

    /// Waits until the boot comes to its end, which a slow one may do only now or never, with nothing else to
    /// do, or until this process is told to end. By a connection that is kept open systemd tells when
    /// anything changes, so a shutdown is noticed before what holds the state is unmounted.
    pub fn wait_for_the_end(&mut self, end: &mut End) {
        let mut manager = end.manager().ok();
        while !end.is_shut_down() && !end.is_good() {
            match &mut manager {
                Some(connected) => end.poll_manager(connected),
                None => end.poll(),
            }
            let every = match end.refused() {
                Some(_) => LOOK_LATE_EVERY,
                None => ASK_LATE_EVERY,
            };
            self.pause_for(every, manager.as_ref().map(Manager::changes));
            if self.told_to_end() {
                end.is_told();
            }
            // It may have begun anew (systemctl daemon-reexec), or not yet.
            if manager
                .as_mut()
                .is_none_or(|manager| end.refused().is_some() || manager.finished_ns().is_err())
            {
                manager = end.manager().ok();
            }
        }
    }

    /// Arms the boot-failure guard again, once, if the boot has come to its end ([`End::is_good`]). Whoever
    /// shuts the machine down in good order once it is up has not seen it fail; one that has come to a shell
    /// for somebody to mend it may have failed for what headstart did.
    pub fn arm_at_the_end(&mut self, end: &End) {
        // What lies beneath a mount point is another state.
        if self.armed.is_some() || !end.is_good() || StateId::read(self.store) != self.state {
            return;
        }
        let has_failed = end.has_failed()
            || (end.manager()).is_ok_and(|mut it| ordinary_boot::has_failed(&mut it).unwrap_or(false));
        let had_taken = self.guard == Some(Guard::Taken);
        // One that is frozen is as it was.
        self.armed = Some(
            match has_failed || (had_taken && self.lasts == Persistence::Frozen) {
                true => Ok(()),
                false => self.kept.lock().and_then(|lock| lock.arm(had_taken)),
            },
        );
    }

    /// Keeps what the boot had to say; that it cannot be kept is told unless it was for what was learned,
    /// whose place is the same.
    pub fn keep_last(&mut self, is_told: bool) {
        let kept = serde_json::to_vec_pretty(&self.last).map_err(anyhow::Error::from);
        let kept = kept.and_then(|json| Ok(self.kept.lock()?.save_last(&json)?));
        if let Some(error) = kept.err().filter(|_| !is_told) {
            self.notes.add(format!("{error:#}"));
        }
    }
}

/// That systemd does not answer, what follows, and the way out. `context` is this process's for SELinux,
/// USER:ROLE:TYPE:LEVEL.
fn refusal(why: &str, context: Option<&str>) -> String {
    let way = context.and_then(|context| context.split(':').nth(2)).map(|kind| {
        format!(
            ". A policy module allows it: semodule -i FILE.cil, with (allow {kind} init_t (system (status))) and \
            (allow {kind} systemd_unit_t (service (status))), or what the policy calls the type of units"
        )
    });
    format!(
        "systemd refuses to tell headstart of the boot: {why}; its end is taken to be when users may log in, and its stages are not known{}",
        way.unwrap_or_default()
    )
}

/// The trace with its stages and CPU time, without what came after a login that is no part of the boot.
fn finish(
    recorder: Recorder,
    reason: EndReason,
    mode: Mode,
    times: &[(u64, String)],
    login_ns: Option<u64>,
) -> Result<Trace, RecordError> {
    let (began_ns, progress) = (recorder.began_ns(), recorder.progress());
    let mut trace = recorder.finish(reason)?;
    if let Some(login_ns) = login_ns {
        trace.cut_at(login_ns.saturating_sub(began_ns));
    }
    trace.marks = stages::marks(times, began_ns);
    trace.meta.replayed = mode == Mode::Replay;
    trace.end.cpu_ns = Some((progress.cpu_seconds * 1e9) as u64).filter(|ns| *ns > 0);
    Ok(trace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn that_systemd_refuses_to_answer_is_said_with_the_way_out() {
        let by_selinux = refusal(
            "SELinux policy denies access",
            Some("system_u:system_r:kernel_t:s0-s0:c0.c9"),
        );
        assert!(
            by_selinux.contains("SELinux policy denies access;"),
            "{by_selinux}"
        );
        assert!(
            by_selinux.contains("(allow kernel_t init_t (system (status)))"),
            "{by_selinux}"
        );
        assert!(!refusal("no", None).contains("semodule"), "by something else");
    }
}
