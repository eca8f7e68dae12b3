//! The few types that the programs need, taken out of the kernel's many.

use super::{
    ARRAY, Btf, CONST, ENUM, ENUM64, FUNC, FUNC_PROTO, PTR, RESTRICT, STRUCT, TYPE_TAG, TYPEDEF, UNION,
    VOLATILE, u32_at,
};
use std::collections::HashMap;

/// BTF made of some of another's types.
pub(super) struct Extract<'a> {
    from: &'a Btf<'a>,
    types: Vec<u8>,
    strings: Vec<u8>,
    /// New numbers by old ones.
    numbers: HashMap<u32, u32>,
    /// New places of names by old ones.
    names: HashMap<u32, u32>,
}

impl<'a> Extract<'a> {
    pub(super) fn new(from: &'a Btf<'a>) -> Extract<'a> {
        Extract {
            from,
            types: vec![],
            strings: vec![0],
            numbers: HashMap::new(),
            names: HashMap::from([(0, 0)]),
        }
    }

    /// Takes a type over, and first what lies inside it. What it points to is left out: relocations follow no
    /// pointer. Returns its new number.
    pub(super) fn add(&mut self, old: u32) -> Option<u32> {
        if old == 0 {
            return Some(0);
        }
        if let Some(new) = self.numbers.get(&old) {
            return Some(*new);
        }
        let at = *self.from.types.get(old as usize - 1)?;
        let length = self.from.length(at)?;
        let mut words: Vec<u32> = (at..at + length)
            .step_by(4)
            .map(|at| u32_at(self.from.bytes, at))
            .collect::<Option<_>>()?;
        words[0] = self.rename(words[0])?;
        match self.from.kind(at)? {
            PTR => words[2] = 0,
            TYPEDEF | VOLATILE | CONST | RESTRICT | TYPE_TAG => words[2] = self.add(words[2])?,
            // Type and index type.
            ARRAY => {
                words[3] = self.add(words[3])?;
                words[4] = self.add(words[4])?;
            }
            // Name, type, offset.
            STRUCT | UNION => {
                for member in words[3..].chunks_exact_mut(3) {
                    member[0] = self.rename(member[0])?;
                    member[1] = self.add(member[1])?;
                }
            }
            // Name and value; the value has a second half in ENUM64.
            ENUM => {
                for member in words[3..].chunks_exact_mut(2) {
                    member[0] = self.rename(member[0])?;
                }
            }
            ENUM64 => {
                for member in words[3..].chunks_exact_mut(3) {
                    member[0] = self.rename(member[0])?;
                }
            }
            // A function lies inside nothing; the others refer to no type.
            FUNC | FUNC_PROTO => return None,
            _ => {}
        }
        self.types
            .extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        let new = self.numbers.len() as u32 + 1;
        self.numbers.insert(old, new);
        Some(new)
    }

    fn rename(&mut self, old: u32) -> Option<u32> {
        if let Some(new) = self.names.get(&old) {
            return Some(*new);
        }
        let new = self.strings.len() as u32;
        self.strings.extend_from_slice(self.from.string(old)?);
        self.strings.push(0);
        self.names.insert(old, new);
        Some(new)
    }

    pub(super) fn finish(self) -> Vec<u8> {
        let (types, strings) = (self.types.len() as u32, self.strings.len() as u32);
        // Magic and version, then lengths: header, types' offset and length, strings' offset and length.
        let mut out = [&0xeb9fu16.to_ne_bytes()[..], &[1, 0]].concat();
        for word in [24, 0, types, types, strings] {
            out.extend(word.to_ne_bytes());
        }
        out.extend(self.types);
        out.extend(self.strings);
        out
    }
}
