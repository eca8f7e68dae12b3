//! Medians and bootstrap intervals of paired runs.

/// The median; the mean of the middle two when there is an even number. Zero values give NaN.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[half],
        _ => (sorted[half - 1] + sorted[half]) / 2.0,
    }
}

/// The mean. Zero values give NaN.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The standard deviation of a sample (divided by n − 1). Fewer than two values give NaN.
pub fn sd(values: &[f64]) -> f64 {
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    if values.len() < 2 {
        return f64::NAN;
    }
    (squares / (values.len() - 1) as f64).sqrt()
}

/// Resamples drawn; more change nothing in the digits shown.
const RESAMPLES: usize = 5000;

/// The 95 % bootstrap interval (percentile method, Efron and Tibshirani 1993, ch. 13) of `statistic` over rounds 0 to `rounds` − 1.
///
/// Whole rounds are drawn, so that runs of one round, which shared the machine's mood, stay together. `statistic` gets the drawn
/// round numbers; draws on which it is not finite are left out. `None` below two rounds.
pub fn bootstrap(rounds: usize, mut statistic: impl FnMut(&[usize]) -> f64) -> Option<[f64; 2]> {
    if rounds < 2 {
        return None;
    }
    // xorshift64* with a fixed seed: the same runs give the same interval.
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut draw = vec![0; rounds];
    let mut values = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        for round in &mut draw {
            seed ^= seed >> 12;
            seed ^= seed << 25;
            seed ^= seed >> 27;
            *round = (seed.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % rounds;
        }
        let value = statistic(&draw);
        if value.is_finite() {
            values.push(value);
        }
    }
    values.sort_by(f64::total_cmp);
    let at = |share: f64| values.get((values.len() as f64 * share) as usize).copied();
    Some([at(0.025)?, at(0.975)?])
}

/// The values of the rounds drawn.
pub fn pick(values: &[f64], draw: &[usize]) -> Vec<f64> {
    draw.iter()
        .filter_map(|round| values.get(*round).copied())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_deviation_of_a_sample() {
        assert_eq!(mean(&[2.0, 4.0, 6.0]), 4.0);
        assert_eq!(sd(&[2.0, 4.0, 6.0]), 2.0);
        assert!(sd(&[1.0]).is_nan());
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn constant_data_have_no_width_and_one_round_no_interval() {
        assert_eq!(
            bootstrap(5, |draw| median(&pick(&[2.0; 5], draw))),
            Some([2.0, 2.0])
        );
        assert_eq!(bootstrap(1, |_| 1.0), None);
    }

    #[test]
    fn interval_of_a_mean_is_near_the_normal_one() {
        // 40 values with mean 0 and standard deviation 1.01: 1.96 × 1.01 / √40 = 0.31.
        let values: Vec<f64> = (0..40).map(|i| if i % 2 == 0 { 1.0 } else { -1.0 }).collect();
        let mean = |draw: &[usize]| pick(&values, draw).iter().sum::<f64>() / draw.len() as f64;
        let [low, high] = bootstrap(40, mean).unwrap();
        assert!(
            (low + 0.31).abs() < 0.06 && (high - 0.31).abs() < 0.06,
            "{low} {high}"
        );
    }

    #[test]
    fn pairing_sees_through_a_shared_disturbance() {
        // The machine is up to three times slower in some rounds; one setup always takes 90 % of the other.
        let cold = [1.0, 3.0, 2.0, 1.5, 2.5];
        let with: Vec<f64> = cold.iter().map(|c| c * 0.9).collect();
        let ratio = |draw: &[usize]| {
            let ratios: Vec<f64> = draw.iter().map(|r| with[*r] / cold[*r]).collect();
            median(&ratios)
        };
        let [low, high] = bootstrap(5, ratio).unwrap();
        assert!((low - 0.9).abs() < 1e-9 && (high - 0.9).abs() < 1e-9);
    }

    #[test]
    fn intervals_repeat() {
        let values = [1.0, 5.0, 2.0, 8.0];
        let go = || bootstrap(4, |draw| median(&pick(&values, draw)));
        assert_eq!(go(), go());
    }
}
