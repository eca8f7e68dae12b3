//! Places on the device of a mounted image.

use super::{BYTES as NOISE, noise};
use crate::common::{Case, Ran};
use headstart_model::profile::{Entry, Need};
use headstart_model::testing;
use headstart_system::testing::{LoopFs, Spec, can_mount, whole};
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Bytes of a file.
const SIZE: usize = PARTS * NOISE;
const PARTS: usize = 200;
/// Bytes of the largest chunk that casync makes.
const LARGEST: usize = 256 << 10;
/// The files, in the order of first use; and one that is not used.
const FILES: [&str; 3] = ["late", "d/early", "unused"];

/// An image with the files, and a profile of two of them.
struct Image {
    case: Case,
    disk: LoopFs,
    profile: PathBuf,
}

impl Image {
    fn new() -> Image {
        let spec = Spec {
            size: 64 << 20,
            ..Spec::new("ext4")
        };
        let disk = LoopFs::create(&spec, |root| {
            std::fs::create_dir(root.join("d"))?;
            for (index, name) in FILES.iter().enumerate() {
                let bytes: Vec<u8> = (0..PARTS).flat_map(|part| noise(index * PARTS + part)).collect();
                std::fs::write(root.join(name), bytes)?;
            }
            Ok(())
        });
        let (disk, case) = (disk.unwrap(), Case::new());
        let used = [("d/early", 1), ("late", 2)];
        let whole = |(name, time)| whole(&disk.mount_point().join(name), time).unwrap();
        // The directory is listed, too.
        let directory = Entry {
            path: disk.mount_point().join("d").as_path().into(),
            need: Need::List,
            ..testing::entry("/")
        };
        let mut entries = vec![directory];
        entries.extend(used.map(whole));
        let profile = case.write("profile", testing::profile(entries).to_bytes().unwrap());
        Image { case, disk, profile }
    }

    fn export(&self, consumer: &str, image: &str) -> Ran {
        let (profile, mount) = (self.profile.display(), self.disk.mount_point());
        let words = format!(
            "export {profile} --for {consumer} --root {mount} --tree {mount} --image {image} -o list",
            mount = mount.display()
        );
        self.case.headstart(&words.split(' ').collect::<Vec<_>>())
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.disk.image()).unwrap()
    }

    /// Where a file's first bytes are.
    fn find(&self, bytes: &[u8], file: usize) -> usize {
        let begin = &noise(file * PARTS)[..64];
        let found = bytes
            .chunks_exact(1024)
            .position(|block| block.starts_with(begin));
        found.unwrap_or_else(|| panic!("{} is not in the image", FILES[file])) * 1024
    }

    /// Has casync make an index of a file, and returns where its chunks end.
    fn index(&self, name: &str, of: &Path) -> Vec<usize> {
        let made = Command::new("casync")
            .args(["make", "--store=store", name])
            .arg(of)
            .current_dir(self.case.path("."))
            .output()
            .unwrap_or_else(|error| panic!("casync: {error}: `make deps-test` installs it"));
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let index = std::fs::read(self.case.path(name)).unwrap();
        let chunks = index[64..index.len() - 40].chunks_exact(40);
        chunks
            .map(|chunk| u64::from_le_bytes(chunk[..8].try_into().unwrap()) as usize)
            .collect()
    }
}

#[test]
fn desync_fetches_the_chunks_of_needed_files() {
    if !can_mount() {
        return;
    }
    let image = Image::new();
    let bytes = image.bytes();
    let ends = image.index("image.caibx", &image.disk.image());
    let ran = image.export("desync", "image.caibx");
    assert_eq!((ran.code(), &*ran.out, &*ran.err), (0, "", ""));
    let bits = std::fs::read(image.case.path("list")).unwrap();
    assert_eq!(bits.len(), ends.len().div_ceil(8));
    let is_marked = |chunk: usize| bits[chunk / 8] >> (chunk % 8) & 1 == 1;
    for (file, name) in FILES.iter().enumerate() {
        // Its neighbours may share its first chunk and its last, not that in its middle.
        let middle = image.find(&bytes, file) + SIZE / 2;
        let chunk = ends.partition_point(|end| *end <= middle);
        assert_eq!(is_marked(chunk), *name != "unused", "{name}: chunk {chunk}");
    }
    // The directory's block, of which the journal may have copies.
    let names = (0..bytes.len() - 5).filter(|at| bytes[*at..].starts_with(b"early"));
    let mut chunks = names.map(|at| ends.partition_point(|end| *end <= at));
    assert!(chunks.any(is_marked), "the directory is not marked");
    // Those of the two files and their metadata, and no others but at their ends.
    let begins = [0].iter().chain(&ends);
    let sizes = begins
        .zip(&ends)
        .enumerate()
        .filter(|(chunk, _)| is_marked(*chunk));
    let marked: usize = sizes.map(|(_, (begin, end))| end - begin).sum();
    assert!((2 * SIZE..2 * SIZE + 10 * LARGEST).contains(&marked), "{marked}");

    image.index("other.caibx", &image.profile);
    image
        .export("desync", "other.caibx")
        .refused(&["other.caibx", "is of another image"]);
    image.export("desync", ".").refused(&[".", "no regular file"]);
    image
        .export("desync", "image.caibx --image other.caibx")
        .refused(&["one index, given: 2"]);
    image
        .export("list0", "image.caibx")
        .refused(&["takes no --image"]);
}

#[test]
fn overlaybd_reads_the_needed_files_in_their_order() {
    if !can_mount() {
        return;
    }
    let image = Image::new();
    let device = image.bytes();
    // A sealed layer that holds all of the device, as overlaybd-commit makes it.
    let magic = b"LSMT\0\x01\x02\0\x65\x7e\x63\xd2\x94\x44\x08\x4c\xa2\xd2\xc8\xec\x4f\xcf\xae\x8a";
    let segments: Vec<u64> = (0..device.len() as u64 / 512).step_by(8192).collect();
    let head = |flags: u32| {
        let mut head = magic.to_vec();
        head.extend([0; 4]);
        head.extend(flags.to_le_bytes());
        for word in [4096 + device.len(), segments.len(), device.len()] {
            head.extend((word as u64).to_le_bytes());
        }
        head.resize(4096, 0);
        head
    };
    let mut layer = File::create(image.case.path("layer")).unwrap();
    layer.write_all(&head(7)).unwrap();
    layer.write_all(&device).unwrap();
    for sector in &segments {
        layer.write_all(&(sector | 8192 << 50).to_le_bytes()).unwrap();
        layer.write_all(&(sector + 8).to_le_bytes()).unwrap();
    }
    let end = layer.stream_position().unwrap().next_multiple_of(4096);
    layer.seek(SeekFrom::Start(end)).unwrap();
    layer.write_all(&head(6)).unwrap();

    let ran = image.export("overlaybd-trace", "layer");
    assert_eq!((ran.code(), &*ran.out, &*ran.err), (0, "", ""));
    let trace = std::fs::read(image.case.path("list")).unwrap();
    let layer = File::open(image.case.path("layer")).unwrap();
    let mut read = Vec::new();
    for record in trace[24..].chunks_exact(24) {
        let word = |at: usize| u64::from_le_bytes(record[at..at + 8].try_into().unwrap());
        let mut bytes = vec![0; word(8) as usize];
        layer.read_exact_at(&mut bytes, word(16)).unwrap();
        read.extend(bytes);
    }
    let expected = [1, 0].map(|file| {
        (0..PARTS)
            .flat_map(|part| noise(file * PARTS + part))
            .collect::<Vec<u8>>()
    });
    let size = expected[0].len().next_multiple_of(512);
    // Metadata comes before it.
    let begin = read.len().checked_sub(2 * size).filter(|begin| *begin > 0);
    let data = &read[begin.expect("metadata and all data are read")..];
    assert!(
        data.starts_with(&expected[0]),
        "the file that is used first is read first"
    );
    assert!(data[size..].starts_with(&expected[1]), "then the other");
}
