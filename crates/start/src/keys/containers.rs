//! Containers: whose start it is by what they are made of and what runs in them, whoever starts them. A
//! container is another one each time, and its image is not.

use super::launchers::Launcher;
use super::names::Inside;
use super::{Meant, Names, base_name, meant, text, unknown_launchers};
use headstart_model::Key;
use serde::Deserialize;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// So much of what a bundle says is read, bytes: podman's have some 20 KiB, and each of a hundred mounts adds
/// 200 bytes.
const MOST: usize = 256 << 10;

/// What the parts of engines are called that make a container, one after the other.
const RUNTIMES: [&str; 3] = ["conmon", "crun", "runc"];

/// In which annotations engines leave the image's name: containerd's and CRI-O's for Kubernetes, and that of
/// the specification of images.
const IMAGE: [&str; 3] = [
    "io.kubernetes.cri.image-name",
    "io.kubernetes.cri-o.ImageName",
    "org.opencontainers.image.ref.name",
];

/// What `config.json` of a bundle says, as far as it matters here (runtime-spec, config.md).
#[derive(Deserialize)]
struct Bundle {
    #[serde(default)]
    annotations: HashMap<String, String>,
    process: Process,
    root: Root,
}

#[derive(Deserialize)]
struct Process {
    #[serde(default)]
    args: Vec<String>,
}

#[derive(Deserialize)]
struct Root {
    path: PathBuf,
}

/// The key of a container that `client` starts: of an image, or a directory that it begins in, which comes
/// first, and what runs in it.
pub(super) fn key(client: String, words: &[OsString], names: &dyn Names) -> String {
    let Some((image, command)) = words.split_first() else {
        return client;
    };
    // Another directory's `./root` is another root.
    let is_relative = image.as_encoded_bytes().starts_with(b".");
    let real = is_relative.then(|| names.real(Path::new(image))).flatten();
    let image = real.map_or_else(|| text(image), |real| text(real.as_os_str()));
    let of_image = format!("{client} {image}");
    let Some((program, arguments)) = command.split_first() else {
        return of_image;
    };
    let path = Path::new(program);
    match meant(path, &base_name(program), arguments, &Inside) {
        Some(Meant::Program(key, _) | Meant::Code(key)) => format!("{of_image} {key}"),
        // A launcher in it: all of it tells what it starts.
        Some(Meant::Launched(_) | Meant::Launcher) | None => unknown_launchers::with_text(&of_image, command),
    }
}

/// The image, or the directory, that the bundle in a directory is of, and the command; `None` where neither
/// is the same the next time.
pub(super) fn of_bundle(directory: &Path, names: &dyn Names) -> Option<Vec<OsString>> {
    let config = names.content(&directory.join("config.json"), MOST)?;
    let mut bundle: Bundle = serde_json::from_slice(&config).ok()?;
    let named = IMAGE.iter().find_map(|name| bundle.annotations.remove(*name));
    let named = named.filter(|name| !name.is_empty()).map(OsString::from);
    let image = match named {
        Some(name) => name,
        None => {
            let root = names.real(&directory.join(&bundle.root.path))?;
            match names.lowest_layer(&root) {
                // Another layer above it is the same image, changed.
                Some(layer) => layer.into(),
                // A directory of somebody's: an engine's own would be one that it has mounted.
                None => root.into(),
            }
        }
    };
    let command = bundle.process.args.into_iter().map(OsString::from);
    Some(std::iter::once(image).chain(command).collect())
}

/// Whether a key is that of a container: what engines execute for it in its name is a part of that start.
pub fn is_container(key: &Key) -> bool {
    let mut words = key.of_all().split(' ');
    let client = words.next().unwrap_or_default();
    let is_client = |base: String| Launcher::named(&base).is_some_and(Launcher::starts_containers);
    words.next().is_some() && is_client(base_name(OsStr::new(client)))
}

/// Whether an executable is a part of an engine that makes containers for its clients.
pub fn is_runtime(executable: &Path) -> bool {
    RUNTIMES.contains(&&*base_name(executable.as_os_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One bundle, and an overlay at some paths.
    struct One(&'static str);

    impl Names for One {
        fn real(&self, path: &Path) -> Option<PathBuf> {
            Some(path.components().collect())
        }

        fn is_there(&self, _: &Path) -> bool {
            true
        }

        fn is_registered(&self, _: &Path) -> bool {
            false
        }

        fn directory(&self) -> Option<PathBuf> {
            None
        }

        fn content(&self, path: &Path, most: usize) -> Option<Vec<u8>> {
            assert_eq!(path, Path::new("/run/b/config.json"));
            Some(self.0.as_bytes()[..self.0.len().min(most)].to_vec())
        }

        fn lowest_layer(&self, path: &Path) -> Option<PathBuf> {
            path.ends_with("merged").then(|| "/layers/l/LOWEST".into())
        }
    }

    fn key_of(config: &'static str) -> Option<String> {
        let words = of_bundle(Path::new("/run/b"), &One(config))?;
        Some(key("/usr/bin/runc".into(), &words, &One(config)))
    }

    #[test]
    fn a_bundle_is_the_image_that_it_names_or_else_its_lowest_layer_and_what_runs_in_it() {
        let key = |config| key_of(config).unwrap();
        let named = r#"{"annotations": {"io.kubernetes.cri.image-name": "docker.io/library/nginx:1"},
            "process": {"args": ["nginx", "-g", "daemon off;"]}, "root": {"path": "rootfs"}}"#;
        assert_eq!(key(named), "/usr/bin/runc docker.io/library/nginx:1 nginx");
        let layers =
            r#"{"process": {"args": ["perl", "/srv/a.pl", "x"]}, "root": {"path": "/engine/1/merged"}}"#;
        assert_eq!(key(layers), "/usr/bin/runc /layers/l/LOWEST perl /srv/a.pl");
        let directory = r#"{"process": {"args": []}, "root": {"path": "rootfs"}, "mounts": [1, 2]}"#;
        assert_eq!(key(directory), "/usr/bin/runc /run/b/rootfs");
    }

    #[test]
    fn what_a_hostile_bundle_says_is_no_key_or_one_of_printable_text() {
        for none in ["", "{", "[]", "{}", r#"{"root": {"path": 1}, "process": {}}"#] {
            assert_eq!(key_of(none), None, "{none}");
        }
        let escapes = r#"{"process": {"args": ["\u001b[2J\n"]}, "root": {"path": "\n"}}"#;
        assert!(!key_of(escapes).unwrap().contains(char::is_control));
    }

    #[test]
    fn the_keys_of_containers_and_parts_of_engines_are_told_from_others() {
        let is = |key: &str| is_container(&Key::new(key).unwrap());
        assert!(is("/usr/bin/podman debian:12 ls") && is("/usr/bin/podman debian:12 of user 1000"));
        assert!(is("/usr/bin/systemd-nspawn /srv/web") && is("/usr/bin/lxc-start web"));
        assert!(!is("/usr/bin/podman") && !is("/usr/bin/podman of user 1000"));
        assert!(!is("/usr/bin/env x") && !is("web.service"));
        assert!(is_runtime(Path::new("/usr/bin/crun")) && !is_runtime(Path::new("/usr/bin/crunch")));
    }
}
