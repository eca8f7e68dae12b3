use super::*;
use crate::apply::STOP;
use crate::moves::movable;
use crate::testing::{PAGE, facts, whole};
use headstart_store::Store;
use headstart_system::open::Expect;
use headstart_system::testing::{LoopFs, Spec, can_mount};
use std::fs;
use std::path::Path;

const SIZE: u64 = 20 * PAGE + 700;
const KEPT: &str = r#"{"keys":[],"mount_point":"/","state":"underway","why":null,"began_unix_ns":1,"ended_unix_ns":0,"files":0,
    "bytes":0,"planned_bytes":0,"to":5,"before":{"jumps":1,"time_ns":2},"after":{"jumps":1,"time_ns":1},"left":{}}"#;

fn contents() -> Vec<u8> {
    (0..SIZE).map(|at| (at / 7) as u8).collect()
}

/// Moves a file and has it compared with other contents than it had: what was counted, and how it ended.
fn moved_and_found_changed(fs: &LoopFs, path: &Path) -> (Vec<LayoutResult>, Result<u64>) {
    let state = tempfile::tempdir().unwrap();
    let turn = Turn::acquire(&Store::new(state.path())).unwrap();
    let mounts = MountTable::read().unwrap();
    let volume = Volume::open(&mounts, &fs.mount_point(), &fs.node(), "ext4").unwrap();
    let file = Movable::open(&volume, &mounts, path, &Expect::default()).unwrap();
    let room = Room::elsewhere(&volume, SIZE.next_multiple_of(PAGE), PAGE, &|_, _| false).unwrap();
    let item = whole(facts(path.to_str().unwrap(), 1, SIZE.next_multiple_of(PAGE), &[]));
    let extents = file.extents().unwrap();
    let moves = moves(
        &movable(&item.ranges, SIZE.next_multiple_of(PAGE), &extents, PAGE),
        &extents,
        &room.pieces,
        0,
    );
    let mut results = vec![serde_json::from_str(KEPT).unwrap()];
    let mut work = Work {
        turn: &turn,
        all: &mut results,
        order: &Order::new(0, Vec::new()),
        mounts: &mounts,
        volume: &volume,
        room: &room,
        pace: &mut Pace::new(&STOP, None, None),
        tell: &mut |_| {},
        evicts: false,
        asked: 0,
    };
    let (mut moved, _) = work.file(&item, file, &moves).unwrap();
    moved.before[0] = [0; 32];
    let ended = work.compare(vec![moved]);
    (results, ended)
}

/// Memory that a device writes to when it answers is changed without a new time of the file: else every user
/// could keep all from being moved.
#[test]
fn a_file_that_its_owner_changed_untold_stays_alone_and_one_of_root_ends_it() {
    if !can_mount() {
        return;
    }
    let files = [
        ("of-a-user", 1000, 0o644),
        ("of-a-group", 0, 0o664),
        ("of-root", 0, 0o644),
    ];
    let fs = LoopFs::create(&Spec::new("ext4"), |at| {
        for (name, id, mode) in files {
            let path = at.join(name);
            fs::write(&path, contents())?;
            let group = if mode == 0o664 { 1000 } else { id };
            std::os::unix::fs::chown(&path, Some(id), Some(group))?;
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            fs::set_permissions(&path, mode)?;
        }
        Ok(())
    });
    let fs = fs.unwrap();
    let at = fs.mount_point();
    let told = |name: &str| fs::read(at.join(name)).unwrap();
    for (name, kept) in [("of-a-user", "changed"), ("of-a-group", "changed-2")] {
        let (all, ended) = moved_and_found_changed(&fs, &at.join(name));
        assert_eq!(ended.unwrap(), 0, "nothing of it counts as moved");
        let (why, files) = all[0].left.first_key_value().unwrap();
        let kept = format!("headstart-layout-{kept}");
        assert_eq!((all[0].left.len(), *files), (1, 1));
        assert!(
            why.contains(CHANGED) && why.contains(name) && why.ends_with(&kept),
            "{why}"
        );
        let kept = told(&kept);
        assert_eq!(
            kept.len() as u64,
            SIZE.next_multiple_of(PAGE),
            "that file's room alone"
        );
        assert!(kept[..SIZE as usize] == contents() && told(name) == contents());
    }
    let (all, ended) = moved_and_found_changed(&fs, &at.join("of-root"));
    let error = format!("{:#}", ended.unwrap_err());
    assert!(
        error.contains("restore the file") && error.contains(RESCUE),
        "{error}"
    );
    assert_eq!(all[0].left.len(), 0);
    assert!(told(RESCUE).windows(64).any(|part| part == &contents()[..64]));
}
