//! What a device probably costs, from what it says of itself.

use super::DeviceFacts;
use headstart_model::machine::{Cost, DeviceClass};

/// A guess at a device's class, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guess {
    /// The class.
    pub class: DeviceClass,
    /// Whether the device itself said so; if not, measure it.
    pub told: bool,
    /// What the guess rests on.
    pub reason: String,
}

/// What devices of a class commonly cost, where nothing was measured.
///
/// Disk: a 7200 rpm disk's half turn (4.2 ms) and a short seek. Flash: a SATA SSD. Network: a cloud volume, 1
/// Gbit/s.
pub fn default_cost(class: DeviceClass) -> Cost {
    match class {
        DeviceClass::Disk => Cost {
            class,
            bandwidth: 120e6,
            latency: 5e-3,
            depth: 1,
        },
        DeviceClass::Flash => Cost {
            class,
            bandwidth: 500e6,
            latency: 100e-6,
            depth: 32,
        },
        DeviceClass::Network => Cost {
            class,
            bandwidth: 125e6,
            latency: 1e-3,
            depth: 16,
        },
    }
}

impl DeviceFacts {
    /// The class that name, buses, model and the rotational flag suggest.
    pub fn guess(&self) -> Guess {
        let guess = |class, told, reason: String| Guess { class, told, reason };
        let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| self.disk.starts_with(prefix));
        let bus = self.sysfs.to_string_lossy();
        // Volumes that look like local NVMe or SCSI disks but are not; their makers give them these model
        // names.
        const VOLUMES: &[&str] = &[
            "Amazon Elastic Block Store",
            "nvme_card-pd",
            "PersistentDisk",
            "Msft Virtual Disk",
        ];
        if starts(&["nbd", "rbd", "drbd"]) {
            guess(
                DeviceClass::Network,
                true,
                format!("{} is a network block device", self.disk),
            )
        } else if bus.contains("/session") || bus.contains("/rport-") {
            guess(
                DeviceClass::Network,
                true,
                format!("{} hangs on iSCSI or Fibre Channel", self.disk),
            )
        } else if self.is_optical() {
            guess(
                DeviceClass::Disk,
                true,
                format!("{} is, or lies on, an optical drive", self.disk),
            )
        } else if VOLUMES.iter().any(|model| self.model.contains(model)) {
            guess(
                DeviceClass::Network,
                true,
                format!("its model is {:?}", self.model),
            )
        } else if starts(&["nvme", "mmcblk", "pmem", "zram", "ram", "mtdblock"]) {
            guess(
                DeviceClass::Flash,
                true,
                format!("{} has no moving heads", self.disk),
            )
        } else if bus.contains("/virtio") || starts(&["vd", "xvd"]) {
            guess(
                DeviceClass::Flash,
                false,
                format!("{} is virtual and does not say what it is", self.disk),
            )
        } else if starts(&["loop", "dm-", "md"]) && self.rotational != Some(true) {
            guess(
                DeviceClass::Flash,
                false,
                format!("{} does not say that it has moving heads", self.disk),
            )
        } else {
            match self.rotational {
                Some(true) => guess(
                    DeviceClass::Disk,
                    !starts(&["loop"]),
                    "its rotational flag is 1".into(),
                ),
                Some(false) => guess(DeviceClass::Flash, true, "its rotational flag is 0".into()),
                None => guess(
                    DeviceClass::Flash,
                    false,
                    "sysfs has no rotational flag for it".into(),
                ),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(disk: &str, rotational: bool, model: &str, sysfs: &str) -> (DeviceClass, bool) {
        let facts = DeviceFacts {
            disk: disk.into(),
            rotational: Some(rotational),
            model: model.into(),
            sysfs: sysfs.into(),
            ..DeviceFacts::default()
        };
        let guess = facts.guess();
        (guess.class, guess.told)
    }

    #[test]
    fn devices_are_classed_by_what_they_say() {
        use DeviceClass::*;
        assert_eq!(
            class("sda", true, "ATA WDC", "/sys/devices/pci/ata1/block/sda"),
            (Disk, true)
        );
        assert_eq!(
            class("sda", false, "ATA SSD", "/sys/devices/pci/ata1/block/sda"),
            (Flash, true)
        );
        assert_eq!(class("nvme0n1", false, "Samsung", ""), (Flash, true));
        assert_eq!(
            class("nvme1n1", false, "Amazon Elastic Block Store", ""),
            (Network, true)
        );
        assert_eq!(
            class(
                "sdb",
                true,
                "LIO-ORG",
                "/sys/devices/platform/host2/session1/target2:0:0"
            ),
            (Network, true)
        );
        assert_eq!(class("nbd0", false, "", ""), (Network, true));
        assert_eq!(class("sr0", false, "QEMU DVD-ROM", ""), (Disk, true));
        // virtio-blk says rotational without knowing.
        assert_eq!(
            class("vda", true, "", "/sys/devices/pci/virtio1/block/vda"),
            (Flash, false)
        );
    }
}
