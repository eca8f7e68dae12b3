//! The hash of names in an indexed directory (Documentation/filesystems/ext4/directory.rst): which leaf block
//! holds a name, or would. All three kinds, with signed and unsigned characters.

/// The seed where the super block has none: MD4's initial state.
pub const DEFAULT_SEED: [u32; 4] = [0x6745_2301, 0xEFCD_AB89, 0x98BA_DCFE, 0x1032_5476];

/// How names are hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The first, before ext3 was merged.
    Legacy,
    /// Half of MD4: the default.
    HalfMd4,
    /// The Tiny Encryption Algorithm.
    Tea,
}

impl Kind {
    /// The kind by its number in the directory's root block, and whether that number asks for unsigned
    /// characters. SipHash (6: encrypted or case-insensitive directories) cannot be computed from outside.
    pub fn parse(version: u8) -> Option<(Kind, bool)> {
        let kind = match version % 3 {
            0 => Kind::Legacy,
            1 => Kind::HalfMd4,
            _ => Kind::Tea,
        };
        (version < 6).then_some((kind, version >= 3))
    }
}

/// The hash of a name, its lowest bit, which marks collisions, clear.
pub fn hash(kind: Kind, unsigned: bool, seed: [u32; 4], name: &[u8]) -> u32 {
    let mut state = seed;
    let value = match kind {
        Kind::Legacy => legacy(name, unsigned),
        Kind::HalfMd4 => {
            let mut rest = name;
            while !rest.is_empty() {
                half_md4(&mut state, &words::<8>(rest, unsigned));
                rest = rest.get(32..).unwrap_or(&[]);
            }
            state[1]
        }
        Kind::Tea => {
            let mut rest = name;
            while !rest.is_empty() {
                tea(&mut state, &words::<4>(rest, unsigned));
                rest = rest.get(16..).unwrap_or(&[]);
            }
            state[0]
        }
    };
    let value = value & !1;
    // The largest value marks the end of a directory.
    if value == 0xFFFF_FFFE { 0xFFFF_FFFC } else { value }
}

fn widen(byte: u8, unsigned: bool) -> u32 {
    if unsigned {
        u32::from(byte)
    } else {
        byte as i8 as u32
    }
}

/// The next 4·N bytes of a name as big-endian words, padded with the length of what was left.
fn words<const N: usize>(rest: &[u8], unsigned: bool) -> [u32; N] {
    let length = rest.len() as u32;
    let pad = (length | length << 8) | (length | length << 8) << 16;
    let mut words = [pad; N];
    for (word, bytes) in words.iter_mut().zip(rest.chunks(4)) {
        *word = bytes
            .iter()
            .fold(pad, |word, byte| (word << 8).wrapping_add(widen(*byte, unsigned)));
    }
    words
}

/// Three rounds of MD4 (RFC 1320) with eight words instead of sixteen.
fn half_md4(state: &mut [u32; 4], input: &[u32; 8]) {
    type Mix = fn(u32, u32, u32) -> u32;
    let rounds: [(Mix, u32, [usize; 8], [u32; 4]); 3] = [
        (
            |x, y, z| z ^ (x & (y ^ z)),
            0,
            [0, 1, 2, 3, 4, 5, 6, 7],
            [3, 7, 11, 19],
        ),
        (
            |x, y, z| (x & y).wrapping_add((x ^ y) & z),
            0x5A82_7999,
            [1, 3, 5, 7, 0, 2, 4, 6],
            [3, 5, 9, 13],
        ),
        (
            |x, y, z| x ^ y ^ z,
            0x6ED9_EBA1,
            [3, 7, 2, 6, 1, 5, 0, 4],
            [3, 9, 11, 15],
        ),
    ];
    let mut s = *state;
    for (mix, constant, order, shifts) in rounds {
        for (step, index) in order.into_iter().enumerate() {
            // The roles of the four words rotate: a, d, c, b.
            let [a, b, c, d] = [0, 1, 2, 3].map(|role: usize| (role + 4 - step % 4) % 4);
            let sum = s[a]
                .wrapping_add(mix(s[b], s[c], s[d]))
                .wrapping_add(input[index])
                .wrapping_add(constant);
            s[a] = sum.rotate_left(shifts[step % 4]);
        }
    }
    for (word, add) in state.iter_mut().zip(s) {
        *word = word.wrapping_add(add);
    }
}

/// Sixteen rounds of TEA (Wheeler, Needham 1994), the name as the key.
fn tea(state: &mut [u32; 4], key: &[u32; 4]) {
    let (mut x, mut y, mut sum) = (state[0], state[1], 0u32);
    for _ in 0..16 {
        sum = sum.wrapping_add(0x9E37_79B9);
        let mix = |v: u32, k0: u32, k1: u32| {
            (v << 4).wrapping_add(k0) ^ v.wrapping_add(sum) ^ (v >> 5).wrapping_add(k1)
        };
        x = x.wrapping_add(mix(y, key[0], key[1]));
        y = y.wrapping_add(mix(x, key[2], key[3]));
    }
    state[0] = state[0].wrapping_add(x);
    state[1] = state[1].wrapping_add(y);
}

fn legacy(name: &[u8], unsigned: bool) -> u32 {
    let (mut last, mut before) = (0x12A3_FE2Du32, 0x37AB_E8F9u32);
    for byte in name {
        let mixed = last ^ widen(*byte, unsigned).wrapping_mul(7_152_373);
        let mut next = before.wrapping_add(mixed);
        if next & 0x8000_0000 != 0 {
            next = next.wrapping_sub(0x7FFF_FFFF);
        }
        (before, last) = (last, next);
    }
    last << 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// The other implementation: e2fsprogs' `dx_hash`, which takes characters as signed.
    #[test]
    fn hashes_are_those_of_e2fsprogs() {
        let names = [
            "a",
            "lib",
            "exactly-16-bytes",
            "libpython3.11.so.1.0",
            "a-name-of-more-than-thirty-two-bytes-in-all",
            "caf\u{e9}",
        ];
        for (kind, number) in [
            (Kind::Legacy, "legacy"),
            (Kind::HalfMd4, "half_md4"),
            (Kind::Tea, "tea"),
        ] {
            for name in names {
                let seed = "01020304-0506-0708-090a-0b0c0d0e0f10";
                let request = format!("dx_hash -h {number} -s {seed} {name}");
                let output = Command::new("debugfs").arg("-R").arg(request).output().unwrap();
                let text = String::from_utf8_lossy(&output.stdout).into_owned();
                let theirs = text
                    .split("is 0x")
                    .nth(1)
                    .and_then(|t| u32::from_str_radix(t.split(' ').next()?, 16).ok());
                let seed = [0x0403_0201, 0x0807_0605, 0x0c0b_0a09, 0x100f_0e0d];
                assert_eq!(
                    Some(hash(kind, false, seed, name.as_bytes())),
                    theirs,
                    "{number} {name} {text}"
                );
            }
        }
    }

    #[test]
    fn unsigned_kinds_differ_beyond_ascii_only() {
        let hashes = |name: &[u8]| [false, true].map(|u| hash(Kind::HalfMd4, u, DEFAULT_SEED, name));
        assert_eq!(hashes(b"plain")[0], hashes(b"plain")[1]);
        assert_ne!(hashes(b"caf\xe9")[0], hashes(b"caf\xe9")[1]);
        assert_eq!(Kind::parse(4), Some((Kind::HalfMd4, true)));
        assert_eq!(Kind::parse(6), None);
    }
}
