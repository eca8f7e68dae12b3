//! Elements of an SVG, written one after another.

use crate::chart::text::xml;
use std::fmt::Write;

/// What is drawn on.
pub struct Paper {
    out: String,
}

impl Paper {
    /// An empty picture of this size, in this style, that calls itself so.
    pub fn new(width: usize, height: usize, style: &str, title: &str) -> Paper {
        let mut paper = Paper { out: String::new() };
        paper.write(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
             role=\"img\">\n<title>{}</title>\n<style>{style}</style>\n\
             <rect class=\"ground\" width=\"{width}\" height=\"{height}\"/>\n",
            xml(title)
        ));
        paper
    }

    /// The file.
    pub fn finish(mut self) -> String {
        self.out.push_str("</svg>\n");
        self.out
    }

    fn write(&mut self, text: std::fmt::Arguments<'_>) {
        // Into a string nothing fails.
        let _ = self.out.write_fmt(text);
    }

    /// A rectangle; of no width or height none.
    pub fn rect(&mut self, class: &str, x: f64, y: f64, width: f64, height: f64) {
        if width > 0.0 && height > 0.0 {
            self.write(format_args!(
                "<rect class=\"{class}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>\n",
                Short(x),
                Short(y),
                Short(width),
                Short(height)
            ));
        }
    }

    /// A path, if there is one.
    pub fn path(&mut self, class: &str, path: &Path) {
        if !path.out.is_empty() {
            self.write(format_args!("<path class=\"{class}\" d=\"{}\"/>\n", path.out));
        }
    }

    /// A line of text.
    pub fn text(&mut self, class: &str, x: f64, y: f64, text: &str) {
        self.write(format_args!(
            "<text class=\"{class}\" x=\"{}\" y=\"{}\">{}</text>\n",
            Short(x),
            Short(y),
            xml(text)
        ));
    }

    /// Opens a group that a viewer names when the pointer is on it.
    pub fn open_group(&mut self, title: &str) {
        self.write(format_args!("<g><title>{}</title>", xml(title)));
    }

    /// Ends a group.
    pub fn end(&mut self) {
        self.out.push_str("</g>\n");
    }
}

/// The description of a path.
#[derive(Default)]
pub struct Path {
    out: String,
    commands: usize,
}

impl Path {
    /// Moves without drawing.
    pub fn go(&mut self, x: f64, y: f64) -> &mut Path {
        self.add(format_args!("M{} {}", Short(x), Short(y)))
    }

    /// A line to the side.
    pub fn across(&mut self, x: f64) -> &mut Path {
        self.add(format_args!("H{}", Short(x)))
    }

    /// A line up or down.
    pub fn down(&mut self, y: f64) -> &mut Path {
        self.add(format_args!("V{}", Short(y)))
    }

    /// How many commands it has.
    pub fn commands(&self) -> usize {
        self.commands
    }

    fn add(&mut self, command: std::fmt::Arguments<'_>) -> &mut Path {
        let _ = self.out.write_fmt(command);
        self.commands += 1;
        self
    }
}

/// A number with at most one digit behind the point.
struct Short(f64);

impl std::fmt::Display for Short {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tenths = (self.0 * 10.0).round() as i64;
        let (sign, size) = (if tenths < 0 { "-" } else { "" }, tenths.unsigned_abs());
        match size % 10 {
            0 => write!(f, "{sign}{}", size / 10),
            tenth => write!(f, "{sign}{}.{tenth}", size / 10),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let short = |value: f64| Short(value).to_string();
        assert_eq!(short(12.0), "12");
        assert_eq!(short(12.34), "12.3");
        assert_eq!(short(-0.25), "-0.3");
        assert_eq!(short(f64::NAN), "0");
    }

    #[test]
    fn what_has_no_extent_is_not_drawn() {
        let mut paper = Paper::new(1, 1, "", "");
        let empty = paper.out.len();
        paper.rect("a", 0.0, 0.0, 0.0, 5.0);
        paper.path("a", &Path::default());
        assert_eq!(paper.out.len(), empty);
    }
}
