//! No bytes make the reader of files of profiles crash; what it accepts it writes and reads again, and the
//! plan of each profile for any machine can be read.
#![no_main]

use headstart_model::ProfileSet;
use headstart_model::plan::PlanFile;
use headstart_plan::{PlanOptions, plan, wanted};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for bytes in [bytes, &headstart_fuzz::repaired(bytes)] {
        if let Ok(read) = ProfileSet::from_bytes(bytes) {
            let written = read.to_bytes().expect("what was read can be written");
            // Compared as text: a weight or a share that is not a number differs from itself.
            let again = ProfileSet::from_bytes(&written).expect("what was written can be read");
            assert_eq!(format!("{again:?}"), format!("{read:?}"));
            for profile in read.profiles() {
                let machine = headstart_fuzz::machine(&wanted(profile));
                let draft = plan(profile, &machine, &[], &PlanOptions::new(0));
                let file = PlanFile::new(draft.to_bytes().expect("what was planned can be written"));
                file.plan().expect("what was planned can be read");
            }
        }
    }
});
