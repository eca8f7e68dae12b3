//! Programs that read a list as JSON, which can name only what is UTF-8.

use super::{Consumer, Form, LINES, List, PLAIN, is_utf8, survives_trimming};
use crate::export::needed::Used;

const UTF8: List = List {
    can_name: is_utf8,
    ..LINES
};

pub(super) const ALL: &[Consumer] = &[
    // A line for each access, as `ctr-remote image optimize --record-out` writes them (`Entry` in
    // stargz-snapshotter's recorder/recorder.go). Only the path is read.
    Consumer {
        name: "estargz",
        about: "--estargz-record-in=LIST or --zstdchunked-record-in=LIST of ctr-remote and nerdctl image convert",
        form: Form::List(List {
            line: |used, _, out| {
                out.extend(b"{\"path\":");
                string("", used, out);
                out.extend(b"}\n");
            },
            ..UTF8
        }),
        ..PLAIN
    },
    // nydus's docs/nydusify.md; `PrefetchJson` in builder/src/optimize_prefetch.rs.
    Consumer {
        name: "nydus2",
        about: "nydusify optimize --prefetch-files LIST (nydus 2, from 2.4 on)",
        form: Form::List(List {
            begin: b"{\"version\":\"v1\",\"files\":[\n",
            between: b",\n",
            end: b"\n]}\n",
            in_parts: true,
            line: |used, _, out| {
                out.extend(b"{\"path\":");
                string("/", used, out);
                let ranges = used.bytes().into_iter();
                let ranges: Vec<[u64; 2]> = ranges.map(|bytes| [bytes.start, bytes.end - bytes.start]).collect();
                out.extend(format!(",\"ranges\":{}}}", serde_json::json!(ranges)).bytes());
            },
            ..UTF8
        }),
        ..PLAIN
    },
    // It cuts white space off each (`loadPrefetchFilesFromJSON` in soci-snapshotter's
    // cmd/soci/commands/internal/prefetch.go).
    Consumer {
        name: "soci",
        about: "soci create or convert --prefetch-files-json LIST",
        form: Form::List(List {
            begin: b"[\n",
            between: b",\n",
            end: b"\n]\n",
            can_name: |name| survives_trimming(name) && is_utf8(name),
            line: |used, _, out| string("/", used, out),
            ..UTF8
        }),
        ..PLAIN
    },
    // CernVM-FS 2.14, docs "File bundles"; `BundleMgr` in cvmfs/bundle_mgr.cc. Paths begin at the root of the
    // repository.
    Consumer {
        name: "cvmfs",
        about: ".cvmfsbundle-FILE beside FILE in a CernVM-FS repository, whose opening fetches the rest",
        form: Form::List(List {
            begin: b"{\"name\":\"CVMFS_BUNDLE\",\"version\":\"1.0.0\",\"encoding\":\"UTF-8\",\"dependencies\":[\n",
            between: b",\n",
            end: b"\n]}\n",
            line: |used, _, out| string("/", used, out),
            ..UTF8
        }),
        ..PLAIN
    },
];

fn string(before: &str, used: &Used<'_>, out: &mut Vec<u8>) {
    let name = String::from_utf8_lossy(used.name);
    out.extend(serde_json::json!(format!("{before}{name}")).to_string().bytes());
}
