//! Amounts added up in equal intervals of time: what keeps a picture small however much happened.

/// Amounts in equal intervals from 0 to a span.
pub struct Bins {
    span_ns: u64,
    /// What falls into an interval with an end of its own in it.
    parts: Vec<f64>,
    /// By how much the amount of each interval differs from that of the one before, of what covers whole
    /// intervals; and by how many amounts.
    steps: Vec<(f64, i64)>,
}

impl Bins {
    /// So many intervals, at least one.
    pub fn new(span_ns: u64, count: usize) -> Bins {
        let count = count.max(1);
        Bins {
            span_ns: span_ns.max(1),
            parts: vec![0.0; count],
            steps: vec![(0.0, 0); count + 1],
        }
    }

    /// Adds an amount spread evenly from a time to another; what lies beyond the span is left out. Where both
    /// are the same, all of it falls into one interval.
    pub fn add(&mut self, from_ns: u64, to_ns: u64, amount: f64) {
        if from_ns > self.span_ns {
            return;
        }
        let (first, within) = self.interval_at(from_ns);
        if to_ns <= from_ns {
            self.parts[first] += amount;
            return;
        }
        let rate = amount / (to_ns - from_ns) as f64;
        let width = self.width_ns();
        let end_ns = to_ns.min(self.span_ns);
        let (last, beyond) = self.interval_at(end_ns);
        if first == last {
            self.parts[first] += rate * (end_ns - from_ns) as f64;
            return;
        }
        self.parts[first] += rate * width * (1.0 - within);
        self.parts[last] += rate * width * beyond;
        let (next, end) = (first + 1, last);
        self.steps[next] = (self.steps[next].0 + rate * width, self.steps[next].1 + 1);
        self.steps[end] = (self.steps[end].0 - rate * width, self.steps[end].1 - 1);
    }

    /// The amounts.
    pub fn sums(self) -> Vec<f64> {
        let (mut whole, mut open) = (0.0, 0);
        let rows = self.parts.into_iter().zip(self.steps);
        rows.map(|(part, (step, more))| {
            (whole, open) = (whole + step, open + more);
            // What was added and taken away again leaves a rounding error, which grows with the amounts.
            if open == 0 {
                whole = 0.0;
            }
            f64::max(part + whole, 0.0)
        })
        .collect()
    }

    fn width_ns(&self) -> f64 {
        self.span_ns as f64 / self.parts.len() as f64
    }

    /// The interval of a time, and how far into it.
    fn interval_at(&self, time_ns: u64) -> (usize, f64) {
        let exact = time_ns as f64 / self.width_ns();
        let index = (exact as usize).min(self.parts.len() - 1);
        (index, (exact - index as f64).clamp(0.0, 1.0))
    }
}

/// Samples in so many intervals, each of the time since the one before it; of several in an interval the
/// mean. Ends with the last interval that has one.
pub fn sampled(span_ns: u64, count: usize, samples: impl Iterator<Item = (u64, f64)>) -> Vec<f64> {
    let mut intervals = vec![(0.0, 0u32); count.max(1)];
    let (mut from, mut known) = (0, 0);
    for (ns, value) in samples.take_while(|(ns, _)| *ns <= span_ns) {
        let to = place(ns, span_ns, intervals.len());
        let value = if value.is_finite() { value } else { 0.0 };
        // The interval where a sample meets the next belongs to both.
        for interval in &mut intervals[from.min(to)..=to] {
            *interval = (interval.0 + value, interval.1 + 1);
        }
        (from, known) = (to, to + 1);
    }
    intervals.truncate(known);
    let mean = |(sum, count): (f64, u32)| sum / f64::from(count.max(1));
    intervals.into_iter().map(mean).collect()
}

/// Of `count` equal parts of `span`, the one that `value` falls into.
pub fn place(value: u64, span: u64, count: usize) -> usize {
    let exact = value as f64 / span.max(1) as f64 * count as f64;
    (exact as usize).min(count.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_spread_over_the_intervals_it_covers() {
        let mut bins = Bins::new(100, 10);
        bins.add(15, 45, 30.0);
        bins.add(99, 99, 7.0);
        assert_eq!(bins.sums(), [0.0, 5.0, 10.0, 10.0, 5.0, 0.0, 0.0, 0.0, 0.0, 7.0]);
    }

    #[test]
    fn where_nothing_was_there_is_nothing() {
        let mut bins = Bins::new(13_000_000_000, 1000);
        for i in 0..2000 {
            bins.add(i * 600_001, i * 600_001 + 77_777_777, 1e9 / 7.0);
        }
        let sums = bins.sums();
        assert!(
            sums[50] > 1e8 && sums[110..].iter().all(|sum| *sum == 0.0),
            "{:?}",
            &sums[100..120]
        );
    }

    #[test]
    fn what_lies_beyond_the_span_is_left_out() {
        let mut bins = Bins::new(100, 4);
        bins.add(50, 150, 100.0);
        bins.add(200, 300, 9.0);
        bins.add(u64::MAX, u64::MAX, 9.0);
        assert_eq!(bins.sums(), [0.0, 0.0, 25.0, 25.0]);
    }

    #[test]
    fn sums_do_not_depend_on_the_number_of_intervals() {
        for count in [1, 3, 1000] {
            let mut bins = Bins::new(1_000_000_007, count);
            for i in 0..1000 {
                bins.add(i * 1_000_000, i * 1_000_000 + 777_777, 1.0);
            }
            let sum: f64 = bins.sums().iter().sum();
            assert!((sum - 1000.0).abs() < 1e-3, "{count}: {sum}");
        }
    }

    #[test]
    fn a_sample_tells_of_the_time_before_it() {
        let samples = [(25, 1.0), (50, 0.5), (75, f64::NAN), (900, 9.0)];
        let intervals = sampled(100, 8, samples.into_iter());
        assert_eq!(intervals, [1.0, 1.0, 0.75, 0.5, 0.25, 0.0, 0.0]);
        assert!(sampled(100, 8, std::iter::empty()).is_empty());
    }

    #[test]
    fn places() {
        assert_eq!(place(0, 0, 5), 0);
        assert_eq!(place(99, 100, 10), 9);
        assert_eq!(place(100, 100, 10), 9);
        assert_eq!(place(u64::MAX, u64::MAX, 3), 2);
        assert_eq!(place(5, 10, 0), 0);
    }
}
