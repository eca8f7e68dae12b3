//! No bytes make the reader of plans crash, and every request of a plan it accepts leads to what it lists.
#![no_main]

use headstart_model::plan::{NO_FILE, PlanFile};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for bytes in [bytes.to_vec(), headstart_fuzz::repaired(bytes)] {
        let file = PlanFile::new(bytes);
        let Ok(plan) = file.plan() else { continue };
        for request in plan.requests() {
            assert!(plan.device(usize::from(request.device)).is_some());
            assert!(
                request.file == NO_FILE
                    || plan
                        .path(request.file as usize)
                        .is_some_and(|p| p.starts_with(b"/"))
            );
            assert!(request.offset.checked_add(request.length).is_some());
        }
        let draft = plan.to_draft().expect("the key was checked");
        assert_eq!(
            PlanFile::new(draft.to_bytes().expect("it fits"))
                .plan()
                .expect("it is sound")
                .request_count(),
            draft.requests.len()
        );
    }
});
