//! What the files of a boot lie on, where that decides whether it is read ahead.

use headstart_model::plan::{PlanFile, RequestKind};
use headstart_system::device::lies_in_memory;
use headstart_system::mounts::MountTable;

/// Whether all file systems from which a plan reads data lie in memory, as those of a live medium that was
/// copied there. False where it reads none, or that cannot be told.
pub fn is_in_memory(plan: &PlanFile) -> bool {
    let (Ok(plan), Ok(mounts)) = (plan.plan(), MountTable::read()) else {
        return false;
    };
    let data = plan.requests().take(plan.cut());
    let mut devices: Vec<u16> = data
        .filter(|request| request.kind == RequestKind::Data)
        .map(|request| request.device)
        .collect();
    devices.sort_unstable();
    devices.dedup();
    let in_memory = |device: &u16| {
        let device = plan.device(usize::from(*device))?;
        let mount = mounts.lookup(device.mount_point.as_bytes())?;
        (mount.mount_point == device.mount_point).then(|| lies_in_memory(mount, &mounts))
    };
    !devices.is_empty() && devices.iter().all(|device| in_memory(device) == Some(true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_model::plan::Request;
    use headstart_model::testing::{FLASH, draft, plan_file, planned};
    use headstart_system::testing::{Mounted, can_mount};
    use std::process::Command;

    /// A plan that reads a page of a file below a mount point.
    fn plan(point: &std::path::Path) -> PlanFile {
        let path = point.join("file").display().to_string();
        let requests = vec![Request::new(RequestKind::Data, 0, 4096)];
        let mut draft = draft(FLASH, vec![planned(&path)], requests);
        draft.devices[0].mount_point = point.into();
        plan_file(&draft)
    }

    #[test]
    fn an_image_in_a_file_in_memory_is_in_memory_and_one_on_a_disk_is_not() {
        if !can_mount() {
            return;
        }
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["tree", "medium", "root"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        std::fs::write(at("tree/file"), [1; 4096]).unwrap();
        let memory = Mounted::new(&["-t", "tmpfs", "tmpfs"], &at("medium")).unwrap();
        for (image, expected) in [(at("medium/image"), true), (at("image"), false)] {
            let made = Command::new("mksquashfs")
                .arg(at("tree"))
                .arg(&image)
                .arg("-quiet")
                .output();
            assert!(made.unwrap().status.success());
            let image = image.to_str().unwrap();
            let root = Mounted::new(&["-o", "loop,ro", image], &at("root")).unwrap();
            assert_eq!(is_in_memory(&plan(root.path())), expected, "{image}");
            assert!(!is_in_memory(&plan(&at("root/not/mounted"))));
        }
        drop(memory);
    }
}
