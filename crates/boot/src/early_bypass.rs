//! What comes before anything of `boot run` is parsed or read.

use crate::decision;
use crate::wait::who;
use headstart_start::store;

/// False if this boot is bypassed. headstart itself is on its way from the disk
/// (`headstart_system::own_program`).
pub fn serve_or_release() -> bool {
    if store(None).is_ok_and(|store| decision::is_bypassed(&store, who::place())) {
        who::waiters().1.release();
        return false;
    }
    true
}
