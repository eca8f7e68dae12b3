//! The programs that take a list of files in the order of their first use, and how each reads its list.

mod builders;
mod json;
mod paths;
mod places;

use super::needed::{Needed, Unsaid, Used};
use std::ops::Range;

/// A program, and its list.
pub struct Consumer {
    /// What `--for` calls it.
    pub name: &'static str,
    /// The option or the command that reads the list.
    pub about: &'static str,
    fails_where_missing: bool,
    /// Whether the program may put the files into another order and say nothing.
    pub may_lose_order: bool,
    /// What the user has to know besides, in a line; empty if nothing.
    pub advice: &'static str,
    form: Form,
}

/// What a consumer takes.
pub enum Form {
    /// Names of files.
    List(List),
    /// Places in files of the image.
    Places {
        /// What says where they are: `--image`, in this order.
        images: &'static str,
        /// Whose places.
        of: PlacesOf,
    },
}

/// Whose places a consumer takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacesOf {
    /// nydus 3's groups of chunks, by the image's metadata.
    Nydus,
    /// desync's chunks of a device.
    Desync,
    /// overlaybd's layers of a device.
    Overlaybd,
}

impl PlacesOf {
    /// Whether it is found out where the files of `--tree` are on their device.
    pub fn is_of_device(self) -> bool {
        self != PlacesOf::Nydus
    }
}

/// How a list of names is written.
pub struct List {
    begin: &'static [u8],
    /// Between two files.
    between: &'static [u8],
    end: &'static [u8],
    /// Whether the program reads this name, which is relative to the image's root, as it is.
    can_name: fn(&[u8]) -> bool,
    /// A file.
    line: fn(&Used<'_>, &Place, &mut Vec<u8>),
    /// Whether the list says which bytes of a file are needed.
    in_parts: bool,
    /// Whether the file that is used first is listed last.
    backwards: bool,
    /// Bytes of the longest list that the program takes.
    most: usize,
    /// Number of files that have places of their own.
    places: usize,
}

/// Where a file stands in a list.
struct Place {
    /// In order of first use, from 0.
    index: usize,
    /// Of how many.
    of: usize,
}

/// Bytes of a list, for each that sets no limit of its own: more than all paths and ranges of the largest
/// profile take, where few of their bytes are escaped. JSON makes six of some.
const MOST: usize = 12 << 20;

/// Lines with nothing around them. Consumers say what differs.
const LINES: List = List {
    begin: b"",
    between: b"",
    end: b"",
    can_name: |_| true,
    line: |_, _, _| {},
    in_parts: false,
    backwards: false,
    most: MOST,
    places: usize::MAX,
};

/// A consumer without advice that skips missing files.
const PLAIN: Consumer = Consumer {
    name: "",
    about: "",
    fails_where_missing: false,
    may_lose_order: false,
    advice: "",
    form: Form::List(LINES),
};

/// All of them.
pub fn all() -> impl Iterator<Item = &'static Consumer> {
    let families: [&[Consumer]; 4] = [builders::ALL, paths::ALL, json::ALL, places::ALL];
    families.into_iter().flatten()
}

/// The one of this name.
pub fn named(name: &str) -> Option<&'static Consumer> {
    all().find(|consumer| consumer.name == name)
}

/// A list for one consumer, and what of the profile it does not say.
#[derive(Debug)]
pub struct Listed {
    /// The list.
    pub text: Vec<u8>,
    /// Number of files listed.
    pub files: usize,
    /// What it does not say; empty if nothing.
    pub unsaid: Unsaid,
}

impl Consumer {
    /// What it takes.
    pub fn form(&self) -> &Form {
        &self.form
    }

    /// Whether `--tree` has to say where the files are.
    pub fn needs_tree(&self) -> bool {
        self.fails_where_missing || matches!(self.form, Form::Places { of, .. } if of.is_of_device())
    }

    /// Whether `--image` has to say where their places are.
    pub fn needs_images(&self) -> bool {
        matches!(self.form, Form::Places { .. })
    }
}

impl List {
    /// Lists what is needed.
    pub fn of(&self, needed: Needed<'_>) -> Listed {
        let Needed {
            files, mut unsaid, ..
        } = needed;
        let (files, unnamed): (Vec<Used<'_>>, Vec<Used<'_>>) =
            files.into_iter().partition(|used| (self.can_name)(used.name));
        for used in unnamed {
            unsaid.add("the format cannot name it", used.path());
        }
        let mut text = self.begin.to_vec();
        let mut listed = 0;
        for index in in_order(files.len(), self.backwards) {
            let used = &files[index];
            let before = text.len();
            if listed > 0 {
                text.extend(self.between);
            }
            (self.line)(
                used,
                &Place {
                    index,
                    of: files.len(),
                },
                &mut text,
            );
            if text.len() + self.end.len() > self.most {
                text.truncate(before);
                unsaid.add("the list is full", used.path());
                continue;
            }
            listed += 1;
        }
        text.extend(self.end);
        self.count_unsaid(&files, &mut unsaid);
        Listed {
            text,
            files: listed,
            unsaid,
        }
    }

    fn count_unsaid(&self, files: &[Used<'_>], unsaid: &mut Unsaid) {
        for (index, used) in files.iter().enumerate() {
            if index >= self.places {
                unsaid.add("the priority is that of other files", used.path());
            }
            if !self.in_parts && used.is_used_in_part() {
                unsaid.add("listed whole, used in part", used.path());
            }
        }
    }
}

fn in_order(count: usize, backwards: bool) -> Box<dyn Iterator<Item = usize>> {
    let indices: Range<usize> = 0..count;
    match backwards {
        true => Box::new(indices.rev()),
        false => Box::new(indices),
    }
}

/// Whether a line can hold this name.
fn is_one_line(name: &[u8]) -> bool {
    !name.contains(&b'\n')
}

/// Whether a line can hold this name whose reader cuts what Unicode calls white space off its end, as Go's
/// `strings.TrimSpace`. What begins a line is no name but `/` or `./`.
fn survives_trimming(name: &[u8]) -> bool {
    is_one_line(name) && !String::from_utf8_lossy(name).ends_with(char::is_whitespace)
}

fn is_utf8(name: &[u8]) -> bool {
    std::str::from_utf8(name).is_ok()
}

#[cfg(test)]
mod tests;
