//! The mechanics of a disk with one actuator: a seek that grows with the square root of the distance, the
//! turning of the platter, and a media rate that falls from the first byte to the last.
//!
//! Where a sector is under the head is a function of time alone: the platter's angle is the time modulo one
//! turn, and sectors lie along one spiral, so that reading on from track to track costs nothing but the
//! reading. The media rate changes in [`ZONES`] steps, as on real disks.
//!
//! After a request the drive reads on into its buffer until that is full or the head is wanted elsewhere. A
//! gap ahead is let pass under the head where that is sooner than a seek.

use super::{Nanos, OneHeadSpec, Op, Request, transfer};

/// Steps of the media rate: desktop disks have 16 to 30 (Ruemmler and Wilkes, "An introduction to disk drive
/// modeling", 1994, describes zoning).
const ZONES: u64 = 16;

/// The mechanics, and the link that the bytes take to and from the host.
#[derive(Debug, Clone)]
pub(super) struct Arm {
    track_to_track: f64,
    /// What the full stroke adds.
    stroke: f64,
    turn: Nanos,
    /// Byte a zone begins at, media time from byte 0 to there, and rate in bytes per nanosecond.
    zones: Vec<(f64, f64, f64)>,
    size: f64,
    interface: Option<f64>,
    read_ahead: u64,
    /// End of the last request.
    consumed: u64,
    /// The media passed this byte at this time, reading on.
    at: (u64, Nanos),
    /// Where reading on stops.
    limit: u64,
}

impl Arm {
    pub(super) fn new(spec: &OneHeadSpec, size: u64) -> Arm {
        let size = size.max(1) as f64;
        let [first, last] = spec.media_mb.map(|mb| mb / 1000.0);
        let mut zones = Vec::new();
        let mut time = 0.0;
        for zone in 0..ZONES {
            let begin = size * zone as f64 / ZONES as f64;
            let rate = first + (last - first) * (zone as f64 + 0.5) / ZONES as f64;
            zones.push((begin, time, rate));
            time += size / ZONES as f64 / rate;
        }
        let shortest = spec.track_to_track_us as f64 * 1000.0;
        let average = spec.average_seek_us as f64 * 1000.0;
        Arm {
            track_to_track: shortest,
            // The mean of sqrt(|x - y|) over two uniform places is 8/15.
            stroke: (average - shortest) * 15.0 / 8.0,
            turn: spec.rpm.map_or(0, |rpm| (60e9 / rpm).round() as Nanos),
            zones,
            size,
            interface: spec.interface_mb,
            read_ahead: spec.read_ahead_kb << 10,
            consumed: 0,
            at: (0, 0),
            limit: 0,
        }
    }

    /// The byte behind the last request.
    pub(super) fn head(&self) -> u64 {
        self.consumed
    }

    /// Time of so many bytes on the link to the host.
    pub(super) fn link(&self, length: u64) -> Nanos {
        self.interface.map_or(0, |mb| transfer(length, mb))
    }

    /// Media time from byte 0 to this byte.
    fn spin(&self, byte: u64) -> Nanos {
        let byte = byte as f64;
        let zone = self.zones.partition_point(|(begin, ..)| *begin <= byte).max(1) - 1;
        let (begin, time, rate) = self.zones[zone];
        (time + (byte - begin) / rate).round() as Nanos
    }

    /// From `now` until `byte` is under the head, which is on its track.
    fn turn_to(&self, now: Nanos, byte: u64) -> Nanos {
        match self.turn {
            0 => 0,
            turn => (self.spin(byte) % turn + turn - now % turn) % turn,
        }
    }

    fn seek(&self, from: u64, to: u64) -> Nanos {
        let distance = (from.abs_diff(to) as f64 / self.size).min(1.0);
        (self.track_to_track + self.stroke * distance.sqrt()).round() as Nanos
    }

    /// Serves a request that is the head's next from `now` on; returns when it is done.
    pub(super) fn serve(&mut self, now: Nanos, request: &Request) -> Nanos {
        let end = request.offset + request.length;
        let to_host = match request.op {
            Op::Read => self.link(request.length),
            _ => 0,
        };
        // Jump there.
        let arrived = now + self.seek(self.at.0.max(self.consumed), request.offset);
        let jump =
            arrived + self.turn_to(arrived, request.offset) + self.spin(end) - self.spin(request.offset);
        let mut finished = jump;
        let mut at = (end, jump);
        // Or stay on the track, where what is wanted lies ahead.
        if request.offset >= self.consumed {
            let (byte, time) = self.at;
            let stopped = (time + self.spin(self.limit))
                .saturating_sub(self.spin(byte))
                .max(time);
            let (stay, passed) = if request.op == Op::Read && (end <= self.limit || now <= stopped) {
                let passed = (time + self.spin(end)).saturating_sub(self.spin(byte));
                let on = if now <= stopped {
                    self.at
                } else {
                    // The buffer has room again: the drive reads on when the place comes round.
                    (self.limit, now + self.turn_to(now, self.limit))
                };
                (passed.max(now + to_host), on)
            } else {
                // It stopped reading on: the place must come round again.
                let from = self.limit.max(self.consumed).min(request.offset);
                let resumed = now + self.turn_to(now, from);
                let passed = resumed + self.spin(end) - self.spin(from);
                (passed.max(now + to_host), (end, passed))
            };
            if stay <= finished {
                (finished, at) = (stay, passed);
            }
        }
        self.at = at;
        self.consumed = end;
        let read_on = if request.op == Op::Read {
            self.read_ahead
        } else {
            0
        };
        self.limit = (end + read_on).min(self.size as u64).max(end);
        finished
    }
}
