//! Mount namespaces of what a lab starts.
//!
//! A namespace begins as a copy of another, and where mounts are private, as in most containers, the copies
//! stay for as long as it lives: what unshares its mounts while a lab runs keeps the lab's disks busy, though
//! it never looks at them. So what a lab starts lets go of what it has copied of other labs.

/// The program that makes a namespace.
pub(crate) const UNSHARE: &str = "unshare";

/// The source of a lab's overlays in the mount table: it tells them from those of others.
pub(crate) const OVERLAY: &str = "headstart-lab";

/// Arguments for [`UNSHARE`], before a program and its own: a namespace without the mounts of FUSE, of loop
/// devices other than `own`, and of overlays of a lab.
pub(crate) fn alone(own: &str) -> Vec<String> {
    let script = format!(
        "while read -r source target kind rest; do case $kind:$source in *:\"$0\") ;; \
         fuse*:* | *:/dev/loop* | overlay:{OVERLAY}) umount -l \"$target\" ;; esac; done </proc/self/mounts; exec \"$@\""
    );
    let words = [
        "--mount",
        "--propagation",
        "slave",
        "--",
        "/bin/sh",
        "-c",
        &script,
        own,
    ];
    words.map(str::to_owned).to_vec()
}
