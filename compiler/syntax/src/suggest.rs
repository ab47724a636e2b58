//! Suggestions: the name that was probably meant.

/// The most names that a message lists: all schedules of the standard library are among them.
const SHOWN: usize = 24;

/// As many names as one reads at a glance.
const FEW: usize = 8;

/// The candidate that takes the fewest slips of the keyboard to become `name`, if they are few for its length.
pub fn closest<'n>(name: &str, candidates: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let candidates: Vec<&str> = candidates.into_iter().collect();
    if let Some(same) = candidates.iter().find(|candidate| candidate.eq_ignore_ascii_case(name) && candidate.len() > 1)
    {
        return Some(same);
    }
    let allowed = (name.chars().count() / 3).clamp(1, 3);
    let slips = candidates.into_iter().map(|candidate| (distance(name, candidate), candidate));
    let near = slips.filter(|(slips, candidate)| *slips <= allowed && *slips < candidate.len());
    // Of equals, the one of the same length: letters are swapped more often than left out.
    near.min_by_key(|(slips, candidate)| (*slips, candidate.len().abs_diff(name.len()), *candidate))
        .map(|(_, name)| name)
}

/// "did you mean `x`?" or a list of what there is.
pub fn help<'n>(name: &str, candidates: impl IntoIterator<Item = &'n str>) -> Option<String> {
    let all: Vec<&str> = candidates.into_iter().collect();
    if let Some(name) = closest(name, all.iter().copied()) {
        return Some(format!("did you mean `{name}`?"));
    }
    let mut all = all;
    if all.len() > FEW {
        // The one that was meant is among the first.
        all.sort_by_key(|candidate| distance(name, candidate));
    }
    let shown: Vec<String> = all.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
    let more = if all.len() > SHOWN { format!(" and {} more", all.len() - SHOWN) } else { String::new() };
    (!shown.is_empty()).then(|| format!("known here: {}{more}", shown.join(", ")))
}

/// Insertions, removals, replacements and swaps of neighbours (optimal string alignment).
fn distance(left: &str, right: &str) -> usize {
    let (left, right): (Vec<char>, Vec<char>) = (left.chars().take(64).collect(), right.chars().take(64).collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=right.len()).collect()];
    for i in 1..=left.len() {
        let mut row = vec![i];
        for j in 1..=right.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(left[i - 1] != right[j - 1]);
            let mut least = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && left[i - 1] == right[j - 2] && left[i - 2] == right[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[left.len()][right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_forgiven_and_strangers_are_not() {
        let names = ["warmup", "chunks", "D", "M"];
        assert_eq!(closest("wamrup", names), Some("warmup"));
        assert_eq!(closest("chunk", names), Some("chunks"));
        assert_eq!(closest("cooldown", names), None);
        assert_eq!(closest("N", names), None);
        assert_eq!(closest("WarmUp", names), Some("warmup"));
        assert_eq!(closest("d", names), None);
    }

    #[test]
    fn a_list_that_is_cut_says_so() {
        let names: Vec<String> = (0..30).map(|n| format!("parameter{n}")).collect();
        let help = help("x", names.iter().map(String::as_str)).expect("there are names");
        assert!(help.ends_with("`parameter23` and 6 more"), "{help}");
    }

    #[test]
    fn all_standard_schedules_are_listed() {
        let schedules = crate::stdlib::SCHEDULES;
        let help = help("mine", schedules.iter().map(|(name, _)| *name)).expect("there are names");
        assert!(schedules.iter().all(|(name, _)| help.contains(&format!("`{name}`"))), "{help}");
    }
}
