//! No bytes make the reader of outcomes crash, and what it accepts it writes and reads again.
#![no_main]

use headstart_model::Outcome;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for bytes in [bytes, &headstart_fuzz::repaired(bytes)] {
        if let Ok(read) = Outcome::from_bytes(bytes) {
            let written = read.to_bytes().expect("what was read can be written");
            // Compared as text: a weight or a share that is not a number differs from itself.
            let again = Outcome::from_bytes(&written).expect("what was written can be read");
            assert_eq!(format!("{again:?}"), format!("{read:?}"));
        }
    }
});
