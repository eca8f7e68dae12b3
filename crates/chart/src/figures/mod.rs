//! Figures of many starts: lines over rounds or sizes, and rows that compare. Panels below one another on one sheet (SVG).

mod axis;
mod lines;
mod rows;

use crate::svg::paper::Paper;

/// Width of a sheet, pixels.
const WIDTH: usize = 900;
/// What stays free at its left and right.
const SIDE: f64 = 16.0;
/// Room for a panel's title.
const TITLE: f64 = 26.0;
/// Room below a panel for the numbers of its axis and what they are.
const FOOT: f64 = 40.0;
/// Characters of the text above the panels in a line, and its lines at most.
const LINE: usize = 135;
const LINES: usize = 3;
/// Colours of series; the next begin anew.
const COLOURS: usize = 8;

/// Panels below one another.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sheet {
    /// Its title.
    pub title: String,
    /// What stands below that: three lines at most.
    pub text: String,
    /// From above.
    pub panels: Vec<Panel>,
}

/// A part of a sheet with axes of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// Its title.
    pub title: String,
    /// What it shows.
    pub shows: Shows,
}

/// The forms of a panel.
#[derive(Clone, Debug, PartialEq)]
pub enum Shows {
    /// Values against a number.
    Lines(Lines),
    /// Values side by side on one axis, a row for each.
    Rows(Rows),
}

/// Values against a number, one line for each series; the value's axis begins at zero, so that lengths compare.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lines {
    /// What the numbers are.
    pub across: String,
    /// What the values are.
    pub up: String,
    /// Numbers at which a line goes through the panel.
    pub changes: Vec<f64>,
    /// The lines.
    pub series: Vec<Series>,
}

/// A line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// By their numbers.
    pub points: Vec<Point>,
}

/// A point of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// The number.
    pub at: f64,
    /// Its value; of a start that failed none.
    pub value: Option<f64>,
    /// Least and most.
    pub span: Option<[f64; 2]>,
    /// It is shown and does not count.
    pub hollow: bool,
}

/// Values side by side on one axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    /// What the values are.
    pub across: String,
    /// Whether the middles are bars from zero, for amounts; else a line, for where values lie.
    pub bars: bool,
    /// Names of the colours; none where the rows' names say all.
    pub series: Vec<String>,
    /// From above.
    pub rows: Vec<Row>,
}

/// A row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// Below one another in it.
    pub sets: Vec<Set>,
}

/// Values of one kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Set {
    /// Which colour.
    pub series: usize,
    /// Every value, as a dot.
    pub values: Vec<f64>,
    /// The value that stands for all.
    pub middle: Option<f64>,
    /// The range that is drawn behind it, or as a whisker on a bar.
    pub span: Option<[f64; 2]>,
}

/// The sheet as an SVG that follows the reader's scheme, light or dark.
pub fn sheet(sheet: &Sheet) -> String {
    let lines = wrapped(&sheet.text);
    let head = 44.0 + 17.0 * lines.len() as f64;
    let height: f64 = sheet.panels.iter().map(Panel::height).sum();
    let style = concat!(
        include_str!("../style.css"),
        include_str!("../svg/svg.css"),
        include_str!("figures.css")
    );
    let mut paper = Paper::new(WIDTH, (head + height) as usize, style, &sheet.title);
    paper.text("heading", SIDE, 28.0, &sheet.title);
    for (number, line) in lines.iter().enumerate() {
        paper.text("dim", SIDE, 48.0 + 17.0 * number as f64, line);
    }
    let mut y = head;
    for panel in &sheet.panels {
        paper.text("title", SIDE, y + 16.0, &panel.title);
        match &panel.shows {
            Shows::Lines(lines) => lines::draw(&mut paper, lines, y + TITLE),
            Shows::Rows(rows) => rows::draw(&mut paper, rows, y + TITLE),
        }
        y += panel.height();
    }
    paper.finish()
}

impl Panel {
    fn height(&self) -> f64 {
        TITLE
            + FOOT
            + match &self.shows {
                Shows::Lines(_) => lines::HEIGHT,
                Shows::Rows(rows) => rows::height(rows),
            }
    }
}

/// The class of a series' colour.
fn colour(series: usize) -> String {
    format!("c{}", series % COLOURS)
}

/// Text in lines, broken at spaces.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= LINE => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.truncate(LINES);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use roxmltree::Document;

    /// The elements of a class, and of each what `attribute` says.
    fn of_class<'a>(document: &'a Document<'a>, class: &str, attribute: &str) -> Vec<&'a str> {
        let all = document.descendants();
        let own = all.filter(|node| {
            node.attribute("class")
                .is_some_and(|it| it.split(' ').any(|it| it == class))
        });
        own.map(|node| node.attribute(attribute).unwrap_or("")).collect()
    }

    fn lines() -> Lines {
        let point = |at: f64, value: f64| Point {
            at,
            value: Some(value),
            ..Point::default()
        };
        Lines {
            across: "round".into(),
            up: "seconds".into(),
            changes: vec![1.5],
            series: vec![
                Series {
                    name: "a <b>".into(),
                    points: vec![
                        point(1.0, 5.0),
                        Point {
                            hollow: true,
                            ..point(2.0, 10.0)
                        },
                    ],
                },
                Series {
                    name: "c".into(),
                    points: vec![
                        point(1.0, 0.0),
                        Point {
                            at: 2.0,
                            ..Point::default()
                        },
                    ],
                },
            ],
        }
    }

    fn drawn(shows: Shows) -> String {
        sheet(&Sheet {
            title: "t & u".into(),
            text: "word ".repeat(200),
            panels: vec![Panel {
                title: "p".into(),
                shows,
            }],
        })
    }

    #[test]
    fn lines_are_to_scale_and_what_failed_is_crossed() {
        let text = drawn(Shows::Lines(lines()));
        let document = Document::parse(&text).unwrap();
        let y: Vec<f64> = of_class(&document, "dot", "cy")
            .iter()
            .map(|y| y.parse().unwrap())
            .collect();
        let (low, high, none) = (y[0], y[1], y[2]);
        assert!(((none - high) / (none - low) - 2.0).abs() < 0.02, "{y:?}");
        assert_eq!(of_class(&document, "hollow", "r").len(), 1);
        assert_eq!(of_class(&document, "cross", "d").len(), 1);
        assert_eq!(of_class(&document, "change", "d").len(), 1);
        let said: Vec<&str> = document.descendants().filter_map(|node| node.text()).collect();
        for word in ["a <b>", "c", "round", "seconds", "p"] {
            assert!(said.contains(&word), "{word}: {said:?}");
        }
    }

    #[test]
    fn rows_are_to_scale_on_both_sides_of_zero() {
        let set = |middle: f64| Set {
            middle: Some(middle),
            ..Set::default()
        };
        let rows = Rows {
            across: "%".into(),
            bars: true,
            series: vec!["ours".into()],
            rows: vec![
                Row {
                    name: "gain".into(),
                    sets: vec![set(30.0)],
                },
                Row {
                    name: "loss".into(),
                    sets: vec![set(-10.0)],
                },
                Row {
                    name: "none".into(),
                    sets: vec![Set::default()],
                },
            ],
        };
        let text = drawn(Shows::Rows(rows));
        let document = Document::parse(&text).unwrap();
        let number = |attribute| -> Vec<f64> {
            let all = of_class(&document, "bar", attribute);
            all.iter().map(|it| it.parse().unwrap()).collect()
        };
        let (x, width) = (number("x"), number("width"));
        assert_eq!(x.len(), 2);
        assert!((width[0] / width[1] - 3.0).abs() < 0.02, "{width:?}");
        assert!((x[1] + width[1] - x[0]).abs() < 0.2, "{x:?} {width:?}");
    }

    #[test]
    fn whatever_the_values_are_it_is_a_picture() {
        for value in [f64::NAN, f64::INFINITY, -1e300, 0.0, 1e300] {
            let mut lines = lines();
            lines.series[0].points[0].value = Some(value);
            let set = Set {
                series: 99,
                values: vec![value; 3],
                middle: Some(value),
                span: Some([value, -value]),
            };
            let rows = Rows {
                rows: vec![Row {
                    name: "r".into(),
                    sets: vec![set],
                }],
                ..Rows::default()
            };
            for shows in [Shows::Lines(lines), Shows::Rows(rows)] {
                let text = drawn(shows);
                assert!(
                    Document::parse(&text).is_ok() && !text.contains("NaN") && !text.contains("inf"),
                    "{text}"
                );
            }
        }
        assert!(Document::parse(&drawn(Shows::Rows(Rows::default()))).is_ok());
        assert!(Document::parse(&drawn(Shows::Lines(Lines::default()))).is_ok());
    }
}
