//! Which parts are asked for, and who gives way to others.

use super::*;
use crate::options::Options;
use crate::others::Others;
use headstart_model::plan::Request;
use headstart_model::testing;
use headstart_system::mounts::MountTable;
use std::os::unix::fs::FileExt;

/// Serves 64 look-ups by eight threads, beside others that have `read` so many sectors more each time.
fn serve_beside(read: u64) -> u64 {
    let dir = tempfile::tempdir().unwrap();
    let stat = dir.path().join("stat");
    let told = std::fs::File::create(&stat).unwrap();
    let write = |sectors: u64| {
        told.write_at(format!("1 0 {sectors:020} 0\n").as_bytes(), 0)
            .unwrap()
    };
    write(0);
    let shape = Shape {
        threads: 8,
        window: 1,
        chunk: 4096,
    };
    let device = Device::of_shape(shape, Others::waiting(std::fs::File::open(&stat).unwrap()));
    let nowhere = testing::planned("/nowhere/at/all");
    let requests = vec![Request::new(RequestKind::Stat, 0, 0); 64];
    let file = testing::plan_file(&testing::draft(testing::DISK, vec![nowhere], requests));
    let plan = file.plan().unwrap();
    let (mounts, openers) = (MountTable::read().unwrap(), [None]);
    let files = Files::new(plan, &mounts, &openers, 0, None);
    // Other work on the machine decides nothing here.
    let governor = Governor::new(&Options {
        stop_below: 0,
        stop_pressure: 1e9,
        ..Options::new(Instant::now())
    });
    governor.start();
    let (over, arrived, is_over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let worker = Worker {
        device: &device,
        files: &files,
        governor: &governor,
        over: &over,
        arrived: &arrived,
        origin: Instant::now(),
        io_uring: false,
        filling: None,
        open: 8,
    };
    let requests = plan.requests().enumerate();
    let queue = Queue::new(
        requests
            .map(|(index, r)| RequestState::new(index as u32, r))
            .collect(),
    );
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut sectors = 0;
            while is_over.load(Ordering::Relaxed) == 0 {
                sectors += read;
                write(sectors);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        worker.serve(&queue, &|_| std::thread::sleep(Duration::from_millis(20)));
        is_over.store(1, Ordering::Relaxed);
    });
    over.load(Ordering::Relaxed)
}

#[test]
fn threads_that_give_way_end_with_the_others_whoever_goes_on_reading() {
    assert_eq!(serve_beside(1 << 20), 64);
    assert_eq!(serve_beside(0), 64, "and when others have ended");
}

#[test]
fn the_hull_of_what_is_absent_is_asked_for() {
    let range = |start, end| PageRange { start, end };
    let absent = [range(2, 4), range(6, 7), range(10, 20)];
    assert_eq!(hull(&absent, range(0, 8)), Some(range(2, 7)));
    assert_eq!(hull(&absent, range(3, 12)), Some(range(3, 12)));
    assert_eq!(hull(&absent, range(4, 6)), None);
    assert_eq!(hull(&absent, range(7, 10)), None);
    assert_eq!(hull(&[], range(0, 9)), None);
    assert_eq!(hull(&absent, range(25, 30)), None);
}
