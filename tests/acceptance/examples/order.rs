//! Which functions of headstart a start needs that is read ahead, in the order of their first use, as the
//! linker is told them (`crates/headstart/order.ld`): what is used together lies together, and comes in one
//! piece.
//!
//! `HEADSTART_BIN=PROGRAM cargo run --release -p headstart-acceptance --example order -- USED MAP >order.ld`
//!
//! PROGRAM is a static build that has its symbols, MAP what the linker has told of it, and USED the example
//! of headstart-system that finds out what is used; `make order` makes all three. Names of functions end with
//! numbers that each compiler makes anew: those are left out, so another compiler's functions are found as
//! well. What is not found lies with the rest, and is a read more.

use anyhow::{Context, Result, bail};
use headstart_acceptance::Case;
use headstart_acceptance::boots::Boots;
use headstart_lab::image::Fs;
use headstart_lab::paths;
use headstart_lab::registry::Registry;
use std::collections::HashSet;
use std::fs;
use std::path::Path;

/// One of each class of device: what is replayed otherwise uses other functions. After so many starts on it
/// the next is recorded, too, or is only read ahead (decision 54).
const DISKS: [(&str, usize); 4] = [("disk7200", 2), ("flash4ms", 3), ("cloud", 2), ("lazy", 3)];
/// It reads enough for each of them.
const WORKLOAD: &str = "python";
/// After so many boots the next is read ahead and recorded, and read ahead alone.
const BOOTS: [usize; 2] = [2, 3];
/// A boot has begun, and reads ahead, within so many seconds, also with a breakpoint at each function.
const BEGINNING: u32 = 20;
/// The programs that it records run from so many seconds on.
const PROGRAMS_AFTER: u32 = 8;

/// What other machines use: in a container whose control group counts no processor time, this does.
const ELSEWHERE: [&str; 1] = ["headstart_record3cpu11total_ticks17h"];

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(tracer), Some(map)) = (arguments.next(), arguments.next()) else {
        bail!("usage: order USED MAP");
    };
    let sections = sections(&fs::read_to_string(&map).context(map)?);
    println!(
        "/* Made by `make order`: what a start that is read ahead uses of headstart, in the order of its first use. */"
    );
    let _alone = paths::lock()?;
    let starts = DISKS
        .iter()
        .map(|(disk, learned)| by_program(&tracer, disk, *learned));
    let mut seen = HashSet::new();
    for used in starts.chain(BOOTS.iter().map(|boots| by_boot(&tracer, *boots))) {
        for address in used? {
            let at = sections.partition_point(|section| section.address <= address);
            let Some(section) = at.checked_sub(1).and_then(|at| sections.get(at)) else {
                continue;
            };
            if address < section.address + section.size && seen.insert(&section.pattern) {
                println!("{}", section.pattern);
            }
        }
    }
    for name in ELSEWHERE {
        let section = sections.iter().find(|section| section.pattern.contains(name));
        let section = section.with_context(|| format!("no function {name}: correct ELSEWHERE"))?;
        if seen.insert(&section.pattern) {
            println!("{}", section.pattern);
        }
    }
    Ok(())
}

/// Where the functions are that a program's cold start uses from this disk, in the order of their first use.
fn by_program(tracer: &str, disk: &str, learned: usize) -> Result<Vec<u64>> {
    let mut case = Case::on(disk, WORKLOAD, Fs::Ext4)?;
    let options = ["--control-every", "0"];
    for _ in 0..learned {
        case.run_cold(&options)?;
    }
    let file = tempfile::NamedTempFile::new()?;
    let mut line = vec![tracer.to_owned(), file.path().to_string_lossy().into_owned()];
    // As a user calls it, who does not wait until all is learned.
    line.extend(
        case.run_line(&options)?
            .into_iter()
            .filter(|word| word != "--wait"),
    );
    let _mounted = case.cold(&line)?;
    addresses(file.path())
}

/// The same of a boot's beginning: in the root of a container that has booted so often, not in the place of
/// process 1. Meanwhile programs run there, for what records them is needed before the replay is over: a
/// page of it that is read amid the replay costs a disk two jumps.
fn by_boot(tracer: &str, times: usize) -> Result<Vec<u64>> {
    let registry = Registry::open(&paths::base()?)?;
    let mut boots = Boots::new("container", "none", &registry)?;
    boots.setup.init = Some("/usr/sbin/headstart-init".into());
    for _ in 0..times {
        boots.boot()?;
    }
    boots.unconfigure()?;
    let addresses_file = tempfile::NamedTempFile::new()?;
    let file = addresses_file.path().display();
    boots.shell(&format!(
        "cat >$0.sh <<'END'\nmount -t tmpfs run $1/run; mkfifo $1/run/word; exec 3<>$1/run/word\n\
         {{ sleep {PROGRAMS_AFTER}; exec chroot $1 sh -c 'ls -lR /usr /etc; cat /usr/bin/* /usr/lib/*/*'; }} >/dev/null 2>&1 3>&- &\n\
         exec {tracer} --root $1 --seconds {BEGINNING} {file} /usr/bin/headstart boot run --init 3 --began 1\nEND\n\
         unshare --mount sh -e $0.sh $R"
    ))?;
    addresses(addresses_file.path())
}

fn addresses(file: &Path) -> Result<Vec<u64>> {
    let text = fs::read_to_string(file)?;
    let address = |line: &str| u64::from_str_radix(line, 16).context("an address");
    text.lines().map(address).collect()
}

/// What lies before all else.
const FIRST: &str = ".text.headstart_first";

/// A piece of the program's text, as it came from the compiler.
struct Section {
    address: u64,
    size: u64,
    /// What a linker script calls it, and those like it.
    pattern: String,
}

/// The pieces of the text, by address. A line of a map has a name, an address, a size and a file; a long name
/// has a line of its own.
fn sections(map: &str) -> Vec<Section> {
    let number = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    let mut sections = Vec::new();
    let mut name = "";
    for line in map.lines() {
        let mut words = line.split_whitespace();
        if line.starts_with(" .text") {
            name = words.next().unwrap_or_default();
        }
        let mut place = || words.next().and_then(number).filter(|number| *number > 0);
        if let (false, Some(address), Some(size)) = (["", FIRST].contains(&name), place(), place()) {
            let pattern = pattern(name, words.next().unwrap_or_default());
            sections.push(Section {
                address,
                size,
                pattern,
            });
        }
        if line.split_whitespace().count() != 1 {
            name = "";
        }
    }
    sections.sort_by_key(|section| section.address);
    sections
}

/// How a linker script names a piece: one of Rust by the name of its function, one of C by its file in its
/// archive, too.
fn pattern(name: &str, file: &str) -> String {
    let file = file.rsplit('/').next().unwrap_or(file);
    if file.trim_end_matches(')').ends_with(".rcgu.o") {
        // Of several with one name all but one have a number.
        return match without_numbers(name) {
            name if name.ends_with('*') => format!("*({name})"),
            name => format!("*({name} {name}.*)"),
        };
    }
    match file.strip_suffix(')').and_then(|file| file.split_once('(')) {
        Some((archive, member)) => format!("*{}:{}({name})", without_version(archive), without_hash(member)),
        None => format!("*{}({name})", without_hash(file)),
    }
}

/// A mangled name with `*` for the hash at its end (`17h…E`), or for those of its crates (`Cs…_`), and
/// without a number behind it.
fn without_numbers(name: &str) -> String {
    if let Some((name, _)) = name.rsplit_once("17h").filter(|_| name.contains("._ZN")) {
        return format!("{name}17h*");
    }
    let numbered = name
        .rsplit_once('.')
        .filter(|(_, end)| end.bytes().all(|byte| byte.is_ascii_digit()));
    let name = numbered.map_or(name, |(name, _)| name);
    if !name.contains("._R") {
        return name.to_owned();
    }
    let mut parts = name.split("Cs");
    let mut name = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part
            .split_once('_')
            .filter(|(hash, _)| hash.chars().all(|c| c.is_ascii_alphanumeric()))
        {
            Some((_, rest)) => name.push_str(&format!("Cs*_{rest}")),
            None => name.push_str(&format!("Cs{part}")),
        }
    }
    name
}

/// The name of an archive with `*` for its version, or its hash.
fn without_version(archive: &str) -> String {
    let name = archive.split_once('-').map(|(name, _)| name);
    let ending = archive.rsplit_once('.').map(|(_, ending)| ending);
    match (name, ending) {
        (Some(name), Some(ending)) => format!("{name}-*.{ending}"),
        _ => archive.to_owned(),
    }
}

/// The name of a file with `*` for a hash of sixteen digits.
fn without_hash(file: &str) -> String {
    let is_hash = |part: &str| part.len() == 16 && part.chars().all(|c| c.is_ascii_hexdigit());
    let parts = file.split_inclusive(['-', '.']);
    parts
        .map(|part| match is_hash(part.trim_end_matches(['-', '.'])) {
            true => format!("*{}", &part[16..]),
            false => part.to_owned(),
        })
        .collect()
}
