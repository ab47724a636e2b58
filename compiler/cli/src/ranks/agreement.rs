//! Agreement: whether all ranks are about to do the same, and who differs.

use pipe_ir::digest::Digest;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Debug;

/// What a rank has found before it begins.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Word {
    /// It can begin: digests of what must be the same on all ranks, by name.
    Ready(Vec<(String, Digest)>),
    /// The target is rejected.
    Rejected,
    /// It cannot begin, and why.
    Failed(String),
}

/// A digest of an option.
pub(crate) fn of_option(option: &dyn Debug) -> Digest {
    Digest::default().and(format!("{option:?}").as_bytes())
}

/// What speaks against beginning together; nothing where all ranks say the same. By rank.
pub(crate) fn difference(words: &[Word]) -> Option<String> {
    let first = words.first()?;
    let is_ready = |word: &Word| matches!(word, Word::Ready(_));
    // Where nobody can begin, the first one has said why.
    if words.iter().all(|word| word == first) || !words.iter().any(is_ready) {
        return None;
    }
    let failed = words.iter().enumerate().find_map(|(rank, word)| match word {
        Word::Failed(message) => Some(format!("rank {rank}: {message}")),
        Word::Ready(_) | Word::Rejected => None,
    });
    if failed.is_some() {
        return failed;
    }
    let ready = || {
        words.iter().enumerate().filter_map(|(rank, word)| match word {
            Word::Ready(digests) => Some((rank, digests)),
            Word::Rejected | Word::Failed(_) => None,
        })
    };
    let Some(rejecting) = words.iter().position(|word| *word == Word::Rejected) else {
        let n_digests = ready().map(|(_, digests)| digests.len()).min().unwrap_or(0);
        let mut differences = (0..n_digests)
            .filter_map(|index| of_digest(ready().filter_map(|(rank, digests)| Some((rank, digests.get(index)?)))));
        return Some(differences.next().unwrap_or_else(|| "the ranks have different versions of pipec".to_owned()));
    };
    let accepting: Vec<usize> = ready().map(|(rank, _)| rank).collect();
    Some(format!(
        "rank {rejecting} rejects the target, {} not: every rank must read the same source with the same options",
        listed(&accepting, "does", "do"),
    ))
}

/// Who has which digest of one thing, if these are several.
fn of_digest<'a>(digests: impl Iterator<Item = (usize, &'a (String, Digest))>) -> Option<String> {
    let mut ranks: BTreeMap<Digest, Vec<usize>> = BTreeMap::new();
    let mut what = "";
    for (rank, (name, digest)) in digests {
        ranks.entry(*digest).or_default().push(rank);
        what = name;
    }
    if ranks.len() < 2 {
        return None;
    }
    let mut groups: Vec<_> = ranks.into_iter().collect();
    groups.sort_by_key(|(_, ranks)| ranks.first().copied());
    let groups: Vec<_> =
        groups.iter().map(|(digest, ranks)| format!("{} {digest}", listed(ranks, "has", "have"))).collect();
    Some(format!("the ranks do not have the same {what}: {}", groups.join(", ")))
}

/// `rank 2 has`, or `ranks 0, 1 and 3 have`.
fn listed(ranks: &[usize], one: &str, several: &str) -> String {
    match ranks {
        [rank] => format!("rank {rank} {one}"),
        [first @ .., last] => {
            let first: Vec<_> = first.iter().map(usize::to_string).collect();
            format!("ranks {} and {last} {several}", first.join(", "))
        }
        [] => format!("no rank {one}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(program: &str, data: &str) -> Word {
        let of = |text: &str| Digest::default().and(text.as_bytes());
        Word::Ready(vec![("program".to_owned(), of(program)), ("data".to_owned(), of(data))])
    }

    #[test]
    fn ranks_that_say_the_same_agree() {
        for word in [ready("a", "b"), Word::Rejected, Word::Failed("no file".to_owned())] {
            assert_eq!(difference(&vec![word; 3]), None);
        }
        let failed = |message: &str| Word::Failed(message.to_owned());
        assert_eq!(difference(&[Word::Rejected, failed("no file"), failed("another file")]), None);
    }

    #[test]
    fn whoever_differs_is_named() {
        let (a, b) = (Digest::default().and(b"a"), Digest::default().and(b"b"));
        let programs = [ready("a", ""), ready("a", ""), ready("b", ""), ready("a", "")];
        let told = format!("the ranks do not have the same program: ranks 0, 1 and 3 have {a}, rank 2 has {b}");
        assert_eq!(difference(&programs), Some(told));
        let told = format!("the ranks do not have the same data: rank 0 has {b}, rank 1 has {a}");
        assert_eq!(difference(&[ready("", "b"), ready("", "a")]), Some(told));
    }

    #[test]
    fn a_rank_that_cannot_begin_is_named() {
        let failed = Word::Failed("x.pipe: no such file".to_owned());
        assert_eq!(
            difference(&[ready("a", ""), Word::Rejected, failed]),
            Some("rank 2: x.pipe: no such file".to_owned())
        );
        let told = "rank 1 rejects the target, ranks 0 and 2 do not: every rank must read the same source with the same options";
        assert_eq!(difference(&[ready("a", ""), Word::Rejected, ready("a", "")]), Some(told.to_owned()));
    }
}
