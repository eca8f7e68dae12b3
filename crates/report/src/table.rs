//! Plain tables: columns as wide as their longest cell, numbers to the right. And lists too long for that, which are
//! written as they are made.

use crate::human::printable;
use std::fmt;

/// A table in the making.
pub struct Table {
    heads: Vec<&'static str>,
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these heads; one that begins with `>` is of a column of numbers.
    pub fn new(heads: &[&'static str]) -> Table {
        Table {
            heads: heads.iter().map(|head| head.trim_start_matches('>')).collect(),
            right: heads.iter().map(|head| head.starts_with('>')).collect(),
            rows: Vec::new(),
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
        let all = || {
            std::iter::once(&heads)
                .filter(|h| h.iter().any(|c| !c.is_empty()))
                .chain(&self.rows)
        };
        let widths: Vec<usize> = (0..heads.len())
            .map(|column| all().map(|row| row[column].chars().count()).max().unwrap_or(0))
            .collect();
        let last = heads.len().saturating_sub(1);
        for row in all() {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let width = widths[column];
                match (self.right[column], column == last) {
                    (true, _) => line.push_str(&format!("{cell:>width$}  ")),
                    // Nothing stands behind it: spaces as many as the longest cell has would be for nothing.
                    (false, true) => line.push_str(cell),
                    (false, false) => line.push_str(&format!("{cell:<width$}  ")),
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Text that is written as it is made: all pages of a file with many take more memory than the file.
pub struct Written<F>(pub F);

impl<F: Fn(&mut fmt::Formatter<'_>) -> fmt::Result> fmt::Display for Written<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0(f)
    }
}

/// Names and values, one pair a line.
pub fn facts<'a>(pairs: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let mut table = Table::new(&["", ""]);
    for (name, value) in pairs {
        table.row([name, &value]);
    }
    table.to_string()
}

/// Names and sentences: each sentence in lines that with its name have at most `columns` characters, unless one word has more.
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
    fn audit_06_a_long_cell_at_the_end_lengthens_no_other_line() {
        let mut table = Table::new(&[">n", "pages"]);
        table.row(["1", &"x".repeat(1 << 20)]);
        (0..100_000).for_each(|_| table.row(["2", "y"]));
        assert_eq!(
            table.to_string().len(),
            "n  pages\n".len() + "1  \n".len() + (1 << 20) + 100_000 * "2  y\n".len()
        );
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
