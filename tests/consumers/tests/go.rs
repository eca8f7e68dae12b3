//! eStargz, ctr-remote and SOCI, by go/main.go.

use crate::image::{Image, USED};
use std::process::Command;

/// The names that a consumer takes of its list.
fn taken(consumer: &str) -> Vec<Vec<u8>> {
    let image = Image::new();
    let list = image.export(consumer, &[]);
    let program = std::env::var_os("HEADSTART_GO_CONSUMERS").expect("call tests/consumers/run");
    std::fs::create_dir(image.path("work")).unwrap();
    let ran = Command::new(program)
        .arg(consumer)
        .args([image.path("tree"), list, image.path("work")])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{consumer}: {said}");
    let names = std::fs::read(image.path("work/names")).unwrap();
    let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names.map(<[u8]>::to_vec).collect()
}

/// Those that JSON can have.
fn utf8() -> impl Iterator<Item = &'static [u8]> {
    USED.into_iter().filter(|name| std::str::from_utf8(name).is_ok())
}

/// Those that are the same without white space around them, before which a list puts a slash, on one line.
fn trimmed() -> impl Iterator<Item = &'static [u8]> {
    utf8().filter(|name| {
        let name = std::str::from_utf8(name).unwrap();
        name.trim_end() == name && !name.contains('\n')
    })
}

#[test]
fn estargz_puts_the_listed_files_before_the_landmark_in_their_order() {
    assert!(taken("estargz").iter().eq(utf8()));
}

#[test]
fn ctr_remote_records_the_listed_files_in_their_order_and_no_other() {
    assert!(taken("ctr-remote").iter().eq(trimmed()));
}

#[test]
fn soci_prefetches_the_listed_files_and_no_other() {
    let mut taken = taken("soci");
    let mut expected: Vec<&[u8]> = trimmed().collect();
    taken.sort();
    expected.sort();
    assert_eq!(taken, expected);
}
