//! For the tests of this crate's modules.

/// Says that a test did nothing, and for want of what.
///
/// # Panics
///
/// If `HEADSTART_TESTS_ALL` is in the environment: then a test must not pass undone.
#[track_caller]
pub(crate) fn skip(what: &str, missing: &[&str]) {
    assert!(
        std::env::var_os("HEADSTART_TESTS_ALL").is_none(),
        "HEADSTART_TESTS_ALL is set, and {what} lacks {missing:?}"
    );
    eprintln!("skipped: {what} lacks {missing:?}");
}
