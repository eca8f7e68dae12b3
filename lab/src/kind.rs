//! Kinds of machines, and the marks that each tells by itself: what recipes and experiments say of a machine
//! before there is one.

use serde::{Deserialize, Serialize};

/// The mark at which a container's process 1 is executed.
pub(crate) const ROOT: &str = "root";

/// The mark at which a container's service manager says `READY=1`, see sd_notify(3).
pub(crate) const READY: &str = "ready";

/// The mark at which kernel and initramfs of a virtual machine are in memory.
pub(crate) const LOADED: &str = "loaded";

/// What kind of machine an experiment runs on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// One program in an image, on the running kernel.
    #[default]
    Chroot,
    /// A Debian root booted by systemd-nspawn, on the running kernel.
    Container,
    /// A Debian system booted in QEMU, with its own kernel.
    Vm,
}

impl Kind {
    /// The name in experiments.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Chroot => "chroot",
            Kind::Container => "container",
            Kind::Vm => "vm",
        }
    }

    /// The marks that every machine of this kind tells, whatever its recipe says.
    pub(crate) fn marks(self) -> &'static [&'static str] {
        match self {
            Kind::Chroot => &[],
            Kind::Container => &[ROOT, READY],
            Kind::Vm => &[LOADED],
        }
    }
}
