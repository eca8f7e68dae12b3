//! What a trace of a real start takes on disk.

use anyhow::Result;
use headstart_acceptance::Case;
use headstart_lab::image::Fs;
use headstart_model::Trace;

#[test]
fn a_trace_takes_at_most_two_bytes_an_event() -> Result<()> {
    let mut case = Case::new("libreoffice", Fs::Ext4)?;
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("start.trace");
    let mut line = case.headstart(&["record", "-o", &file.to_string_lossy(), "--"])?;
    line.extend(case.machine.program());
    let (_, mounted) = case.cold(&line)?;
    case.machine.check_product()?;
    drop(mounted);

    let bytes = std::fs::read(&file)?;
    let trace = Trace::from_bytes(&bytes)?;
    assert_eq!(trace.unfit(), None);
    let (events, kept) = (trace.end.events, trace.kept() as u64);
    let each = |rows: u64| bytes.len() as f64 / rows as f64;
    println!(
        "{} bytes: {:.2} for each of {events} events received, {:.2} for each of {kept} entries kept",
        bytes.len(),
        each(events),
        each(kept)
    );
    // A start of this size: fewer would be a recorder that missed most of it, and each would cost more.
    assert!(kept > 3000 && kept < events, "{kept} kept of {events}");
    assert!(each(events) <= 2.0);
    // Each entry says who used which pages of what and when.
    assert!(each(kept) <= 2.75);
    Ok(())
}
