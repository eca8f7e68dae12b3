//! What the daemon makes of profiles that others' starts have taught.

use crate::common::{Case, is_root};
use crate::harness::*;
use crate::users::theirs;
use headstart_model::outcome::Mode;
use headstart_store::Store;
use headstart_system::testing::undisturbed;
use std::fs;
use std::os::unix::fs::PermissionsExt;

#[test]
fn a_users_first_start_is_read_ahead_by_an_import_and_only_what_that_user_may_read() {
    undisturbed(|| {
        if !can_watch() || !is_root() {
            return;
        }
        let case = Case::new();
        let mut fs = disk(&["one"]);
        let private = fs.mount_point().join("one-00");
        fs::set_permissions(&private, PermissionsExt::from_mode(0o600)).unwrap();
        let_all_into(&fs.mount_point());
        let daemon = Daemon::start(&case);
        let one = key(&fs, "one");
        run(command(&fs, "one"));
        kept(&case, &one, 1);
        daemon.stop();

        let export = [
            "profile",
            "export",
            one.as_str(),
            "--with-homes",
            "-o",
            "one.profiles",
        ];
        let ran = case.headstart(&export);
        assert_eq!(ran.code(), 0, "{}", ran.err);
        assert!(Store::new(case.state()).key(&one).forget().unwrap());
        let ran = case.headstart(&["profile", "import", "one.profiles"]);
        assert_eq!(ran.code(), 0, "{}", ran.err);

        let daemon = Daemon::start(&case);
        fs.remount_cold().unwrap();
        run(theirs(&fs, "one"));
        let of_nobody = key_of_nobody(&fs, "one");
        let first = kept(&case, &of_nobody, 1);
        assert_eq!((first[0].mode, &first[0].not_learned), (Mode::Replay, &None));
        assert_eq!(resident(&[private]), 0, "it is root's");
        let store = Store::new(case.state());
        assert!(store.key(&of_nobody).plan().or_tell(|_| {}).is_some(), "its own");
        assert!(
            !store.key(&one).exists(),
            "nothing is root's that root has not started"
        );
        daemon.stop();
    });
}
