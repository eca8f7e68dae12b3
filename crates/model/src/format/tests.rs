//! Round trips, and what happens to damaged files.

mod given;
mod profile_set;
mod refused;

use super::Kind;
use super::container::{Container, FormatError, Writer};
use crate::activity::Activity;
use crate::outcome::Decisions;
use crate::plan::PlanFile;
use crate::testing::Forged;
use crate::{Outcome, Profile, ProfileSet, Trace, limits, testing};
use given::*;
use proptest::prelude::*;

pub(super) use given::one;

/// Reads the bytes as each kind of file; that it returns is what is tested.
fn read_all(bytes: &[u8]) -> [bool; 5] {
    [
        Trace::from_bytes(bytes).is_ok(),
        Profile::from_bytes(bytes).is_ok(),
        PlanFile::new(bytes.to_vec()).plan().is_ok(),
        Outcome::from_bytes(bytes).is_ok(),
        ProfileSet::from_bytes(bytes).is_ok(),
    ]
}

proptest! {
    #[test]
    fn traces_come_back(trace in trace()) {
        prop_assert_eq!(Trace::from_bytes(&trace.to_bytes().unwrap()).unwrap(), trace);
    }

    #[test]
    fn traces_with_activity_come_back(trace in active()) {
        prop_assert_eq!(Trace::from_bytes(&trace.to_bytes().unwrap()).unwrap(), trace);
    }

    #[test]
    fn profiles_come_back(profile in profile()) {
        prop_assert_eq!(Profile::from_bytes(&profile.to_bytes().unwrap()).unwrap(), profile);
    }

    #[test]
    fn plans_come_back(draft in draft()) {
        let file = PlanFile::new(draft.to_bytes().unwrap());
        prop_assert_eq!(file.plan().unwrap().to_draft().unwrap(), draft.clone());
        let draft = filled(draft);
        let file = PlanFile::new(draft.to_bytes().unwrap());
        prop_assert_eq!(file.plan().unwrap().to_draft().unwrap(), draft);
    }

    #[test]
    fn a_changed_byte_is_noticed(trace in trace(), at in any::<prop::sample::Index>(), with in 1u8..=255) {
        let mut bytes = trace.to_bytes().unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= with;
        // A byte of padding, or the minor version, whose checksum then fails, may differ; nothing else may
        // pass.
        if let Ok(read) = Trace::from_bytes(&bytes) {
            prop_assert_eq!(read, trace);
        }
    }
}

#[test]
fn an_outcome_of_the_version_before_is_old_not_damaged() {
    let mut bytes = outcome().to_bytes().unwrap();
    bytes[8..10].copy_from_slice(&1u16.to_le_bytes());
    let read = Outcome::from_bytes(&bytes);
    assert!(
        matches!(
            read,
            Err(FormatError::Old {
                found: 1,
                read: 3,
                ..
            })
        ),
        "{read:?}"
    );
}

/// A replay of cat(1), as the headstart that wrote outcomes of version 2 has kept it.
const OUTCOME_2: &str = "48534f5554434f4d0200000001000000b00000000000000014944ba5000000004f5554430100000048000000000000006700\
        0000000000006200000000000000a5ac32dc0000000028b52ffd2062f5020034050c2f7573722f62696e2f636174b9fff296\
        81f686f61801f98cfa5701000100019c06dc03ebe8cd190105737461727400003b28dc7b00dc03dc7bb87b00018080d78959\
        0189a6a30401bd78fb020156feae3e0003002ea329c7da027b00";

/// A start of true(1), as the headstart that wrote traces of version 3 has recorded it.
const TRACE_3: &str = "485354524143450003000100040000002003000000000000cc844806000000004d45544101000000c00000000000000068000000000000005f000000\
        0000000064631817000000004d415053010000002801000000000000320000000000000029000000000000004bc202ba000000005041544801000000\
        60010000000000007700000000000000b5000000000000000af7330600000000434f4c5301000000d801000000000000460100000000000033020000\
        00000000c06aebc20000000028b52ffd205ff90200c582a4ca95b28ff6180f362e31382e34342d66632d76373639802000000001092f62696e2f7472\
        75650f68656164737461727420302e312e3000000085e2cb0501d0e28b013101000000000001fe4b00000101fe01000465787434012f010028b52ffd\
        20294901000c0000e40201000201020601070902000102012702273102313503000a0400260426fc0204cf03d50300000000000028b52ffd20b57503\
        00c2c5141ab0a50d0c83fb1011664b3c311491d286b9a506821483cba83ba5a76c0ec2cbd79bbc27427ff2f20b14892a0c2d7ab4fe6468501a43e78b\
        a1023d5a9af3e72cad5b6997ea7524d1319914c302e280381008080900d04061021b0d06150089891ca795d506405829c19d500028b52ffd603301e5\
        0900d24f3b394073d2010b18c105823fdafaa83ec977d7c06fcb14f738ba2ae3f250758bbfee30e35bb891d70bf22ffbb54f4e8644b511c2669b6c29\
        a54c01ff7facfb9b4067bc713163d5ec437035606d39c09e911a8855534f5257056a033269f6ea5bd697e06d081f30831c9022acc9d3bdb383661c87\
        2043cc0ade0244c0ffe908f800ba364ac3b77b3bdcdd7d6c5d65fdeaeeaf0f1fbe0116c3dea196ba0226ee551f1fbab8a9f939c3256665eb58ad9d08\
        12908d09524ac753d23241752ba172ed898507c3b526969529bd3e9946ce69d432552f0f16b7d73f8a4c1da28fd14ca54c140dce7ca150e9343e6eff\
        8f012320700255a73a7005400e4cd7251d7718c435a08d8fd4e012b0060c0c0481525c72083d975e973d7913dd3292d7e04690365b164ac4c5f30181\
        076ba1400c3206734e81f0c4d8f2ac59200e0000";

fn bytes(hexadecimal: &str) -> Vec<u8> {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    hexadecimal.as_bytes().chunks(2).map(byte).collect()
}

#[test]
fn an_outcome_of_version_2_is_read() {
    let read = Outcome::from_bytes(&bytes(OUTCOME_2)).unwrap();
    assert_eq!(
        (read.key.as_str(), read.mode, read.elapsed_ns),
        ("/usr/bin/cat", crate::outcome::Mode::Replay, 184452729)
    );
}

#[test]
fn a_trace_of_version_3_is_read() {
    let read = Trace::from_bytes(&bytes(TRACE_3)).unwrap();
    let mapped = read.mappings.iter();
    let mapped: Vec<(u32, u64, u64)> = mapped.map(|m| (m.file, m.pages.start, m.pages.end)).collect();
    let of_the_linker = &mapped[4..8];
    assert_eq!(
        (mapped.len(), of_the_linker),
        (12, &[(2, 0, 1), (2, 1, 39), (2, 39, 49), (2, 49, 53)][..])
    );
    assert_eq!(Trace::from_bytes(&read.to_bytes().unwrap()).unwrap(), read);
}

#[test]
fn all_modes_come_back_by_their_numbers() {
    use crate::outcome::Mode::{Bypass, Control, Declined, Record, Replay};
    for (number, mode) in [Record, Replay, Control, Bypass, Declined]
        .into_iter()
        .enumerate()
    {
        let one = Outcome { mode, ..outcome() };
        assert_eq!(Outcome::from_bytes(&one.to_bytes().unwrap()).unwrap(), one);
        assert_eq!(postcard::to_stdvec(&mode).unwrap(), [number as u8]);
    }
}

#[test]
fn an_outcome_that_ends_before_its_last_value_has_none() {
    let without = Outcome {
        first_request_ns: None,
        precision: None,
        pace: None,
        unrecorded: false,
        used: None,
        decisions: Decisions::default(),
        memory_needed: None,
        ..outcome()
    };
    let mut values = postcard::to_stdvec(&without).unwrap();
    let decisions = [
        "gave_way",
        "without_room",
        "metadata_only",
        "evicted",
        "reclaimed",
        "pressed",
        "short",
        "looks",
    ];
    let older = ["used", "unrecorded", "pace", "precision", "first_request_ns"];
    for value in ["memory_needed"].iter().chain(&decisions).chain(&older) {
        assert_eq!(values.pop(), Some(0), "{value} is none, or not so");
        let mut file = Writer::new(Kind::Outcome);
        file.compressed(b"OUTC", &values, limits::OUTCOME_FILE).unwrap();
        assert_eq!(Outcome::from_bytes(&file.finish().unwrap()).unwrap(), without);
    }
}

#[test]
fn outcomes_come_back() {
    assert_eq!(
        Outcome::from_bytes(&outcome().to_bytes().unwrap()).unwrap(),
        outcome()
    );
}

#[test]
fn what_activity_cannot_be_is_refused() {
    let sound = Trace {
        activity: Some(testing::activity()),
        ..testing::trace()
    };
    let bytes = sound.to_bytes().unwrap();
    assert_eq!(u16::from_le_bytes([bytes[10], bytes[11]]), 1, "minor version");
    type Change = fn(&mut Activity);
    let changes: [(Change, &str); 12] = [
        (|activity| activity.requests[0].device = 1, "not listed"),
        (|activity| activity.requests[0].process = Some(1), "not listed"),
        (
            |activity| activity.requests[0].sector = u64::MAX,
            "largest device",
        ),
        (
            |activity| activity.requests[0].completed_ns = Some(0),
            "before it was issued",
        ),
        (|activity| activity.slices[0].process = 1, "not listed"),
        (|activity| activity.slices[0].to_ns = 0, "before it begins"),
        (|activity| activity.slices.swap(0, 1), "order of time"),
        (|activity| activity.processors[0].busy = f32::NAN, "no share"),
        (|activity| activity.processors[0].busy = 1.5, "no share"),
        (|activity| activity.devices[0].name = "a\0b".into(), "NUL"),
        (
            |activity| activity.devices[0].name = "x".repeat(65),
            "more than 64",
        ),
        (
            |activity| activity.devices = vec![activity.devices[0].clone(); 1025],
            "more than 1024",
        ),
    ];
    for (index, (change, why)) in changes.into_iter().enumerate() {
        let mut bad = sound.clone();
        change(bad.activity.as_mut().unwrap());
        let error = bad.to_bytes().unwrap_err().to_string();
        assert!(error.contains(why), "{index}: {error} lacks {why:?}");
        // A forger's file is refused, or says something else that can be: times that go back cannot be
        // written down.
        if let Ok(read) = Trace::from_bytes(&bad.forged().unwrap()) {
            assert_ne!(read, bad, "{index}");
            assert!(read.to_bytes().is_ok(), "{index}");
        }
    }
}

#[test]
fn a_reader_of_the_version_before_finds_what_it_knows() {
    // It skips ACTV, as any section whose tag it does not know.
    let with = Trace {
        activity: Some(testing::activity()),
        ..testing::trace()
    };
    let bytes = with.to_bytes().unwrap();
    let file = super::Container::new(Kind::Trace, &bytes).unwrap();
    let mut old = Writer::new(Kind::Trace);
    for tag in file.tags() {
        let renamed = if tag == *b"ACTV" { *b"NEW!" } else { tag };
        old.raw(&renamed, &file.section(&tag, usize::MAX).unwrap());
    }
    let read = Trace::from_bytes(&old.finish().unwrap()).unwrap();
    assert_eq!(read, testing::trace());
}

/// Sets each field of header and table to zero, the largest value and a mixed one, with the header's checksum
/// made right again, so that the checks behind it are reached.
fn bend_fields(bytes: &[u8]) -> Vec<Vec<u8>> {
    let sections = u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
    let mut fields = vec![(0, 8), (8, 2), (10, 2), (12, 4), (16, 8), (24, 4), (28, 4)];
    for row in 0..sections {
        let at = 32 + row * 40;
        fields.extend([
            (at, 4),
            (at + 4, 4),
            (at + 8, 8),
            (at + 16, 8),
            (at + 24, 8),
            (at + 32, 4),
            (at + 36, 4),
        ]);
    }
    let mut bent = Vec::new();
    for (at, length) in fields {
        for fill in [0u8, 0xff, 0xa5] {
            let mut copy = bytes.to_vec();
            copy[at..at + length].fill(fill);
            bent.push(copy.clone());
            let table = 32 + 40 * sections;
            copy[24..28].fill(0);
            let check = crc32fast::hash(&copy[..table]);
            copy[24..28].copy_from_slice(&check.to_le_bytes());
            bent.push(copy);
        }
    }
    bent
}

#[test]
fn cut_and_bent_files_are_refused_in_time() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let files = [
        active()
            .new_tree(&mut runner)
            .unwrap()
            .current()
            .to_bytes()
            .unwrap(),
        profile()
            .new_tree(&mut runner)
            .unwrap()
            .current()
            .to_bytes()
            .unwrap(),
        draft()
            .new_tree(&mut runner)
            .unwrap()
            .current()
            .to_bytes()
            .unwrap(),
        outcome().to_bytes().unwrap(),
        profile_set::set(&["/usr/bin/a", "boot"]).to_bytes().unwrap(),
    ];
    for file in &files {
        assert_eq!(
            read_all(file).iter().filter(|ok| **ok).count(),
            1,
            "a file is of one kind"
        );
        for cut in (0..file.len()).step_by(64) {
            assert_eq!(read_all(&file[..cut]), [false; 5], "cut at {cut}");
        }
        for bent in bend_fields(file) {
            // What it costs is bounded by `tests/bounds.rs` and by the fuzzers.
            read_all(&bent);
        }
    }
}

#[test]
fn later_minor_versions_with_unknown_sections_are_read() {
    let mut file = Writer::new(Kind::Outcome);
    file.raw(b"NEW!", b"from the future");
    file.value(b"OUTC", &outcome(), limits::OUTCOME_FILE).unwrap();
    assert_eq!(Outcome::from_bytes(&file.finish().unwrap()).unwrap(), outcome());
}

#[test]
fn errors_say_what_is_wrong() {
    let bytes = outcome().to_bytes().unwrap();
    let text = |r: Result<Trace, super::FormatError>| r.unwrap_err().to_string();
    assert!(text(Trace::from_bytes(b"")).contains("no headstart trace"));
    assert!(
        text(Trace::from_bytes(&bytes)).contains("that of a outcome")
            || text(Trace::from_bytes(&bytes)).contains("outcome")
    );
    let mut later = bytes.clone();
    later[8] += 1;
    assert!(
        Outcome::from_bytes(&later)
            .unwrap_err()
            .to_string()
            .contains("newer headstart")
    );
    let mut earlier = one(trace()).to_bytes().unwrap();
    earlier[8] = 1;
    assert!(text(Trace::from_bytes(&earlier)).contains("version 1, this headstart reads version 5"));
}
