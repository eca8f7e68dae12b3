//! Plain tables: columns as wide as their longest cell, numbers to the right, in lines of at most [`COLUMNS`]
//! characters. And lists too long for that, which are written as they are made.

use crate::human::printable;
use std::fmt;

/// What text for people fits into: the width of a terminal.
pub const COLUMNS: usize = 80;
/// What is left for the last column in any case.
const LEAST: usize = 10;

/// A table in the making.
pub struct Table {
    heads: Vec<&'static str>,
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
    /// Whether colours are wanted, and by row those it has.
    coloured: bool,
    tints: Vec<(usize, Tint)>,
}

/// The colour of a row, for terminals that want some. What it says is in the text too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tint {
    /// Green.
    Good,
    /// Red.
    Bad,
}

impl Tint {
    /// Select Graphic Rendition of ECMA-48: the foreground.
    fn code(self) -> u8 {
        match self {
            Tint::Good => 32,
            Tint::Bad => 31,
        }
    }
}

impl Table {
    /// A table with these heads; one that begins with `>` is of a column of numbers.
    pub fn new(heads: &[&'static str]) -> Table {
        Table {
            heads: heads.iter().map(|head| head.trim_start_matches('>')).collect(),
            right: heads.iter().map(|head| head.starts_with('>')).collect(),
            rows: Vec::new(),
            coloured: false,
            tints: Vec::new(),
        }
    }

    /// The same in colours, if they are wanted.
    pub fn coloured(self, coloured: bool) -> Table {
        Table { coloured, ..self }
    }

    /// Gives the last row a colour.
    pub fn tint(&mut self, tint: Tint) {
        if self.coloured && !self.rows.is_empty() {
            self.tints.push((self.rows.len() - 1, tint));
        }
    }

    /// Adds a row; what is missing is empty, what is too much is left out.
    pub fn row<I: IntoIterator<Item = S>, S: AsRef<str>>(&mut self, cells: I) {
        let mut row: Vec<String> = cells.into_iter().map(|cell| printable(cell.as_ref())).collect();
        row.resize(self.heads.len(), String::new());
        self.rows.push(row);
    }

    /// Whether it has no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heads: Vec<String> = self.heads.iter().map(|head| head.to_string()).collect();
        let rows = || {
            std::iter::once(&heads)
                .filter(|h| h.iter().any(|c| !c.is_empty()))
                .chain(&self.rows)
        };
        let mut widths: Vec<usize> = (0..heads.len())
            .map(|column| rows().map(|row| row[column].chars().count()).max().unwrap_or(0))
            .collect();
        let last = heads.len().saturating_sub(1);
        let first = room_of_the_first(&widths, self.right[last]);
        if let Some(width) = widths.first_mut().filter(|_| last > 0 && !self.right[0]) {
            *width = (*width).min(first);
        }
        let has_heads = heads.iter().any(|head| !head.is_empty());
        for (number, row) in rows().enumerate() {
            let index = number.checked_sub(usize::from(has_heads));
            let tint = self
                .tints
                .iter()
                .find(|(row, _)| Some(*row) == index)
                .map(|(_, tint)| tint.code());
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let width = widths[column];
                // What is longer than the first column may be has a line of its own.
                if column < last && !self.right[column] && cell.chars().count() > width {
                    writeln!(f, "{}", indented(cell, COLUMNS - 2, 2))?;
                    line.push_str(&" ".repeat(width + 2));
                    continue;
                }
                let room = COLUMNS.saturating_sub(line.chars().count()).max(LEAST);
                match (self.right[column], column == last) {
                    (false, true) => line.push_str(&indented(cell, room, COLUMNS - room)),
                    (true, _) => line.push_str(&format!("{cell:>width$}  ")),
                    (false, false) => line.push_str(&format!("{cell:<width$}  ")),
                }
            }
            match tint {
                None => writeln!(f, "{}", line.trim_end())?,
                Some(code) => writeln!(f, "\u{1b}[{code}m{}\u{1b}[0m", line.trim_end())?,
            }
        }
        Ok(())
    }
}

/// The most that the first column may have for the others to fit beside it. The last one continues below
/// itself, unless it is of numbers.
fn room_of_the_first(widths: &[usize], last_is_a_number: bool) -> usize {
    let Some((last, others)) = widths.split_last() else {
        return COLUMNS;
    };
    let last = if last_is_a_number { *last } else { LEAST.min(*last) };
    let others: usize = others.iter().skip(1).map(|width| width + 2).sum();
    COLUMNS.saturating_sub(others + last + 2).max(LEAST)
}

/// Text in lines of so many characters, those behind the first indented; between words, or within one that is
/// longer.
fn indented(text: &str, room: usize, indent: usize) -> String {
    let mut lines = vec![String::new()];
    let mut length = 0;
    let mut push = |chars: &[char], fresh: bool| {
        if fresh {
            lines.push(String::new());
        }
        lines.last_mut().into_iter().for_each(|line| line.extend(chars));
    };
    for word in text.split_inclusive(' ') {
        let word: Vec<char> = word.chars().collect();
        let visible = word.len() - word.iter().rev().take_while(|c| **c == ' ').count();
        if length + visible <= room {
            push(&word, false);
            length += word.len();
            continue;
        }
        for (index, part) in word.chunks(room).enumerate() {
            push(part, index > 0 || length > 0);
            length = part.len();
        }
    }
    let between = format!("\n{}", " ".repeat(indent));
    let lines: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
    lines.join(&between)
}

/// Text that is written as it is made: all pages of a file with many take more memory than the file.
pub struct Written<F>(pub F);

impl<F: Fn(&mut fmt::Formatter<'_>) -> fmt::Result> fmt::Display for Written<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0(f)
    }
}

/// Names and values, one pair a line; what is too long for a line continues on the next.
pub fn facts<'a>(pairs: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let mut table = Table::new(&["", ""]);
    for (name, value) in pairs {
        table.row([name, &value]);
    }
    table.to_string()
}

/// Names and sentences: each sentence in lines that with its name have at most `columns` characters, unless
/// one word has more.
pub fn sentences<'a>(columns: usize, pairs: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let pairs: Vec<_> = pairs.into_iter().collect();
    let names = pairs
        .iter()
        .map(|(name, _)| name.chars().count())
        .max()
        .unwrap_or(0);
    let mut text = String::new();
    for (name, sentence) in pairs {
        let mut line = format!("{name:<names$} ");
        let mut is_empty = true;
        for word in printable(&sentence).split_whitespace() {
            if !is_empty && line.chars().count() + 1 + word.chars().count() > columns {
                text.push_str(line.trim_end());
                text.push('\n');
                line = " ".repeat(names + 1);
            }
            line.push(' ');
            line.push_str(word);
            is_empty = false;
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A heading above a table.
pub fn section(title: &str, table: &Table) -> String {
    match table.is_empty() {
        true => String::new(),
        false => format!("\n{title}\n{table}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_cell_at_the_end_lengthens_no_other_line() {
        let mut table = Table::new(&[">n", "pages"]);
        table.row(["1", &"x".repeat(1 << 20)]);
        (0..100_000).for_each(|_| table.row(["2", "y"]));
        let text = table.to_string();
        assert_eq!(
            text.matches("\n2  y\n").count() + text.matches("y\n2  y").count(),
            100_000
        );
        assert!(text.lines().all(|line| line.len() <= COLUMNS));
    }

    #[test]
    fn what_is_long_in_the_first_column_has_a_line_of_its_own() {
        let mut table = Table::new(&["program", ">starts", ">waited"]);
        let long = format!("/{}", "x".repeat(99));
        table.row([&long, "3", "4 s"]);
        table.row(["/bin/y", "12", "4 s"]);
        let text = table.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.iter().all(|line| line.chars().count() <= COLUMNS), "{text}");
        assert_eq!(lines[1], &long[..COLUMNS - 2]);
        assert!(
            lines[3].ends_with("3     4 s") && lines[4].starts_with("/bin/y  "),
            "{text}"
        );
        assert_eq!(lines[3].len(), lines[4].len(), "{text}");
    }

    #[test]
    fn sentences_are_cut_between_words_and_begin_below_one_another() {
        let text = sentences(
            20,
            [
                ("a", "one two three four".into()),
                ("name", "x".repeat(30)),
                ("b", "\u{1b}".into()),
            ],
        );
        let long = "x".repeat(30);
        assert_eq!(
            text,
            format!("a     one two three\n      four\nname  {long}\nb     \\u{{1b}}\n")
        );
    }

    #[test]
    fn what_is_long_in_the_last_column_continues_below_itself() {
        let mut table = Table::new(&[">n", "path"]);
        table.row(["1", &format!("/{}", "x".repeat(99))]);
        table.row(["20", "short"]);
        let words = "word ".repeat(20);
        table.row(["3", words.trim_end()]);
        let text = table.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.iter().all(|line| line.chars().count() <= COLUMNS), "{text}");
        assert_eq!(lines[1], format!(" 1  /{}", "x".repeat(75)));
        assert_eq!(lines[2], format!("    {}", "x".repeat(24)));
        assert_eq!(lines[3], "20  short");
        assert_eq!(lines[4].trim_start_matches(" 3  "), "word ".repeat(15).trim_end());
        assert_eq!(lines[5], format!("    {}", "word ".repeat(5).trim_end()));
        assert_eq!(indented("", 5, 0), "");
    }

    #[test]
    fn only_who_wants_colours_gets_them() {
        for coloured in [false, true] {
            let mut table = Table::new(&["a"]).coloured(coloured);
            table.row(["1"]);
            table.row(["2"]);
            table.tint(Tint::Bad);
            let second = if coloured { "\u{1b}[31m2\u{1b}[0m" } else { "2" };
            assert_eq!(table.to_string(), format!("a\n1\n{second}\n"));
        }
    }

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&[">n", "path"]);
        table.row(["1", "/a"]);
        table.row(["1000", "/ü"]);
        assert_eq!(table.to_string(), "   n  path\n   1  /a\n1000  /ü\n");
        assert_eq!(
            facts([("a", "1".to_string()), ("long", String::new())]),
            "a     1\nlong\n"
        );
    }
}
