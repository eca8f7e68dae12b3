//! Lists of times that no experiment of the lab made, but a script of its own: CSV files beside the kept
//! results. A first line `# TEXT` says of which build and day they are; then come the names of the columns.

use anyhow::{Context, Result, ensure};

/// A list.
#[derive(Debug)]
pub struct Rows {
    /// What the first line says, without `#`.
    pub about: String,
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Rows {
    /// Reads a list whose rows all have these columns, and maybe others.
    pub fn parse(text: &str, needed: &[&str]) -> Result<Rows> {
        let mut lines = text.lines();
        let about = lines.next().and_then(|line| line.strip_prefix("# "));
        let about = about.context("the first line says nothing of where the rows are from: # TEXT")?;
        let cells =
            |line: &str| -> Vec<String> { line.split(',').map(|cell| cell.trim().to_owned()).collect() };
        let columns = cells(lines.next().unwrap_or_default());
        for name in needed {
            ensure!(
                columns.iter().any(|column| column == name),
                "there is no column {name}"
            );
        }
        let rows: Vec<Vec<String>> = lines.filter(|line| !line.is_empty()).map(cells).collect();
        if let Some(short) = rows.iter().find(|row| row.len() != columns.len()) {
            anyhow::bail!(
                "{}: {} columns, not {}",
                short.join(","),
                short.len(),
                columns.len()
            );
        }
        Ok(Rows {
            about: about.to_owned(),
            columns,
            rows,
        })
    }

    /// The rows, in order.
    pub fn iter(&self) -> impl Iterator<Item = Row<'_>> {
        self.rows.iter().map(move |cells| Row { rows: self, cells })
    }
}

/// One row.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    rows: &'a Rows,
    cells: &'a [String],
}

impl<'a> Row<'a> {
    /// The cell of a column; empty where there is no such column.
    pub fn text(&self, column: &str) -> &'a str {
        let index = self.rows.columns.iter().position(|name| name == column);
        index.map_or("", |index| self.cells[index].as_str())
    }

    /// The same as a number.
    pub fn number(&self, column: &str) -> Result<f64> {
        let text = self.text(column);
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
        number.with_context(|| format!("{column}: {text:?} is no number"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_by_the_names_of_its_columns() {
        let rows = Rows::parse("# build x\na,b\n1,two\n3,four\n", &["b"]).unwrap();
        assert_eq!(rows.about, "build x");
        let read: Vec<_> = rows
            .iter()
            .map(|row| (row.number("a").unwrap(), row.text("b")))
            .collect();
        assert_eq!(read, [(1.0, "two"), (3.0, "four")]);
        assert!(rows.iter().next().unwrap().number("b").is_err());
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for (text, said) in [
            ("a,b\n1,2\n", "first line"),
            ("# x\na,b\n1,2\n", "no column c"),
            ("# x\na,b,c\n1,2\n", "2 columns"),
        ] {
            let error = Rows::parse(text, &["c"]).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
