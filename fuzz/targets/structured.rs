//! No file whose checksums are right takes more than 64 MiB or a second, whatever it says and whatever is
//! done with it.
#![no_main]

use headstart_fuzz::random::Random;
use headstart_fuzz::{seeds, structured, uses};
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

fuzz_target!(init: seeds::write_if_asked(), |bytes: &[u8]| uses::all(bytes, &MEMORY));

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let mut change = |buffer: &mut [u8], size: usize| {
        let room = buffer.len();
        fuzzer_mutate(buffer, size, room)
    };
    let mut random = Random::new(seed);
    match structured::changed(&data[..size], &mut random, &mut change) {
        Some(file) if file.len() <= max_size => {
            data[..file.len()].copy_from_slice(&file);
            file.len()
        }
        _ => size,
    }
});
