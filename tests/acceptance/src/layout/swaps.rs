//! Single moves, as xfstests ext4/301–304, 307 and 308 try them: a second move undoes the first; and movers
//! that share a donor, of files that others write meanwhile, past the cache and through it.

use super::stress::Stress;
use super::{Case, Image, SHAPES};
use anyhow::{Context, Result, bail, ensure};
use headstart_bench::statistics::Random;
use headstart_layout::moving::{donor::Donor, movable::Movable, volume::Volume};
use headstart_model::machine::Extent;
use headstart_system::mounts::MountTable;
use headstart_system::open::Expect;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const PAGE: u64 = 4096;
/// Bytes of the donor that is shared.
const DONOR: u64 = 4 << 20;
/// Movers, and those who write.
const EACH: u64 = 2;

fn image(seed: u64) -> Result<Image> {
    Image::new(&Case {
        size: 256 << 20,
        full: 30,
        shape: &SHAPES[0],
        seed,
    })
}

fn volume(image: &Image) -> Result<(MountTable, Volume)> {
    let mounts = MountTable::read()?;
    let volume = Volume::open(&mounts, &image.mount_point(), &image.fs.node(), "ext4");
    let volume = volume.map_err(anyhow::Error::msg)?;
    Ok((mounts, volume))
}

/// Moves all files into a donor each, and back by the same moves: they lie where they lay. Returns what was
/// done.
pub fn twice(seed: u64) -> Result<String> {
    let mut image = image(seed)?;
    let (mounts, volume) = volume(&image)?;
    let mut moved = 0;
    let at = image.mount_point();
    for known in &image.files {
        let path = at.join(&known.name);
        // What is executed by none.
        let Ok(file) = Movable::open(&volume, &mounts, &path, &Expect::default()) else {
            continue;
        };
        let before = file.extents()?;
        let donor = volume.donor(file.stat.size.next_multiple_of(PAGE))?;
        let parts: Vec<_> = before
            .iter()
            .flat_map(|extent| in_both(extent, donor.room()))
            .collect();
        for round in 0..2 {
            for (start, length) in &parts {
                file.move_to(&volume, &donor, *start, *start, *length)
                    .with_context(|| format!("{}: move {round}", known.name))?;
                moved += 1;
            }
            file.file()?.sync_all()?;
            let now = file.extents()?;
            ensure!(
                (now == before) == (round == 1),
                "{}: after move {round} it lies at {now:?}, and before at {before:?}",
                known.name
            );
        }
    }
    // Both keep the root of its mount open.
    drop((volume, mounts));
    ensure!(moved > image.files.len(), "only {moved} moves");
    image.check()?;
    Ok(format!(
        "{moved} moves, each undone by a second one, of {} files",
        image.files.len()
    ))
}

/// The parts of an extent for which the room is one extent, too: start and length.
fn in_both(extent: &Extent, room: &[Extent]) -> Vec<(u64, u64)> {
    let end = extent.logical + extent.length;
    let part = |piece: &Extent| {
        let (from, to) = (
            extent.logical.max(piece.logical),
            end.min(piece.logical + piece.length),
        );
        (from < to).then(|| (from, to - from))
    };
    room.iter().filter_map(part).collect()
}

/// Movers that share one donor, of files that are written meanwhile. Returns what was done.
pub fn one_donor(long: Duration, seed: u64) -> Result<String> {
    let mut image = image(seed)?;
    let at = image.mount_point();
    let mut stress = (0..EACH)
        .map(|number| Stress::new(&at.join(format!("writer{number}")), seed + number))
        .collect::<Result<Vec<_>>>()?;
    for stress in &mut stress {
        for _ in 0..200 {
            stress.step()?;
        }
    }
    let (_, volume) = volume(&image)?;
    let donor = volume.donor(DONOR)?;
    let done = AtomicBool::new(false);
    let (moved, refused, written) = std::thread::scope(|scope| -> Result<_> {
        let movers: Vec<_> = (0..EACH)
            .map(|number| {
                let directory = at.join(format!("writer{number}"));
                let (image, donor, done) = (&image, &donor, &done);
                let mut random = Random(seed * 31 + number);
                scope.spawn(move || -> Result<(u64, u64)> {
                    let (mounts, volume) = self::volume(image)?;
                    let (mut moved, mut refused) = (0u64, 0u64);
                    while !done.load(Ordering::Relaxed) {
                        match random_move(&directory, &mounts, &volume, donor, &mut random) {
                            true => moved += 1,
                            false => refused += 1,
                        }
                    }
                    Ok((moved, refused))
                })
            })
            .collect();
        let writers: Vec<_> = stress
            .iter_mut()
            .map(|stress| {
                let done = &done;
                scope.spawn(move || -> Result<u64> {
                    while !done.load(Ordering::Relaxed) {
                        stress.step()?;
                    }
                    Ok(stress.done)
                })
            })
            .collect();
        // A writer that fails ends early.
        let begun = std::time::Instant::now();
        while begun.elapsed() < long && !writers.iter().any(|writer| writer.is_finished()) {
            std::thread::sleep(Duration::from_millis(20));
        }
        done.store(true, Ordering::Relaxed);
        let (mut moved, mut refused, mut written) = (0, 0, 0);
        for mover in movers {
            let Ok(counts) = mover.join() else {
                bail!("a mover panicked")
            };
            let counts = counts?;
            (moved, refused) = (moved + counts.0, refused + counts.1);
        }
        for writer in writers {
            let Ok(count) = writer.join() else {
                bail!("a writer panicked")
            };
            written += count?;
        }
        Ok((moved, refused, written))
    })?;
    drop((donor, volume));
    ensure!(moved > 0, "nothing was moved, {refused} times it was refused");
    for stress in &stress {
        stress.check()?;
    }
    image.fs.check().context("e2fsck -fn")?;
    for stress in &stress {
        stress.check().context("read from the device")?;
    }
    Ok(format!(
        "{EACH} movers of one donor: {moved} moves done, {refused} refused, beside {written} writes, truncations, renamings and the like"
    ))
}

/// Tries to move some pages of some file; whether it did.
fn random_move(
    directory: &Path,
    mounts: &MountTable,
    volume: &Volume,
    donor: &Donor,
    random: &mut Random,
) -> bool {
    let mut tried = || -> Option<()> {
        let names: Vec<_> = fs::read_dir(directory).ok()?.flatten().collect();
        let path = names.get(random.below(names.len().max(1)))?.path();
        let file = Movable::open(volume, mounts, &path, &Expect::default()).ok()?;
        let extents = file.extents().ok()?;
        let extent = extents.get(random.below(extents.len().max(1)))?;
        let pages = extent.length / PAGE;
        let start = extent.logical + random.below(pages as usize) as u64 * PAGE;
        let most = (extent.logical + extent.length - start) / PAGE;
        let length = (1 + random.below(most as usize) as u64) * PAGE;
        let to = random.below(((DONOR - length.min(DONOR)) / PAGE + 1) as usize) as u64 * PAGE;
        // Anything may have happened to the file, or to what the donor has there.
        file.move_to(volume, donor, start, to, length).ok()
    };
    tried().is_some()
}
