//! Campaigns: many damaged programs, and what became of them.

use super::kinds::Kind;
use super::subjects::Subject;
use super::verdict::{Verdict, analyze};
use super::{Mutant, damage};
use crate::schedules::Dice;
use pipe_ir::text;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many of each verdict.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Found by the verifier.
    pub rejected: u64,
    /// Accepted: the same results.
    pub same: u64,
    /// Accepted: the same results up to the order of sums.
    pub reordered: u64,
    /// Accepted: sound, and another computation.
    pub sound: u64,
    /// Accepted, and wrong.
    pub wrong: u64,
}

impl Counts {
    fn add(&mut self, verdict: &Verdict) {
        *match verdict {
            Verdict::Rejected => &mut self.rejected,
            Verdict::Same => &mut self.same,
            Verdict::Reordered => &mut self.reordered,
            Verdict::Sound => &mut self.sound,
            Verdict::Wrong(_) => &mut self.wrong,
        } += 1;
    }

    /// All together.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.rejected + self.same + self.reordered + self.sound + self.wrong
    }

    fn row(&self) -> [u64; 6] {
        [self.total(), self.rejected, self.same, self.reordered, self.sound, self.wrong]
    }
}

/// A damaged program that the verifier should have found.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Hole {
    /// Makes the same program again, of the same subjects.
    pub seed: u64,
    /// Which program was damaged, how, and what it does.
    pub text: String,
}

/// What came out.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Findings {
    /// Over everything.
    pub all: Counts,
    /// By kind of damage.
    pub kinds: BTreeMap<Kind, Counts>,
    /// By family.
    pub families: BTreeMap<String, Counts>,
    /// What the verifier should have found.
    pub holes: BTreeSet<Hole>,
}

/// The seed of one mutant of a campaign.
#[must_use]
pub fn seed_of(campaign: u64, number: u64) -> u64 {
    let mut dice = Dice(campaign.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number);
    (dice.below(1 << 31) as u64) << 31 | dice.below(1 << 31) as u64
}

/// Damages as many programs as there are seeds, on some threads; `progress` hears of each thousand.
pub fn run(subjects: &[Subject], seeds: &[u64], jobs: usize, progress: &(dyn Fn(u64, u64) + Sync)) -> Findings {
    let (next, findings) = (AtomicU64::new(0), Mutex::new(Findings::default()));
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
                    let (subject, kind, verdict, hole) = one(subjects, *seed);
                    let Ok(mut findings) = findings.lock() else { return };
                    findings.all.add(&verdict);
                    findings.kinds.entry(kind).or_default().add(&verdict);
                    findings.families.entry(subject.family.clone()).or_default().add(&verdict);
                    findings.holes.extend(hole);
                    if findings.all.total().is_multiple_of(1000) {
                        progress(findings.all.total(), findings.all.wrong);
                    }
                }
            });
        }
    });
    findings.into_inner().unwrap_or_default()
}

fn one(subjects: &[Subject], seed: u64) -> (&Subject, Kind, Verdict, Option<Hole>) {
    let mut dice = Dice(seed);
    let families: BTreeSet<&str> = subjects.iter().map(|subject| subject.family.as_str()).collect();
    let families: Vec<&str> = families.into_iter().collect();
    let family = families[dice.below(families.len())];
    let own: Vec<&Subject> = subjects.iter().filter(|subject| subject.family == family).collect();
    let subject = own[dice.below(own.len())];
    let mutant = damage(&subject.program, &mut dice);
    let kind = mutant.kind;
    let verdict = analyze(subject, mutant.clone(), seed);
    let hole = match &verdict {
        Verdict::Wrong(why) => Some(Hole { seed, text: explain(subject, &mutant, why) }),
        _ => None,
    };
    (subject, kind, verdict, hole)
}

fn explain(subject: &Subject, mutant: &Mutant, why: &str) -> String {
    let mut out = format!("{} ({}), {:?}: {why}\n", subject.family, subject.name, mutant.kind);
    let (before, after) = (text::print(&subject.program), text::print(&mutant.program));
    let (before, after): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let same = before.iter().zip(&after).take_while(|(one, other)| one == other).count();
    let rest = before.len().min(after.len()) - same;
    let tail = before.iter().rev().zip(after.iter().rev()).take(rest).take_while(|(one, other)| one == other).count();
    for (sign, lines) in [('-', &before), ('+', &after)] {
        for line in lines[same..lines.len() - tail].iter().take(8) {
            // Lines of a text are written without fail.
            let _ = writeln!(out, "    {sign} {}: {}", same + 1, line.trim());
        }
    }
    out
}

impl Findings {
    /// Tables of all counts.
    #[must_use]
    pub fn tables(&self) -> String {
        let mut out = String::new();
        let kinds = self.kinds.iter().map(|(kind, counts)| (format!("{kind:?}"), counts)).collect();
        let families = self.families.iter().map(|(family, counts)| (family.clone(), counts)).collect();
        for (title, rows) in [("kind of damage", kinds), ("family", families)] {
            table(&mut out, title, rows);
        }
        table(&mut out, "all", vec![("mutants".to_owned(), &self.all)]);
        out
    }
}

fn table(out: &mut String, title: &str, rows: Vec<(String, &Counts)>) {
    let heads = ["mutants", "rejected", "same", "reordered", "another", "wrong"];
    out.push_str(&format!("{title:<22}"));
    heads.iter().for_each(|head| out.push_str(&format!("{head:>10}")));
    for (name, counts) in rows {
        out.push_str(&format!("\n{name:<22}"));
        counts.row().iter().for_each(|count| out.push_str(&format!("{count:>10}")));
    }
    out.push_str("\n\n");
}
