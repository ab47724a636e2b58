//! Suggestions: the name that was probably meant.

/// The most names that a message lists: all schedules of the standard library are among them.
const SHOWN: usize = 24;

/// The most letters of a name that are compared.
const LONGEST: usize = 64;

/// As many names as one reads at a glance.
const FEW: usize = 8;

/// As many letters as a name has of which a part says nothing.
const SHORT: usize = 4;

/// More letters than names have that differ in two by chance.
const LONG: usize = 8;

/// The most names that a question offers.
const OFFERED: usize = 3;

/// The candidate that takes the fewest slips of the keyboard to become `name`, if they are few for its length.
/// Capitals and `_` do not count: `Interleaved1F1B` is `interleaved_1f1b`.
pub fn closest<'n>(name: &str, candidates: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let candidates: Vec<&str> = candidates.into_iter().collect();
    let plain_name = plain(name);
    if let Some(same) = candidates.iter().find(|candidate| candidate.len() > 1 && plain(candidate) == plain_name) {
        return Some(same);
    }
    let allowed = (name.chars().count() / 3).clamp(1, 3);
    let slips = candidates.into_iter().map(|candidate| (distance(name, candidate), candidate));
    let near = slips.filter(|(slips, candidate)| *slips <= allowed && *slips < candidate.len());
    // Of equals, the one of the same length: letters are swapped more often than left out.
    near.min_by_key(|(slips, candidate)| (*slips, candidate.len().abs_diff(name.len()), *candidate))
        .map(|(_, name)| name)
}

/// The candidate that a long name, which is none of them, becomes by one or two slips of the keyboard.
pub fn slip<'n>(name: &str, candidates: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let near = candidates.into_iter().map(|candidate| (distance(name, candidate), candidate));
    near.filter(|(slips, candidate)| (1..=2).contains(slips) && candidate.len() > LONG).min().map(|(_, name)| name)
}

/// "did you mean `x`?", of those that begin with `name`, else of the closest candidate, or of a few that share half of
/// their letters with `name`.
pub fn question<'n>(name: &str, candidates: impl IntoIterator<Item = &'n str>) -> Option<String> {
    let candidates: Vec<&str> = candidates.into_iter().collect();
    let begin: Vec<&str> = candidates.iter().copied().filter(|one| plain(one).starts_with(&plain(name))).collect();
    let one = closest(name, candidates.iter().copied());
    let offered = match one {
        _ if begin.len() > 1 && name.chars().count() > SHORT => begin,
        Some(one) => vec![one],
        None => alike(name, &candidates),
    };
    let offered: Vec<String> = offered.iter().take(OFFERED).map(|name| format!("`{name}`")).collect();
    let (last, others) = offered.split_last()?;
    let others = others.join(", ");
    Some(format!("did you mean {others}{}{last}?", if others.is_empty() { "" } else { " or " }))
}

/// "did you mean `x`?" or a list of what there is.
pub fn help<'n>(name: &str, candidates: impl IntoIterator<Item = &'n str>) -> Option<String> {
    let all: Vec<&str> = candidates.into_iter().collect();
    let near = closest(name, all.iter().copied()).is_some();
    if let Some(question) = (near || all.len() > FEW).then(|| question(name, all.iter().copied())).flatten() {
        return Some(question);
    }
    let shown: Vec<String> = all.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
    let more = if all.len() > SHOWN { format!(" and {} more", all.len() - SHOWN) } else { String::new() };
    (!shown.is_empty()).then(|| format!("known here: {}{more}", shown.join(", ")))
}

/// The candidates of which a part is a part of `name` that counts: one is in the other, or half of `name` is in both.
/// Those that take the fewest slips come first.
fn alike<'n>(name: &str, candidates: &[&'n str]) -> Vec<&'n str> {
    let name = plain(name);
    let mut found: Vec<&str> = candidates.to_vec();
    found.retain(|candidate| {
        let candidate = plain(candidate);
        let shared = shared(&name, &candidate);
        // Short names share three letters by chance.
        let is_half = name.len() > SHORT && 2 * shared >= name.len();
        shared >= 2 && shared == name.len() || shared >= 3 && (shared == candidate.len() || is_half)
    });
    found.sort_by_key(|candidate| distance(&name, &plain(candidate)));
    found
}

/// A name without what people forget: capitals, `_` and `-`.
fn plain(name: &str) -> String {
    name.chars().take(LONGEST).filter(|letter| !matches!(letter, '_' | '-')).flat_map(char::to_lowercase).collect()
}

/// The length of the longest text that is in both names.
fn shared(left: &str, right: &str) -> usize {
    let starts = left.char_indices().map(|(start, _)| &left[start..]);
    let lengths = starts.map(|rest| {
        let ends = rest.char_indices().map(|(at, letter)| at + letter.len_utf8());
        ends.take_while(|end| right.contains(&rest[..*end])).last().unwrap_or(0)
    });
    lengths.max().unwrap_or(0)
}

/// Insertions, removals, replacements and swaps of neighbours (optimal string alignment).
fn distance(left: &str, right: &str) -> usize {
    let (left, right): (Vec<char>, Vec<char>) =
        (left.chars().take(LONGEST).collect(), right.chars().take(LONGEST).collect());
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
    fn capitals_and_underscores_do_not_count() {
        let names = ["1f1b", "interleaved_1f1b", "dualpipe", "dualpipe_v", "v_half"];
        assert_eq!(closest("Interleaved1F1B", names), Some("interleaved_1f1b"));
        assert_eq!(closest("DualPipeV", names), Some("dualpipe_v"));
        assert_eq!(closest("v-half", names), Some("v_half"));
    }

    #[test]
    fn few_names_are_offered_that_share_half_of_their_letters() {
        let schedules = || crate::stdlib::SCHEDULES.iter().map(|(name, _)| *name);
        let asked = |name| question(name, schedules()).unwrap_or_default();
        assert_eq!(asked("onef1b"), "did you mean `1f1b`, `dp_1f1b` or `1f1b_v`?");
        assert_eq!(asked("interleaved"), "did you mean `interleaved_1f1b` or `interleaved_zb`?");
        assert_eq!(asked("zb"), "did you mean `zb_v`, `v_zb` or `zb_h1`?");
        assert_eq!(asked("pipedream"), "");
        assert_eq!(asked("mine"), "");
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
        let help = help("nothing", schedules.iter().map(|(name, _)| *name)).expect("there are names");
        assert!(schedules.iter().all(|(name, _)| help.contains(&format!("`{name}`"))), "{help}");
    }
}
