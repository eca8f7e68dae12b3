//! Block devices: what they were asked, how busy they were, and where their heads went.

use crate::chart::bins::Bins;
use crate::chart::text::clean;
use headstart_model::activity::{Activity, BlockRequest, RequestKind};
use std::cmp::Reverse;

/// The most devices that are drawn, of those that had at least this share of the requests.
const DEVICES: usize = 2;
const LEAST_SHARE: usize = 20;

/// A block device.
pub struct Device<'a> {
    /// The kernel's name.
    pub name: String,
    /// What it was asked, by time.
    pub requests: Vec<&'a BlockRequest>,
    /// First sector of the map, of 512 bytes.
    pub first: u64,
    /// The sector after the last of the map.
    pub end: u64,
}

/// What a request is drawn as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Reads that somebody waits for, or may.
    Read,
    /// Readahead.
    Ahead,
    /// Reads of metadata.
    Metadata,
    /// Writes, and whatever else changes the device.
    Write,
}

impl Kind {
    /// All of them, in the order in which they are drawn: name in the picture's style, and for people.
    pub const ALL: [(Kind, &'static str, &'static str); 4] = [
        (Kind::Read, "read", "read"),
        (Kind::Ahead, "ahead", "readahead"),
        (Kind::Metadata, "meta", "metadata"),
        (Kind::Write, "write", "write"),
    ];

    /// The kind of a request.
    pub fn from_request(request: &BlockRequest) -> Kind {
        match request.kind {
            RequestKind::Read if request.metadata => Kind::Metadata,
            RequestKind::Read if request.ahead => Kind::Ahead,
            RequestKind::Read => Kind::Read,
            _ => Kind::Write,
        }
    }
}

/// What a device did in equal intervals.
pub struct Rates {
    /// Bytes read a second.
    pub read: Vec<f64>,
    /// Bytes written a second.
    pub written: Vec<f64>,
    /// Share of the time with a request in flight, 0 to 1.
    pub busy: Vec<f64>,
    /// Requests in flight, on average.
    pub depth: Vec<f64>,
}

impl<'a> Device<'a> {
    /// Those that were asked most.
    pub fn busiest(activity: &'a Activity) -> Vec<Device<'a>> {
        let mut requests: Vec<Vec<&BlockRequest>> = vec![Vec::new(); activity.devices.len()];
        for request in &activity.requests {
            if let Some(of_device) = requests.get_mut(request.device as usize) {
                of_device.push(request);
            }
        }
        let count: usize = requests.iter().map(Vec::len).sum();
        let mut devices: Vec<Device<'a>> = (activity.devices.iter().zip(requests))
            .filter(|(_, requests)| !requests.is_empty() && requests.len() * LEAST_SHARE >= count)
            .map(|(device, mut requests)| {
                requests.sort_by_key(|request| request.issued_ns);
                let placed = requests.iter().filter(|request| is_placed(request));
                let first = placed.clone().map(|request| request.sector).min();
                let end = placed.map(|request| end(request)).max();
                Device {
                    name: clean(&device.name, 32),
                    requests,
                    first: first.unwrap_or(0),
                    end: end.unwrap_or(device.sectors),
                }
            })
            .collect();
        devices.sort_by_key(|device| Reverse(device.requests.len()));
        devices.truncate(DEVICES);
        devices
    }

    /// Puts the devices of all starts into one order, so that those of a number are the same everywhere; one
    /// that a start has not was asked nothing there.
    pub fn align(mut starts: Vec<&mut Vec<Device<'a>>>) {
        let mut names: Vec<String> = Vec::new();
        for device in starts.iter().flat_map(|devices| devices.iter()) {
            if !names.contains(&device.name) {
                names.push(device.name.clone());
            }
        }
        for devices in &mut starts {
            let mut own = std::mem::take(*devices);
            let in_order = names.iter().map(|name| {
                let position = own.iter().position(|device| device.name == *name);
                position.map_or_else(
                    || Device {
                        name: name.clone(),
                        requests: Vec::new(),
                        first: 0,
                        end: 0,
                    },
                    |at| own.swap_remove(at),
                )
            });
            **devices = in_order.collect();
        }
    }

    /// Requests that are somewhere on the device.
    pub fn placed(&self) -> impl Iterator<Item = &'a BlockRequest> + '_ {
        self.requests.iter().copied().filter(|request| is_placed(request))
    }

    /// What it did in so many intervals.
    pub fn rates(&self, span_ns: u64, count: usize) -> Rates {
        let bins = || Bins::new(span_ns, count);
        let (mut read, mut written, mut busy, mut depth) = (bins(), bins(), bins(), bins());
        let mut busy_until = 0;
        for request in &self.requests {
            let from = request.issued_ns;
            let to = request.completed_ns.unwrap_or(from).max(from);
            let bytes = f64::from(request.sectors) * 512.0;
            match request.kind {
                RequestKind::Read => read.add(from, to, bytes),
                RequestKind::Write => written.add(from, to, bytes),
                // They move no bytes.
                RequestKind::Discard | RequestKind::Flush | RequestKind::Other => {}
            }
            depth.add(from, to, (to - from) as f64);
            let fresh = from.max(busy_until);
            if to > fresh {
                busy.add(fresh, to, (to - fresh) as f64);
                busy_until = to;
            }
        }
        let interval_ns = span_ns.max(1) as f64 / count.max(1) as f64;
        let shares = |bins: Bins, unit: f64| bins.sums().into_iter().map(|sum| sum / unit).collect();
        Rates {
            read: shares(read, interval_ns / 1e9),
            written: shares(written, interval_ns / 1e9),
            busy: shares(busy, interval_ns),
            depth: shares(depth, interval_ns),
        }
    }
}

fn is_placed(request: &BlockRequest) -> bool {
    request.sectors > 0 && matches!(request.kind, RequestKind::Read | RequestKind::Write)
}

fn end(request: &BlockRequest) -> u64 {
    request.sector.saturating_add(u64::from(request.sectors))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_model::activity::BlockDevice;

    fn request(issued_ns: u64, completed_ns: Option<u64>, device: u32) -> BlockRequest {
        BlockRequest {
            issued_ns,
            completed_ns,
            device,
            sector: 100,
            sectors: 8,
            kind: RequestKind::Read,
            metadata: false,
            ahead: false,
            process: None,
        }
    }

    fn device(name: &str) -> BlockDevice {
        BlockDevice {
            major: 8,
            minor: 0,
            name: name.into(),
            sectors: 1000,
        }
    }

    #[test]
    fn busy_counts_time_once_and_depth_every_request() {
        let activity = Activity {
            devices: vec![device("sda")],
            requests: vec![
                request(0, Some(1_000_000_000), 0),
                request(500_000_000, Some(1_000_000_000), 0),
                request(3_000_000_000, None, 0),
                request(0, None, 99),
            ],
            ..Activity::default()
        };
        let devices = Device::busiest(&activity);
        let rates = devices[0].rates(4_000_000_000, 4);
        assert_eq!(rates.busy, [1.0, 0.0, 0.0, 0.0]);
        assert_eq!(rates.depth, [1.5, 0.0, 0.0, 0.0]);
        assert_eq!(rates.read, [8192.0, 0.0, 0.0, 4096.0]);
        assert_eq!((devices[0].first, devices[0].end), (100, 108));
    }

    #[test]
    fn devices_of_two_starts_stand_in_one_order() {
        let devices_of = |names: &[(&str, u64)]| {
            let mut activity = Activity::default();
            for (index, (name, count)) in names.iter().enumerate() {
                activity.devices.push(device(name));
                let requests = (0..*count).map(|i| request(i, None, index as u32));
                activity.requests.extend(requests);
            }
            activity
        };
        let (one, other) = (
            devices_of(&[("sda", 9), ("sdb", 5)]),
            devices_of(&[("sdc", 5), ("sda", 3)]),
        );
        let (mut one, mut other) = (Device::busiest(&one), Device::busiest(&other));
        Device::align(vec![&mut one, &mut other]);
        let summary = |devices: &[Device<'_>]| -> Vec<(String, usize)> {
            let each = devices.iter();
            each.map(|device| (device.name.clone(), device.requests.len()))
                .collect()
        };
        let named = |counts: [usize; 3]| {
            ["sda", "sdb", "sdc"]
                .map(String::from)
                .into_iter()
                .zip(counts)
                .collect::<Vec<_>>()
        };
        assert_eq!(summary(&one), named([9, 5, 0]));
        assert_eq!(summary(&other), named([3, 0, 5]));
    }

    #[test]
    fn devices_that_had_little_to_do_are_left_out() {
        let mut activity = Activity {
            devices: vec![device("sda"), device("loop0"), device("sdb"), device("sdc")],
            ..Activity::default()
        };
        for (device, count) in [(0, 50), (1, 100), (2, 40), (3, 2)] {
            activity
                .requests
                .extend((0..count).map(|i| request(i, None, device)));
        }
        activity.requests.sort_by_key(|request| request.issued_ns);
        let devices = Device::busiest(&activity);
        let names: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
        assert_eq!(names, ["loop0", "sda"]);
    }
}
