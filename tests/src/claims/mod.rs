//! The campaign of claims: what reports say of all schedules of a target, against what they print
//! for single ones, and against all that there are.
//!
//! A [`Claim`] is a sentence such as "no schedule in this memory is shorter than this". It is
//! contradicted by a shorter schedule within its scope that any command prints ([`Printed`]), or
//! that trying all of them finds ([`oracle`]). Whoever adds a command that claims something adds
//! its claims to [`campaign::analysis`].

pub mod campaign;
pub mod case;
pub mod machines;
pub mod oracle;
pub mod order;
pub mod tuning;

use case::Case;
use oracle::{Answer, Goal, Scope, shorter};
use order::{Forms, source};

/// What is said of all schedules of a kind: none of them is shorter than this.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Where it was said.
    pub by: String,
    /// The bound, in ticks.
    pub bound: u64,
    /// Of which schedules.
    pub scope: Scope,
}

/// What is said of one schedule.
#[derive(Clone, Debug)]
pub struct Printed {
    /// Where it was said.
    pub by: String,
    /// First start to last end, in ticks.
    pub makespan: u64,
    /// The longest time from first start to last end on one device.
    pub longest_stage: u64,
    /// The forms of its backwards.
    pub forms: Forms,
    /// Activations of single stages that each device holds at most.
    pub peaks: Vec<usize>,
}

impl Printed {
    fn length(&self, goal: Goal) -> u64 {
        match goal {
            Goal::Makespan => self.makespan,
            Goal::LongestStage => self.longest_stage,
        }
    }
}

/// What became of a claim.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// All schedules were tried, and none is shorter.
    True,
    /// There are too many to try all of them; none that was looked at is shorter.
    Open,
    /// This speaks against it.
    False(String),
}

impl Claim {
    /// Compares a claim with what was printed for single schedules, and with all schedules, if they are not too many.
    #[must_use]
    pub fn verdict(&self, case: &Case, printed: &[Printed], patience: usize) -> Verdict {
        let Scope { goal, forms, capacity } = &self.scope;
        let is_within = |one: &&Printed| {
            one.forms.are_in(forms) && one.peaks.iter().zip(capacity).all(|(peak, capacity)| peak <= capacity)
        };
        let shortest = printed.iter().filter(is_within).min_by_key(|one| one.length(*goal));
        if let Some(one) = shortest.filter(|one| one.length(*goal) < self.bound) {
            let (own, by) = (one.length(*goal), &one.by);
            return Verdict::False(format!("{}: {goal:?} {} at least, but {by} prints {own}", self.by, self.bound));
        }
        match shorter(case, &self.scope, self.bound, patience) {
            Answer::None => Verdict::True,
            Answer::TooMany => Verdict::Open,
            Answer::Shorter(orders) => {
                let run = order::run(case, &orders);
                let text = source(case, &orders);
                Verdict::False(format!("{}: {goal:?} {} at least, but {run:?}\n{text}", self.by, self.bound))
            }
        }
    }
}
