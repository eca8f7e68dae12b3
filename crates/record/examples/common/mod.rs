//! What the examples that measure have in common.

/// Prints the median of values with their quartiles, and returns it.
pub fn print(what: &str, unit: &str, values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let at = |share: f64| values[((values.len() - 1) as f64 * share) as usize];
    println!(
        "{what}: {:.2} {unit} (quartiles {:.2} to {:.2}, n = {})",
        at(0.5),
        at(0.25),
        at(0.75),
        values.len()
    );
    at(0.5)
}
