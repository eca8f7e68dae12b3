use super::*;
use headstart_model::blocks::OwningFile;
use headstart_model::plan::{NO_FILE, PlanDraft, Request, RequestKind};
use headstart_model::testing::{FLASH, draft, file, plan_file, planned, trace, used};

fn range(start: u64, length: u64) -> ByteRange {
    ByteRange { start, length }
}

/// A read of a partition that begins at 1 MiB of its device.
fn read(start: u64, length: u64) -> BlockRead {
    BlockRead {
        major: 8,
        minor: 0,
        range: range((1 << 20) + start, length),
        issued_ns: Some(5_000_000),
        completed_ns: Some(6_000_000),
        by_start: None,
    }
}

fn owned(start: u64, length: u64, kind: Kind, file: Option<u32>, offset: u64) -> Owned {
    Owned {
        range: range(start, length),
        kind,
        file,
        offset,
    }
}

/// Inodes at 0, a directory behind them, 16 KiB of a file from its second page on, a free block, another
/// file.
fn part() -> Part {
    Part {
        major: 8,
        minor: 0,
        own: (8, 1),
        name: "sda1".into(),
        range: range(1 << 20, 1 << 20),
        fstype: "ext4".into(),
        mount_point: "/".into(),
        files: [(11, Some("/d")), (12, Some("/f")), (13, None)]
            .map(|(inode, path)| OwningFile {
                inode,
                path: path.map(FilePath::from),
            })
            .into(),
        owned: vec![
            owned(0, 4096, Kind::Inodes, None, 0),
            owned(4096, 4096, Kind::Directory, Some(0), 0),
            owned(8192, 16384, Kind::Data, Some(1), 4096),
            owned(28672, 4096, Kind::Data, Some(2), 0),
        ],
        unfinished: None,
    }
}

/// Of the file the pages 1 and 2, and of the device the inodes.
fn plan() -> PlanDraft {
    let metadata = Request::new(RequestKind::Metadata, NO_FILE, 4096);
    let data = Request {
        offset: 4096,
        ..Request::new(RequestKind::Data, 0, 8192)
    };
    draft(FLASH, vec![planned("/f")], vec![metadata, data])
}

fn joined(trace: &Trace, reads: &[BlockRead], plan: Option<&PlanDraft>) -> Comparison {
    let file = plan.map(plan_file);
    let parts = [part()];
    let input = Input {
        trace,
        reads,
        lost: 0,
        parts: &parts,
        plan: file.as_ref().map(|file| file.plan().unwrap()),
    };
    let result = compare(&input).unwrap();
    let pieces: u64 = result.blocks.iter().map(|block| block.bytes).sum();
    assert_eq!(pieces, result.read.bytes, "every byte is in one piece");
    let kinds: u64 = result.kinds.iter().map(|kind| kind.bytes).sum();
    assert_eq!(kinds, result.explained);
    let unexplained: u64 = result.unexplained.iter().map(|part| part.bytes).sum();
    assert_eq!(result.explained + unexplained, result.read.bytes);
    result
}

#[test]
fn a_read_is_taken_apart_by_who_owns_it_and_what_was_planned() {
    let result = joined(&trace(), &[read(0, 32768)], Some(&plan()));
    let pieces: Vec<_> = result
        .blocks
        .iter()
        .map(|part| {
            (
                (part.sector - 2048) * 512,
                part.bytes,
                part.kind,
                part.offset,
                part.had,
            )
        })
        .collect();
    assert_eq!(
        pieces,
        [
            (0, 4096, Some(Kind::Inodes), None, Some(Had::Found)),
            (4096, 4096, Some(Kind::Directory), None, Some(Had::Missing)),
            (8192, 8192, Some(Kind::Data), Some(4096), Some(Had::Found)),
            (16384, 8192, Some(Kind::Data), Some(12288), Some(Had::Missing)),
            (24576, 4096, None, None, None),
            (28672, 4096, Some(Kind::Data), Some(0), Some(Had::Missing)),
        ]
    );
    assert_eq!((result.explained, result.unexplained.len()), (28672, 1));
    assert_eq!(result.unexplained[0].why, NOBODY);
    let had = result.had.unwrap();
    assert_eq!((had.found, had.late, had.missing), (12288, 0, 16384));
    let files: Vec<_> = result
        .files
        .iter()
        .map(|owner| (owner.inode, owner.data, owner.metadata))
        .collect();
    assert_eq!(files, [(12, 16384, 0), (11, 0, 4096), (13, 4096, 0)]);
    assert_eq!(result.blocks[2].file, Some(0), "an index into the sorted list");
    assert_eq!(result.key.as_deref(), Some("k"));
}

#[test]
fn without_a_plan_nothing_is_said_of_one() {
    let result = joined(&trace(), &[read(0, 8192)], None);
    assert_eq!((result.key, result.had), (None, None));
    assert!(result.blocks.iter().all(|block| block.had.is_none()));
    assert_eq!(result.explained_share, 1.0);
}

#[test]
fn late_is_what_the_start_had_used_before_or_asked_for_itself_beside_a_replay() {
    let mut start = trace();
    start.files = vec![file("/f")];
    // Page 1 was used before the read at 5 to 6 ms had ended, page 2 after.
    start.uses = vec![used(4, 0, 1, 1), used(9, 0, 2, 1)];
    let (first, second) = (read(8192, 4096), read(12288, 4096));
    let had = |trace: &Trace, read: BlockRead| joined(trace, &[read], Some(&plan())).blocks[0].had.unwrap();
    assert_eq!(had(&start, first), Had::Found, "without a replay nobody is late");
    start.meta.replayed = true;
    assert_eq!(had(&start, first), Had::Late);
    assert_eq!(had(&start, second), Had::Found);
    let itself = BlockRead {
        by_start: Some(true),
        ..second
    };
    assert_eq!(had(&start, itself), Had::Late);
    let inodes = BlockRead {
        by_start: Some(true),
        ..read(0, 4096)
    };
    assert_eq!(had(&start, inodes), Had::Late);
    let unknown = BlockRead {
        issued_ns: None,
        completed_ns: None,
        ..first
    };
    assert_eq!(had(&start, unknown), Had::Found, "when it was is not known");
}

#[test]
fn what_is_of_another_device_or_time_does_not_count() {
    let other = BlockRead {
        major: 7,
        ..read(0, 4096)
    };
    let before = BlockRead {
        issued_ns: Some(-1),
        ..read(0, 512)
    };
    let after = BlockRead {
        issued_ns: Some(1_000_000_001),
        ..before
    };
    let of_partition = BlockRead {
        minor: 1,
        ..read(0, 4096)
    };
    let result = joined(&trace(), &[other, before, after, of_partition], None);
    assert_eq!(
        result.elsewhere,
        Count {
            requests: 1,
            bytes: 4096
        }
    );
    assert_eq!(
        result.outside,
        Count {
            requests: 2,
            bytes: 1024
        }
    );
    assert_eq!(
        result.read,
        Count {
            requests: 1,
            bytes: 4096
        }
    );
    assert_eq!(
        (result.devices.len(), result.devices[0].minor),
        (1, 0),
        "the whole device"
    );
}

#[test]
fn what_lies_between_file_systems_is_nobodys() {
    let across = BlockRead {
        range: range((1 << 20) - 4096, 8192),
        ..read(0, 0)
    };
    let beyond = read(1 << 20, 4096);
    let far = BlockRead {
        range: range(u64::MAX - 511, 1 << 40),
        ..beyond
    };
    let result = joined(&trace(), &[far], None);
    assert_eq!((result.explained, result.unexplained[0].bytes), (0, 1 << 40));
    let result = joined(&trace(), &[across, beyond], None);
    assert_eq!((result.explained, result.parts[0].bytes), (4096, 4096));
    assert_eq!(
        (result.unexplained[0].why.as_str(), result.unexplained[0].bytes),
        (NO_FILESYSTEM, 8192)
    );
}

#[test]
fn metadata_of_others_than_ext_comes_with_look_ups() {
    let mut part = part();
    part.fstype = "xfs".into();
    let parts = [part];
    let file = plan_file(&plan());
    let reads = [read(0, 8192)];
    let start = trace();
    let input = |plan| Input {
        trace: &start,
        reads: &reads,
        lost: 3,
        parts: &parts,
        plan,
    };
    let result = compare(&input(Some(file.plan().unwrap()))).unwrap();
    assert_eq!(result.had.unwrap().by_lookup, 8192);
    let none = plan_file(&draft(FLASH, Vec::new(), Vec::new()));
    let result = compare(&input(Some(none.plan().unwrap()))).unwrap();
    assert_eq!((result.had.unwrap().missing, result.lost), (8192, 3));
}

#[test]
fn a_hostile_number_of_pieces_is_refused() {
    let start = trace();
    let mut part = part();
    part.range.length = 1 << 40;
    part.owned = (0..2000)
        .map(|n| owned(n * 8192, 4096, Kind::Bitmap, None, 0))
        .collect();
    let reads = vec![read(0, 1 << 32); 1000];
    let parts = [part];
    let input = Input {
        trace: &start,
        reads: &reads,
        lost: 0,
        parts: &parts,
        plan: None,
    };
    assert_eq!(compare(&input), Err(TooMany));
}
