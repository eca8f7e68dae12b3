//! The layers of an overlay mount, from its options.

use super::unescape;
use headstart_model::FilePath;

/// The layers of an overlay, as the mounting process named them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overlay {
    /// The writable layer.
    pub upper: Option<FilePath>,
    /// The read-only layers, the uppermost first; data-only layers last.
    pub lower: Vec<FilePath>,
}

impl Overlay {
    /// All layers, the uppermost first.
    pub fn layers(&self) -> impl Iterator<Item = &FilePath> {
        self.upper.iter().chain(&self.lower)
    }

    /// Reads super block options: `lowerdir=a:b`, since 6.8 `lowerdir+=a,lowerdir+=b` and `datadir+=c`.
    ///
    /// Commas and blanks inside a path are escaped octally by the kernel, colons since 6.5 too; before, a
    /// colon inside a path is a backslash (itself escaped as `\134`) and a colon.
    pub(super) fn parse(options: &[u8]) -> Overlay {
        let mut overlay = Overlay::default();
        let mut data = Vec::new();
        for option in options.split(|b| *b == b',') {
            let Some(cut) = option.iter().position(|b| *b == b'=') else {
                continue;
            };
            let (name, value) = (&option[..cut], &option[cut + 1..]);
            match name {
                b"upperdir" => overlay.upper = Some(unescape(value).into()),
                b"lowerdir" => overlay.lower.extend(split_colons(value)),
                b"lowerdir+" => overlay.lower.push(unescape(value).into()),
                b"datadir+" => data.push(FilePath::from(unescape(value))),
                _ => {}
            }
        }
        overlay.lower.append(&mut data);
        overlay
    }
}

fn split_colons(value: &[u8]) -> Vec<FilePath> {
    let mut paths = Vec::new();
    let mut path = Vec::new();
    let mut end = |path: &mut Vec<u8>| {
        if !path.is_empty() {
            paths.push(FilePath::from(unescape(path)));
        }
        path.clear();
    };
    for byte in value {
        if *byte != b':' {
            path.push(*byte);
        } else if path.ends_with(b"\\134") {
            path.truncate(path.len() - 4);
            path.push(b':');
        } else if path.ends_with(b"\\") {
            path.pop();
            path.push(b':');
        } else {
            end(&mut path);
        }
    }
    end(&mut path);
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lower(options: &str) -> Vec<String> {
        Overlay::parse(options.as_bytes())
            .lower
            .iter()
            .map(|p| p.to_string())
            .collect()
    }

    #[test]
    fn every_spelling_of_layers_is_read() {
        assert_eq!(
            lower("rw,lowerdir=/a:/b::/data,upperdir=/u"),
            ["/a", "/b", "/data"]
        );
        assert_eq!(
            lower("rw,datadir+=/d,lowerdir+=/a,lowerdir+=/b:c"),
            ["/a", "/b:c", "/d"]
        );
        assert_eq!(lower("rw,lowerdir=/a\\072x:/b\\054c"), ["/a:x", "/b,c"]);
        assert_eq!(lower("rw,lowerdir=/a\\134:x:/b"), ["/a:x", "/b"]);
        assert_eq!(lower("rw"), [""; 0]);
    }
}
