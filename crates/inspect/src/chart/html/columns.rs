//! Columns of numbers as short JSON.

/// Each number less the one before it, the first as it is.
pub fn steps(values: impl Iterator<Item = i64>) -> Vec<i64> {
    let mut before = 0;
    values
        .map(|value| {
            let step = value - before;
            before = value;
            step
        })
        .collect()
}

/// Equal numbers that follow one another as the number and how many.
pub fn repeats(values: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut runs: Vec<u64> = Vec::new();
    for value in values {
        match runs.len().checked_sub(2) {
            Some(last) if runs[last] == value => runs[last + 1] += 1,
            _ => runs.extend([value, 1]),
        }
    }
    runs
}

/// Names, each as how many characters it shares with the one before it, and the rest. By units of UTF-16,
/// which is what a script counts in.
pub fn shared<'a>(names: impl Iterator<Item = &'a str>) -> Vec<(usize, &'a str)> {
    let mut before = "";
    names
        .map(|name| {
            let same = before.chars().zip(name.chars()).take_while(|(a, b)| a == b);
            let (mut units, mut bytes) = (0, 0);
            for (_, c) in same {
                units += c.len_utf16();
                bytes += c.len_utf8();
            }
            before = name;
            (units, &name[bytes..])
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_short() {
        assert_eq!(steps([5, 7, 7, 3].into_iter()), [5, 2, 0, -4]);
        assert_eq!(repeats([1, 1, 1, 2, 1].into_iter()), [1, 3, 2, 1, 1, 1]);
        assert_eq!(repeats(std::iter::empty()), [0; 0]);
        let names = ["/usr/a", "/usr/b", "/\u{1d11e}x", "/\u{1d11e}y"];
        assert_eq!(
            shared(names.into_iter()),
            [(0, "/usr/a"), (5, "b"), (1, "\u{1d11e}x"), (3, "y")]
        );
    }
}
