//! Medians, and the figures that later tables and the targets refer to.

use std::collections::BTreeMap;

/// Returns the value below which a share of the values lies, by nearest rank.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        len => sorted[((len - 1) as f64 * share).round() as usize],
    }
}

/// Returns the median.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// Returns the median of the ratios of the rounds.
pub fn median_ratio(values: &[f64], to: &[f64]) -> f64 {
    let ratios: Vec<f64> = values.iter().zip(to).map(|(value, to)| value / to).collect();
    median(&ratios)
}

/// Figures by group, subject and unit, such as `alone`, `snowmint shared`, `x fetch_add`.
#[derive(Debug, Default)]
pub struct Figures(BTreeMap<(String, String, String), f64>);

impl Figures {
    /// Records a figure.
    pub fn note(&mut self, group: &str, subject: &str, what: &str, value: f64) {
        self.0.insert((group.into(), subject.into(), what.into()), value);
    }

    /// Returns a recorded figure.
    pub fn get(&self, group: &str, subject: &str, what: &str) -> Option<f64> {
        self.0.get(&(group.into(), subject.into(), what.into())).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let values = [5.0, 1.0, 4.0, 2.0, 3.0];
        assert!((median(&values) - 3.0).abs() < 1e-9);
        assert!((quantile(&values, 1.0) - 5.0).abs() < 1e-9);
        assert!(median(&[]).is_nan());
        assert!((median_ratio(&[2.0, 9.0, 4.0], &[1.0, 3.0, 1.0]) - 3.0).abs() < 1e-9);
    }
}
