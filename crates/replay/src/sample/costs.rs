//! What each part of a plan costs a start that reads it by itself, and where a sample looks for it.
//!
//! A look is drawn in proportion to cost: 20 MB in one request among 35 small ones are most of what the start
//! would wait for, and so most of the looks.

use headstart_model::machine::Cost;
use headstart_model::plan::{Plan, Request, RequestKind};

/// Reads that a look-up costs where nothing of it is in memory, and a device's metadata is not read by block:
/// that of a file which is opened, of which 295 cold ones took 117 reads (ext4), and that of a name which is
/// only looked up, of which 20,000 took 2,138.
const OPENED: f64 = 0.4;
const LOOKED_UP: f64 = 0.1;

/// One request that the start waits for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    /// Its index in the plan.
    pub request: usize,
    /// Seconds that its look-up costs: of a file's first request.
    pub path: f64,
    /// Seconds that its bytes cost.
    pub data: f64,
}

impl Part {
    fn seconds(&self) -> f64 {
        self.path + self.data
    }
}

/// What a plan's requests within its budget cost a start by itself.
#[derive(Debug, Default)]
pub struct Costs {
    /// Those requests, and behind them look-ups of the plan's files that no request names: they stand for
    /// metadata that is read by block.
    pub requests: Vec<Request>,
    parts: Vec<Part>,
    seconds: f64,
}

/// One place to look at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    /// What lies there.
    pub part: Part,
    /// How far into it, in seconds of its cost.
    pub at: f64,
    /// Seconds of the plan's cost that it stands for.
    pub weight: f64,
}

/// What a device's requests cost beside its data.
#[derive(Clone, Copy, Default)]
struct Metadata {
    /// Seconds, of what is read by block.
    seconds: f64,
    /// Look-ups that need it.
    paths: u32,
}

impl Costs {
    /// The costs of a plan, by its devices.
    pub fn for_plan(plan: &Plan<'_>) -> Costs {
        let costs: Vec<Option<Cost>> = (0..plan.device_count())
            .map(|index| plan.device(index).map(|device| device.cost))
            .collect();
        let cost_of = |request: &Request| costs.get(usize::from(request.device)).copied().flatten();
        let mut requests: Vec<Request> = plan.requests().take(plan.cut()).collect();
        requests.extend(unrequested(plan));
        let mut fetched = vec![0.0; requests.len()];
        for fill in plan.fills() {
            for touch in &fill.touches {
                if let Some(seconds) = fetched.get_mut(touch.request as usize) {
                    *seconds += fill.first_touch.latency;
                }
            }
        }
        let mut metadata = vec![Metadata::default(); costs.len()];
        let mut parts = Vec::with_capacity(requests.len());
        let mut is_known = vec![false; plan.file_count()];
        for (index, request) in requests.iter().enumerate() {
            let Some(cost) = cost_of(request) else { continue };
            let asked = request.length - request.bridged.min(request.length);
            let data = cost.alone(asked) + fetched[index];
            let device = &mut metadata[usize::from(request.device)];
            if request.kind == RequestKind::Metadata {
                device.seconds += data;
                continue;
            }
            let is_first = is_known
                .get_mut(request.file as usize)
                .is_some_and(|known| !std::mem::replace(known, true));
            device.paths += u32::from(is_first);
            let reads = match request.kind {
                RequestKind::Data => OPENED,
                _ => LOOKED_UP,
            };
            parts.push(Part {
                request: index,
                path: f64::from(u8::from(is_first)) * reads * cost.latency,
                data,
            });
        }
        // What is read by block has no name: who needs it shares it.
        let shares: Vec<Option<f64>> = metadata
            .iter()
            .map(|it| (it.seconds > 0.0 && it.paths > 0).then(|| it.seconds / f64::from(it.paths)))
            .collect();
        for part in parts.iter_mut().filter(|part| part.path > 0.0) {
            let device = usize::from(requests[part.request].device);
            part.path = shares[device].unwrap_or(part.path);
        }
        let seconds = parts.iter().map(Part::seconds).sum();
        Costs {
            requests,
            parts,
            seconds,
        }
    }

    /// All of it, nanoseconds.
    pub fn ns(&self) -> u64 {
        (self.seconds * 1e9) as u64
    }

    /// About `looks` places, by `draw`, a number by chance; each beginning of what is given is spread over
    /// the plan.
    ///
    /// A step is the cost of all by `looks`. What costs a step or more is looked at in as many places as it
    /// has steps, or begun ones, one in each equal part of it; the rest, in a row, has a place in each equal
    /// part of at most a step. Where in its part a place is, says chance. So where a share `x` of the cost is
    /// cold, no look finds anything of it with a probability of exp(−`looks` · x) at most, wherever it lies:
    /// the parts' own shares add up to `looks` · x at least, and 1 − x ≤ exp(−x) in each. A request of a step
    /// that is cold as a whole is never missed.
    pub fn places(&self, looks: usize, draw: u64) -> Vec<Place> {
        let mut chance = Chance(draw);
        let step = self.seconds / looks.max(1) as f64;
        let is_large = |part: &Part| part.seconds() >= step;
        let mut places = Vec::with_capacity(2 * looks + 1);
        if step <= 0.0 {
            return places;
        }
        let mut small = 0.0;
        for part in &self.parts {
            if !is_large(part) {
                small += part.seconds();
                continue;
            }
            let weight = part.seconds() / (part.seconds() / step).ceil();
            let times = (part.seconds() / weight).round() as usize;
            places.extend((0..times).map(|time| Place {
                part: *part,
                at: (time as f64 + chance.next()) * weight,
                weight,
            }));
        }
        let times = (small / step).ceil();
        let weight = small / times.max(1.0);
        let mut passed = 0.0;
        let (mut time, mut next) = (0.0, chance.next() * weight);
        for part in self.parts.iter().filter(|part| !is_large(part)) {
            let end = passed + part.seconds();
            while time < times && next < end {
                places.push(Place {
                    part: *part,
                    at: next - passed,
                    weight,
                });
                time += 1.0;
                next = (time + chance.next()) * weight;
            }
            passed = end;
        }
        in_spread_order(places)
    }
}

/// Look-ups of the files of a plan that no request names.
fn unrequested(plan: &Plan<'_>) -> impl Iterator<Item = Request> {
    let mut is_named = vec![false; plan.file_count()];
    for request in plan.requests() {
        if let Some(is_named) = is_named.get_mut(request.file as usize) {
            *is_named = true;
        }
    }
    let files = (0..).zip(is_named).filter(|(_, is_named)| !is_named);
    files.filter_map(|(file, _)| {
        let device = plan.file(file as usize)?.device;
        Some(Request {
            device,
            ..Request::new(RequestKind::Stat, file, 0)
        })
    })
}

/// In the order of a counter's bits backwards: 0, 1/2, 1/4, 3/4, 1/8 …
fn in_spread_order<T: Copy>(all: Vec<T>) -> Vec<T> {
    let turns = all.len().next_power_of_two();
    let bits = turns.trailing_zeros();
    let places = (0..turns).map(|turn| match bits {
        0 => turn,
        bits => turn.reverse_bits() >> (usize::BITS - bits),
    });
    places.filter_map(|place| all.get(place).copied()).collect()
}

/// Numbers from 0 to 1, by chance: SplitMix64 (Steele, Lea, Flood 2014).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests;
