//! Files that others use while they move: none of them sees a wrong byte or an error, and in the end every
//! file has what was written last.

use super::stress::Stress;
use super::{Case, Image, SHAPES, Use, apply, arrange, learn};
use anyhow::{Context, Result, bail, ensure};
use headstart_bench::statistics::Random;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Programs that are executed, and directories in which files are written.
const PROGRAMS: usize = 12;
const WRITERS: u64 = 3;
/// They leave the device free for most of the time: else `layout apply` stands back for them. The movers of
/// `swaps` do not.
const PAUSE: Duration = Duration::from_millis(100);

/// Maps files, some for long, and compares and writes through its mappings, until its standard input ends.
/// Prints how often.
const MAPPER: &str = r#"
import mmap, os, select, sys
read, written = sys.argv[1].split(":"), sys.argv[2]
expected = {name: open(name, "rb").read() for name in read}
def mapped(name):
    file = open(name, "rb")
    return mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
long = {name: mapped(name) for name in read[::2]}
own = open(written, "w+b")
own.truncate(1 << 20)
own.write(b"\0" * (1 << 20)); own.flush(); os.fsync(own.fileno())
view, model, rounds = mmap.mmap(own.fileno(), 1 << 20), bytearray(1 << 20), 0
while not select.select([sys.stdin], [], [], 0)[0]:
    for name in read:
        if (long.get(name) or mapped(name))[:] != expected[name]:
            sys.exit(f"{name}: a mapping has other bytes")
    for number in range(200):
        at = (rounds * 7919 + number * 5003) % ((1 << 20) - 100)
        data = bytes((rounds + number + i) % 251 for i in range(100))
        view[at:at + 100] = data
        model[at:at + 100] = data
    if os.pread(own.fileno(), 1 << 20, 0) != model:
        sys.exit("what was written by a mapping is not read")
    if rounds % 3 == 0:
        view.flush()
    rounds += 1
view.flush()
if open(written, "rb").read() != model:
    sys.exit("what was written by a mapping is not there in the end")
print(rounds)
"#;

/// Ends the others also when one fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// For so long. Returns what was done.
pub fn run(long: Duration, seed: u64) -> Result<String> {
    let case = Case {
        size: 1 << 30,
        full: 50,
        shape: &SHAPES[0],
        seed,
    };
    let mut image = Image::new(&case)?;
    let at = image.mount_point();
    let programs = programs(&at)?;
    let mut stress = (0..WRITERS)
        .map(|number| Stress::new(&at.join(format!("writer{number}")), seed + number))
        .collect::<Result<Vec<_>>>()?;
    let mut mapper = Mapper::start(&image, &at.join("mapped"))?;
    let done = AtomicBool::new(false);
    let told = std::thread::scope(|scope| -> Result<String> {
        let mover = scope.spawn(|| -> Result<(u64, u64)> {
            let _end = End(&done);
            moves(&at, image.state(), long, seed)
        });
        let readers: Vec<_> = [0, 1]
            .map(|_| scope.spawn(|| until(&done, || image.files.iter().try_for_each(|file| file.check(&at)))))
            .into();
        let executor = scope.spawn(|| until(&done, || programs.iter().try_for_each(|path| execute(path))));
        let writers: Vec<_> = stress
            .iter_mut()
            .map(|stress| {
                scope.spawn(|| {
                    until(&done, || {
                        std::thread::sleep(PAUSE);
                        stress.step()
                    })
                })
            })
            .collect();
        let mut read = 0;
        for reader in readers {
            read += join(reader).context("a reader")?;
        }
        let executed = join(executor).context("who executes")?;
        let mut written = 0;
        for writer in writers {
            written += join(writer).context("a writer")?;
        }
        let mapped = mapper.end()?;
        let (rounds, files) = match mover.join() {
            Ok(moved) => moved.context("the mover")?,
            Err(_) => bail!("the mover panicked"),
        };
        ensure!(files > 0 && read > 0 && executed > 0 && written > 0 && mapped > 0);
        Ok(format!(
            "{rounds} times layout apply moved {files} files; meanwhile all were read {read} times and compared through mappings {mapped} times, {PROGRAMS} programs executed \
             {executed} times each, {written} things done to files that are written, truncated, renamed, punched and removed; no wrong byte, no error"
        ))
    })?;
    for stress in &stress {
        stress.check()?;
    }
    image.fs.check().context("e2fsck -fn")?;
    for stress in &stress {
        stress.check().context("read from the device")?;
    }
    for file in &image.files {
        file.check(&at)?;
    }
    Ok(told)
}

/// Does something until the others are done; how often.
fn until(done: &AtomicBool, mut step: impl FnMut() -> Result<()>) -> Result<u64> {
    let _end = End(done);
    let mut rounds = 0;
    while !done.load(Ordering::Relaxed) {
        step()?;
        rounds += 1;
    }
    Ok(rounds)
}

fn join(thread: std::thread::ScopedJoinHandle<Result<u64>>) -> Result<u64> {
    match thread.join() {
        Ok(result) => result,
        Err(_) => bail!("it panicked"),
    }
}

/// Moves all files that there are, as they are then, again and again; how often, and how many files.
fn moves(at: &Path, state: &Path, long: Duration, seed: u64) -> Result<(u64, u64)> {
    let (begun, mut random) = (Instant::now(), Random(seed));
    let (mut rounds, mut files) = (0, 0);
    while begun.elapsed() < long {
        let mut paths = Vec::new();
        for name in fs::read_dir(at)? {
            let path = name?.path();
            match path.is_dir() {
                true if path.ends_with("fill") || path.ends_with("lost+found") => {}
                true => paths.extend(fs::read_dir(path)?.flatten().map(|entry| entry.path())),
                false => paths.push(path),
            }
        }
        // They may be gone at any moment.
        paths.retain(|path| path.exists());
        if arrange(&mut paths, Use::Random, &mut random).is_err() {
            continue;
        }
        learn(state, &paths)?;
        let said = apply(state)?;
        ensure!(said.state == "complete", "{said:?}");
        rounds += 1;
        files += said.files;
    }
    Ok((rounds, files))
}

/// Copies of a program.
fn programs(at: &Path) -> Result<Vec<PathBuf>> {
    let mut programs = Vec::new();
    for number in 0..PROGRAMS {
        let path = at.join(format!("program{number}"));
        match number % 3 {
            // A script is opened by exec itself.
            0 => fs::write(&path, format!("#!/bin/sh\necho $1\n# {}\n", "x".repeat(9000)))?,
            _ => drop(fs::copy("/bin/echo", &path)?),
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        programs.push(path);
    }
    rustix::fs::sync();
    Ok(programs)
}

fn execute(path: &Path) -> Result<()> {
    let output = Command::new(path).arg("word").output();
    let output = output.with_context(|| format!("executing {}", path.display()))?;
    ensure!(
        output.status.success() && output.stdout == b"word\n",
        "{}: {output:?}",
        path.display()
    );
    Ok(())
}

/// See [`MAPPER`].
struct Mapper(Option<Child>);

impl Mapper {
    fn start(image: &Image, own: &Path) -> Result<Mapper> {
        let names: Vec<String> = image
            .files
            .iter()
            .step_by(4)
            .map(|file| {
                image
                    .mount_point()
                    .join(&file.name)
                    .to_string_lossy()
                    .into_owned()
            })
            .collect();
        let child = Command::new("python3")
            .args(["-c", MAPPER, &names.join(":")])
            .arg(own)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("starting python3")?;
        Ok(Mapper(Some(child)))
    }

    /// How often it compared all.
    fn end(&mut self) -> Result<u64> {
        let mut child = self.0.take().context("the mapper runs")?;
        if let Some(mut input) = child.stdin.take() {
            // Where it has ended already, its words tell why.
            let _ = input.write_all(b"\n");
        }
        let output = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "a mapper: {}", said.trim());
        Ok(String::from_utf8_lossy(&output.stdout).trim().parse()?)
    }
}

impl Drop for Mapper {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
