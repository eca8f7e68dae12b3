//! A profile as text. Its JSON document is [`Profile`] itself.

use crate::ROWS;
use crate::human::{ago, duration, pages, printable, ranges, weight};
use crate::table::{Table, Written, facts, section};
use headstart_model::profile::Need;
use headstart_model::{PageSet, Profile};
use std::fmt;

/// Pages of the profile that a plan takes up, and pages in all.
pub fn page_counts(profile: &Profile) -> (u64, u64) {
    let threshold = profile.policy.threshold();
    let sum = |least: f32| {
        profile
            .entries
            .iter()
            .map(|entry| entry.pages(least).pages())
            .sum()
    };
    (sum(threshold), sum(0.0))
}

/// The profile for people.
pub fn text(profile: &Profile, list_pages: bool, now_unix_ns: u64) -> impl fmt::Display {
    let threshold = profile.policy.threshold();
    let (taken, all) = page_counts(profile);
    let mut out = facts([
        ("profile of", profile.key.to_string()),
        (
            "learned",
            format!(
                "from {} runs, last {}",
                profile.runs,
                ago(profile.updated_unix_ns, now_unix_ns)
            ),
        ),
        (
            "policy",
            format!(
                "{}: what has a weight of {} or more is prefetched",
                profile.policy,
                weight(threshold)
            ),
        ),
        (
            "pages",
            format!(
                "{} prefetched of {} known",
                pages(taken, profile.page_size),
                pages(all, profile.page_size)
            ),
        ),
        ("paths", profile.entries.len().to_string()),
    ]);
    let mut needs = Table::new(&["need besides pages", ">paths", ">prefetched"]);
    for (need, name) in [
        (Need::Open, "open"),
        (Need::List, "list"),
        (Need::Stat, "look up"),
        (Need::Missing, "look up, not there"),
    ] {
        let of_need = || profile.entries.iter().filter(|entry| entry.need == need);
        let taken = of_need().filter(|entry| entry.weight >= threshold).count();
        needs.row([name.to_string(), of_need().count().to_string(), taken.to_string()]);
    }
    out += &section("Paths", &needs);
    let mut order: Vec<(u64, &_)> = profile
        .entries
        .iter()
        .map(|entry| (entry.pages(threshold).pages(), entry))
        .collect();
    order.sort_unstable_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.path.cmp(&b.1.path)));
    let mut table = Table::new(&[">prefetched", ">ranges", ">weight", ">first used", "file"]);
    for (count, entry) in order.iter().take_while(|(count, _)| *count > 0).take(ROWS) {
        table.row([
            pages(*count, profile.page_size),
            entry.ranges.len().to_string(),
            weight(entry.weight),
            duration(entry.first_use_ns),
            entry.path.to_string(),
        ]);
    }
    out += &section("Files by pages prefetched", &table);
    Written(move |f: &mut fmt::Formatter<'_>| {
        f.write_str(&out)?;
        if !list_pages {
            return Ok(());
        }
        writeln!(f, "\nPages by weight")?;
        for entry in profile.entries.iter().filter(|entry| !entry.ranges.is_empty()) {
            writeln!(f, "{}", printable(&entry.path.to_string()))?;
            for (bits, set) in by_weight(entry) {
                writeln!(
                    f,
                    "  {:>5}  {}",
                    weight(f32::from_bits(bits)),
                    ranges(set.ranges())
                )?;
            }
        }
        Ok(())
    })
}

/// An entry's pages by weight, heaviest first. Weights are not negative, so their bits sort as they do.
pub(crate) fn by_weight(entry: &headstart_model::profile::Entry) -> Vec<(u32, PageSet)> {
    let mut sets = std::collections::BTreeMap::<u32, Vec<_>>::new();
    for range in &entry.ranges {
        sets.entry(range.weight.to_bits())
            .or_default()
            .push(range.range());
    }
    sets.into_iter()
        .rev()
        .map(|(bits, list)| (bits, list.into_iter().collect()))
        .collect()
}
