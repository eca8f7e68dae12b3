//! An axis: which values it has room for, where they are, and its round numbers.

/// From a value at one pixel to another at another.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    /// For all of the values, and zero if `zero`, between the pixels `from` and `to`. What is no number has no place on it.
    pub fn of(values: impl Iterator<Item = f64>, zero: bool, from: f64, to: f64) -> Axis {
        /// More does not fit into a picture anyhow, and less has no differences.
        const MOST: f64 = 1e12;
        let start = if zero { (0.0, 0.0) } else { (f64::MAX, f64::MIN) };
        let usable = values.filter(|value| value.is_finite());
        let (mut low, mut high) = usable.fold(start, |(low, high), value| {
            let value = value.clamp(-MOST, MOST);
            (low.min(value), high.max(value))
        });
        if low > high {
            (low, high) = (0.0, 1.0);
        }
        // A little room beyond what is shown, and never none.
        let room = (high - low) * 0.06;
        let room = if room > 1e-9 { room } else { 0.5 };
        if !zero || low < 0.0 {
            low -= room;
        }
        high += room;
        Axis { low, high, from, to }
    }

    /// Where a value is; what lies beyond is at the end.
    pub fn at(&self, value: f64) -> f64 {
        let value = if value.is_nan() { self.low } else { value };
        let share = (value.clamp(self.low, self.high) - self.low) / (self.high - self.low);
        self.from + (self.to - self.from) * share
    }

    /// Round values with a label each, not closer than so many pixels, nor than `step`.
    pub fn ticks(&self, apart: f64, step: f64) -> Vec<(f64, String)> {
        let most = ((self.to - self.from).abs() / apart).max(1.0);
        let least = ((self.high - self.low) / most).max(step);
        let power = 10f64.powf(least.log10().floor());
        let factors = [1.0, 2.0, 5.0, 10.0];
        let factor = factors.into_iter().find(|factor| factor * power >= least * 0.999);
        let step = factor.unwrap_or(10.0) * power;
        let digits = (-step.log10().floor()).clamp(0.0, 9.0) as usize;
        let first = (self.low / step).ceil() as i64;
        let last = (self.high / step).floor() as i64;
        (first..=last)
            .map(|number| (number as f64 * step, format!("{:.digits$}", number as f64 * step)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(values: &[f64], zero: bool) -> Vec<String> {
        let axis = Axis::of(values.iter().copied(), zero, 0.0, 400.0);
        axis.ticks(80.0, 0.0)
            .into_iter()
            .map(|(_, label)| label)
            .collect()
    }

    #[test]
    fn numbers_are_round_and_have_room() {
        assert_eq!(labels(&[6.6], true), ["0", "2", "4", "6"]);
        assert_eq!(labels(&[0.13, 0.01], true), ["0.00", "0.05", "0.10"]);
        assert_eq!(labels(&[-10.0, 30.0], true), ["-10", "0", "10", "20", "30"]);
        assert_eq!(labels(&[256.0, 768.0], false), ["400", "600"]);
        assert!(labels(&[], true).len() >= 2);
        let rounds = Axis::of([1.0, 3.0].into_iter(), false, 0.0, 600.0).ticks(48.0, 1.0);
        let labels: Vec<String> = rounds.into_iter().map(|(_, label)| label).collect();
        assert_eq!(labels, ["1", "2", "3"]);
    }

    #[test]
    fn places_are_in_proportion_and_on_the_axis() {
        let axis = Axis::of([0.0, 10.0].into_iter(), true, 100.0, 206.0);
        assert_eq!(axis.at(0.0), 100.0);
        assert!((axis.at(10.0) - 200.0).abs() < 1e-9);
        assert_eq!(axis.at(f64::INFINITY), 206.0);
        assert_eq!(axis.at(f64::NAN), 100.0);
        for values in [vec![], vec![f64::NAN], vec![3.0; 5], vec![f64::MAX, f64::MIN]] {
            let axis = Axis::of(values.iter().copied(), false, 0.0, 100.0);
            assert!(
                axis.ticks(20.0, 0.0).len() <= 6 && axis.at(3.0).is_finite(),
                "{values:?}"
            );
        }
    }
}
