//! Partition: a list of layers cut into stages, so that the most expensive stage is as cheap as possible.

use std::ops::Range;

/// Cuts a list into `n_stages` ranges, none empty. Their largest cost is the least possible; of all such cuts the one
/// with the least sum of squares is taken. `None` where there are fewer layers than stages, or no stage.
pub fn partition(costs: &[u64], n_stages: usize) -> Option<Vec<Range<usize>>> {
    if n_stages == 0 || costs.len() < n_stages {
        return None;
    }
    let mut sums: Vec<u128> = vec![0];
    sums.extend(costs.iter().scan(0, |sum, cost| {
        *sum += u128::from(*cost);
        Some(*sum)
    }));
    let limit = least_limit(&sums, n_stages);
    Some(balance(&sums, n_stages, limit))
}

/// The least limit under which greedily filled stages are few enough. Splitting a stage never costs anything.
fn least_limit(sums: &[u128], n_stages: usize) -> u128 {
    let fits = |limit: u128| {
        let (mut start, mut stages) = (0, 1);
        for end in 1..sums.len() {
            if sums[end] - sums[end - 1] > limit {
                return false;
            }
            if sums[end] - sums[start] > limit {
                start = end - 1;
                stages += 1;
            }
        }
        stages <= n_stages
    };
    let (mut low, mut high) = (0, sums[sums.len() - 1]);
    while low < high {
        let middle = low + (high - low) / 2;
        if fits(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

/// Least sum of squares under a limit, by dynamic programming over (stages, layers cut so far).
fn balance(sums: &[u128], n_stages: usize, limit: u128) -> Vec<Range<usize>> {
    let n_layers = sums.len() - 1;
    // For each end the best sum with the stages so far, and for each stage and end where the last stage starts.
    let mut best: Vec<Option<u128>> = vec![None; n_layers + 1];
    best[0] = Some(0);
    let mut starts = vec![vec![0; n_layers + 1]; n_stages];
    for row in &mut starts {
        let mut next = vec![None; n_layers + 1];
        for end in 1..=n_layers {
            for start in (0..end).rev() {
                let cost = sums[end] - sums[start];
                if cost > limit {
                    break;
                }
                let Some(before) = best[start] else { continue };
                let total = before.saturating_add(cost.saturating_mul(cost));
                if next[end].is_none_or(|known| total < known) {
                    next[end] = Some(total);
                    row[end] = start;
                }
            }
        }
        best = next;
    }
    let mut ranges = Vec::with_capacity(n_stages);
    let mut end = n_layers;
    for row in starts.iter().rev() {
        ranges.push(row[end]..end);
        end = row[end];
    }
    ranges.reverse();
    ranges
}

#[cfg(test)]
mod tests {
    use super::partition;

    #[test]
    fn equal_layers_are_spread_evenly() {
        assert_eq!(partition(&[5; 8], 4), Some(vec![0..2, 2..4, 4..6, 6..8]));
    }

    #[test]
    fn the_largest_stage_is_as_small_as_possible() {
        assert_eq!(partition(&[1, 9, 9, 9, 9, 3], 4), Some(vec![0..2, 2..3, 3..4, 4..6]));
    }

    #[test]
    fn a_stage_is_never_empty() {
        assert_eq!(partition(&[0, 0, 100], 3), Some(vec![0..1, 1..2, 2..3]));
        assert_eq!(partition(&[1, 2], 3), None);
        assert_eq!(partition(&[], 0), None);
    }

    #[test]
    fn no_cut_of_a_small_chain_is_better() {
        let costs = [7, 1, 4, 4, 9, 2, 2, 8, 1, 3];
        for n_stages in 1..=costs.len() {
            let found = partition(&costs, n_stages).expect("there are enough layers");
            let worst = found.iter().map(|range| costs[range.clone()].iter().sum::<u64>()).max();
            assert_eq!(worst, Some(exhaustive(&costs, n_stages)), "{n_stages} stages");
        }
    }

    fn exhaustive(costs: &[u64], n_stages: usize) -> u64 {
        if n_stages == 1 {
            return costs.iter().sum();
        }
        (1..=costs.len() + 1 - n_stages)
            .map(|first| costs[..first].iter().sum::<u64>().max(exhaustive(&costs[first..], n_stages - 1)))
            .min()
            .expect("there is a cut")
    }
}
