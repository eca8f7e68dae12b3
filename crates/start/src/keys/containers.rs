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

/// What Docker writes about a container before it has that made (`config.v2.json`), as far as it matters
/// here.
#[derive(Deserialize)]
struct DockerContainer {
    #[serde(rename = "Config")]
    config: DockerConfig,
}

#[derive(Deserialize)]
struct DockerConfig {
    #[serde(rename = "Image")]
    image: String,
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
/// is the same the next time. A root that may not be mounted yet is not taken for a directory of somebody's.
pub(super) fn of_bundle(directory: &Path, is_mounted: bool, names: &dyn Names) -> Option<Vec<OsString>> {
    let config = names.content(&directory.join("config.json"), MOST)?;
    let mut bundle: Bundle = serde_json::from_slice(&config).ok()?;
    let annotated = IMAGE.iter().find_map(|name| bundle.annotations.remove(*name));
    let image = match annotated.filter(|name| !name.is_empty()) {
        Some(name) => name.into(),
        None => {
            let root = names.real(&directory.join(&bundle.root.path))?;
            of_docker(directory, &root, names).or_else(|| of_root(root, is_mounted, names))?
        }
    };
    let command = bundle.process.args.into_iter().map(OsString::from);
    Some(std::iter::once(image).chain(command).collect())
}

/// The image of the container with this bundle and this root, if that is Docker's. Docker names the bundle's
/// directory as the container, and has the root three levels below its own directory.
fn of_docker(directory: &Path, root: &Path, names: &dyn Names) -> Option<OsString> {
    let bundle = names.real(directory)?;
    let container = root
        .ancestors()
        .nth(3)?
        .join("containers")
        .join(bundle.file_name()?);
    let written = names.content(&container.join("config.v2.json"), MOST)?;
    let container: DockerContainer = serde_json::from_slice(&written).ok()?;
    Some(container.config.image.into()).filter(|image: &OsString| !image.is_empty())
}

/// What a root is made of that nobody names.
fn of_root(root: PathBuf, is_mounted: bool, names: &dyn Names) -> Option<OsString> {
    match names.lowest_layer(&root) {
        // Another layer above it is the same image, changed.
        Some(layer) => Some(layer.into()),
        // A directory of somebody's: an engine's own would be one that it has mounted.
        None => is_mounted.then(|| root.into()),
    }
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

    const DOCKERS: &str = r#"{"ID": "b", "Config": {"Image": "web:1", "Env": []}, "Image": "sha256:0"}"#;

    /// One bundle, and an overlay at some paths.
    struct One(&'static str);

    impl Names for One {
        fn real(&self, path: &Path) -> Option<PathBuf> {
            Some(Path::new("/run/b").join(path.strip_prefix(".").unwrap_or(path)))
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
            let bundle = [Path::new("./config.json"), Path::new("/run/b/config.json")];
            let content = match path {
                path if bundle.contains(&path) => self.0,
                path if path == Path::new("/docker/containers/b/config.v2.json") => DOCKERS,
                _ => return None,
            };
            Some(content.as_bytes()[..content.len().min(most)].to_vec())
        }

        fn lowest_layer(&self, path: &Path) -> Option<PathBuf> {
            path.ends_with("merged").then(|| "/layers/l/LOWEST".into())
        }
    }

    fn key_of(config: &'static str) -> Option<String> {
        let words = of_bundle(Path::new("/run/b"), true, &One(config))?;
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
        let dockers = r#"{"process": {"args": ["nginx"]}, "root": {"path": "/docker/overlay2/1/merged"}}"#;
        assert_eq!(key(dockers), "/usr/bin/runc web:1 nginx");
        let directory = r#"{"process": {"args": []}, "root": {"path": "rootfs"}, "mounts": [1, 2]}"#;
        assert_eq!(key(directory), "/usr/bin/runc /run/b/rootfs");
    }

    #[test]
    fn before_its_root_is_mounted_a_container_has_a_key_only_if_its_image_is_known() {
        let is_known = |config| of_bundle(Path::new("/run/b"), false, &One(config)).is_some();
        // Docker mounts the root before it has containerd make the container, and a pod names the image.
        assert!(is_known(
            r#"{"process": {}, "root": {"path": "/engine/1/merged"}}"#
        ));
        assert!(is_known(
            r#"{"annotations": {"io.kubernetes.cri.image-name": "nginx:1"}, "process": {}, "root": {"path": "rootfs"}}"#
        ));
        assert!(!is_known(r#"{"process": {}, "root": {"path": "rootfs"}}"#));
    }

    #[test]
    fn a_shim_begins_the_container_of_the_bundle_that_it_is_executed_in() {
        let config = r#"{"process": {"args": ["perl", "/srv/a.pl"]}, "root": {"path": "/engine/1/merged"}}"#;
        let meant_by = |action: &str| {
            let line = format!("-namespace moby -id 5e -address /run/containerd/containerd.sock {action}");
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let shim = Path::new("/usr/bin/containerd-shim-runc-v2");
            meant(shim, "containerd-shim-runc-v2", &words, &One(config)).unwrap()
        };
        let expected = "/usr/bin/containerd-shim-runc-v2 /layers/l/LOWEST perl /srv/a.pl";
        assert!(matches!(meant_by("start"), Meant::Program(key, _) if key == expected));
        assert!(matches!(meant_by("delete"), Meant::Launcher));
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
        assert!(is("/usr/bin/containerd-shim-runc-v2 nginx:1 nginx"));
        assert!(!is("/usr/bin/podman") && !is("/usr/bin/podman of user 1000"));
        assert!(!is("/usr/bin/env x") && !is("web.service"));
        assert!(is_runtime(Path::new("/usr/bin/crun")) && !is_runtime(Path::new("/usr/bin/crunch")));
    }
}
