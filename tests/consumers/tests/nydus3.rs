//! nydus 3, by nydus-core: it makes an image of two blobs, reads it as the profile says, and records what it
//! reads.

use crate::image::{BYTES, Image, NEEDED, UNUSED, USED, noise};
use nydus_config::Config;
use nydus_core::{CreateFileOptions, IncrementalWriter, IncrementalWriterOptions, NydusCore};
use nydus_storage::access_trace::TraceDocument;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Smaller than the files, so that a file has several chunks; and groups have several chunks.
const CHUNK: u32 = 16 << 10;

fn options(directory: &Path) -> IncrementalWriterOptions {
    IncrementalWriterOptions {
        chunk_size: CHUNK,
        chunk_group_min_size: 4 * CHUNK,
        ..IncrementalWriterOptions::new(directory.into())
    }
}

fn write(mut writer: IncrementalWriter, files: &[(usize, &[u8])]) {
    for (seed, name) in files {
        let path = Path::new(OsStr::from_bytes(name));
        let mut file = writer
            .create_file(path, BYTES as u64, CreateFileOptions::default())
            .unwrap();
        assert_eq!(file.write_at(0, &noise(*seed)).unwrap(), BYTES);
    }
    writer.commit().unwrap();
}

fn open(bootstrap: &Path, blobs: &Path, cache: &Path) -> NydusCore {
    let config = format!(
        "backend:\n  type: local\n  config:\n    dir: {}\nstorage:\n  dir: {}\nprefetch:\n  scope: none\n",
        blobs.display(),
        cache.display()
    );
    NydusCore::new(bootstrap, Config::from_yaml(&config).unwrap()).unwrap()
}

/// nydus-core opens no other name.
fn is_utf8(name: &[u8]) -> bool {
    std::str::from_utf8(name).is_ok()
}

/// The metadata of blobs, of which the directory has one more.
fn metadata(directory: &Path, known: &[PathBuf]) -> PathBuf {
    let files = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut new = files.filter(|path| {
        let is_metadata = path.as_os_str().as_bytes().ends_with(b".blob.meta");
        is_metadata && !known.contains(path)
    });
    new.next().unwrap()
}

#[test]
fn nydus_3_would_have_recorded_the_same_trace() {
    let image = Image::new();
    let names = USED.into_iter().chain(UNUSED.map(str::as_bytes));
    let files = names.enumerate().filter(|(_, name)| is_utf8(name));
    let (even, odd): (Vec<_>, Vec<_>) = files.partition(|(index, _)| index % 2 == 0);
    let blobs = image.path("blobs");
    let bootstrap = blobs.join("image.boot");
    write(IncrementalWriter::create(options(&blobs)).unwrap(), &even);
    let first = metadata(&blobs, &[]);
    let parent = image.path("parent");
    std::fs::rename(&bootstrap, &parent).unwrap();
    write(
        open(&parent, &blobs, &image.path("cache"))
            .writer(options(&blobs))
            .unwrap(),
        &odd,
    );
    let second = metadata(&blobs, std::slice::from_ref(&first));

    let list = image.export("nydus3", &[&bootstrap, &first, &second]);
    let listed: TraceDocument = serde_json::from_slice(&std::fs::read(list).unwrap()).unwrap();

    let core = open(&bootstrap, &blobs, &image.path("cold"));
    for (index, name) in USED.iter().enumerate().filter(|(_, name)| is_utf8(name)) {
        let file = core.fs.open(Path::new(OsStr::from_bytes(name))).unwrap();
        for (start, pages) in NEEDED {
            let mut bytes = vec![0; pages as usize * 4096];
            let at = start as usize * 4096;
            assert_eq!(file.read_at(at as u64, &mut bytes).unwrap(), bytes.len());
            assert_eq!(bytes, noise(index)[at..][..bytes.len()]);
        }
    }
    assert_eq!(listed, core.trace_snapshot());
    assert!(listed.entries.iter().any(|entry| entry.blob_index == 2));
}
