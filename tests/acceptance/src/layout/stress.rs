//! Others who use files while they move, and know what must be in them: in the manner of fsstress, one
//! thread, a directory of its own.

use super::files::contents;
use anyhow::{Context, Result, ensure};
use headstart_bench::statistics::Random;
use rustix::fs::{FallocateFlags, OFlags};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Direct I/O needs places and lengths of so many bytes.
const BLOCK: usize = 4096;
const FILES: usize = 24;
const LARGEST: usize = 600_000;

/// A directory, and what is in its files.
pub struct Stress {
    at: PathBuf,
    random: Random,
    files: BTreeMap<String, Vec<u8>>,
    made: usize,
    /// So many things were done.
    pub done: u64,
}

impl Stress {
    pub fn new(at: &Path, seed: u64) -> Result<Stress> {
        fs::create_dir_all(at)?;
        Ok(Stress {
            at: at.into(),
            random: Random(seed),
            files: BTreeMap::new(),
            made: 0,
            done: 0,
        })
    }

    /// Does one thing.
    pub fn step(&mut self) -> Result<()> {
        self.done += 1;
        let Some(name) = self.any() else {
            return self.make();
        };
        let what = self.random.below(12);
        self.act(what, &name)
            .with_context(|| format!("{} {name}, step {} ({what})", self.at.display(), self.done))
    }

    /// Every file is what it should be.
    pub fn check(&self) -> Result<()> {
        for (name, expected) in &self.files {
            let bytes = fs::read(self.at.join(name))?;
            same(&bytes, expected).with_context(|| format!("{}/{name}", self.at.display()))?;
        }
        let names = fs::read_dir(&self.at)?.count();
        ensure!(
            names == self.files.len(),
            "{names} files, not {}",
            self.files.len()
        );
        Ok(())
    }

    fn any(&mut self) -> Option<String> {
        let number = self.random.below(self.files.len().max(1));
        self.files.keys().nth(number).cloned()
    }

    fn name(&mut self) -> String {
        self.made += 1;
        format!("f{:06}", self.made)
    }

    fn data(&mut self, most: usize) -> Vec<u8> {
        let (seed, size) = (self.random.bits(), 1 + self.random.below(most));
        contents(seed, size as u64)
    }

    fn make(&mut self) -> Result<()> {
        let (name, data) = (self.name(), self.data(LARGEST / 2));
        fs::write(self.at.join(&name), &data)?;
        self.files.insert(name, data);
        Ok(())
    }

    fn act(&mut self, what: usize, name: &str) -> Result<()> {
        let path = self.at.join(name);
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        let size = self.files[name].len();
        match what {
            0 if self.files.len() < FILES => self.make()?,
            1 if self.files.len() > FILES / 2 => {
                fs::remove_file(&path)?;
                self.files.remove(name);
            }
            2 => {
                let to = self.name();
                fs::rename(&path, self.at.join(&to))?;
                let data = self.files.remove(name).context("its model")?;
                self.files.insert(to, data);
            }
            3 => {
                let length = self.random.below(LARGEST);
                file.set_len(length as u64)?;
                self.model(name)?.resize(length, 0);
            }
            // In place, or on its end.
            4 | 5 => {
                let (data, at) = (self.data(60_000), self.random.below(size + 1));
                file.write_all_at(&data, at as u64)?;
                put(self.model(name)?, at, &data);
            }
            6 | 7 => {
                let mut blocks = Blocks::new(1 + self.random.below(16));
                let at = self.random.below(size / BLOCK + 1) * BLOCK;
                let data = contents(self.random.bits(), blocks.length as u64);
                blocks.bytes().copy_from_slice(&data);
                let file = direct(&path)?;
                file.write_all_at(blocks.bytes(), at as u64)?;
                put(self.model(name)?, at, blocks.bytes());
            }
            8 if size > 0 => {
                let at = self.random.below(size);
                let length = 1 + self.random.below(100_000).min(size - at - 1);
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(&file, flags, at as u64, length as u64)?;
                self.model(name)?[at..at + length].fill(0);
            }
            9 => file.sync_data()?,
            10 => {
                let mut blocks = Blocks::new(size.div_ceil(BLOCK).max(1));
                let read = direct(&path)?.read_at(blocks.bytes(), 0)?;
                same(&blocks.bytes()[..read], &self.files[name][..read]).context("read past the cache")?;
                ensure!(read == size, "{read} of {size} bytes were read past the cache");
            }
            _ => same(&fs::read(&path)?, &self.files[name])?,
        }
        Ok(())
    }

    fn model(&mut self, name: &str) -> Result<&mut Vec<u8>> {
        self.files.get_mut(name).context("its model")
    }
}

fn put(model: &mut Vec<u8>, at: usize, data: &[u8]) {
    model.resize(model.len().max(at + data.len()), 0);
    model[at..at + data.len()].copy_from_slice(data);
}

fn same(found: &[u8], expected: &[u8]) -> Result<()> {
    ensure!(
        found.len() == expected.len(),
        "{} bytes, not {}",
        found.len(),
        expected.len()
    );
    let wrong = found.iter().zip(expected).position(|(a, b)| a != b);
    ensure!(wrong.is_none(), "byte {} is wrong", wrong.unwrap_or_default());
    Ok(())
}

fn direct(path: &Path) -> Result<File> {
    let flags = OFlags::DIRECT.bits() as i32;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(flags)
        .open(path);
    file.with_context(|| format!("opening {} past the cache", path.display()))
}

/// Memory that direct I/O takes.
struct Blocks {
    memory: Vec<u8>,
    from: usize,
    length: usize,
}

impl Blocks {
    fn new(blocks: usize) -> Blocks {
        let length = blocks * BLOCK;
        let memory = vec![0; length + BLOCK];
        let from = memory.as_ptr().align_offset(BLOCK);
        Blocks { memory, from, length }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.from..self.from + self.length]
    }
}
