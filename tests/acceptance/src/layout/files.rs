//! The files of an image: of every size and form that moves have to do with, between others that fill it.

use super::{Case, PAGE};
use anyhow::{Context, Result, ensure};
use headstart_bench::statistics::Random;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;

/// Of the image's bytes, and of all bytes, the files have no more.
const SHARE: u64 = 25;
const MOST: u64 = 48 << 20;
/// How many files there are at most.
const FILES: usize = 150;

/// What a file is to be.
#[derive(Clone, Debug)]
pub struct Planned {
    name: String,
    size: u64,
    form: Form,
    seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    /// Room for all of it is taken first.
    Whole,
    /// It grows in two steps, others between them.
    InPieces,
    /// Every third part of 64 KiB is a hole.
    Sparse,
}

/// A file that is there.
#[derive(Clone, Debug)]
pub struct Known {
    /// Its name, from the mount point on.
    pub name: String,
    size: u64,
    mode: u32,
    mtime: (i64, i64),
    sum: [u8; 32],
}

impl Known {
    fn read(at: &Path, name: &str) -> Result<Known> {
        let mut file = File::open(at.join(name)).with_context(|| format!("opening {name}"))?;
        let facts = file.metadata()?;
        let mut sum = Sha256::new();
        let mut buffer = vec![0; 256 << 10];
        loop {
            match file
                .read(&mut buffer)
                .with_context(|| format!("reading {name}"))?
            {
                0 => break,
                read => sum.update(&buffer[..read]),
            }
        }
        Ok(Known {
            name: name.into(),
            size: facts.len(),
            mode: facts.mode(),
            mtime: (facts.mtime(), facts.mtime_nsec()),
            sum: sum.finalize().into(),
        })
    }

    /// It is what it was.
    pub fn check(&self, at: &Path) -> Result<()> {
        let now = Known::read(at, &self.name)?;
        ensure!(
            now.sum == self.sum,
            "{}: its contents are not what they were",
            self.name
        );
        ensure!(
            (now.size, now.mode, now.mtime) == (self.size, self.mode, self.mtime),
            "{}: its size, mode or time is not what it was: {now:?}, {self:?}",
            self.name
        );
        Ok(())
    }
}

/// The files of a case.
pub fn population(case: &Case, random: &mut Random) -> Vec<Planned> {
    let mut left = (case.size / SHARE).min(MOST);
    let mut files = Vec::new();
    while files.len() < FILES {
        let number = files.len();
        let size = match random.below(10) {
            // Shorter than a block, and with a tail in the last one.
            0 | 1 => 1 + random.below(700),
            2 | 3 => 4000 + random.below(9000),
            4..=6 => 16_000 + random.below(80_000),
            7 | 8 => 100_000 + random.below(300_000),
            _ => (1 << 20) + random.below(5 << 20),
        } as u64;
        if size > left {
            if left < 1 << 20 {
                break;
            }
            continue;
        }
        let form = match number % 11 {
            3 if size > 60_000 => Form::InPieces,
            7 if size > 60_000 => Form::Sparse,
            _ => Form::Whole,
        };
        left -= size;
        files.push(Planned {
            name: format!("{number:03}"),
            size,
            form,
            seed: random.bits(),
        });
    }
    files
}

/// What is in the files that were written.
pub fn known(at: &Path, planned: &[Planned]) -> Result<Vec<Known>> {
    planned.iter().map(|file| Known::read(at, &file.name)).collect()
}

/// Bytes that tell the file and the place.
pub fn contents(seed: u64, size: u64) -> Vec<u8> {
    let mut random = Random(seed);
    let words = (0..size.div_ceil(8)).flat_map(|_| random.bits().to_le_bytes());
    words.take(size as usize).collect()
}

/// Writes files, with room between them that [`fill`] takes away again in part.
pub fn write(at: &Path, files: &[Planned], case: &Case, random: &mut Random) -> Result<()> {
    fs::create_dir_all(at.join("fill"))?;
    let mut number = fs::read_dir(at.join("fill"))?.count();
    for planned in files {
        let path = at.join(&planned.name);
        let file = File::create(&path)?;
        // Some may be executed.
        if number % 5 == 0 {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        }
        let data = contents(planned.seed, planned.size);
        match planned.form {
            Form::Whole => {
                take(&file, planned.size)?;
                file.write_all_at(&data, 0)?;
            }
            Form::InPieces => {
                let half = data.len() / 2;
                file.write_all_at(&data[..half], 0)?;
                file.sync_data()?;
                filler(at, number, case, random)?;
                number += 1;
                file.write_all_at(&data[half..], half as u64)?;
                file.sync_data()?;
            }
            Form::Sparse => {
                let parts = data.chunks(64 << 10).enumerate();
                for (index, part) in parts.filter(|(index, _)| index % 3 != 1) {
                    file.write_all_at(part, (index as u64) * (64 << 10))?;
                }
                file.set_len(planned.size)?;
            }
        }
        // Allocated now, in this order.
        file.sync_data()?;
        for _ in 0..2 {
            filler(at, number, case, random)?;
            number += 1;
        }
    }
    Ok(())
}

/// Fills all that is left, and then frees by chance as much as the case wants: what is free is in pieces.
pub fn fill(at: &Path, case: &Case, random: &mut Random) -> Result<()> {
    let mut number = fs::read_dir(at.join("fill"))?.count();
    while filler(at, number, case, random)? {
        number += 1;
    }
    let mut names: Vec<_> = fs::read_dir(at.join("fill"))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    names.sort();
    loop {
        rustix::fs::sync();
        let facts = rustix::fs::statvfs(at)?;
        let used = facts.f_blocks - facts.f_bfree;
        if used * 100 <= facts.f_blocks * case.full || names.is_empty() {
            return Ok(());
        }
        // A hundredth of it at once.
        for _ in 0..(names.len() / 100).max(1) {
            if !names.is_empty() {
                fs::remove_file(names.swap_remove(random.below(names.len())))?;
            }
        }
    }
}

/// A file that takes room; false if there is none. Half of what would be full is left to the files that come.
fn filler(at: &Path, number: usize, case: &Case, random: &mut Random) -> Result<bool> {
    let size = case.size / 1600 + random.below((case.size / 250) as usize) as u64;
    let path = at.join("fill").join(format!("{number:05}"));
    let taken = take(&File::create(&path)?, size / PAGE * PAGE);
    if let Err(error) = taken {
        fs::remove_file(&path)?;
        return match error.raw_os_error() == Some(Errno::NOSPC.raw_os_error()) {
            true => Ok(false),
            false => Err(error.into()),
        };
    }
    Ok(true)
}

/// Room for so many bytes. Without extents there is no such call, and they are written.
fn take(file: &File, size: u64) -> std::io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, size) {
        Err(Errno::OPNOTSUPP) => {}
        other => return Ok(other?),
    }
    let zeros = [0; 64 << 10];
    let mut at = 0;
    while at < size {
        let most = (size - at).min(zeros.len() as u64) as usize;
        file.write_all_at(&zeros[..most], at)?;
        at += most as u64;
    }
    file.sync_data()
}
