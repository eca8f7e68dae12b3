//! No bytes make the reader of traces crash; what it accepts it writes and reads again, and learning from it
//! is a profile that can be written and read.
#![no_main]

use headstart_learn::{LearnOptions, learn};
use headstart_model::profile::Policy;
use headstart_model::{Key, NamedFiles, Profile, Trace};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for bytes in [bytes, &headstart_fuzz::repaired(bytes)] {
        if let Ok(read) = Trace::from_bytes(bytes) {
            let written = read.to_bytes().expect("what was read can be written");
            // Compared as text: a weight or a share that is not a number differs from itself.
            let again = Trace::from_bytes(&written).expect("what was written can be read");
            assert_eq!(format!("{again:?}"), format!("{read:?}"));
            let options = LearnOptions {
                key: Key::new("fuzz").expect("it is a key"),
                policy: Policy::Decay,
                now_unix_ns: 0,
                exclude: Vec::new(),
                // What half of the files are.
                named: NamedFiles::new(read.files.iter().step_by(2).map(|file| file.path.clone())),
            };
            // Twice: the second run meets what the first left.
            if let Ok(profile) = learn(None, &[read.clone(), read], &options) {
                headstart_plan::recorded_metadata(&again);
                let learned = profile.to_bytes().expect("what was learned can be written");
                Profile::from_bytes(&learned).expect("what was learned can be read");
            }
        }
    }
});
