//! No bytes make the reader of profiles crash; what it accepts it writes and reads again, and its plan for
//! any machine can be read.
#![no_main]

use headstart_model::Profile;
use headstart_model::machine::Machine;
use headstart_model::plan::PlanFile;
use headstart_plan::{PlanOptions, plan, wanted};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for bytes in [bytes, &headstart_fuzz::repaired(bytes)] {
        if let Ok(read) = Profile::from_bytes(bytes) {
            let written = read.to_bytes().expect("what was read can be written");
            // Compared as text: a weight or a share that is not a number differs from itself.
            let again = Profile::from_bytes(&written).expect("what was written can be read");
            assert_eq!(format!("{again:?}"), format!("{read:?}"));
            let options = PlanOptions::new(0);
            let empty = Machine {
                page_size: 4096,
                ..Machine::default()
            };
            for machine in [empty, headstart_fuzz::machine(&wanted(&read))] {
                let draft = plan(&read, &machine, &[], &options);
                let file = PlanFile::new(draft.to_bytes().expect("what was planned can be written"));
                file.plan().expect("what was planned can be read");
            }
        }
    }
});
