//! The starts that are recorded, each in a slot, and what the kernel tells of them.

use super::recording::{Before, Recording};
use super::{Answer, Executable, Noticed, Program};
use crate::kernel::bpf::watched::{Control, SLOTS, slot_of};
use crate::kernel::bpf::wire::{StartSeen, Watched};
use crate::kernel::event::{Event, Exec};
use crate::options::Options;
use crate::trace::mounts::Mounts;
use crate::trace::places::resolve;
use headstart_model::trace::Evidence;
use std::sync::Arc;

/// What is recorded.
pub(super) struct Starts {
    pub(super) control: Arc<Control>,
    /// What a page used means.
    pub(super) evidence: Evidence,
    pub(super) mounts: Mounts,
    pub(super) slots: [Option<Box<Recording>>; SLOTS],
    /// By slot, in which one the start is recorded that it belongs to.
    pub(super) part_of: [usize; SLOTS],
    /// Slots that were left during a drain.
    pub(super) left: Vec<usize>,
    /// Processes that were found to belong to nobody.
    pub(super) ours: Vec<u32>,
    /// Slots of those whose recording has begun.
    pub(super) began: Vec<usize>,
}

impl Starts {
    pub(super) fn notice(
        &mut self,
        seen: Watched,
        before: Before,
        judge: &mut dyn FnMut(&Noticed) -> Answer,
    ) {
        match seen {
            Watched::Start(seen) => self.add(seen, before, judge),
            Watched::Exit {
                slot,
                time_ns,
                pid,
                status,
            } => {
                if let Some(recording) = self.of_slot(slot) {
                    recording.is_left_by(pid, status, time_ns);
                }
            }
            Watched::Event(slot, event) => {
                if let Event::Exec(exec) = &event {
                    self.take_from_others(slot, exec);
                }
                if let Some(recording) = self.of_slot(slot) {
                    recording.push(event);
                }
            }
        }
    }

    /// A session has what another start has forked, once that executes something in the session's control
    /// groups: it has left the other.
    fn take_from_others(&mut self, slot: u8, exec: &Exec) {
        if !self.of_slot(slot).is_some_and(|recording| recording.is_session) {
            return;
        }
        let others = self.slots.iter_mut().flatten().filter(|it| !it.is_session);
        for other in others {
            if other.builder.living().any(|pid| pid == exec.pid) {
                other.is_left_by(exec.pid, 0, exec.time_ns);
            }
        }
    }

    /// The start that what comes from a slot belongs to.
    fn of_slot(&mut self, slot: u8) -> Option<&mut Recording> {
        let owner = *self.part_of.get(usize::from(slot))?;
        self.slots[owner].as_deref_mut()
    }

    fn add(&mut self, seen: StartSeen, before: Before, judge: &mut dyn FnMut(&Noticed) -> Answer) {
        let exec = seen.exec;
        let slot = slot_of(seen.number);
        // What a recorded start executed while nobody had answered yet is part of it, though the kernel did
        // not know; unless it is apart.
        let owner = self.part_of[slot_of(seen.before)];
        let apart_from = match self.slots[owner].as_mut().filter(|r| r.has(seen.before)) {
            Some(recording) if seen.apart && !recording.is_session => {
                recording.is_left_by(exec.pid, 0, exec.time_ns);
                recording.number
            }
            Some(_) => return self.go_on(owner, seen.number, exec),
            None => 0,
        };
        let noticed = Noticed {
            number: seen.number,
            pid: exec.pid,
            user: self.control.user(slot),
            before: apart_from,
            parent: seen.parent,
            time_ns: exec.time_ns,
            program: Program {
                standing: seen.program,
                ignored: seen.ignored,
                file: (seen.program == seen.executable).then_some(Executable(seen.file)),
            },
            executable: Program {
                standing: seen.executable,
                ignored: seen.ignored,
                file: Some(Executable(seen.file)),
            },
            path: resolve(&self.mounts, &exec.executable, 1)
                .into_iter()
                .next()
                .map(|found| found.path),
            arguments: seen.arguments,
        };
        let answer = judge(&noticed);
        let recording = match answer {
            Answer::Record {
                command,
                replayed,
                open_for,
                group,
            } => {
                let options = Options {
                    replayed,
                    patience: Options::PATIENCE,
                    ..Options::tree(command)
                };
                let begun = Recording::start(
                    noticed.number,
                    noticed.pid,
                    noticed.time_ns,
                    &options,
                    before,
                    self.evidence,
                );
                begun.ok().and_then(|mut recording| {
                    recording.open_for = open_for;
                    recording.is_session = group.is_some();
                    let has_room = |group| self.control.add_session(group, seen.number);
                    group.is_none_or(has_room).then_some(recording)
                })
            }
            Answer::GoesOn(number) => {
                let owner = slot_of(number);
                let is_it = |r: &&mut Box<Recording>| r.number == number && r.may_go_on(exec.time_ns);
                if let Some(recording) = self.slots[owner].as_mut().filter(is_it) {
                    recording.has_another(exec.pid, exec.time_ns);
                    return self.go_on(owner, seen.number, exec);
                }
                None
            }
            Answer::LeaveTree => {
                self.ours.push(noticed.pid);
                None
            }
            Answer::Leave => None,
        };
        match recording {
            Some(mut recording) => {
                self.control.record(seen.number);
                recording.push(Event::Exec(exec));
                self.slots[slot] = Some(Box::new(recording));
                self.began.push(slot);
            }
            None => {
                self.control.end(seen.number);
                self.left.push(slot);
            }
        }
    }

    /// The start with this number is part of the one that is recorded in a slot.
    fn go_on(&mut self, owner: usize, number: u32, exec: Exec) {
        if let Some(recording) = self.slots[owner].as_mut() {
            recording.continue_with(number, exec);
            if recording.is_session {
                self.control.be_in_any_group(number);
            }
            self.part_of[slot_of(number)] = owner;
            self.control.record(number);
        }
    }
}
