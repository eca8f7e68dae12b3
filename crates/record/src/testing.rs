//! For the tests of this crate's modules.

/// Says that a test did nothing, and for want of what.
///
/// # Panics
///
/// Unless `HEADSTART_TESTS_SKIP` is in the environment: a test does not pass undone.
#[track_caller]
pub(crate) fn skip(what: &str, missing: &[&str]) {
    assert!(
        std::env::var_os("HEADSTART_TESTS_SKIP").is_some(),
        "{what} lacks {missing:?}; HEADSTART_TESTS_SKIP=1 leaves out what cannot be tested here"
    );
    eprintln!("skipped: {what} lacks {missing:?}");
}
