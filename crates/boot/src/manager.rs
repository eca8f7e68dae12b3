//! What systemd knows of this boot: when it finished, and when its units became active.

use crate::bus::{Bus, Value};
use std::io;
use std::os::fd::BorrowedFd;

const MANAGER: &str = "/org/freedesktop/systemd1";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";

/// systemd, process 1.
pub struct Manager(Bus);

impl Manager {
    /// Connects to it.
    pub fn connect() -> io::Result<Manager> {
        Bus::connect().map(Manager)
    }

    /// Readable when something has changed: on a connection of its own systemd tells of each unit, whoever
    /// asked.
    pub fn changes(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn number(&mut self, path: &str, interface: &str, property: &str) -> io::Result<u64> {
        match self.0.call(path, PROPERTIES, "Get", &[interface, property])? {
            Ok(Value::Number(number)) => Ok(number),
            Ok(Value::Text(_)) => Err(io::Error::other(format!("{property} is no number"))),
            Err(why) => Err(io::Error::other(format!("{property}: {why}"))),
        }
    }

    fn manager_number(&mut self, property: &str) -> io::Result<u64> {
        self.number(MANAGER, "org.freedesktop.systemd1.Manager", property)
    }

    /// When all that was to be started at boot had started or failed, nanoseconds of CLOCK_MONOTONIC; `None`
    /// before.
    pub fn finished_ns(&mut self) -> io::Result<Option<u64>> {
        Ok(Some(self.manager_number("FinishTimestampMonotonic")?)
            .filter(|us| *us > 0)
            .map(|us| us * 1000))
    }

    /// Whether it shuts the machine down; before 2020 only once it had finished.
    pub fn is_stopping(&mut self) -> io::Result<bool> {
        let manager = "org.freedesktop.systemd1.Manager";
        let state = self
            .0
            .call(MANAGER, PROPERTIES, "Get", &[manager, "SystemState"])?;
        Ok(state == Ok(Value::Text("stopping".into())))
    }

    /// When process 1 began, nanoseconds of CLOCK_MONOTONIC; after an initramfs, the second one.
    pub fn began_ns(&mut self) -> io::Result<u64> {
        Ok(self.manager_number("UserspaceTimestampMonotonic")? * 1000)
    }

    /// When a unit became active, nanoseconds of CLOCK_MONOTONIC; `None` if it is not loaded or never was.
    pub fn active_ns(&mut self, unit: &str) -> io::Result<Option<u64>> {
        // A property asked for by path would load the unit from disk.
        let Ok(Value::Text(path)) =
            self.0
                .call(MANAGER, "org.freedesktop.systemd1.Manager", "GetUnit", &[unit])?
        else {
            return Ok(None);
        };
        let unit = "org.freedesktop.systemd1.Unit";
        let us = self.number(&path, unit, "ActiveEnterTimestampMonotonic")?;
        Ok(Some(us).filter(|us| *us > 0).map(|us| us * 1000))
    }
}
