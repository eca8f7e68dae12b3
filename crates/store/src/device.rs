//! What a device was measured to cost.

use crate::file;
use crate::{Store, StoreError};
use headstart_model::machine::{Cost, FirstTouch};
use serde::{Deserialize, Serialize};

/// What a device was measured to cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceCost {
    /// The cost.
    pub cost: Cost,
    /// What a first touch costs beyond that, where it is filled as it is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_touch: Option<FirstTouch>,
    /// [`Compression::rate`] of its file system's files, where they are compressed by blocks; `None` where
    /// that was not measured.
    ///
    /// [`Compression::rate`]: headstart_model::machine::Compression::rate
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decompression: Option<u16>,
    /// Which device it was measured on: a file system may move to another. Empty where an older headstart did
    /// not say.
    #[serde(default)]
    pub device: String,
    /// When it was measured, nanoseconds since 1970.
    pub measured_unix_ns: u64,
}

/// More than any such file has.
const MAX: u64 = 4096;
/// The smallest pages of any machine.
const PAGE: u64 = 4096;

impl Store {
    fn device_file(&self, uuid: &[u8; 16]) -> std::path::PathBuf {
        let name: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        self.root().join("devices").join(format!("{name}.json"))
    }

    /// What was measured for the file system with this UUID; `None` if nothing was, or nothing that makes
    /// sense.
    pub fn device_cost(&self, uuid: &[u8; 16]) -> Option<DeviceCost> {
        let path = self.device_file(uuid);
        let (bytes, read) = file::read_open(&path, MAX).ok()??;
        let sane = |stored: &DeviceCost| {
            let Cost {
                bandwidth,
                latency,
                depth,
                class: _,
            } = stored.cost;
            let first_touch = stored.first_touch.is_none_or(|fill| fill.makes_sense(PAGE));
            bandwidth.is_finite()
                && bandwidth > 0.0
                && latency.is_finite()
                && latency >= 0.0
                && depth > 0
                && first_touch
        };
        let stored = serde_json::from_slice(&bytes).ok().filter(sane);
        if stored.is_none() {
            // A measurement is repeated; where the file cannot be moved it is ignored just as well.
            let _ = file::move_aside(&path, &read);
        }
        stored
    }

    /// Keeps what was measured. A file system without a UUID (zeros) is not kept.
    pub fn save_device_cost(&self, uuid: &[u8; 16], stored: &DeviceCost) -> Result<(), StoreError> {
        if *uuid == [0; 16] {
            return Ok(());
        }
        let path = self.device_file(uuid);
        file::make_directory(&self.root().join("devices"))?;
        let text = serde_json::to_vec_pretty(stored)
            .map_err(|e| StoreError::io("encode", &path, std::io::Error::other(e)))?;
        file::write_whole(&path, &text)
    }

    /// Keeps in another state directory what was measured, as far as it can be read and written.
    pub fn copy_device_costs(&self, to: &Store) {
        let names = std::fs::read_dir(self.root().join("devices"))
            .into_iter()
            .flatten();
        for name in names.flatten().take(MOST_DEVICES) {
            let name = name.file_name();
            let uuid = name.to_str().and_then(|name| uuid(name.strip_suffix(".json")?));
            let Some(uuid) = uuid else { continue };
            if let Some(cost) = self.device_cost(&uuid) {
                let _ = to.save_device_cost(&uuid, &cost);
            }
        }
    }
}

/// So many are copied.
const MOST_DEVICES: usize = 1024;

/// A UUID of 32 hexadecimal digits.
fn uuid(digits: &str) -> Option<[u8; 16]> {
    let is_whole = digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let number = is_whole.then(|| u128::from_str_radix(digits, 16).ok());
    number.flatten().map(u128::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_model::machine::DeviceClass;

    #[test]
    fn costs_are_kept_by_uuid_and_nonsense_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        let cost = Cost {
            class: DeviceClass::Disk,
            bandwidth: 1e8,
            latency: 5e-3,
            depth: 1,
        };
        let stored = DeviceCost {
            cost,
            first_touch: Some(FirstTouch {
                granule: 512 << 10,
                latency: 33e-3,
                depth: 10,
            }),
            decompression: Some(50),
            device: "disk 1".into(),
            measured_unix_ns: 7,
        };
        assert_eq!(store.device_cost(&[1; 16]), None);
        store.save_device_cost(&[1; 16], &stored).unwrap();
        assert_eq!(store.device_cost(&[1; 16]), Some(stored.clone()));
        let other_dir = tempfile::tempdir().unwrap();
        let other = Store::new(other_dir.path());
        std::fs::write(dir.path().join("devices/readme.json"), "{}").unwrap();
        store.copy_device_costs(&other);
        assert_eq!(other.device_cost(&[1; 16]), Some(stored.clone()));
        assert_eq!(store.device_cost(&[2; 16]), None);
        let text = std::fs::read_to_string(store.device_file(&[1; 16])).unwrap();
        let odd = text.replace("524288", "524289");
        assert_ne!(odd, text);
        for nonsense in [r#"{"cost":{"class":"disk","bandwidth":-1}}"#, &odd] {
            std::fs::write(store.device_file(&[1; 16]), nonsense).unwrap();
            assert_eq!(store.device_cost(&[1; 16]), None);
        }
    }
}
