//! What activations count in units: `F[0]=1.5,W=11/30`. `F` is what a stage saves, 1 being as much
//! as the mean stage; `W` which part of that waits for `W` when `B` has ended, all of it unless
//! said otherwise.
//!
//! For a transformer layer, 32 of 34 + 5as/h parts wait for `W` (arXiv 2401.10241, section 4.1, as
//! counted by Korthikanti et al., arXiv 2205.05198). Numbers are exact: all are counted in parts of
//! which a whole number is one activation.

use crate::dependencies::Dependencies;
use crate::parts::StageParts;
use crate::policy::frozen::{Frozen, Gradients};
use crate::ratio::{Ratio, gcd};
use crate::stage_range::{in_brackets, stages, write_stages};
use crate::units::Units;
use pipe_ir::ids::StageId;
use pipe_ir::task::{Task, TaskKind};
use pipe_syntax::source::Span;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

/// The most parts of an activation: sums of them must be countable in 64 bits.
pub const MOST_PARTS: u64 = 100_000_000;
/// The most activations that a stage may save.
const MOST_SAVED: u64 = 1_000;

/// Why a text does not say what activations count.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct ActivationError(String);

/// What is said of an activation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// `F`: what is saved.
    Saved,
    /// `W`: which part of it waits for `W`.
    Waiting,
}

/// `W`, `F[7]`, `W[0..4]`, `F.mlp`: what a number is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ActivationName {
    side: Side,
    /// The part of stages. None means whole stages.
    part: Option<Arc<str>>,
    /// All, where nothing is said.
    stages: Option<Range<u32>>,
}

impl ActivationName {
    /// The same of one stage.
    #[must_use]
    pub fn of(&self, stage: u32) -> Self {
        Self { stages: Some(stage..stage + 1), ..self.clone() }
    }

    /// Whether it is about what is saved.
    pub fn is_saved(&self) -> bool {
        self.side == Side::Saved
    }

    /// The part that is named, if one is.
    pub fn part(&self) -> Option<&str> {
        self.part.as_deref()
    }

    /// The last stage that is named, if any is.
    pub fn last(&self) -> Option<StageId> {
        self.stages.as_ref().map(|stages| StageId(stages.end - 1))
    }
}

impl FromStr for ActivationName {
    type Err = ActivationError;

    fn from_str(text: &str) -> Result<Self, ActivationError> {
        let (name, place) = in_brackets(text);
        let (name, part) = name.split_once('.').map_or((name, None), |(name, part)| (name, Some(part)));
        let side = match name {
            "F" => Side::Saved,
            "W" => Side::Waiting,
            _ => {
                return Err(ActivationError(
                    "`F` is what a stage saves, and `W` which part of it waits for `W`".to_owned(),
                ));
            }
        };
        let stages = place.map(stages).transpose().map_err(|reason| ActivationError(reason.to_string()))?;
        Ok(Self { side, part: part.map(Arc::from), stages })
    }
}

impl fmt::Display for ActivationName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = if self.side == Side::Saved { "F" } else { "W" };
        let name = self.part.as_ref().map_or_else(|| letter.to_owned(), |part| format!("{letter}.{part}"));
        match &self.stages {
            None => f.write_str(&name),
            Some(stages) => write_stages(f, &name, stages),
        }
    }
}

/// A number, and what it is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// What it is about.
    pub name: ActivationName,
    /// How much.
    pub share: Ratio,
    /// Where it was written, if it was in a source.
    pub span: Option<Span>,
}

impl Entry {
    /// What speaks against it, whatever stages there are.
    pub fn excess(&self) -> Option<String> {
        let Self { name, share, .. } = self;
        match name.side {
            Side::Waiting if share.is_above(1) => {
                Some(format!("`{name}` is {share}, and at most 1, all of an activation, can wait for `W`"))
            }
            Side::Saved if share.is_above(MOST_SAVED) => {
                Some(format!("`{name}` is {share}; at most {MOST_SAVED} are possible"))
            }
            _ => None,
        }
    }
}

/// What is said of all activations, without regard to how many stages there are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Shares {
    /// In the order of the text. Those about some stages come before those about all, and of these the last one holds.
    pub entries: Vec<Entry>,
}

impl FromStr for Shares {
    type Err = ActivationError;

    /// Reads `name=number` pairs between commas.
    fn from_str(text: &str) -> Result<Self, ActivationError> {
        let mut entries: Vec<Entry> = Vec::new();
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let error =
                |reason: &str| ActivationError(format!("`{pair}`: {reason}, as in `W=0.366,W[0]=1/2,F[7]=1.5`"));
            let (name, number) = pair.split_once('=').ok_or_else(|| error("expected name=number"))?;
            let wanted = "expected a number with at most 6 decimals, or one divided by another";
            let share: Ratio = number.parse().map_err(|()| error(wanted))?;
            let name: ActivationName = name.parse().map_err(|reason: ActivationError| error(&reason.0))?;
            if entries.iter().any(|entry| entry.name == name) {
                return Err(error(&format!("`{name}` was given before")));
            }
            let entry = Entry { name, share, span: None };
            if let Some(reason) = entry.excess() {
                return Err(ActivationError(reason));
            }
            entries.push(entry);
        }
        Ok(Self { entries })
    }
}

impl fmt::Display for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each: Vec<String> =
            self.entries.iter().map(|Entry { name, share, .. }| format!("{name}={share}")).collect();
        f.write_str(&each.join(","))
    }
}

/// What is said of each stage, and of all, on one side and of one part.
type OfStages = (Vec<Option<Ratio>>, Option<Ratio>);

impl Shares {
    /// The activations of each stage or part. Entries about stages that are not there say nothing. If no entry names a
    /// part, the first part on compute holds the activation of its stage.
    ///
    /// # Errors
    /// Of how many parts an activation would have to be, if that is too many.
    pub fn of(&self, n_stages: usize, parts: &StageParts) -> Result<Activations, u128> {
        let mut said: BTreeMap<(bool, Option<&str>), OfStages> = BTreeMap::new();
        for Entry { name, share, .. } in &self.entries {
            let none = || (vec![None; parts.n_stages(n_stages)], None);
            let (each, all) = said.entry((name.is_saved(), name.part())).or_insert_with(none);
            match &name.stages {
                Some(stages) => {
                    let own = each.iter_mut().take(stages.end as usize).skip(stages.start as usize);
                    own.for_each(|own| *own = Some(*share));
                }
                None => *all = all.or(Some(*share)),
            }
        }
        let of = |side: Side, stage: u32, part: Option<&str>| {
            let (each, all) = said.get(&(side == Side::Saved, part))?;
            each.get(stage as usize).copied().flatten().or(*all)
        };
        let names_parts = self.entries.iter().any(|entry| entry.name.side == Side::Saved && entry.name.part.is_some());
        let each = (0..n_stages).map(StageId::from_index).map(|row| {
            let (stage, part) = (parts.stage_of(row), parts.part(row).map(|part| &*part.name));
            let holds = names_parts || part.is_none() || parts.is_first_on_compute(row);
            let whole = of(Side::Saved, stage.0, None).unwrap_or(Ratio::ONE);
            let saved = match part.filter(|_| names_parts) {
                Some(part) => of(Side::Saved, stage.0, Some(part)).unwrap_or(Ratio::whole(0)),
                None if holds => whole,
                None => Ratio::whole(0),
            };
            let own = part.and_then(|part| of(Side::Waiting, stage.0, Some(part)));
            let part = own.or_else(|| of(Side::Waiting, stage.0, None)).unwrap_or(Ratio::ONE);
            // Both are read from at most 16 digits, so products do not overflow in 128 bits.
            let (above, below) = (wide(saved.above) * wide(part.above), wide(saved.below) * wide(part.below));
            let common = gcd(above, below).max(1);
            ((wide(saved.above), wide(saved.below)), (above / common, below / common))
        });
        let each: Vec<_> = each.collect();
        let mut whole = 1_u128;
        for below in each.iter().flat_map(|(saved, waiting)| [saved.1, waiting.1]) {
            whole = whole / gcd(whole, below) * below;
            if whole > wide(MOST_PARTS) {
                return Err(whole);
            }
        }
        let parts = |(above, below): (u128, u128)| u64::try_from(above * (whole / below)).unwrap_or(u64::MAX);
        let stages = each.into_iter().map(|(saved, waiting)| Held { saved: parts(saved), waiting: parts(waiting) });
        let whole = u64::try_from(whole).unwrap_or(u64::MAX);
        Ok(Activations { whole, ..Activations::in_other_parts(stages.collect()) })
    }
}

fn wide(number: u64) -> u128 {
    number.into()
}

/// What a device holds of a microbatch of a stage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// From the task that saves it to the end of `B`, or of `BW`.
    pub saved: u64,
    /// From there to the end of `W`: no more than that.
    pub waiting: u64,
}

impl Held {
    const WHOLE: Self = Self { saved: 1, waiting: 1 };

    const fn times(self, count: u64) -> Self {
        Self { saved: self.saved.saturating_mul(count), waiting: self.waiting.saturating_mul(count) }
    }

    /// What a task of a kind gives back when it ends.
    pub const fn given_back(self, kind: TaskKind) -> u64 {
        match kind {
            TaskKind::BackwardInput => self.saved - self.waiting,
            TaskKind::BackwardWeight => self.waiting,
            TaskKind::Backward => self.saved,
            TaskKind::Forward | TaskKind::Recompute | TaskKind::Update => 0,
        }
    }
}

/// What the activations of each stage count.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Activations {
    /// The parts of one activation: of the mean stage, if all count 1.
    pub whole: u64,
    /// By [`StageId`], in parts; where nothing is said, one each until `W`.
    stages: Vec<Held>,
    /// The size of each slice, if the mean slice has the size [`Self::mean`]. Empty if all slices are equal.
    lengths: Vec<u64>,
    /// The size of the mean slice.
    mean: u64,
}

impl Default for Activations {
    /// One for each stage, until its `W`.
    fn default() -> Self {
        Self::in_other_parts(Vec::new())
    }
}

impl Activations {
    /// One for each stage, until its `W`. Its first part on compute holds it, and its other parts hold nothing.
    pub fn of_parts(parts: &StageParts) -> Self {
        let rows = (0..parts.len()).map(StageId::from_index);
        let held = |row: StageId| match parts.is_first_on_compute(row) {
            true => Held::WHOLE,
            false => Held { saved: 0, waiting: 0 },
        };
        Self::in_other_parts(rows.map(held).collect())
    }

    /// What a stage holds, in parts. If slices differ in length, this is for the mean slice.
    pub fn of(&self, stage: StageId) -> Held {
        self.of_mean(stage).times(self.mean)
    }

    /// What the stage of a task holds for its microbatch or slice, in parts.
    pub fn of_task(&self, task: Task) -> Held {
        let slice = task.microbatch.index().checked_rem(self.lengths.len());
        self.of_mean(task.stage).times(slice.map_or(self.mean, |slice| self.lengths[slice]))
    }

    /// What a stage holds for its shortest and its longest slice, in parts.
    pub fn range(&self, stage: StageId) -> [Held; 2] {
        let ends = [self.lengths.iter().min(), self.lengths.iter().max()];
        ends.map(|length| self.of_mean(stage).times(length.copied().unwrap_or(self.mean)))
    }

    fn of_mean(&self, stage: StageId) -> Held {
        self.stages.get(stage.index()).copied().unwrap_or(Held::WHOLE)
    }

    /// The same for slices with these shares of the sequence. Empty shares mean equal slices.
    ///
    /// # Errors
    /// The number of parts that an activation would need, if that is too many.
    pub fn sliced(self, shares: &[u32]) -> Result<Self, u128> {
        let total: u128 = shares.iter().map(|share| u128::from(*share)).sum();
        let all = shares.iter().map(|share| u128::from(*share) * shares.len() as u128);
        let common = all.clone().fold(total, gcd);
        if common == 0 {
            return Ok(self);
        }
        let whole = wide(self.whole) * (total / common);
        if whole > wide(MOST_PARTS) {
            return Err(whole);
        }
        // All fit: the whole has at most 10^8 parts, and there are at most 1,024 slices.
        let part = |count: u128| u64::try_from(count / common).unwrap_or(u64::MAX);
        Ok(Self { whole: part(whole * common), lengths: all.map(part).collect(), mean: part(total), ..self })
    }

    /// The same where some stages are frozen: nothing waits for a `W` that is not there, and what runs
    /// forward only saves nothing.
    #[must_use]
    pub fn without(&self, frozen: &Frozen, n_stages: usize) -> Self {
        if !frozen.any() {
            return self.clone();
        }
        let held = |stage| {
            let held = self.of_mean(stage);
            match frozen.gradients(stage) {
                Gradients::Both => held,
                Gradients::OfInput => Held { waiting: 0, ..held },
                Gradients::None => Held { saved: 0, waiting: 0 },
            }
        };
        Self { stages: (0..n_stages).map(StageId::from_index).map(held).collect(), ..self.clone() }
    }

    /// What a task takes when it starts, or gives back when it ends, if negative.
    pub fn change(&self, dependencies: &Dependencies, task: Task) -> i64 {
        let held = self.of_task(task);
        if dependencies.is_first(task) { held.saved.cast_signed() } else { -held.given_back(task.kind).cast_signed() }
    }

    /// What stages hold in something else, such as bytes.
    pub fn in_other_parts(stages: Vec<Held>) -> Self {
        Self { whole: 1, stages, lengths: Vec::new(), mean: 1 }
    }

    /// The most parts that any stage saves.
    pub fn most(&self) -> u64 {
        let longest = self.lengths.iter().copied().max().unwrap_or(self.mean);
        self.stages.iter().map(|held| held.saved).max().unwrap_or(1).saturating_mul(longest)
    }

    /// Whether each is one activation until its `W`.
    pub fn is_plain(&self) -> bool {
        self.stages.iter().all(|held| held.times(self.mean) == Held { saved: self.whole, waiting: self.whole })
    }

    /// Some parts in activations, as people read them.
    pub fn words(&self, parts: u64) -> String {
        Units::of_stages(parts, usize::try_from(self.whole).unwrap_or(usize::MAX), 1).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pipe_ir::ids::MicrobatchId;

    fn shares(text: &str) -> Shares {
        text.parse().expect("well-formed")
    }

    #[test]
    fn what_is_said_of_some_stages_comes_before_what_is_said_of_all_and_later_ones_hold() {
        let of = |text: &str| {
            let found = shares(text).of(3, &StageParts::default()).expect("few parts");
            (found.whole, [0, 1, 2].map(|stage| found.of(StageId(stage))).map(|held| [held.saved, held.waiting]))
        };
        assert_eq!(of(""), (1, [[1, 1]; 3]));
        assert_eq!(of("W=11/30"), (30, [[30, 11]; 3]));
        assert_eq!(of("W=0.25,F[0]=2"), (4, [[8, 2], [4, 1], [4, 1]]));
        assert_eq!(of("W[1..3]=1/2, W = 0 , F=1.5 ,W[2]=2/3"), (4, [[6, 0], [6, 3], [6, 4]]));
        assert_eq!(of("W[9]=1/7,F=0"), (1, [[0, 0]; 3]));
        assert!(shares("W=1").of(4, &StageParts::default()).is_ok_and(|found| found.is_plain()));
        assert!(shares("W=1/3").of(4, &StageParts::default()).is_ok_and(|found| !found.is_plain()));
    }

    #[test]
    fn slices_of_unequal_length_count_by_their_length() {
        let found = shares("F[1]=2,W[1]=1/2")
            .of(2, &StageParts::default())
            .expect("few parts")
            .sliced(&[5, 4, 4, 3])
            .expect("few parts");
        let of = |stage: u32, slice: u32| {
            let task = Task { kind: TaskKind::Forward, stage: StageId(stage), microbatch: MicrobatchId(4 + slice) };
            (found.of_task(task).saved, found.of_task(task).waiting)
        };
        assert_eq!((found.whole, found.of(StageId(0)).saved, found.of(StageId(1)).saved), (4, 4, 8));
        assert_eq!([0, 1, 2, 3].map(|slice| of(0, slice)), [(5, 5), (4, 4), (4, 4), (3, 3)]);
        assert_eq!([0, 1, 2, 3].map(|slice| of(1, slice)), [(10, 5), (8, 4), (8, 4), (6, 3)]);
        assert_eq!(found.range(StageId(1)).map(|held| held.saved), [6, 10]);
        assert_eq!(found.most(), 10);
        let plain = Activations::default();
        assert_eq!(plain.clone().sliced(&[]), Ok(plain.clone()));
        assert_eq!(plain.clone().sliced(&[3, 3]).map(|found| found.whole), Ok(1));
        assert_eq!(plain.sliced(&[1, 200_000_000]), Err(200_000_001));
    }

    #[test]
    fn shares_round_trip() {
        for text in ["W=0.366", "W=11/30,F[7]=1.5,W[0..4]=0", ""] {
            assert_eq!(shares(text).to_string(), text);
        }
        assert_eq!(shares("W = 2/4").to_string(), "W=0.5");
    }

    #[test]
    fn parts_must_be_countable() {
        assert_eq!(shares("W=1/99999989,W[0]=0.5").of(2, &StageParts::default()), Err(2 * 99_999_989));
        assert!(
            shares("F=1000,W=1/99999989")
                .of(2, &StageParts::default())
                .is_ok_and(|found| found.of(StageId(1)).waiting == 1000)
        );
    }

    #[test]
    fn malformed_shares_name_the_pair() {
        for text in [
            "W",
            "W=",
            "W=-1",
            "B=1",
            "W=1/0",
            "W=1/2/3",
            "W=1e9",
            "W[]=1",
            "W[3..3]=1",
            "W==1",
            "F[1=2",
            "W=0.0000001",
        ] {
            let error = text.parse::<Shares>().expect_err("malformed");
            assert!(error.to_string().contains(&format!("`{text}`")), "{error}");
        }
        let of = |text: &str| text.parse::<Shares>().expect_err("out of range").to_string();
        assert_eq!(of("W[2]=3/2"), "`W[2]` is 1.5, and at most 1, all of an activation, can wait for `W`");
        assert_eq!(of("F=1001"), "`F` is 1001; at most 1000 are possible");
        assert!(of("W=1,F=1,W=0").starts_with("`W=0`: `W` was given before"));
    }
}
