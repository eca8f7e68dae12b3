//! What a remote file system costs: measured by each replay that has read from it, and kept. Nobody probes a
//! server: what starts need of it is asked for anyway.

use crate::now_unix_ns;
use headstart_model::PageRange;
use headstart_model::machine::{Cost, DeviceClass};
use headstart_model::outcome::ReplayReport;
use headstart_model::plan::{Plan, RequestKind};
use headstart_store::{DeviceCost, Store, StoreError};
use headstart_system::device::default_cost;
use headstart_system::mounts::MountTable;

/// From fewer look-ups nothing is concluded, nor from fewer bytes.
const LOOK_UPS: usize = 16;
const BYTES: u64 = 4 << 20;
/// What was answered sooner was in memory, nanoseconds: no network answers within this time.
const AT_ONCE_NS: u64 = 50_000;

/// Keeps what the remote file systems of a plan cost, as far as its replay tells.
pub fn keep(store: &Store, plan: &Plan<'_>, report: &ReplayReport) -> Result<(), StoreError> {
    let mounts = MountTable::read().unwrap_or_default();
    for index in 0..plan.device_count() {
        let Some(device) = plan.device(index) else {
            continue;
        };
        let mount = mounts.lookup(device.mount_point.as_bytes());
        if !mount.is_some_and(|mount| mount.is_remote && mount.mount_point == device.mount_point) {
            continue;
        }
        let known = store.device_cost(&device.uuid).map(|known| known.cost);
        let Some(cost) = measured(plan, report, index, known) else {
            continue;
        };
        let stored = DeviceCost {
            decompression: None,
            cost,
            first_touch: None,
            device: format!("remote {}", device.mount_point),
            measured_unix_ns: now_unix_ns(),
        };
        store.save_device_cost(&device.uuid, &stored)?;
    }
    Ok(())
}

/// The cost by one replay and what was known before; `None` where the replay tells nothing new.
fn measured(plan: &Plan<'_>, report: &ReplayReport, device: usize, known: Option<Cost>) -> Option<Cost> {
    let kinds: Vec<(RequestKind, u16)> = plan
        .requests()
        .map(|request| (request.kind, request.device))
        .collect();
    let issued = report.issued.iter().filter(|request| {
        let kind = kinds.get(request.request as usize);
        kind.is_some_and(|(_, of)| usize::from(*of) == device)
    });
    let (mut times, mut bytes, mut first, mut last) = (Vec::new(), 0, u64::MAX, 0);
    for request in issued {
        let took = request.done_ns.saturating_sub(request.issued_ns);
        match kinds.get(request.request as usize) {
            Some((RequestKind::Stat, _)) if took >= AT_ONCE_NS => times.push(took),
            Some((RequestKind::Data, _)) => {
                let resident: u64 = request.resident.iter().map(PageRange::pages).sum();
                let pages = request.arrived_pages.saturating_sub(resident);
                if pages > 0 {
                    bytes += pages * u64::from(plan.page_size());
                    first = first.min(request.issued_ns);
                    last = last.max(request.done_ns);
                }
            }
            _ => {}
        }
    }
    let guess = default_cost(DeviceClass::Network);
    let mut cost = known.unwrap_or(guess);
    let mut is_new = false;
    if times.len() >= LOOK_UPS {
        // Of many at once some wait at the server for others.
        times.sort_unstable();
        cost.latency = times[times.len() / 4] as f64 * 1e-9;
        is_new = true;
    }
    if bytes >= BYTES && last > first {
        // What was reached is the least that can be: what a small plan reaches says nothing against a larger.
        let reached = bytes as f64 / ((last - first) as f64 * 1e-9);
        cost.bandwidth = match known {
            Some(known) => reached.max(known.bandwidth * 0.75 + reached * 0.25),
            None => reached,
        };
        is_new = true;
    }
    is_new.then_some(cost)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_model::outcome::Issued;
    use headstart_model::plan::Request;
    use headstart_model::testing::{NETWORK, draft, plan_file, planned};

    fn issued(request: u32, took_ns: u64, pages: u64) -> Issued {
        Issued {
            request,
            pages: PageRange::new(0, pages),
            issued_ns: 1_000_000,
            done_ns: 1_000_000 + took_ns,
            resident: Vec::new(),
            arrived_pages: pages,
        }
    }

    #[test]
    fn a_replay_tells_what_its_server_costs() {
        let stats = (0..20).map(|_| Request::new(RequestKind::Stat, 0, 0));
        let data = Request::new(RequestKind::Data, 0, 8 << 20);
        let file = plan_file(&draft(
            NETWORK,
            vec![planned("/a")],
            stats.chain([data]).collect(),
        ));
        let plan = file.plan().unwrap();
        let cost = |report: &ReplayReport, known| measured(&plan, report, 0, known);
        let mut report = ReplayReport::default();
        assert_eq!(cost(&report, None), None);
        // Few look-ups say nothing, nor do those that were answered from memory.
        report.issued = (0..15).map(|n| issued(n, 5_000_000, 0)).collect();
        report.issued.extend((15..20).map(|n| issued(n, 2_000, 0)));
        assert_eq!(cost(&report, None), None);
        report.issued = (0..20).map(|n| issued(n, 5_000_000, 0)).collect();
        let by_look_ups = cost(&report, None).unwrap();
        assert!((by_look_ups.latency - 5e-3).abs() < 1e-9);
        assert_eq!(
            by_look_ups.bandwidth,
            default_cost(DeviceClass::Network).bandwidth
        );
        // 8 MiB in a second.
        report.issued = vec![issued(20, 1_000_000_000, 2048)];
        let by_data = cost(&report, None).unwrap();
        assert!((by_data.bandwidth - f64::from(8 << 20)).abs() < 1.0);
        // One slow replay makes a known link slower by a part.
        let known = Cost {
            bandwidth: 100e6,
            latency: 7e-3,
            ..NETWORK
        };
        let after = cost(&report, Some(known)).unwrap();
        assert!(after.bandwidth > 75e6 && after.bandwidth < 80e6 && after.latency == 7e-3);
        assert_eq!(measured(&plan, &report, 1, None), None, "another device");
    }
}
