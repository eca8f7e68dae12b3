//! What devices read during a start, whose it is, and whether the plan had it.

use crate::ROWS;
use crate::human::{bytes, duration, percent};
use crate::table::{COLUMNS, Table, Written, facts, section, sentences};
use headstart_compare::{Block, Comparison, Count, FileTotal, Had, Split};
use std::fmt;

/// For people; `list_blocks` is whether every piece of every read is listed.
pub fn text(comparison: &Comparison, list_blocks: bool) -> impl fmt::Display {
    Written(move |f: &mut fmt::Formatter<'_>| {
        f.write_str(&head(comparison))?;
        f.write_str(&section("By kind", &kinds(comparison)))?;
        f.write_str(&section("By file", &files(comparison)))?;
        if comparison.parts.len() > 1 {
            f.write_str(&section("By file system", &parts(comparison)))?;
        }
        if !comparison.unexplained.is_empty() {
            let sizes: Vec<(String, String)> = comparison
                .unexplained
                .iter()
                .map(|part| (bytes(part.bytes), part.why.clone()))
                .collect();
            let pairs = sizes.iter().map(|(size, why)| (size.as_str(), why.clone()));
            write!(f, "\nNot explained\n{}", sentences(COLUMNS, pairs))?;
        }
        match list_blocks {
            true => blocks(comparison, f),
            false => Ok(()),
        }
    })
}

fn count(count: Count) -> String {
    format!("{} requests, {}", count.requests, bytes(count.bytes))
}

fn head(comparison: &Comparison) -> String {
    let mut lines = vec![
        ("plan", comparison.key.clone().unwrap_or_else(|| "none".into())),
        ("read", count(comparison.read)),
        (
            "explained",
            format!(
                "{} ({})",
                bytes(comparison.explained),
                percent(comparison.explained, comparison.read.bytes)
            ),
        ),
    ];
    if let Some(had) = comparison.had {
        for (name, part) in names(had) {
            lines.push((
                name,
                format!("{} ({})", bytes(part), percent(part, comparison.explained)),
            ));
        }
    }
    for (name, part) in [
        ("not during it", comparison.outside),
        ("other devices", comparison.elsewhere),
    ] {
        if part.requests > 0 {
            lines.push((name, count(part)));
        }
    }
    if comparison.lost > 0 {
        lines.push((
            "lost",
            format!("{} events: not all reads are here", comparison.lost),
        ));
    }
    facts(lines)
}

fn names(had: Split) -> [(&'static str, u64); 4] {
    [
        ("found", had.found),
        ("late", had.late),
        ("missing", had.missing),
        ("by look-ups", had.by_lookup),
    ]
}

fn cells(planned: bool, had: Split) -> Vec<String> {
    match planned {
        true => names(had).map(|(_, part)| bytes(part)).into(),
        false => Vec::new(),
    }
}

fn kinds(comparison: &Comparison) -> Table {
    let planned = comparison.had.is_some();
    let heads = [">read", ">found", ">late", ">missing", ">by look-ups", "kind"];
    let mut table = match planned {
        true => Table::new(&heads),
        false => Table::new(&[">read", "kind"]),
    };
    for total in &comparison.kinds {
        let mut row = vec![bytes(total.bytes)];
        row.extend(cells(planned, total.had));
        row.push(total.kind.name().into());
        table.row(row);
    }
    table
}

fn files(comparison: &Comparison) -> Table {
    let mut table = match comparison.had {
        Some(_) => Table::new(&[">data", ">metadata", ">found", ">late", ">missing", "file"]),
        None => Table::new(&[">data", ">metadata", "file"]),
    };
    for file in comparison.files.iter().take(ROWS) {
        let mut row = vec![bytes(file.data), bytes(file.metadata)];
        row.extend(cells(comparison.had.is_some(), file.had).into_iter().take(3));
        row.push(name(file));
        table.row(row);
    }
    let rest = comparison.files.len().saturating_sub(ROWS);
    if rest > 0 {
        let (mut data, mut metadata) = (0, 0);
        for file in &comparison.files[ROWS..] {
            data += file.data;
            metadata += file.metadata;
        }
        let mut row = vec![bytes(data), bytes(metadata)];
        row.extend(
            cells(comparison.had.is_some(), Split::default())
                .iter()
                .take(3)
                .map(|_| String::new()),
        );
        row.push(format!("({rest} more: --json)"));
        table.row(row);
    }
    table
}

fn name(file: &FileTotal) -> String {
    match &file.path {
        Some(path) => path.to_string(),
        None => format!("inode {} of {}", file.inode, file.mount_point),
    }
}

fn parts(comparison: &Comparison) -> Table {
    let mut table = Table::new(&[">read", ">explained", "type", "device", "mounted at"]);
    for part in comparison.parts.iter().filter(|part| part.bytes > 0) {
        table.row([
            bytes(part.bytes),
            percent(part.explained, part.bytes),
            part.fstype.clone(),
            part.device.clone(),
            part.mount_point.to_string(),
        ]);
    }
    table
}

/// One line a piece, written as it is made: there may be hundreds of thousands.
fn blocks(comparison: &Comparison, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "\nBlocks: time, device, sector, size, whether planned, whose")?;
    for block in &comparison.blocks {
        let time = match block.time_ns {
            Some(ns) if ns < 0 => format!("-{}", duration(ns.unsigned_abs())),
            Some(ns) => duration(ns.unsigned_abs()),
            None => "-".into(),
        };
        let had = match block.had {
            Some(Had::Found) => "found",
            Some(Had::Late) => "late",
            Some(Had::Missing) => "missing",
            Some(Had::ByLookup) => "by look-up",
            None => "-",
        };
        writeln!(
            f,
            "{time} {}:{} {} {} {had} {}",
            block.major,
            block.minor,
            block.sector,
            bytes(block.bytes),
            owner_text(comparison, block)
        )?;
    }
    Ok(())
}

fn owner_text(comparison: &Comparison, block: &Block) -> String {
    let kind = block.kind.map_or("not explained", |kind| kind.name());
    let file = block
        .file
        .and_then(|file| comparison.files.get(file))
        .map(name)
        .unwrap_or_default();
    let at = block
        .offset
        .map_or(String::new(), |offset| format!(" at {offset}"));
    let text = format!("{kind} {file}{at}");
    crate::human::printable(text.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_compare::{DeviceTotal, KindTotal, Unexplained};
    use headstart_model::blocks::Kind;

    fn comparison(path: &str) -> Comparison {
        let had = Split {
            found: 1 << 20,
            late: 4096,
            missing: 8192,
            by_lookup: 0,
        };
        Comparison {
            key: Some("k".into()),
            read: Count {
                requests: 12,
                bytes: 2 << 20,
            },
            explained: (2 << 20) - 4096,
            explained_share: 0.998,
            had: Some(had),
            outside: Count {
                requests: 2,
                bytes: 8192,
            },
            elsewhere: Count::default(),
            lost: 3,
            kinds: vec![KindTotal {
                kind: Kind::Data,
                bytes: 2 << 20,
                had,
            }],
            files: vec![
                FileTotal {
                    path: Some(path.into()),
                    inode: 12,
                    mount_point: "/".into(),
                    data: 1 << 20,
                    metadata: 0,
                    had,
                },
                FileTotal {
                    path: None,
                    inode: 13,
                    mount_point: "/".into(),
                    data: 0,
                    metadata: 4096,
                    had,
                },
            ],
            parts: Vec::new(),
            devices: vec![DeviceTotal {
                major: 8,
                minor: 0,
                read: Count::default(),
                explained: 0,
            }],
            unexplained: vec![Unexplained {
                why: "word ".repeat(40),
                bytes: 4096,
            }],
            blocks: vec![Block {
                time_ns: Some(-2_000_000),
                major: 8,
                minor: 0,
                sector: 2048,
                bytes: 4096,
                kind: Some(Kind::Data),
                file: Some(0),
                offset: Some(8192),
                had: Some(Had::Late),
            }],
        }
    }

    #[test]
    fn the_text_fits_a_terminal_whatever_paths_are() {
        for path in [
            "/usr/bin/python3",
            &format!("/{}", "long/".repeat(100)),
            "/a\n\u{1b}[2J\"<b>",
        ] {
            let mut first = comparison(path);
            (0..ROWS).for_each(|_| first.files.extend(comparison(path).files));
            let text = text(&first, false).to_string();
            for line in text.lines() {
                assert!(
                    line.chars().count() <= COLUMNS,
                    "{} columns: {line}",
                    line.chars().count()
                );
            }
            assert!(!text.contains('\u{1b}'));
            for part in [
                "99.8 %",
                "(17 more: --json)",
                "not during it",
                "3 events",
                "Not explained",
            ] {
                assert!(text.contains(part), "{part}: {text}");
            }
        }
    }

    #[test]
    fn every_piece_is_a_line() {
        let comparison = comparison("/a\nb");
        let text = text(&comparison, true).to_string();
        let line = text.lines().last().unwrap();
        assert_eq!(line, "-2.00 ms 8:0 2048 4.00 KiB late data /a\\nb at 8192");
    }
}
