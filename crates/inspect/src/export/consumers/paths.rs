//! Programs that fetch or mark the files of a list: a name a line.

use super::{Consumer, Form, LINES, List, PLAIN, is_one_line, is_utf8, survives_trimming};

/// overlaybd takes no longer list (`DynamicPrefetcher::MAX_FILE_SIZE` in overlaybd's src/prefetch.cpp).
const OVERLAYBD: usize = 64 << 10;

/// Names below the current directory, a NUL behind each.
pub(super) const NUL_SEPARATED: List = List {
    line: |used, _, out| line(b"./", used.name, b'\0', out),
    ..LINES
};

pub(super) const ALL: &[Consumer] = &[
    // Names that have `*`, `?` or `[` are patterns of doublestar, others are names, and a first `#` begins a
    // comment (`readPrefetchList` and `analyzePrefetchList` in stargz-snapshotter's
    // cmd/ctr-remote/commands/optimize.go). It passes names through JSON, which is UTF-8.
    Consumer {
        name: "ctr-remote",
        about: "ctr-remote image optimize --prefetch-list=LIST (stargz-snapshotter from 0.18 on)",
        form: Form::List(List {
            can_name: |name| survives_trimming(name) && is_utf8(name),
            line: |used, _, out| {
                out.push(b'/');
                let is_pattern = used.name.iter().any(|byte| b"*?[".contains(byte));
                for byte in used.name {
                    if is_pattern && b"*?[]{}\\".contains(byte) {
                        out.push(b'\\');
                    }
                    out.push(*byte);
                }
                out.push(b'\n');
            },
            ..LINES
        }),
        ..PLAIN
    },
    // Lines that have other letters are skipped (`DynamicPrefetcher::reload` in overlaybd's
    // src/prefetch.cpp).
    Consumer {
        name: "overlaybd",
        about: "the acceleration layer of overlaybd: record-trace --priority_list LIST IMAGE NEW",
        form: Form::List(List {
            can_name: |name| {
                let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.-/".contains(byte);
                name.iter().all(is_plain)
            },
            most: OVERLAYBD,
            line: |used, _, out| line(b"/", used.name, b'\n', out),
            ..LINES
        }),
        ..PLAIN
    },
    // mkdwarfs reads whole lines and refuses a path that is listed twice (hotness_categorizer.cpp).
    Consumer {
        name: "dwarfs",
        about: "mkdwarfs --categorize=hotness --hotness-list=LIST",
        form: Form::List(List {
            can_name: is_one_line,
            line: |used, _, out| line(b"/", used.name, b'\n', out),
            ..LINES
        }),
        ..PLAIN
    },
    // It makes each path absolute from where it is called (`warmup` in JuiceFS's cmd/warmup.go).
    Consumer {
        name: "juicefs",
        about: "juicefs warmup -f LIST, called in the mount point",
        form: Form::List(List {
            can_name: survives_trimming,
            line: |used, _, out| line(b"./", used.name, b'\n', out),
            ..LINES
        }),
        ..PLAIN
    },
    // It cuts nothing but the end off a line, and asks for nothing if a file is missing (`lfs_hsm_request` in
    // Lustre's lustre/utils/lfs.c).
    Consumer {
        name: "lustre",
        about: "lfs hsm_restore --filelist LIST, called in the mount point",
        fails_where_missing: true,
        form: Form::List(List {
            can_name: is_one_line,
            line: |used, _, out| line(b"./", used.name, b'\n', out),
            ..LINES
        }),
        ..PLAIN
    },
    Consumer {
        name: "list0",
        about: "names below the current directory with a NUL behind each, for xargs -0 and others",
        form: Form::List(NUL_SEPARATED),
        ..PLAIN
    },
];

fn line(before: &[u8], name: &[u8], end: u8, out: &mut Vec<u8>) {
    out.extend(before);
    out.extend(name);
    out.push(end);
}
