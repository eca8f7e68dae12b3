//! The order in which files are first used, for programs that write images.

use headstart_model::profile::Entry;
use headstart_model::{FilePath, Profile};
use std::collections::HashSet;
use std::fmt;

/// A list of files, as one program reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListFormat {
    /// `mksquashfs -sort`: a line `name priority` for each file, the highest priority first.
    Squashfs,
    /// `gensquashfs --sort-file`: a line `priority name` for each file, the lowest priority first.
    Gensquashfs,
    /// `xorrisofs --sort-weight-list`: a line `weight name` for each file, the highest weight first.
    Iso,
    /// `tar --null --files-from`: names, each with a NUL behind it, in order.
    ErofsTar,
}

/// The most files that have priorities of their own in mksquashfs's list. Its highest priority is 32767, and
/// files that are not listed have 0.
const SQUASHFS_PRIORITIES: usize = 32_767;

/// xorriso gives boot images the weight 2 and other files 0 (xorrisofs(1), `--sort-weight`).
const HIGHEST_OF_OTHERS_IN_ISO: usize = 2;

/// What the C library's isspace(3) takes for a space, the end of a line apart.
const SPACES: &[u8] = b" \t\x0b\x0c\r";

impl ListFormat {
    /// Whether the program would read this name, which is relative to the image's root, as it is.
    fn can_name(self, name: &[u8]) -> bool {
        let ends_line = name.contains(&b'\n');
        match self {
            // It takes `directory/*` for the directory.
            ListFormat::Squashfs => !ends_line && !name.ends_with(b"/*"),
            // It cuts spaces off a line. Version 1.2.0 (Debian 12) misreads quoted names, so none is quoted.
            ListFormat::Gensquashfs => !ends_line && !name.last().is_some_and(|last| SPACES.contains(last)),
            ListFormat::Iso => !ends_line && !name.ends_with(b"\r"),
            ListFormat::ErofsTar => true,
        }
    }

    /// The whole list of these names, which are in order of first use.
    fn list(self, names: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        let numbered = names.iter().enumerate();
        match self {
            // Where a file has several names mksquashfs takes the priority of the last one listed: list the
            // first one used last.
            ListFormat::Squashfs => numbered.rev().for_each(|(index, name)| {
                for byte in *name {
                    // `#` begins a comment.
                    if SPACES.contains(byte) || b"\\#".contains(byte) {
                        out.push(b'\\');
                    }
                    out.push(*byte);
                }
                let priority = SQUASHFS_PRIORITIES.saturating_sub(index).max(1);
                out.extend(format!(" {priority}\n").bytes());
            }),
            // The slash keeps a first `[` from being read as flags, and a first `"` as a quotation mark.
            ListFormat::Gensquashfs => numbered.for_each(|(index, name)| {
                out.extend(format!("-{} /", names.len() - index).bytes());
                out.extend(*name);
                out.push(b'\n');
            }),
            ListFormat::Iso => numbered.for_each(|(index, name)| {
                let weight = HIGHEST_OF_OTHERS_IN_ISO + names.len() - index;
                out.extend(format!("{weight} /").bytes());
                out.extend(*name);
                out.push(b'\n');
            }),
            ListFormat::ErofsTar => names.iter().for_each(|name| {
                out.extend(b"./");
                out.extend(*name);
                out.push(0);
            }),
        }
        out
    }
}

/// Files in order of first use, and what of the profile the list does not say.
#[derive(Debug)]
pub struct Order {
    /// The list.
    pub text: Vec<u8>,
    /// Number of files listed.
    pub files: usize,
    /// What it does not say; empty if nothing.
    pub unsaid: Unsaid,
}

/// What a list does not say: how many paths, why, and the first of them. Shown on one line.
#[derive(Debug, Default)]
pub struct Unsaid(Vec<(&'static str, usize, FilePath)>);

impl Unsaid {
    /// Whether the list says all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn add(&mut self, why: &'static str, path: &FilePath) {
        match self.0.iter_mut().find(|(known, ..)| *known == why) {
            Some((_, count, _)) => *count += 1,
            None => self.0.push((why, 1, path.clone())),
        }
    }
}

impl fmt::Display for Unsaid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (why, count, first)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "; " };
            write!(f, "{comma}{why}: {count}, first {first}")?;
        }
        Ok(())
    }
}

/// Lists the files of which a plan of this profile reads pages, in order of first use, by their names below
/// `root`, the directory at which the image was mounted when the profile was learned. `is_in_image` tells of a
/// name below the root whether the image will have this file.
pub fn order(
    profile: &Profile,
    format: ListFormat,
    root: &FilePath,
    is_in_image: &dyn Fn(&[u8]) -> bool,
) -> Order {
    let threshold = profile.policy.threshold();
    let mut entries: Vec<(u64, &Entry)> = profile
        .entries
        .iter()
        .filter(|entry| entry.weight >= threshold)
        .map(|entry| (first_use_ns(entry, threshold), entry))
        .collect();
    entries.sort_by_key(|(time, entry)| (*time, &entry.path));

    let mut unsaid = Unsaid::default();
    let mut names: Vec<&[u8]> = Vec::new();
    let mut known = HashSet::new();
    for (_, entry) in entries {
        let why = match below(entry, root) {
            _ if entry.all_ranges().all(|range| range.weight < threshold) => "only metadata is used",
            _ if profile.is_only_named(entry) => "used only if an argument names it",
            None => "not below --root",
            Some(name) if !format.can_name(name) => "the format cannot name it",
            Some(name) if !is_in_image(name) => "no regular file in --tree",
            Some(name) => {
                if known.insert(name) {
                    names.push(name);
                    if format == ListFormat::Squashfs && names.len() > SQUASHFS_PRIORITIES {
                        unsaid.add("the priority is that of other files", &entry.path);
                    }
                    if is_used_in_part(profile, entry, threshold) {
                        unsaid.add("listed whole, used in part", &entry.path);
                    }
                }
                continue;
            }
        };
        unsaid.add(why, &entry.path);
    }
    Order {
        text: format.list(&names),
        files: names.len(),
        unsaid,
    }
}

/// The entry's name below a directory. A path through an overlay comes first: the path within a layer is the
/// same.
fn below<'a>(entry: &'a Entry, root: &FilePath) -> Option<&'a [u8]> {
    let root = root.as_bytes().strip_suffix(b"/").unwrap_or(root.as_bytes());
    let paths = entry.overlay.iter().chain([&entry.path]);
    paths
        .filter_map(|path| path.as_bytes().strip_prefix(root)?.strip_prefix(b"/"))
        .find(|name| !name.is_empty())
}

fn first_use_ns(entry: &Entry, threshold: f32) -> u64 {
    let used = entry.all_ranges().filter(|range| range.weight >= threshold);
    used.map(|range| range.first_use_ns)
        .min()
        .unwrap_or(entry.first_use_ns)
}

fn is_used_in_part(profile: &Profile, entry: &Entry, threshold: f32) -> bool {
    let pages = |size: u64| size.div_ceil(u64::from(profile.page_size).max(1));
    let used = entry.pages(threshold).pages();
    entry.version.is_some_and(|version| used < pages(version.size))
}

#[cfg(test)]
mod tests;
