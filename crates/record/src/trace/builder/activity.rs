//! What threads, block devices and memory did.

use super::processes::Processes;
use crate::kernel::event::{Dev, Event, RanSeen, RequestSeen};
use crate::limits::{BLOCK_DEVICES, REQUESTS, SAMPLES, SLICES};
use crate::one_shot::samples::Samples;
use headstart_model::activity::{
    Activity, BlockDevice, BlockRequest, BusySample, MemorySample, Slice, ThreadState,
};
use headstart_model::limits::BLOCK_NAME;
use headstart_model::sort::Sort;
use std::collections::HashMap;

/// How often memory and processors are looked at. It costs 0.1 ms, and the kernel counts processors' time in
/// ticks of 10 ms.
const SAMPLE_EVERY_NS: u64 = 100_000_000;

/// Activity in the making; times are the events' own.
#[derive(Default)]
pub(super) struct Recording {
    activity: Activity,
    numbers: HashMap<Dev, u32>,
    samples: Option<Samples>,
    sampled_ns: Option<u64>,
}

impl Recording {
    /// Looks at memory and processors, if it is time.
    pub(super) fn sample(&mut self, now_ns: u64) {
        if self
            .sampled_ns
            .is_some_and(|at| now_ns.saturating_sub(at) < SAMPLE_EVERY_NS)
        {
            return;
        }
        if self.sampled_ns.is_none() {
            // Without /proc nothing is recorded anyway.
            self.samples = Samples::open().ok();
        }
        self.sampled_ns = Some(now_ns);
        let Some(samples) = &mut self.samples else { return };
        let (busy, memory) = samples.sample(now_ns);
        let own = &mut self.activity;
        own.lost += keep(&mut own.processors, busy, SAMPLES) + keep(&mut own.memory, memory, SAMPLES);
    }

    /// Takes an event in, if it is one of these.
    pub(super) fn push(&mut self, event: &Event, processes: &mut Processes) {
        match event {
            Event::Ran(seen) => self.ran(seen, processes),
            Event::Request(seen) => self.request(seen, processes),
            _ => {}
        }
    }

    fn ran(&mut self, seen: &RanSeen, processes: &mut Processes) {
        // A collision of two threads may mix their times.
        if !(seen.from_ns <= seen.until_ns && seen.until_ns <= seen.time_ns) {
            self.activity.lost += 1;
            return;
        }
        let process = processes.index(seen.pid, seen.from_ns);
        let slice = |from_ns, to_ns, state| {
            (from_ns < to_ns).then_some(Slice {
                from_ns,
                to_ns,
                process,
                thread: seen.thread,
                state,
            })
        };
        let ran = slice(seen.from_ns, seen.until_ns, ThreadState::Running);
        let then = seen
            .then
            .and_then(|state| slice(seen.until_ns, seen.time_ns, state));
        let own = &mut self.activity;
        own.lost += keep(&mut own.slices, ran, SLICES) + keep(&mut own.slices, then, SLICES);
    }

    fn request(&mut self, seen: &RequestSeen, processes: &mut Processes) {
        let Some(device) = self.device(seen.dev) else {
            self.activity.lost += 1;
            return;
        };
        let request = BlockRequest {
            issued_ns: seen.issued_ns,
            completed_ns: seen.completed_ns,
            device,
            sector: seen.sector,
            sectors: seen.sectors,
            kind: seen.kind,
            metadata: seen.metadata,
            ahead: seen.ahead,
            process: seen.pid.map(|pid| processes.index(pid, seen.issued_ns)),
        };
        let own = &mut self.activity;
        own.lost += keep(&mut own.requests, Some(request), REQUESTS);
    }

    /// The index of a device, which is looked up when it is first met: it may go.
    fn device(&mut self, dev: Dev) -> Option<u32> {
        let devices = &mut self.activity.devices;
        if let Some(index) = self.numbers.get(&dev) {
            return Some(*index);
        }
        if devices.len() >= BLOCK_DEVICES {
            return None;
        }
        let index = devices.len() as u32;
        devices.push(look_up(dev));
        self.numbers.insert(dev, index);
        Some(index)
    }

    /// The activity, with times since `started_ns`: what ended before is left out, and so is what the trace
    /// has no room for. A slice takes one row of it, a request two.
    pub(super) fn finish(self, started_ns: u64, unseen: u64, room: usize) -> Activity {
        let mut activity = self.activity;
        activity.lost += unseen;
        let since = |time_ns: u64| time_ns.saturating_sub(started_ns);
        activity.requests.retain(|one| one.issued_ns >= started_ns);
        activity.requests.sort_small_by_key(|one| one.issued_ns);
        for one in &mut activity.requests {
            one.issued_ns = since(one.issued_ns);
            one.completed_ns = one.completed_ns.map(since);
        }
        activity.slices.retain(|one| one.to_ns > started_ns);
        for one in &mut activity.slices {
            (one.from_ns, one.to_ns) = (since(one.from_ns), since(one.to_ns));
        }
        activity.slices.sort_small_by_key(|one| one.from_ns);
        activity
            .processors
            .retain(|one: &BusySample| one.time_ns >= started_ns);
        for one in &mut activity.processors {
            one.time_ns = since(one.time_ns);
        }
        activity
            .memory
            .retain(|one: &MemorySample| one.time_ns >= started_ns);
        for one in &mut activity.memory {
            one.time_ns = since(one.time_ns);
        }
        activity.lost += cut(&mut activity.requests, room / 2);
        let left = room - 2 * activity.requests.len();
        activity.lost += cut(&mut activity.slices, left);
        activity
    }
}

/// Keeps one more, if there is one and room for it; how many were lost.
fn keep<T>(list: &mut Vec<T>, one: Option<T>, most: usize) -> u64 {
    match one {
        Some(_) if list.len() >= most => 1,
        one => {
            list.extend(one);
            0
        }
    }
}

/// Leaves so many; how many are gone.
fn cut<T>(list: &mut Vec<T>, most: usize) -> u64 {
    let gone = list.len().saturating_sub(most);
    list.truncate(most);
    gone as u64
}

/// What /sys says of a device.
fn look_up(dev: Dev) -> BlockDevice {
    let Dev { major, minor } = dev;
    let at = format!("/sys/dev/block/{major}:{minor}");
    // A link to the device's own directory, which has its name.
    let link = std::fs::read_link(&at).ok();
    let name = link.as_deref().and_then(|path| path.file_name()?.to_str());
    let name = name.filter(|name| name.len() <= BLOCK_NAME);
    let size = std::fs::read_to_string(format!("{at}/size")).ok();
    BlockDevice {
        major,
        minor,
        name: name.map_or_else(|| format!("{major}:{minor}"), String::from),
        sectors: size.and_then(|text| text.trim().parse().ok()).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_model::activity::RequestKind;

    fn ran(from_ns: u64, until_ns: u64, time_ns: u64, then: Option<ThreadState>) -> Event {
        Event::Ran(RanSeen {
            time_ns,
            pid: std::process::id(),
            thread: 7,
            from_ns,
            until_ns,
            then,
        })
    }

    fn request(issued_ns: u64, minor: u32) -> Event {
        Event::Request(RequestSeen {
            issued_ns,
            completed_ns: Some(issued_ns + 5),
            dev: Dev { major: 4000, minor },
            sector: 8,
            sectors: 8,
            kind: RequestKind::Read,
            metadata: false,
            ahead: false,
            pid: None,
        })
    }

    fn finished(events: &[Event], started_ns: u64, room: usize) -> Activity {
        let (mut recording, mut processes) = (Recording::default(), Processes::default());
        for event in events {
            recording.push(event, &mut processes);
        }
        recording.finish(started_ns, 2, room)
    }

    #[test]
    fn what_a_thread_did_is_cut_at_the_start_and_in_order() {
        let events = [
            ran(150, 160, 160, None),
            ran(90, 110, 140, Some(ThreadState::WaitingForDisk)),
            ran(10, 20, 90, Some(ThreadState::Sleeping)),
            // Mixed of two threads.
            ran(30, 20, 90, None),
        ];
        let activity = finished(&events, 100, 99);
        let slices: Vec<_> = activity
            .slices
            .iter()
            .map(|s| (s.from_ns, s.to_ns, s.state))
            .collect();
        let expected = [
            (0, 10, ThreadState::Running),
            (10, 40, ThreadState::WaitingForDisk),
            (50, 60, ThreadState::Running),
        ];
        assert_eq!(slices, expected);
        assert_eq!(activity.lost, 3, "the mixed one, and two that were not sent");
    }

    #[test]
    fn what_has_no_room_is_lost_and_says_so() {
        let events = [
            request(100, 1),
            request(50, 2),
            request(120, 1),
            request(110, 1),
            ran(100, 101, 200, Some(ThreadState::Sleeping)),
        ];
        let activity = finished(&events, 100, 99);
        assert_eq!(
            (activity.requests.len(), activity.slices.len(), activity.lost),
            (3, 2, 2)
        );
        assert_eq!(activity.requests[1].issued_ns, 10);
        assert_eq!(activity.requests[1].completed_ns, Some(15));
        let names: Vec<&str> = activity.devices.iter().map(|one| &*one.name).collect();
        assert_eq!(names, ["4000:1", "4000:2"], "devices that nobody has");
        let activity = finished(&events, 100, 5);
        assert_eq!(
            (activity.requests.len(), activity.slices.len(), activity.lost),
            (2, 1, 4)
        );
        let many: Vec<Event> = (0..BLOCK_DEVICES as u32 + 1)
            .map(|minor| request(200, minor))
            .collect();
        let activity = finished(&many, 100, usize::MAX);
        assert_eq!((activity.devices.len(), activity.lost), (BLOCK_DEVICES, 3));
    }

    #[test]
    fn samples_are_taken_now_and_then() {
        let mut recording = Recording::default();
        for ms in 0..500 {
            recording.sample(ms * 1_000_000);
        }
        assert_eq!(recording.activity.memory.len(), 5);
    }
}
