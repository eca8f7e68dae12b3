//! Changes what a file says, and makes lengths, checksums and compression right again.
//!
//! Two ways. A file that can be read is changed as a value: rows, paths and numbers of a trace, entries and
//! ranges of a profile, and so on, copied up to the limits and beyond, and written without the checks of the
//! writer. And the bytes of one section are changed, of columns those of one column, and packed again.

use crate::random::Random;
use headstart_model::format::{Container, Kind, Writer};
use headstart_model::plan::PlanFile;
use headstart_model::profile::WeightedRange;
use headstart_model::testing::Forged;
use headstart_model::{FilePath, Outcome, Profile, ProfileSet, Trace};

/// Changes bytes in a buffer as libFuzzer does: `(buffer, length) -> length`.
pub type Change<'a> = &'a mut dyn FnMut(&mut [u8], usize) -> usize;

/// The largest section that is made, bytes: above what any may have.
const MOST: usize = 20 << 20;

/// The file, changed; `None` where nothing came of it.
pub fn changed(bytes: &[u8], random: &mut Random, change: Change<'_>) -> Option<Vec<u8>> {
    let kind = Kind::detect(bytes)?;
    if random.one_in(2) {
        let value = match kind {
            Kind::Trace => Trace::from_bytes(bytes).ok().and_then(|it| trace(it, random)),
            Kind::Profile => Profile::from_bytes(bytes).ok().and_then(|it| profile(it, random)),
            Kind::ProfileSet => ProfileSet::from_bytes(bytes)
                .ok()
                .and_then(|it| profile_set(it, random)),
            Kind::Plan => plan(bytes, random),
            Kind::Outcome => Outcome::from_bytes(bytes).ok().and_then(|it| outcome(it, random)),
        };
        if value.is_some() {
            return value;
        }
    }
    section(kind, bytes, random, change)
}

/// One section with other bytes, everything else as it was.
fn section(kind: Kind, bytes: &[u8], random: &mut Random, change: Change<'_>) -> Option<Vec<u8>> {
    let file = Container::new(kind, bytes).ok()?;
    let tags: Vec<[u8; 4]> = file.tags().collect();
    let changed = *tags.get(random.below(tags.len()))?;
    let mut writer = Writer::new(kind);
    for tag in tags {
        let own = file.section(&tag, MOST).ok()?;
        let content = match (tag == changed, &tag) {
            (false, _) => own,
            (true, b"COLS" | b"PATH" | b"ACTV" | b"AHED") => columns(&own, random, change)?,
            (true, _) => bent(&own, random, change),
        };
        // A plan is stored as it is; of the others what is large has to fit the fuzzer's inputs.
        match kind == Kind::Plan || (content.len() < 4096 && random.one_in(2)) {
            true => writer.raw(&tag, &content),
            false => writer.compressed(&tag, &content, MOST).ok()?,
        }
    }
    writer.finish().ok()
}

/// Bytes changed here and there, or some of them repeated many times.
fn bent(own: &[u8], random: &mut Random, change: Change<'_>) -> Vec<u8> {
    if random.one_in(3) && !own.is_empty() {
        let begin = random.below(own.len());
        let length = 1 + random.below((own.len() - begin).min(64));
        let part = &own[begin..begin + length];
        let times = (1usize << random.below(24)).min(MOST.saturating_sub(own.len()) / length);
        return [&own[..begin], &part.repeat(times), &own[begin..]].concat();
    }
    let mut buffer = own.to_vec();
    buffer.resize(own.len() + 64, 0);
    let length = change(&mut buffer, own.len());
    buffer.truncate(length);
    buffer
}

/// A section of columns with one of them, or the same rows of all of a table, changed.
fn columns(own: &[u8], random: &mut Random, change: Change<'_>) -> Option<Vec<u8>> {
    let mut rest = own;
    let mut columns = Vec::new();
    while !rest.is_empty() {
        let length = varint(&mut rest)?;
        let (column, behind) = rest.split_at_checked(length)?;
        columns.push(column.to_vec());
        rest = behind;
    }
    let at = random.below(columns.len());
    let column = columns.get(at)?;
    columns[at] = bent(column, random, change);
    if random.one_in(2) {
        // As many rows in its neighbours: else nearly all changes end at the first row that is missing.
        let rows = columns[at].iter().filter(|byte| **byte < 0x80).count();
        let from = at.saturating_sub(12);
        let mut total: usize = columns.iter().map(Vec::len).sum();
        for other in columns.iter_mut().skip(from).take(25) {
            let has = other.iter().filter(|byte| **byte < 0x80).count();
            if has > 0 && has < rows {
                total += rows - has;
                if total > MOST {
                    return None;
                }
                let filler = [other.iter().rev().copied().find(|byte| *byte < 0x80)?];
                other.extend(filler.repeat(rows - has));
            }
        }
    }
    let mut out = Vec::new();
    for column in columns {
        let mut left = column.len();
        while left >= 0x80 {
            out.push(left as u8 | 0x80);
            left >>= 7;
        }
        out.push(left as u8);
        out.extend(column);
    }
    (out.len() <= MOST).then_some(out)
}

fn varint(bytes: &mut &[u8]) -> Option<usize> {
    let mut value = 0usize;
    for shift in (0..35).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= usize::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// A path: of those that the file has, beside, below or above it, long, deep, or none that may be.
fn path(of: &FilePath, random: &mut Random) -> FilePath {
    let text = of.to_string();
    let number = random.below(1000);
    let made = match random.below(8) {
        0 => format!("{text}/{number}"),
        1 => format!("{text}{number}"),
        2 => of.parent().map_or("/".into(), |path| path.to_string()),
        3 => format!("{text}{}", "/a".repeat(random.below(2048))),
        4 => format!("/{}", "x".repeat(random.below(4200))),
        5 => format!("{text}/../x"),
        6 => format!("{text}//\u{202e}\n"),
        _ => format!("/{number}"),
    };
    made.as_str().into()
}

/// Copies of one of the elements at the end, each changed by `vary` with its number.
fn more<T: Clone>(list: &mut Vec<T>, most: usize, random: &mut Random, vary: impl Fn(&mut T, u64)) {
    let Some(one) = list.get(random.below(list.len().max(1))).cloned() else {
        return;
    };
    let count = (1usize << random.below(18)).min((most + 1).saturating_sub(list.len()));
    let step = random.number();
    for index in 0..count as u64 {
        let mut copy = one.clone();
        vary(&mut copy, index.wrapping_mul(step));
        list.push(copy);
    }
}

/// How many elements such a list may have to be written without a gigabyte, where `bytes` is what one of them
/// holds: paths are long, and a writer holds them more than once.
fn affordable<T>(list: &[T], most: usize, bytes: impl Fn(&T) -> usize) -> usize {
    let longest = list.iter().map(bytes).max().unwrap_or(0).max(64);
    most.min(list.len() + (16 << 20) / longest)
}

/// The bytes of a file's paths.
fn paths(path: &FilePath, overlay: Option<&FilePath>) -> usize {
    path.as_bytes().len() + overlay.map_or(0, |path| path.as_bytes().len())
}

/// One of a list.
fn any<'a, T>(list: &'a mut [T], random: &mut Random) -> Option<&'a mut T> {
    let at = random.below(list.len().max(1));
    list.get_mut(at)
}

/// A path of its own for each number, in place of the one that was copied: below it, unless that is so long
/// that many would take more memory than what is fuzzed may.
fn apart(path: &FilePath, number: u64) -> FilePath {
    match path.as_bytes().len() > 100 {
        true => format!("/{number:06}").as_str().into(),
        false => format!("{path}/{number:06}").as_str().into(),
    }
}

fn trace(mut trace: Trace, random: &mut Random) -> Option<Vec<u8>> {
    use headstart_model::limits::{FILES, LOOKUPS, MAPPINGS, MARKS, MISSES, PROCESSES, USES, WINDOWS};
    for _ in 0..=random.below(3) {
        match random.below(16) {
            14 | 15 => activity(&mut trace, random)?,
            0 => more(&mut trace.uses, USES, random, |used, n| {
                used.time_ns = used.time_ns.wrapping_add(n % (1 << 40));
                used.start = used.start.wrapping_add(n % (1 << 20));
            }),
            1 => {
                let most = affordable(&trace.lookups, LOOKUPS, |lookup| lookup.path.as_bytes().len());
                more(&mut trace.lookups, most, random, |lookup, n| {
                    lookup.path = apart(&lookup.path, n);
                });
            }
            2 => {
                let most = affordable(&trace.files, FILES, |file| {
                    paths(&file.path, file.overlay.as_ref())
                });
                more(&mut trace.files, most, random, |file, n| {
                    file.inode = n;
                    if n % 2 == 0 {
                        file.path = apart(&file.path, n);
                    }
                });
            }
            3 => more(&mut trace.metadata, MISSES, random, |miss, n| {
                miss.start = n % (1 << 40)
            }),
            4 => more(&mut trace.mappings, MAPPINGS, random, |mapping, n| {
                mapping.pages.start = n % (1 << 20);
                mapping.pages.end = mapping.pages.start + 1 + n % 999;
            }),
            5 => {
                let most = affordable(&trace.processes, PROCESSES, |process| {
                    process.executable.as_bytes().len()
                });
                more(&mut trace.processes, most, random, |process, n| {
                    process.pid = n as u32
                });
            }
            6 => more(&mut trace.marks, MARKS, random, |mark, n| {
                mark.stage = format!("{n}");
                mark.time_ns = n;
            }),
            7 => {
                let file = any(&mut trace.files, random)?;
                file.path = path(&file.path, random);
                file.size = random.number();
                file.overlay = random.one_in(2).then(|| path(&file.path, random));
            }
            8 => {
                let lookup = any(&mut trace.lookups, random)?;
                lookup.path = path(&lookup.path, random);
                lookup.process = random.number() as u32;
            }
            9 => {
                let files = trace.files.len().max(1) as u64;
                for used in &mut trace.uses {
                    used.file = (random.number() % files) as u32;
                    used.pages = random.number() as u32 % 4096;
                }
            }
            10 => {
                let used = any(&mut trace.uses, random)?;
                (used.start, used.pages) = (random.number(), random.number() as u32);
                used.time_ns = random.number();
            }
            11 => more(&mut trace.windows, WINDOWS, random, |row, n| {
                row.time_ns = row.time_ns.wrapping_add(n % (1 << 40));
                row.window = n % (1 << 40);
                row.pages = n as u16;
            }),
            12 => {
                let files = trace.files.len().max(1) as u64;
                let row = any(&mut trace.windows, random)?;
                row.file = (random.number() % (files + 1)) as u32;
                (row.window, row.process) = (random.number(), random.below(3) as u32);
            }
            _ => {
                trace.end.elapsed_ns = random.number();
                trace.end.cpu_ns = Some(random.number());
                trace.meta.page_size = 1 << (10 + random.below(8));
            }
        }
    }
    trace.forged().ok()
}

/// Rows of what the processors, devices and memory did.
fn activity(trace: &mut Trace, random: &mut Random) -> Option<()> {
    use headstart_model::limits::{BLOCK_DEVICES, REQUESTED, SAMPLES, SLICES};
    let activity = trace.activity.as_mut()?;
    match random.below(6) {
        0 => {
            more(&mut activity.requests, REQUESTED, random, |request, n| {
                request.sector = n % (1 << 40);
            });
            activity.requests.sort_by_key(|request| request.issued_ns);
        }
        1 => {
            more(&mut activity.slices, SLICES, random, |slice, n| {
                slice.to_ns = slice.to_ns.saturating_add(n % (1 << 40));
                slice.thread = n as u32;
            });
            activity.slices.sort_by_key(|slice| slice.from_ns);
        }
        2 => {
            more(&mut activity.processors, SAMPLES, random, |sample, n| {
                sample.busy = (n % 1024) as f32 / 1000.0;
            });
            more(&mut activity.memory, SAMPLES, random, |sample, n| sample.free = n);
        }
        3 => more(&mut activity.devices, BLOCK_DEVICES, random, |device, n| {
            device.name = format!("{n}");
        }),
        4 => {
            let request = any(&mut activity.requests, random)?;
            (request.sector, request.sectors) = (random.number(), random.number() as u32);
            request.device = random.number() as u32;
            request.process = random.one_in(2).then(|| random.number() as u32);
            request.completed_ns = random.one_in(2).then(|| random.number());
        }
        _ => {
            let slice = any(&mut activity.slices, random)?;
            (slice.from_ns, slice.to_ns) = (random.number(), random.number());
            slice.process = random.number() as u32;
            activity.lost = random.number();
        }
    }
    Some(())
}

/// One of the profiles changed, or more of them.
fn profile_set(set: ProfileSet, random: &mut Random) -> Option<Vec<u8>> {
    let mut profiles = set.into_profiles();
    if random.one_in(3) {
        let keys = profiles.iter().map(|one| one.entries.len()).max().unwrap_or(0);
        let most = headstart_model::limits::PROFILES.min(1 + (1 << 18) / keys.max(1));
        more(&mut profiles, most, random, |one, n| {
            one.key = headstart_model::testing::key(&format!("{n:020}"));
        });
    }
    let one = any(&mut profiles, random)?;
    *one = changed_profile(one.clone(), random)?;
    headstart_model::testing::profile_set(profiles).forged().ok()
}

fn profile(profile: Profile, random: &mut Random) -> Option<Vec<u8>> {
    changed_profile(profile, random)?.forged().ok()
}

fn changed_profile(mut profile: Profile, random: &mut Random) -> Option<Profile> {
    use headstart_model::limits::{ENTRIES, RANGES, STAGES};
    for _ in 0..=random.below(3) {
        match random.below(7) {
            0 => {
                let most = affordable(&profile.entries, ENTRIES, |entry| {
                    let touches = entry.touches.iter();
                    let touched = touches.flat_map(|touch| [&touch.touched, &touch.once, &touch.unused]);
                    let ranges = entry.ranges.len()
                        + entry.tail.as_ref().map_or(0, Vec::len)
                        + touched.map(|set| set.ranges().len()).sum::<usize>();
                    paths(&entry.path, entry.overlay.as_ref()) + ranges * size_of::<WeightedRange>()
                });
                more(&mut profile.entries, most, random, |entry, n| {
                    entry.path = apart(&entry.path, n);
                    entry.first_use_ns = n;
                });
            }
            1 => {
                let ranges = &mut any(&mut profile.entries, random)?.ranges;
                let mut end = ranges.last().map_or(0, |range| range.range().end);
                let from = ranges.len();
                more(ranges, RANGES, random, |range, n| {
                    range.first_use_ns = n;
                    range.pages = 1;
                    range.weight = (n % 1024) as f32 / 1024.0;
                });
                for range in ranges.iter_mut().skip(from) {
                    range.start = end + 1 + random.number() % 200;
                    end = range.range().end;
                }
            }
            2 => more(&mut profile.stages, STAGES, random, |stage, n| {
                *stage = format!("{n}")
            }),
            3 => {
                let entry = any(&mut profile.entries, random)?;
                entry.path = path(&entry.path, random);
                entry.overlay = random.one_in(2).then(|| path(&entry.path, random));
            }
            4 => {
                let entry = any(&mut profile.entries, random)?;
                entry.weight = random.below(3) as f32 / 2.0;
                entry.stage = random.number() as u16;
            }
            5 => {
                let stages = profile.stages.len().max(1) as u64;
                for entry in &mut profile.entries {
                    entry.stage = (random.number() % stages) as u16;
                    entry.overlay = random.one_in(4).then(|| apart(&entry.path, random.number() % 7));
                }
            }
            _ => {
                profile.cpu_ns = Some(random.number());
                profile.timeline_ns = random.number();
                profile.mass = f64::from_bits(random.number());
            }
        }
    }
    profile.entries.sort_by(|a, b| a.path.cmp(&b.path));
    profile.entries.dedup_by(|a, b| a.path == b.path);
    Some(profile)
}

fn plan(bytes: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    use headstart_model::limits::{DEVICES, PLAN_FILES, REQUESTS, STAGES};
    let mut it = PlanFile::new(bytes.to_vec()).plan().ok()?.to_draft().ok()?;
    for _ in 0..=random.below(3) {
        match random.below(8) {
            0 => more(&mut it.requests, REQUESTS, random, |request, n| {
                request.offset = n % (1 << 50);
                request.deadline_us = n as u32;
            }),
            1 => {
                let most = affordable(&it.files, PLAN_FILES, |file| file.path.as_bytes().len());
                more(&mut it.files, most, random, |file, n| {
                    file.path = apart(&file.path, n)
                });
            }
            2 => more(&mut it.devices, DEVICES, random, |device, n| {
                device.hold = n as u32
            }),
            3 => more(&mut it.stages, STAGES, random, |stage, n| *stage = format!("{n}")),
            4 => {
                let file = any(&mut it.files, random)?;
                file.path = path(&file.path, random);
            }
            5 => {
                let device = any(&mut it.devices, random)?;
                device.mount_point = path(&device.mount_point, random);
                device.cost.depth = random.number() as u32;
                device.cost.latency = f64::from_bits(random.number());
            }
            6 => {
                let files = it.files.len().max(1) as u64;
                for request in it
                    .requests
                    .iter_mut()
                    .filter(|r| r.file as u64 != u64::from(u32::MAX))
                {
                    request.file = (random.number() % files) as u32;
                }
            }
            _ => {
                let request = any(&mut it.requests, random)?;
                (request.offset, request.length) = (random.number(), random.number());
            }
        }
    }
    it.cut = random.below(it.requests.len() + 2) as u32;
    it.forged().ok()
}

fn outcome(mut outcome: Outcome, random: &mut Random) -> Option<Vec<u8>> {
    match random.below(3) {
        0 => more(&mut outcome.stages, 255, random, |stage, n| stage.used_pages = n),
        1 => outcome.not_learned = Some("x\n".repeat(random.below(4096))),
        _ => {
            outcome.elapsed_ns = random.number();
            outcome.first_request_ns = Some(random.number());
            outcome.memory_pressure = Some(f32::from_bits(random.number() as u32));
            any(&mut outcome.stages, random)?.issued_pages = random.number();
        }
    }
    outcome.to_bytes().ok()
}
