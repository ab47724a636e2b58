//! The loss over the steps as a line of block characters.

/// From the lowest to the highest.
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Together with the words beside it, it fits into 60 columns.
const COLUMNS: usize = 32;
/// Fewer steps are no curve.
const LEAST: usize = 4;

/// The curve of a run, and its lowest loss. Each column is the mean of as many steps. `None` where a loss is no number,
/// where all are equal, or of few steps.
pub(super) fn curve(losses: &[f64]) -> Option<String> {
    if losses.len() < LEAST || !losses.iter().all(|loss| loss.is_finite()) {
        return None;
    }
    let columns = losses.len().min(COLUMNS);
    let mean = |column: usize| {
        let steps = &losses[column * losses.len() / columns..(column + 1) * losses.len() / columns];
        steps.iter().sum::<f64>() / steps.len() as f64
    };
    let means: Vec<f64> = (0..columns).map(mean).collect();
    let (low, high) =
        means.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), mean| (low.min(*mean), high.max(*mean)));
    let lowest = losses.iter().copied().fold(f64::INFINITY, f64::min);
    let level = |mean: &f64| {
        let height = (mean - low) / (high - low) * (LEVELS.len() - 1) as f64;
        LEVELS[(height.round() as usize).min(LEVELS.len() - 1)]
    };
    (high > low).then(|| format!("{}  lowest {lowest:.4}", means.iter().map(level).collect::<String>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_steps_have_a_column_each() {
        assert_eq!(curve(&[8.0, 4.0, 2.0, 1.0, 1.0]).as_deref(), Some("█▄▂▁▁  lowest 1.0000"));
    }

    #[test]
    fn of_many_steps_each_column_is_a_mean() {
        let losses: Vec<f64> = (0..64).map(|step| f64::from(64 - step)).collect();
        let line = curve(&losses).expect("numbers that differ");
        let (drawn, words) = line.split_once("  ").expect("the curve, then words");
        assert_eq!((drawn.chars().count(), words), (COLUMNS, "lowest 1.0000"));
        assert!(drawn.starts_with('█') && drawn.ends_with('▁'));
        assert!(drawn.chars().is_sorted_by(|left, right| left >= right), "{drawn}");
    }

    #[test]
    fn what_has_no_shape_is_no_curve() {
        for losses in [&[1.0, 0.5, 0.2][..], &[1.0; 9], &[1.0, 2.0, f64::NAN, 3.0], &[1.0, f64::INFINITY, 1.0, 1.0]] {
            assert_eq!(curve(losses), None, "{losses:?}");
        }
        assert_eq!(curve(&[f64::MAX, -f64::MAX, 0.0, 1.0]).map(|line| line.chars().count() > 0), Some(true));
    }
}
