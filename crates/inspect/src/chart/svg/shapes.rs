//! Amounts and points by pixel, as paths: as few commands as the picture has changes.

use super::paper::Path;

/// Where a lane of one start is, in pixels.
#[derive(Clone, Copy, Debug)]
pub struct Area {
    /// Left edge.
    pub x: f64,
    /// Upper edge.
    pub y: f64,
    /// Width.
    pub width: f64,
    /// Height.
    pub height: f64,
}

impl Area {
    /// Its lower edge.
    pub fn bottom(&self) -> f64 {
        self.y + self.height
    }

    /// Where a time is, of those that its width stands for.
    pub fn x_at(&self, time_ns: u64, span_ns: u64) -> f64 {
        self.x + self.width * (time_ns as f64 / span_ns.max(1) as f64).min(1.0)
    }
}

/// The ground below values that are equally wide, the largest shown being `most`: from below, or hanging from
/// above.
pub fn filled(area: Area, values: &[f64], most: f64, hanging: bool) -> Path {
    let mut path = Path::default();
    let (edge, sign) = match hanging {
        true => (area.y, 1.0),
        false => (area.bottom(), -1.0),
    };
    let step = area.width / values.len().max(1) as f64;
    let level = |value: &f64| {
        let share = (value / most).clamp(0.0, 1.0);
        // What is there is seen.
        let pixels = share * area.height;
        if *value > 0.0 { pixels.max(0.6) } else { 0.0 }
    };
    let levels = values.iter().map(|value| (level(value) * 2.0).round() / 2.0);
    let mut open = false;
    let mut last = 0.0;
    for (index, level) in levels.chain([0.0]).enumerate() {
        if level == last {
            continue;
        }
        let x = area.x + step * index as f64;
        if open {
            path.across(x);
        } else {
            path.go(x, edge);
        }
        path.down(edge + sign * level);
        open = level > 0.0;
        last = level;
    }
    path
}

/// A line through values that are equally wide.
pub fn line(area: Area, values: &[f64], most: f64) -> Path {
    let mut path = Path::default();
    let step = area.width / values.len().max(1) as f64;
    let mut last = f64::NAN;
    for (index, value) in values.iter().enumerate() {
        let y = area.bottom() - (value / most).clamp(0.0, 1.0) * area.height;
        let y = (y * 2.0).round() / 2.0;
        let x = area.x + step * index as f64;
        if last.is_nan() {
            path.go(x, y);
        } else if y != last {
            path.across(x).down(y);
        }
        last = y;
    }
    if !last.is_nan() {
        path.across(area.x + area.width);
    }
    path
}

/// Points of four kinds, added up by cells of some pixels.
pub struct Cells {
    area: Area,
    columns: usize,
    rows: usize,
    amounts: Vec<[u64; 4]>,
}

impl Cells {
    /// None yet, in cells of so many pixels each way.
    pub fn new(area: Area, pixels: f64, tallest: f64) -> Cells {
        let columns = ((area.width / pixels) as usize).max(1);
        let rows = ((area.height / pixels.max(tallest)) as usize).max(1);
        Cells {
            area,
            columns,
            rows,
            amounts: vec![[0; 4]; columns * rows],
        }
    }

    /// Columns and rows.
    pub fn size(&self) -> (usize, usize) {
        (self.columns, self.rows)
    }

    /// Adds a point of some weight.
    pub fn add(&mut self, column: usize, row: usize, kind: usize, weight: u64) {
        if let Some(cell) = self.amounts.get_mut(row * self.columns + column) {
            cell[kind] = cell[kind].saturating_add(weight);
        }
    }

    /// A path for each kind: of several in a cell that of most weight is drawn, of equals the last.
    pub fn paths(&self) -> [Path; 4] {
        let mut paths = [(); 4].map(|()| Path::default());
        let (wide, high) = (
            self.area.width / self.columns as f64,
            self.area.height / self.rows as f64,
        );
        let kind = |cell: &[u64; 4]| {
            let most = (0..4).max_by_key(|kind| cell[*kind]);
            most.filter(|kind| cell[*kind] > 0)
        };
        for (row, cells) in self.amounts.chunks(self.columns).enumerate() {
            let (top, bottom) = (
                self.area.y + high * row as f64,
                self.area.y + high * (row + 1) as f64,
            );
            let mut column = 0;
            while column < cells.len() {
                let Some(found) = kind(&cells[column]) else {
                    column += 1;
                    continue;
                };
                let from = column;
                while column < cells.len() && kind(&cells[column]) == Some(found) {
                    column += 1;
                }
                let x = self.area.x + wide * from as f64;
                paths[found]
                    .go(x, top)
                    .across(self.area.x + wide * column as f64)
                    .down(bottom)
                    .across(x);
            }
        }
        paths
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::svg::paper::Paper;

    const AREA: Area = Area {
        x: 0.0,
        y: 0.0,
        width: 8.0,
        height: 4.0,
    };

    fn drawn(path: &Path) -> String {
        let mut paper = Paper::new(1, 1, "", "");
        paper.path("p", path);
        let text = paper.finish();
        text.split(" d=\"")
            .nth(1)
            .unwrap_or("\"")
            .split('"')
            .next()
            .unwrap()
            .to_owned()
    }

    #[test]
    fn equal_neighbours_are_one_step() {
        let path = filled(AREA, &[0.0, 1.0, 1.0, 2.0, 0.0, 0.0, 1.0, 1.0], 2.0, false);
        assert_eq!(drawn(&path), "M1 4V2H3V0H4V4M6 4V2H8V4");
        let path = filled(AREA, &[1.0, 0.0], 1.0, true);
        assert_eq!(drawn(&path), "M0 0V4H4V0");
        assert_eq!(drawn(&filled(AREA, &[0.0], 1.0, false)), "");
        assert_eq!(drawn(&line(AREA, &[0.0, 0.0, 1.0, 1.0], 1.0)), "M0 4H4V0H8");
    }

    #[test]
    fn points_of_a_cell_are_one() {
        let mut cells = Cells::new(AREA, 2.0, 0.0);
        assert_eq!(cells.size(), (4, 2));
        for _ in 0..1000 {
            cells.add(0, 0, 1, 1);
            cells.add(1, 0, 1, 1);
            cells.add(3, 1, 2, 1);
        }
        cells.add(3, 1, 0, 1);
        cells.add(99, 99, 0, 1);
        let paths = cells.paths();
        assert_eq!(drawn(&paths[1]), "M0 0H4V2H0");
        assert_eq!(drawn(&paths[2]), "M6 2H8V4H6");
        assert_eq!(drawn(&paths[0]), "");
    }
}
