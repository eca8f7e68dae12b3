//! Programs that write images in the order of a list.

use super::{Consumer, Form, LINES, List, PLAIN, is_one_line};

/// The most files that have priorities of their own in mksquashfs's list. Its highest priority is 32767, and
/// files that are not listed have 0.
const SQUASHFS_PRIORITIES: usize = 32_767;

/// xorriso gives boot images the weight 2 and other files 0 (xorrisofs(1), `--sort-weight`).
const HIGHEST_OF_OTHERS_IN_ISO: usize = 2;

/// What the C library's isspace(3) takes for a space, the end of a line apart.
const SPACES: &[u8] = b" \t\x0b\x0c\r";

pub(super) const ALL: &[Consumer] = &[
    // A line `name priority` for each file, the highest priority first. Where a file has several names
    // mksquashfs takes the priority of the last one listed: list the first one used last. It takes
    // `directory/*` for the directory.
    Consumer {
        name: "squashfs",
        about: "mksquashfs -sort LIST; live-build: config/rootfs/squashfs.sort",
        form: Form::List(List {
            can_name: |name| is_one_line(name) && !name.ends_with(b"/*"),
            backwards: true,
            places: SQUASHFS_PRIORITIES,
            line: |used, place, out| {
                for byte in used.name {
                    // `#` begins a comment.
                    if SPACES.contains(byte) || b"\\#".contains(byte) {
                        out.push(b'\\');
                    }
                    out.push(*byte);
                }
                let priority = SQUASHFS_PRIORITIES.saturating_sub(place.index).max(1);
                out.extend(format!(" {priority}\n").bytes());
            },
            ..LINES
        }),
        ..PLAIN
    },
    // A line `priority name` for each file, the lowest priority first. gensquashfs cuts spaces off a line.
    // Version 1.2.0 (Debian 12) misreads quoted names, so none is quoted. The slash keeps a first `[` from
    // being read as flags, and a first `"` as a quotation mark.
    Consumer {
        name: "gensquashfs",
        about: "gensquashfs --sort-file LIST",
        form: Form::List(List {
            can_name: |name| is_one_line(name) && !name.last().is_some_and(|last| SPACES.contains(last)),
            line: |used, place, out| numbered(format!("-{}", place.of - place.index), used.name, out),
            ..LINES
        }),
        ..PLAIN
    },
    // A line `weight name` for each file, the highest weight first.
    Consumer {
        name: "iso",
        about: "xorrisofs --sort-weight-list LIST TREE",
        fails_where_missing: true,
        form: Form::List(List {
            can_name: |name| is_one_line(name) && !name.ends_with(b"\r"),
            line: |used, place, out| {
                let weight = HIGHEST_OF_OTHERS_IN_ISO + place.of - place.index;
                numbered(weight.to_string(), used.name, out);
            },
            ..LINES
        }),
        ..PLAIN
    },
    Consumer {
        name: "erofs-tar",
        about: "tar --null --no-recursion --files-from=LIST, for mkfs.erofs",
        fails_where_missing: true,
        // Without one of these mkfs.erofs sorts the data by path and says nothing.
        may_lose_order: true,
        advice: "mkfs.erofs keeps this order from version 1.9 on, without compression, by `--tar=f --sort=none \
                 -E^inline_data`",
        form: Form::List(super::paths::NUL_SEPARATED),
    },
];

fn numbered(number: String, name: &[u8], out: &mut Vec<u8>) {
    out.extend(number.bytes());
    out.extend(b" /");
    out.extend(name);
    out.push(b'\n');
}
