use super::*;
use std::time::Instant;

#[test]
fn a_device_that_panics_leaves_the_others_in_their_places_and_nobody_waits() {
    for bad in 0..3 {
        let options = Options::new(Instant::now());
        let shared = Shared::new(&options, 3, Vec::new());
        let serve = |device: &usize| {
            let _hold = Barrier::new(&shared, 1);
            if *device == bad {
                // A panic without its message among the tests' output.
                std::panic::resume_unwind(Box::new(()));
            }
            *device
        };
        let done = side_by_side(&[0, 1, 2], &serve);
        let expected = [0, 1, 2].map(|device| Some(device).filter(|d| *d != bad));
        assert_eq!(done, expected);
        assert_eq!(shared.standing(), 0);
    }
}

#[test]
fn what_the_start_alone_looks_at_stays_amid_the_data() {
    use RequestKind::{Data, Metadata};
    use headstart_model::plan::{NO_FILE, Request};
    use headstart_model::testing::{DISK, FLASH, NETWORK, draft, plan_file, planned};
    let requests = [(Metadata, NO_FILE), (Data, 0), (Metadata, NO_FILE), (Data, 0)];
    let requests = requests.map(|(kind, file)| Request::new(kind, file, 4096));
    let amid = (vec![Metadata], vec![Data, Metadata, Data], 2);
    // Without a way to its files by handle.
    let first = (vec![Metadata, Metadata], vec![Data, Data], 1);
    for (cost, expected) in [(FLASH, &amid), (NETWORK, &amid), (DISK, &first)] {
        let mut draft = draft(cost, vec![planned("/a")], requests.to_vec());
        draft.devices[0].hold = 3;
        let file = plan_file(&draft);
        let options = Options::new(Instant::now());
        let works = share_out(
            file.plan().unwrap(),
            &[None],
            &MountTable::default(),
            &options,
            &mut Skipped::default(),
        );
        let kinds = |queue: &Queue| {
            queue
                .requests
                .iter()
                .map(|state| state.request.kind)
                .collect::<Vec<_>>()
        };
        let Passes { metadata, data, .. } = &works[0].passes;
        assert_eq!(&(kinds(metadata), kinds(data), works[0].barrier_data), expected);
    }
}

#[test]
fn look_ups_behind_the_first_data_go_on_beside_it_where_no_head_moves() {
    use headstart_model::plan::Request;
    use headstart_model::testing::{DISK, NETWORK, draft, plan_file, planned};
    let kinds = [RequestKind::Stat, RequestKind::Data, RequestKind::List];
    let requests = kinds.map(|kind| Request::new(kind, 0, u64::from(kind == RequestKind::Data) * 4096));
    for (cost, expected) in [(NETWORK, [1, 1, 1]), (DISK, [2, 1, 0])] {
        let file = plan_file(&draft(cost, vec![planned("/a")], requests.to_vec()));
        let options = Options::new(Instant::now());
        let works = share_out(
            file.plan().unwrap(),
            &[None],
            &MountTable::default(),
            &options,
            &mut Skipped::default(),
        );
        let Passes {
            look_ups,
            data,
            beside,
            ..
        } = &works[0].passes;
        let counts = [look_ups, data, beside].map(|queue| queue.requests.len());
        assert_eq!(counts, expected);
        assert_eq!(works[0].requests().count(), 3);
    }
}

#[test]
fn few_devices_are_served_at_once_whatever_a_plan_says() {
    let works: Vec<usize> = (0..1 << 16).collect();
    let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let serve = |device: &usize| {
        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        std::thread::yield_now();
        now.fetch_sub(1, Ordering::SeqCst);
        *device
    };
    let done = side_by_side(&works, &serve);
    assert!(done.into_iter().flatten().eq(works));
    assert!((1..=MAX_DEVICES).contains(&most.into_inner()));
}
