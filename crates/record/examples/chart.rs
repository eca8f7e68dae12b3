//! What recording activity costs beside recording: `cargo run --release -p headstart-record --example chart -- [TURNS] CMD [ARG…]`
//! (as root). Starts the command in turns without a recorder, with one, and with one that records activity, in memory, and
//! prints of each step the median with its quartiles, and of the differences between neighbours of a turn.

mod common;

use common::print;
use headstart_model::trace::EndReason;
use headstart_record::{BackendChoice, Options, Recorder};
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

type Failure = Box<dyn std::error::Error>;

/// Milliseconds of the steps of a recording.
struct Took {
    attach: f64,
    command: f64,
    /// Time of processors that the command used.
    cpu: f64,
    finish: f64,
}

fn main() -> Result<(), Failure> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let turns = match words.first().and_then(|word| word.parse().ok()) {
        Some(turns) => {
            words.remove(0);
            turns
        }
        None => 30,
    };
    if words.is_empty() {
        return Err("which command shall be started?".into());
    }
    // Into memory.
    once(&words, None)?;
    let (mut bare, mut plain, mut chart) = (Vec::new(), Vec::new(), Vec::new());
    for turn in 0..turns {
        // Each comes first as often as the others.
        for step in 0..3 {
            match (step + turn) % 3 {
                0 => bare.push(once(&words, None)?.0),
                1 => plain.push(once(&words, Some(false))?.0),
                _ => {
                    let (took, told) = once(&words, Some(true))?;
                    if turn == 0 {
                        println!("{told}");
                    }
                    chart.push(took);
                }
            }
        }
    }
    print(
        "command, without a recorder",
        "ms",
        bare.iter().map(|it| it.command),
    );
    print("its CPU time", "ms", bare.iter().map(|it| it.cpu));
    for (name, all) in [("record", &plain), ("record --chart", &chart)] {
        print(&format!("{name}: attach"), "ms", all.iter().map(|it| it.attach));
        print(&format!("{name}: command"), "ms", all.iter().map(|it| it.command));
        print(
            &format!("{name}: its CPU time"),
            "ms",
            all.iter().map(|it| it.cpu),
        );
        print(&format!("{name}: finish"), "ms", all.iter().map(|it| it.finish));
    }
    let more = |what: &str, of: fn(&Took) -> f64| {
        let pairs = || plain.iter().zip(&chart);
        let share = pairs().map(|(plain, chart)| (of(chart) / of(plain) - 1.0) * 100.0);
        print(&format!("chart costs more: {what}"), "%", share);
    };
    more("command", |it| it.command);
    more("its CPU time", |it| it.cpu);
    more("all of it", |it| it.attach + it.command + it.finish);
    Ok(())
}

/// Starts the command once; what a recording of its activity holds is told.
fn once(words: &[String], activity: Option<bool>) -> Result<(Took, String), Failure> {
    let begun = Instant::now();
    let mut recorder = match activity {
        Some(activity) => Some(Recorder::start(&Options {
            backend: BackendChoice::Bpf,
            activity,
            ..Options::tree(words.to_vec())
        })?),
        None => None,
    };
    let attach = begun.elapsed();
    // The shell waits for a line, so that it is known before the command is executed.
    let mut child: Child = Command::new("/bin/sh")
        .args(["-c", "read line; exec \"$@\"", "sh"])
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    if let Some(recorder) = &mut recorder {
        recorder.add_root(child.id())?;
    }
    let mut line = child.stdin.take().ok_or("no standard input")?;
    let (begun, used) = (Instant::now(), cpu_ms());
    line.write_all(b"\n")?;
    drop(line);
    child.wait()?;
    let (command, cpu) = (begun.elapsed(), cpu_ms() - used);
    let begun = Instant::now();
    let mut told = String::new();
    if let Some(recorder) = recorder {
        let trace = recorder.finish(EndReason::Exit(0))?;
        let bytes = trace.to_bytes()?.len();
        if let Some(it) = &trace.activity {
            told = format!(
                "{} uses, {} look-ups, {} block requests, {} slices, {} lost; {bytes} bytes",
                trace.uses.len(),
                trace.lookups.len(),
                it.requests.len(),
                it.slices.len(),
                it.lost
            );
        }
    }
    let finish = begun.elapsed();
    // Detaching goes on in the background; it is nobody's cost here.
    std::thread::sleep(std::time::Duration::from_millis(50));
    let ms = |took: std::time::Duration| took.as_secs_f64() * 1e3;
    let took = Took {
        attach: ms(attach),
        command: ms(command),
        cpu,
        finish: ms(finish),
    };
    Ok((took, told))
}

/// Milliseconds that children that have ended used.
fn cpu_ms() -> f64 {
    // SAFETY: zeros are a structure of numbers, which the call fills.
    let used = unsafe {
        let mut used: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut used);
        used
    };
    let ms = |time: libc::timeval| time.tv_sec as f64 * 1e3 + time.tv_usec as f64 / 1e3;
    ms(used.ru_utime) + ms(used.ru_stime)
}
