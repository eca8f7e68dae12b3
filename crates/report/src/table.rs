//! Plain tables: columns as wide as their longest cell, numbers to the right.

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
        for row in all() {
            let mut line = String::new();
            for ((cell, width), right) in row.iter().zip(&widths).zip(&self.right) {
                match right {
                    true => line.push_str(&format!("{cell:>width$}  ")),
                    false => line.push_str(&format!("{cell:<width$}  ")),
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
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
