//! The boot-failure guard outlives power cuts, and takes no more of a boot than it must.

use anyhow::Result;
use headstart_acceptance::{guard_cuts, long};

#[test]
fn after_a_power_cut_no_boot_is_served_that_the_guard_forbids() -> Result<()> {
    println!("{}", guard_cuts::run(if long() { 100 } else { 20 }, 1)?);
    Ok(())
}

#[test]
fn a_guard_is_taken_by_one_write_and_one_flush() -> Result<()> {
    let [with_device, without] = guard_cuts::requests()?;
    println!("writes and flushes: {with_device:?}, without the device {without:?}");
    assert_eq!(with_device, (1, 1));
    assert!(without.0 > 1, "the journal's: {without:?}");
    Ok(())
}
