//! `cargo run --release -p headstart-layout --example rate [MIB]`: how fast files are planned and moved on
//! this machine's own disk, beside a copy from one end to the other. It makes an ext4 in an image below
//! `HEADSTART_SCRATCH` or `/var/tmp`, of five times as many MiB [default: 1024].

use anyhow::{Context, Result, ensure};
use headstart_layout::{Bounds, State, apply, plan};
use headstart_model::machine::DeviceClass;
use headstart_model::profile::Policy;
use headstart_model::{Key, Profile};
use headstart_start::machine::{Costs, Measure, snapshot};
use headstart_store::Store;
use headstart_system::testing::{self, LoopFs, Spec, can_mount};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::time::Instant;

const PAGE: u64 = 4096;
/// Bytes of the files, which come again and again: their mean is that of what a boot reads.
const SIZES: [u64; 8] = [1_500, 4_096, 9_000, 20_000, 40_000, 90_000, 200_000, 500_000];

fn main() -> Result<()> {
    ensure!(can_mount(), "root and loop devices are needed");
    let mib: u64 = match std::env::args().nth(1) {
        Some(text) => text.parse().context("give a number of MiB")?,
        None => 1024,
    };
    let files = (mib << 20) * SIZES.len() as u64 / SIZES.iter().sum::<u64>();
    let spec = Spec {
        size: (mib * 5) << 20,
        ..Spec::new("ext4")
    };
    let mut disk = LoopFs::create(&spec, |at| fill(at, files))?;
    disk.remount_cold()?;
    let copied = copy(&disk.mount_point(), mib / 2)?;
    println!("a copy of one file: {:.1} MiB/s", copied / f64::from(1 << 20));
    move_all(&mut disk, files, copied, "that lie strewn")?;
    move_all(&mut disk, files, copied, "that lie together, anew")?;
    disk.check()?;
    Ok(())
}

/// Moves all files, which `lie` somehow, and says how fast that was beside a copy.
fn move_all(disk: &mut LoopFs, files: u64, copied: f64, lie: &str) -> Result<()> {
    disk.remount_cold()?;
    let began = Instant::now();
    let profile = profile(&disk.mount_point(), files)?;
    let state = tempfile::tempdir_in("/var/tmp")?;
    let store = Store::new(state.path());
    let costs = Costs {
        store: &store,
        class: Some(DeviceClass::Disk),
        measure: Measure::Nothing,
    };
    let looked = began.elapsed();
    let began = Instant::now();
    let machine = snapshot(&profile, &costs, &mut |line| eprintln!("{line}"))?;
    let orders = plan(&[profile], &machine);
    let planned = began.elapsed();
    let bytes: u64 = orders.iter().map(headstart_layout::Order::bytes).sum();
    println!(
        "{files} files {lie}, {} MiB: looked at in {:.2} s, planned in {:.2} s",
        bytes >> 20,
        looked.as_secs_f64(),
        planned.as_secs_f64()
    );

    disk.remount_cold()?;
    let began = Instant::now();
    let bounds = Bounds {
        force: true,
        ..Bounds::default()
    };
    let moved = apply(orders, &machine, &[], &store, bounds, &mut |_| {})?;
    let seconds = began.elapsed().as_secs_f64();
    let kept = moved.first().context("nothing was moved")?;
    ensure!(kept.state == State::Complete, "{kept:?}");
    let rate = kept.bytes as f64 / seconds;
    println!(
        "  moved {} MiB in {seconds:.2} s, {:.1} MiB/s, to {} pieces: {:.2} of a copy",
        kept.bytes >> 20,
        rate / f64::from(1 << 20),
        kept.pieces,
        rate / copied
    );
    Ok(())
}

/// Which of all files is made as so manieth: neighbours in the profile are none on the device.
fn shuffled(number: u64, files: u64) -> u64 {
    (number * 7919 + 13) % files
}

fn path(at: &Path, number: u64) -> std::path::PathBuf {
    at.join(format!("{}", number % 97)).join(format!("{number:06}"))
}

fn fill(at: &Path, files: u64) -> std::io::Result<()> {
    for directory in 0..97 {
        fs::create_dir(at.join(directory.to_string()))?;
    }
    for number in 0..files {
        let number = shuffled(number, files);
        let bytes = SIZES[(number % SIZES.len() as u64) as usize];
        fs::write(path(at, number), vec![number as u8 | 1; bytes as usize])?;
    }
    Ok(())
}

/// Copies a file of so many MiB, read and written in pieces of a MiB and synced; bytes a second.
fn copy(at: &Path, mib: u64) -> Result<f64> {
    let (from, to) = (at.join("from"), at.join("to"));
    let mut buffer = vec![5; 1 << 20];
    let mut file = File::create(&from)?;
    for _ in 0..mib {
        file.write_all(&buffer)?;
    }
    file.sync_all()?;
    headstart_system::residency::advise_dontneed(&file, 0, 0)?;
    let began = Instant::now();
    let (mut source, mut target) = (File::open(&from)?, File::create(&to)?);
    loop {
        let read = source.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        target.write_all(&buffer[..read])?;
    }
    target.sync_all()?;
    let rate = (mib << 20) as f64 / began.elapsed().as_secs_f64();
    fs::remove_file(from)?;
    fs::remove_file(to)?;
    Ok(rate)
}

fn profile(at: &Path, files: u64) -> Result<Profile> {
    let mut profile = Profile::new(Key::new("rate")?, PAGE as u32, Policy::Decay);
    for number in 0..files {
        let path = path(at, number);
        // The step of `shuffled` may not reach all.
        if path.exists() {
            profile.entries.push(testing::whole(&path, number)?);
        }
    }
    profile.entries.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(profile)
}
