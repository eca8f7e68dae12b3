//! `headstart boot status`: a dozen sentences, or all of it as JSON.

use super::status;
use anyhow::{Result, bail};
use headstart_boot::boot_report::{BootReport, WayIn};
use headstart_boot::cmdline::{self, Wish};
use headstart_boot::{GIVEN_UP, boot_id, decision, install, key, persistence};
use headstart_inspect::human::{bytes, duration, pages, percent};
use headstart_inspect::outcome::{skipped, total};
use headstart_inspect::status::{KeyStatus, gained_by_boots};
use headstart_inspect::table::sentences;
use headstart_model::Outcome;
use headstart_model::machine::{Cost, DeviceClass};
use headstart_model::outcome::Mode;
use headstart_start::complain;
use headstart_start_commands::context::Output;
use headstart_store::{KeyDir, Store};
use headstart_system::features::selinux;
use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::process::geteuid;
use serde::Serialize;
use std::path::Path;

/// A terminal's, and a console's.
const COLUMNS: usize = 80;

/// The document.
#[derive(Serialize)]
struct BootStatus {
    /// Whether the next boot is served.
    enabled: bool,
    /// Whether the next boot is read ahead.
    next_replayed: bool,
    /// Why it is not.
    next_not_replayed: Option<String>,
    /// Whether this boot is bypassed.
    bypassed: bool,
    /// Why this boot was not served, although boots are enabled and it is not bypassed.
    not_served: Option<String>,
    /// This boot, or the last one that could keep anything.
    last: Option<BootReport>,
    /// Whether that is this boot.
    #[serde(skip)]
    is_of_this_boot: bool,
    /// What is known of boots, and the outcomes of the last ones.
    known: KeyStatus,
    /// What the last replay's reads would take if all of it lay in one place, nanoseconds; `None` where
    /// [`in_one_place_ns`] has no answer.
    in_one_place_ns: Option<u64>,
}

pub fn run(store: &Store, root: Option<&Path>, form: Output) -> Result<()> {
    if store.keys().is_err() && !geteuid().is_root() {
        bail!("only root may see what is known of boots: sudo headstart boot status");
    }
    let kept = store.key(&key()?);
    let known = status::read_status(&kept);
    let (enabled, last) = (install::is_enabled(root), BootReport::read(&kept));
    let next = if enabled {
        why_not_next(store, &kept, &known, last.as_ref())
    } else {
        Some("boots are not enabled; `headstart boot enable` does that".into())
    };
    let of_this_boot = last.as_ref().is_some_and(|last| last.boot_id == boot_id());
    let is_without = root.is_none() && enabled && !of_this_boot;
    let bypassed = is_without && (known.bypass.is_some() || decision::why_in_vain(store, &kept).is_some());
    let in_one_place_ns = last_replay(&known).and_then(|outcome| {
        let file = kept.plan().or_tell(|line| complain(&line))?;
        let plan = file.plan().ok()?;
        let device = plan.device(0).filter(|_| plan.device_count() == 1)?;
        in_one_place_ns(outcome, page_size(&known), &device.cost)
    });
    let status = BootStatus {
        in_one_place_ns,
        enabled,
        next_replayed: next.is_none(),
        next_not_replayed: next,
        bypassed,
        not_served: (is_without && !bypassed).then(why_not_served),
        last,
        is_of_this_boot: of_this_boot,
        known,
    };
    form.print(&status, || text(&status))
}

/// Why nothing of this boot is known, as far as can be told afterwards.
fn why_not_served() -> String {
    if cmdline::is_after_crash() {
        return "it saves the memory of a kernel that has crashed".into();
    }
    if cmdline::wish(WayIn::Unit, &mut |_| {}) == Wish::Off {
        return "the kernel command line says headstart=off".into();
    }
    match selinux().filter(|selinux| selinux.enforces) {
        Some(_) => "headstart did not begin in it, for boots were enabled since, or SELinux refused it: `ausearch -m avc,user_avc -ts boot`",
        None => "headstart did not begin in it, for boots were enabled since, or it failed: `journalctl -b -u headstart-boot.service`",
    }
    .into()
}

/// Why the next boot is not read ahead, as far as is known now.
fn why_not_next(
    store: &Store,
    kept: &KeyDir,
    known: &KeyStatus,
    last: Option<&BootReport>,
) -> Option<String> {
    let state = store.root();
    if let Some(next) = persistence::of_frozen(store, kept).filter(|_| known.plan.is_some()) {
        return next;
    }
    if let Err(Errno::ROFS) = access(state, Access::WRITE_OK) {
        return Some(format!(
            "the boot-failure guard is in {}, which is on a read-only file system",
            state.display()
        ));
    }
    if let Some(why) = decision::why_in_vain(store, kept) {
        return Some(format!("boots are bypassed: {why}"));
    }
    if let Some(bypass) = &known.bypass {
        return Some(format!("boots are bypassed: {}", bypass.text()));
    }
    if known.plan.is_none() {
        return Some("nothing is known yet of what a boot needs".into());
    }
    if kept.is_armed() {
        return None;
    }
    let ended = last.is_some_and(|last| last.ended.is_some());
    Some(if kept.has_given_up() {
        GIVEN_UP.into()
    } else if ended {
        "the boot-failure guard is not armed, see the notes; the next boot that comes to its end arms it"
            .into()
    } else {
        "this boot has not come to its end yet".into()
    })
}

fn text(status: &BootStatus) -> String {
    let page_size = page_size(&status.known);
    let enabled = match status.enabled {
        true => "Boots are enabled.",
        false => "Boots are not enabled.",
    };
    let mut lines = vec![("enabled", enabled.to_owned())];
    if status.bypassed {
        lines.push((
            "this boot",
            "This boot is bypassed: headstart does nothing for it.".into(),
        ));
    }
    if let Some(why) = &status.not_served {
        lines.push(("this boot", format!("This boot was not served: {why}.")));
    }
    if let Some(last) = &status.last {
        lines.extend(boot_rows(last, status.is_of_this_boot));
    }
    if let Some(profile) = &status.known.profile {
        let known = format!(
            "A boot needs {} in {} paths, as {} taught.",
            pages(profile.pages, page_size),
            profile.paths,
            match profile.runs {
                1 => "one boot has".to_owned(),
                runs => format!("{runs} boots have"),
            }
        );
        lines.push(("known", known));
    }
    if let Some(imported) = status.known.imported.as_ref().filter(|it| it.is_used) {
        let sentence = format!("No boot here has taught that yet: {}.", imported.text());
        lines.push(("imported", sentence));
    }
    if let Some(outcome) = last_replay(&status.known) {
        lines.extend(replay_rows(outcome, page_size));
    }
    lines.extend(status.in_one_place_ns.map(|ns| {
        let sentence = format!(
            "The same bytes in one place on this disk would take {}: see `headstart layout plan boot`.",
            duration(ns)
        );
        ("order", sentence)
    }));
    if status.enabled || !status.known.outcomes.is_empty() {
        lines.push(("gained", gained_by_boots(&status.known)));
    }
    let next = match &status.next_not_replayed {
        None => "The next boot is read ahead.".into(),
        Some(why) => format!("The next boot is not read ahead: {why}."),
    };
    lines.push(("next boot", next));
    let notes = status.last.iter().flat_map(|last| &last.notes);
    lines.extend(notes.map(|note| ("note", note.clone())));
    sentences(COLUMNS, lines)
}

fn page_size(known: &KeyStatus) -> u32 {
    known.profile.as_ref().map_or(4096, |profile| profile.page_size)
}

/// The last replay of which it is known what the boot used.
fn last_replay(known: &KeyStatus) -> Option<&Outcome> {
    let is_one = |outcome: &&Outcome| outcome.mode == Mode::Replay && !outcome.unrecorded;
    known.outcomes.iter().rfind(is_one)
}

/// How long the reads of this replay would take if all lay in one place, by the cost model; `None` where many
/// requests are served at once, and where that would save less than [`SAVES_SECONDS`] or [`SAVES_SHARE`].
fn in_one_place_ns(outcome: &Outcome, page_size: u32, cost: &Cost) -> Option<u64> {
    let sum = total(outcome);
    let read_pages = sum.issued_pages.saturating_sub(sum.resident_pages) + sum.metadata_pages;
    let read_bytes = read_pages.saturating_mul(page_size.into());
    let took = outcome.replay_ns as f64 / 1e9;
    let in_one_place = read_bytes as f64 / cost.bandwidth + JUMPS * cost.latency;
    let saves = took - in_one_place;
    let pays = cost.class == DeviceClass::Disk && saves >= SAVES_SECONDS && saves >= SAVES_SHARE * took;
    pays.then_some((in_one_place * 1e9) as u64)
}

/// Of what `headstart layout apply` cannot move, such as inodes.
const JUMPS: f64 = 16.0;
const SAVES_SECONDS: f64 = 0.25;
const SAVES_SHARE: f64 = 0.3;

fn boot_rows(last: &BootReport, is_this: bool) -> Vec<(&'static str, String)> {
    let (which, what) = match is_this {
        true => ("this boot", "This boot"),
        false => ("an earlier boot", "The last boot that headstart served"),
    };
    let read = match &last.not_replayed {
        None => format!("{what} was read ahead."),
        Some(why) => format!("{what} was not read ahead: {why}."),
    };
    let recorded = match &last.recorder {
        Some(recorder) => format!("It was recorded ({recorder})"),
        None => "It was not recorded; headstart ran".into(),
    };
    let place = match last.from {
        WayIn::Initramfs => "from the initramfs on",
        WayIn::Init => "from before process 1 on",
        WayIn::Generator => "from before systemd's units on, as a generator of systemd",
        WayIn::Unit => "from the first unit on",
    };
    let writable = match last.made_writable {
        true => " Headstart made the root writable for the boot-failure guard.",
        false => "",
    };
    let mut lines = vec![(which, format!("{read} {recorded}, {place}.{writable}"))];
    let stage = |(name, at): &(String, u64)| format!("{name} after {}", duration(*at));
    let stages = last.stages.iter().map(stage).collect::<Vec<_>>().join(", ");
    let stages = match stages.is_empty() {
        true => String::new(),
        false => format!(": {stages}"),
    };
    lines.push(("took", format!("{}{stages}.", last.took())));
    lines.extend(last.spent().map(|text| ("processors", text)));
    let ended = match (&last.ended, &last.not_learned) {
        (None, _) => "It has not ended yet.".into(),
        (Some(how), None) => format!("Its recording ended because {how}, and headstart learned from it."),
        (Some(how), Some(why)) => format!("It ended because {how}. It taught nothing: {why}."),
    };
    lines.push(("ended", ended));
    lines
}

fn replay_rows(outcome: &Outcome, page_size: u32) -> Vec<(&'static str, String)> {
    let sum = total(outcome);
    let size = |count| pages(count, page_size);
    let left_out = match outcome.skipped.total() {
        0 => String::new(),
        _ => format!(" It skipped {}.", skipped(&outcome.skipped)),
    };
    let metadata = bytes(sum.metadata_pages.saturating_mul(u64::from(page_size)));
    vec![
        (
            "prefetched",
            format!(
                "The last replay read {} in {} requests and {metadata} of metadata in {}, within {}.{left_out}",
                size(sum.issued_pages.saturating_sub(sum.resident_pages)),
                sum.data_requests,
                sum.metadata_requests,
                duration(outcome.replay_ns)
            ),
        ),
        (
            "used",
            format!(
                "The boot used {} that were read in time, and {} that came late.",
                size(sum.used_pages),
                size(sum.late_pages)
            ),
        ),
        (
            "wasted",
            format!(
                "{} ({}) of what was read was not used, and {} lies between two uses.",
                size(sum.wasted_pages),
                percent(sum.wasted_pages, sum.issued_pages),
                size(sum.bridged_pages)
            ),
        ),
        ("missed", format!("It read {} by itself.", size(sum.missed_pages))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_model::testing::{DISK, NETWORK};

    #[test]
    fn a_better_order_is_suggested_where_it_saves_much_on_one_head() {
        let replay = |pages, ms: u64| {
            let mut outcome = Outcome::new(headstart_model::Key::new("boot").unwrap(), Mode::Replay);
            outcome.replay_ns = ms * 1_000_000;
            outcome.stages = vec![headstart_model::outcome::StageOutcome {
                issued_pages: pages,
                ..Default::default()
            }];
            outcome
        };
        // 40 MiB.
        let in_one_place = in_one_place_ns(&replay(10_240, 1500), 4096, &DISK).unwrap();
        let expected = 10_240.0 * 4096.0 / DISK.bandwidth + JUMPS * DISK.latency;
        assert_eq!(in_one_place, (expected * 1e9) as u64);
        let little = in_one_place / 1_000_000 + 200;
        assert_eq!(in_one_place_ns(&replay(10_240, little), 4096, &DISK), None);
        assert_eq!(in_one_place_ns(&replay(10_240, 1500), 4096, &NETWORK), None);
    }
}
