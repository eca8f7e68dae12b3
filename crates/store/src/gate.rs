//! The gate of a key: that its starts are left alone, and why.
//!
//! A file of four lines, `gate`, that is there as long as the gate is shut: one start in how many looks again, the kernel
//! it holds for, whether that start has a replay, and why. It is read before anything else is done for a start, by
//! `headstart-init` too, which is a program without a library: hence no JSON, and a place that it knows.

use crate::file;
use crate::{KeyDir, KeyLock, StoreError};

const GATE: &str = "gate";
/// More than four lines have.
const MAX: u64 = 4096;

/// A gate that is shut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gate {
    /// One start in so many, by chance, looks again.
    pub every: u32,
    /// The kernel that ran, as uname(2) calls its release: with another one it is open.
    pub kernel: String,
    /// Whether the start that looks again has a replay: where only that can tell.
    pub replay: bool,
    /// Why it is shut, for people.
    pub why: String,
}

/// What the gate does with a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// It goes as if there were no gate.
    Open,
    /// It is recorded without a replay, to look again.
    Look,
    /// It is left alone.
    Shut,
}

impl Gate {
    /// What it does with a start on this kernel; `draw` is a number by chance.
    pub fn pass(&self, kernel: &str, draw: u64) -> Pass {
        if self.kernel != kernel {
            Pass::Open
        } else if draw % u64::from(self.every.max(1)) != 0 {
            Pass::Shut
        } else if self.replay {
            Pass::Open
        } else {
            Pass::Look
        }
    }

    fn to_text(&self) -> String {
        let look = if self.replay { "replay" } else { "record" };
        let why = self.why.replace('\n', " ");
        format!("{}\n{}\n{look}\n{why}\n", self.every, self.kernel)
    }

    fn parse(text: &str) -> Option<Gate> {
        let mut lines = text.lines();
        Some(Gate {
            every: lines.next()?.parse().ok()?,
            kernel: lines.next()?.into(),
            replay: lines.next()? == "replay",
            why: lines.next()?.into(),
        })
    }
}

impl KeyDir {
    /// Its gate if that is shut. What cannot be read shuts nothing.
    pub fn gate(&self) -> Option<Gate> {
        let bytes = file::read_bounded(&self.path().join(GATE), MAX).ok().flatten()?;
        Gate::parse(&String::from_utf8(bytes).ok()?)
    }
}

impl KeyLock {
    /// Shuts the gate, or opens it.
    pub fn save_gate(&self, gate: Option<&Gate>) -> Result<(), StoreError> {
        match gate {
            Some(gate) if self.dir().gate().as_ref() == Some(gate) => Ok(()),
            Some(gate) => self.write(GATE, gate.to_text().as_bytes()),
            None => self.remove(GATE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;
    use headstart_model::Key;

    fn gate() -> Gate {
        Gate {
            every: 10,
            kernel: "6.18.1".into(),
            replay: false,
            why: "nothing to gain".into(),
        }
    }

    #[test]
    fn what_is_kept_is_what_was_saved_until_it_is_opened() {
        let dir = tempfile::tempdir().unwrap();
        let key = Store::new(dir.path()).key(&Key::new("boot").unwrap());
        assert_eq!(key.gate(), None);
        let lock = key.lock().unwrap();
        lock.save_gate(Some(&gate())).unwrap();
        assert_eq!(key.gate(), Some(gate()));
        lock.save_gate(None).unwrap();
        lock.save_gate(None).unwrap();
        assert_eq!(key.gate(), None);
        std::fs::write(key.path().join(GATE), "often\n6.18.1\n").unwrap();
        assert_eq!(key.gate(), None, "what cannot be read shuts nothing");
    }

    #[test]
    fn one_start_in_ten_looks_again_and_another_kernel_opens() {
        let passes =
            |gate: &Gate, kernel: &str| (0..20).map(|draw| gate.pass(kernel, draw)).collect::<Vec<_>>();
        let count = |all: &[Pass], pass| all.iter().filter(|it| **it == pass).count();
        let all = passes(&gate(), "6.18.1");
        assert_eq!((count(&all, Pass::Look), count(&all, Pass::Shut)), (2, 18));
        let tried = Gate {
            replay: true,
            ..gate()
        };
        let all = passes(&tried, "6.18.1");
        assert_eq!((count(&all, Pass::Open), count(&all, Pass::Shut)), (2, 18));
        assert_eq!(count(&passes(&gate(), "6.18.2"), Pass::Open), 20);
    }
}
