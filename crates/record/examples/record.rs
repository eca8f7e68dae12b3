//! Records a command and prints what was seen, for a look at the recorder by itself:
//! `cargo run -p headstart-record --example record -- [--system] [--bpf|--tracefs] CMD [ARG…]`

use headstart_record::{BackendChoice, Options, Recorder};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut take = |name: &str| {
        arguments
            .first()
            .is_some_and(|a| a == name)
            .then(|| arguments.remove(0))
            .is_some()
    };
    let (system, tracefs, bpf) = (take("--system"), take("--tracefs"), take("--bpf"));
    let mut options = if system {
        Options::system()
    } else {
        Options::tree(arguments.clone())
    };
    options.backend = match (tracefs, bpf) {
        (true, _) => BackendChoice::Tracefs,
        (_, true) => BackendChoice::Bpf,
        _ => BackendChoice::Auto,
    };
    let begun = Instant::now();
    let mut recorder = Recorder::start(&options)?;
    eprintln!(
        "attached in {:?}: {:?}, {:?}",
        begun.elapsed(),
        recorder.backend(),
        recorder.evidence()
    );
    // The shell waits for a line, so that it is known before the command is executed.
    let mut child = Command::new("/bin/sh")
        .args(["-c", "read line; exec \"$@\"", "sh"])
        .args(&arguments)
        .stdin(Stdio::piped())
        .spawn()?;
    recorder.add_root(child.id())?;
    std::io::Write::write_all(&mut child.stdin.take().ok_or("no stdin")?, b"\n")?;
    let reason = recorder.run_until(&AtomicBool::new(false), None, || {
        child.try_wait().ok().flatten().map(ExitStatusExt::into_raw)
    });
    let begun = Instant::now();
    let trace = recorder.finish(reason)?;
    eprintln!("finished in {:?}", begun.elapsed());
    println!("{:#?}", trace.meta);
    println!("{:?} {:?}", trace.end, trace.lost);
    for (i, p) in trace.processes.iter().enumerate() {
        println!(
            "process {i}: pid {} parent {:?} at {} {}",
            p.pid, p.parent, p.start_ns, p.executable
        );
    }
    for f in &trace.filesystems {
        println!("{f:?}");
    }
    for (i, f) in trace.files.iter().enumerate() {
        let uses = trace.uses.iter().filter(|u| u.file == i as u32);
        let pages: u64 = uses.map(|u| u64::from(u.pages)).sum();
        println!(
            "{} {:?} overlay {:?} inode {} generation {} size {} {:o} {:?}: {pages} pages",
            f.path, f.filesystem, f.overlay, f.inode, f.generation, f.size, f.mode, f.state
        );
    }
    for l in &trace.lookups {
        println!(
            "{:?} {} {}",
            l.kind,
            if l.found { "found" } else { "missing" },
            l.path
        );
    }
    println!(
        "{} uses, {} look-ups, {} metadata misses",
        trace.uses.len(),
        trace.lookups.len(),
        trace.metadata.len()
    );
    Ok(())
}
