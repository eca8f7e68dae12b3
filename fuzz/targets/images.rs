//! No files of an image make what lists places in it crash, or take long. Their magic numbers and checksums
//! are made right, for these would stop nearly every mutation at the door.
#![no_main]

use headstart_inspect::export::{self, ImageFile, ImageSize, Needed, Unsaid};
use headstart_model::profile::Entry;
use headstart_model::testing::{VERSION, profile};
use libfuzzer_sys::fuzz_target;

/// Bytes of the device of which an image is.
const DEVICE: u64 = 1 << 20;

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, rest)) = bytes.split_first() else {
        return;
    };
    match kind % 3 {
        0 => nydus(rest),
        1 => desync(rest),
        _ => overlaybd(rest),
    }
});

fn put(bytes: &mut Vec<u8>, at: usize, what: &[u8]) {
    bytes.resize(bytes.len().max(at + what.len()), 0);
    bytes[at..at + what.len()].copy_from_slice(what);
}

/// Calls with these files.
fn with(files: &[Vec<u8>], call: impl FnOnce(&[ImageFile<'_>])) {
    type ReadAt<'a> = Box<dyn Fn(&mut [u8], u64) -> std::io::Result<()> + 'a>;
    let reads: Vec<ReadAt<'_>> = files
        .iter()
        .map(|bytes| {
            Box::new(|into: &mut [u8], at: u64| {
                into.copy_from_slice(&bytes[at as usize..][..into.len()]);
                Ok(())
            }) as ReadAt<'_>
        })
        .collect();
    let images = files.iter().zip(&reads).map(|(bytes, read_at)| ImageFile {
        name: "image".into(),
        size: bytes.len() as u64,
        read_at,
    });
    call(&images.collect::<Vec<_>>());
}

/// A bootstrap with one blob, and the blob's metadata.
fn nydus(bytes: &[u8]) {
    let (bootstrap, metadata) = bytes.split_at(bytes.len() / 2);
    let (mut bootstrap, mut metadata) = (bootstrap.to_vec(), metadata.to_vec());
    put(&mut bootstrap, 1024, &0xe0f5_e1e2u32.to_le_bytes());
    put(&mut bootstrap, 1024 + 8, &[0; 4]);
    put(&mut bootstrap, 1024 + 12, &[12]);
    put(&mut bootstrap, 1024 + 80, &[0xc, 0, 0, 0, 0, 0, 1, 0]);
    put(&mut metadata, 0, b"NDBLMETA");
    put(&mut metadata, 8, &[0; 12]);
    let sum = crc32c(&metadata);
    put(&mut metadata, 16, &sum.to_le_bytes());
    let entry = |(path, time): (&str, u64)| Entry::whole(path.into(), VERSION, 4096, time);
    let it = profile([("/a", 1), ("/d/b", 0)].map(entry).into());
    let needed = Needed::of(&it, &"/".into(), &|_| true);
    with(&[bootstrap, metadata], |images| {
        let _ = export::nydus(&needed, images, &mut Unsaid::default());
    });
}

fn desync(bytes: &[u8]) {
    let words = |words: &[u64]| -> Vec<u8> { words.iter().flat_map(|word| word.to_le_bytes()).collect() };
    let mut index = bytes.to_vec();
    put(&mut index, 0, &words(&[48, 0x9682_4d9c_7b12_9ff9]));
    put(&mut index, 48, &words(&[u64::MAX, 0xe75b_9e11_2f17_417d]));
    index.resize(64 + (index.len() - 64).next_multiple_of(40), 0);
    // The last chunk ends with the device.
    index.extend(words(&[DEVICE, 0, 0, 0, 0, 0, 0, 48, 0, 0x4b4f_050e_5549_ecd1]));
    let size = ImageSize { size: DEVICE, at: 0 };
    with(&[index], |images| {
        let _ = export::desync(&[5..9, 4000..DEVICE], &[size], &images[0]);
    });
}

/// Two layers, of which each has half of the bytes.
fn overlaybd(bytes: &[u8]) {
    const MAGIC: &[u8] = b"LSMT\0\x01\x02\0\x65\x7e\x63\xd2\x94\x44\x08\x4c\xa2\xd2\xc8\xec\x4f\xcf\xae\x8a";
    let layer = |segments: &[u8]| {
        let mut layer = MAGIC.to_vec();
        layer.resize(1 << 16, 0);
        layer.extend(segments);
        let tail = layer.len();
        put(&mut layer, tail, MAGIC);
        put(&mut layer, tail + 28, &6u32.to_le_bytes());
        put(&mut layer, tail + 32, &(1u64 << 16).to_le_bytes());
        put(&mut layer, tail + 40, &(segments.len() as u64 / 16).to_le_bytes());
        put(&mut layer, tail + 48, &DEVICE.to_le_bytes());
        layer.resize(tail + 4096, 0);
        layer
    };
    let (bottom, top) = bytes.split_at(bytes.len() / 2);
    with(&[layer(bottom), layer(top)], |images| {
        let _ = export::overlaybd(&[5..9, 0..DEVICE, 4000..5000], DEVICE, images);
    });
}

/// CRC-32C, a bit at a time.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            (sum >> 1) ^ (0x82f6_3b78 * (sum & 1))
        })
    })
}
