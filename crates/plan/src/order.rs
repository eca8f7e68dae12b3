//! The order of issue, and the line where the memory budget cuts.

use crate::Ordered;
use headstart_model::machine::{DeviceClass, Machine};
use headstart_model::plan::RequestKind;

/// Sorts the requests into issue order and returns how many fit the budget (bytes); the rest stand behind them.
///
/// Metadata goes before look-ups, look-ups before data. Data goes by stage; inside a stage by address on a disk, by
/// deadline elsewhere. Look-ups go from the root downwards, so that directories are there before what lies in them.
pub(crate) fn order(requests: &mut Vec<Ordered>, machine: &Machine, budget: u64) -> u32 {
    // What is needed first survives a small budget, whatever the order of issue; metadata before all.
    requests.sort_by_key(|r| (pass(r), r.request.stage, r.request.deadline_us));
    let mut left = budget;
    let fits = requests
        .iter()
        .position(|r| {
            let over = r.request.length > left;
            left -= r.request.length.min(left);
            over
        })
        .unwrap_or(requests.len());
    let beyond = requests.split_off(fits);
    requests.sort_by_key(|r| {
        let class = machine
            .devices
            .get(usize::from(r.request.device))
            .map(|d| d.cost.class);
        let by_address = class == Some(DeviceClass::Disk) || r.request.kind == RequestKind::Metadata;
        let place = (r.physical.is_none(), r.physical.unwrap_or(0));
        let time = r.request.deadline_us;
        let within = (r.request.file, r.request.offset);
        match pass(r) {
            Pass::Lookups => (
                Pass::Lookups,
                r.request.stage,
                r.level,
                (false, u64::from(time)),
                0,
                within,
            ),
            pass if by_address => (pass, r.request.stage, 0, place, time, within),
            pass => (pass, r.request.stage, 0, (false, u64::from(time)), 0, within),
        }
    });
    requests.extend(beyond);
    fits as u32
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Pass {
    Metadata,
    Lookups,
    Data,
}

fn pass(request: &Ordered) -> Pass {
    match request.request.kind {
        RequestKind::Metadata => Pass::Metadata,
        RequestKind::Stat | RequestKind::List => Pass::Lookups,
        RequestKind::Data => Pass::Data,
    }
}
