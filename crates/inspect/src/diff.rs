//! Two traces, two profiles or two plans side by side: which pages and paths they have in common.

use crate::ROWS;
use crate::human::{bytes, pages, printable, ranges};
use crate::table::{Table, Written, facts, section};
use headstart_model::plan::{Plan, RequestKind};
use headstart_model::{FilePath, PageRange, PageSet, Profile, Trace};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// What is compared: pages by file, and paths needed otherwise.
#[derive(Debug, Default)]
pub struct Side {
    /// Pages by path.
    pub pages: BTreeMap<FilePath, PageSet>,
    /// Paths looked up.
    pub paths: BTreeSet<FilePath>,
    /// Bytes of a page.
    pub page_size: u32,
}

/// Two files side by side.
#[derive(Debug, Serialize, PartialEq)]
pub struct Diff {
    /// `trace`, `profile` or `plan`.
    pub kind: &'static str,
    /// Bytes of a page, of the first.
    pub page_size: u32,
    /// Pages of the first.
    pub pages_a: u64,
    /// Pages of the second.
    pub pages_b: u64,
    /// Pages of both.
    pub common_pages: u64,
    /// Pages of both as a share of the pages of either, 0 to 1; 1 if neither has any.
    pub common_share: f64,
    /// Files whose pages differ, most different first.
    pub files: Vec<FileDiff>,
    /// Paths that only the first needs.
    pub paths_only_a: Vec<FilePath>,
    /// Paths that only the second needs.
    pub paths_only_b: Vec<FilePath>,
}

/// A file whose pages differ.
#[derive(Debug, Serialize, PartialEq)]
pub struct FileDiff {
    /// Its path.
    pub path: FilePath,
    /// Pages in both.
    pub common: u64,
    /// Ranges that only the first has.
    pub only_a: Vec<PageRange>,
    /// Ranges that only the second has.
    pub only_b: Vec<PageRange>,
}

fn count(ranges: &[PageRange]) -> u64 {
    ranges.iter().map(PageRange::pages).fold(0, u64::saturating_add)
}

/// What a trace shows.
pub fn trace_side(trace: &Trace) -> Side {
    let mut side = Side {
        page_size: trace.meta.page_size,
        ..Side::default()
    };
    // All ranges of a path first: one that many files have would be merged anew with each.
    let mut ranges: BTreeMap<FilePath, Vec<PageRange>> = BTreeMap::new();
    for (file, set) in trace.files.iter().zip(trace.used_pages()) {
        ranges.entry(file.path.clone()).or_default().extend(set.ranges());
    }
    side.pages = merged(ranges);
    side.paths = trace.lookups.iter().map(|lookup| lookup.path.clone()).collect();
    side
}

/// What a profile would have prefetched.
pub fn profile_side(profile: &Profile) -> Side {
    let threshold = profile.policy.threshold();
    let mut side = Side {
        page_size: profile.page_size,
        ..Side::default()
    };
    for entry in &profile.entries {
        let set = entry.pages(threshold);
        if !set.is_empty() {
            side.pages.insert(entry.path.clone(), set);
        }
        if entry.weight >= threshold {
            side.paths.insert(entry.path.clone());
        }
    }
    side
}

/// What a plan reads, its metadata under the mount point of the device.
pub fn plan_side(plan: &Plan<'_>) -> Side {
    let page_size = u64::from(plan.page_size().max(1));
    let mut ranges: BTreeMap<FilePath, Vec<PageRange>> = BTreeMap::new();
    let metadata: Vec<FilePath> = (0..plan.device_count())
        .map(|index| {
            let mount = plan.device(index).map(|d| d.mount_point.to_string());
            format!("{} (metadata)", mount.unwrap_or_default())
                .as_str()
                .into()
        })
        .collect();
    let mut side = Side {
        page_size: plan.page_size(),
        ..Side::default()
    };
    for request in plan.requests().take(plan.cut()) {
        let range = PageRange {
            start: request.offset / page_size,
            end: request.offset.saturating_add(request.length).div_ceil(page_size),
        };
        match (request.kind, plan.path(request.file as usize)) {
            (RequestKind::Metadata, _) => {
                if let Some(name) = metadata.get(usize::from(request.device)) {
                    ranges.entry(name.clone()).or_default().push(range);
                }
            }
            (RequestKind::Data, Some(path)) => ranges.entry(path.into()).or_default().push(range),
            (_, Some(path)) => {
                side.paths.insert(path.into());
            }
            (_, None) => {}
        }
    }
    side.pages = merged(ranges);
    side
}

fn merged(ranges: BTreeMap<FilePath, Vec<PageRange>>) -> BTreeMap<FilePath, PageSet> {
    let merge = |(path, list): (FilePath, Vec<PageRange>)| (path, list.into_iter().collect());
    ranges.into_iter().map(merge).collect()
}

/// Compares.
pub fn diff(kind: &'static str, a: &Side, b: &Side) -> Diff {
    let total = |side: &Side| {
        side.pages
            .values()
            .map(PageSet::pages)
            .fold(0, u64::saturating_add)
    };
    let (pages_a, pages_b) = (total(a), total(b));
    let none = PageSet::new();
    let mut common_pages = 0;
    let mut files = Vec::new();
    for path in a.pages.keys().chain(b.pages.keys()).collect::<BTreeSet<_>>() {
        let (of_a, of_b) = (
            a.pages.get(path).unwrap_or(&none),
            b.pages.get(path).unwrap_or(&none),
        );
        let common = of_a.intersection(of_b).pages();
        common_pages = u64::saturating_add(common_pages, common);
        let (only_a, only_b) = (of_a.difference(of_b), of_b.difference(of_a));
        if !only_a.is_empty() || !only_b.is_empty() {
            files.push(FileDiff {
                path: path.clone(),
                common,
                only_a: only_a.ranges().to_vec(),
                only_b: only_b.ranges().to_vec(),
            });
        }
    }
    files.sort_by_key(|file| std::cmp::Reverse(count(&file.only_a).saturating_add(count(&file.only_b))));
    let either = pages_a.saturating_add(pages_b).saturating_sub(common_pages);
    Diff {
        kind,
        page_size: a.page_size,
        pages_a,
        pages_b,
        common_pages,
        common_share: if either == 0 {
            1.0
        } else {
            common_pages as f64 / either as f64
        },
        files,
        paths_only_a: a.paths.difference(&b.paths).cloned().collect(),
        paths_only_b: b.paths.difference(&a.paths).cloned().collect(),
    }
}

/// The comparison for people; at most [`ROWS`] rows of each table.
pub fn text(diff: &Diff, list_pages: bool) -> impl fmt::Display {
    let size = |count: u64| pages(count, diff.page_size);
    let mut out = facts([
        ("A", size(diff.pages_a)),
        ("B", size(diff.pages_b)),
        (
            "in both",
            format!(
                "{}, {:.1} % of either",
                size(diff.common_pages),
                100.0 * diff.common_share
            ),
        ),
        ("files that differ", diff.files.len().to_string()),
        (
            "paths only in A / B",
            format!("{} / {}", diff.paths_only_a.len(), diff.paths_only_b.len()),
        ),
    ]);
    let mut table = Table::new(&[">only A", ">only B", ">both", "file"]);
    for file in diff.files.iter().take(ROWS) {
        let page = u64::from(diff.page_size);
        table.row([
            bytes(count(&file.only_a).saturating_mul(page)),
            bytes(count(&file.only_b).saturating_mul(page)),
            size(file.common),
            file.path.to_string(),
        ]);
    }
    out += &section("Files whose pages differ", &table);
    for (title, paths) in [
        ("Paths only in A", &diff.paths_only_a),
        ("Paths only in B", &diff.paths_only_b),
    ] {
        let mut table = Table::new(&[""]);
        paths
            .iter()
            .take(ROWS)
            .for_each(|path| table.row([path.to_string()]));
        out += &section(title, &table);
    }
    Written(move |f: &mut fmt::Formatter<'_>| {
        f.write_str(&out)?;
        if !list_pages {
            return Ok(());
        }
        writeln!(f, "\nPages")?;
        for file in &diff.files {
            writeln!(f, "{}", printable(&file.path.to_string()))?;
            for (side, only) in [("A", &file.only_a), ("B", &file.only_b)] {
                if !only.is_empty() {
                    writeln!(f, "  only {side}  {}", ranges(only))?;
                }
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(files: &[(&str, u64, u64)], paths: &[&str]) -> Side {
        Side {
            pages: files
                .iter()
                .map(|(path, start, pages)| {
                    (
                        FilePath::from(*path),
                        [PageRange::new(*start, *pages)].into_iter().collect(),
                    )
                })
                .collect(),
            paths: paths.iter().map(|path| FilePath::from(*path)).collect(),
            page_size: 4096,
        }
    }

    #[test]
    fn what_differs_is_listed_most_different_first() {
        let a = side(&[("/same", 0, 5), ("/little", 0, 4), ("/gone", 3, 90)], &["/x"]);
        let b = side(&[("/same", 0, 5), ("/little", 1, 4)], &["/x", "/y"]);
        let diff = diff("trace", &a, &b);
        assert_eq!((diff.pages_a, diff.pages_b, diff.common_pages), (99, 9, 8));
        assert_eq!(diff.common_share, 0.08);
        assert_eq!(
            diff.files.iter().map(|f| f.path.to_string()).collect::<Vec<_>>(),
            ["/gone", "/little"]
        );
        assert_eq!(diff.files[1].only_b, [PageRange::new(4, 1)]);
        assert_eq!(diff.paths_only_b, [FilePath::from("/y")]);
        assert!(text(&diff, true).to_string().contains("8.0 % of either"));
    }

    #[test]
    fn nothing_is_all_in_common() {
        let empty = diff("plan", &Side::default(), &Side::default());
        assert_eq!(empty.common_share, 1.0);
    }
}
