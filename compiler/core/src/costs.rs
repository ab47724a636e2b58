//! Costs as users give them: `F=1,B=1,W=1,comm=0`.

use crate::pipeline::StageCosts;
use crate::schedule::Costs;
use crate::units::{Ticks, parse_decimal};
use pipe_ir::task::TaskKind;
use std::fmt;

/// Why a text is no list of costs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CostError(String);

impl fmt::Display for CostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CostError {}

impl Default for StageCosts {
    /// One unit for `F`, `B` and `W`, two for `BW`; communication and updates are free.
    fn default() -> Self {
        let mut tasks = [Ticks::UNIT; TaskKind::ALL.len()];
        tasks[TaskKind::Backward.index()] = Ticks::UNIT + Ticks::UNIT;
        tasks[TaskKind::Update.index()] = Ticks::ZERO;
        Self { tasks, pairs: [None; TaskKind::ALL.len()], latency: Ticks::ZERO }
    }
}

impl StageCosts {
    /// Reads `name=number` pairs between commas. What is left out keeps its default; `BW` defaults to `B` + `W`, and `F&BW`,
    /// a forward and a backward that share a device, to the sum.
    ///
    /// # Errors
    /// Says which pair has another form.
    pub fn parse(text: &str) -> Result<Self, CostError> {
        let mut costs = Self::default();
        let mut fused = None;
        let mut said: Vec<String> = Vec::new();
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let error = |reason: &str| Err(CostError(format!("`{pair}`: {reason}, as in `F=1,B=1,W=0.5,comm=0.1`")));
            let Some((name, number)) = pair.split_once('=') else { return error("expected name=number") };
            let Some(number) = parse_decimal(number.trim()) else {
                return error("expected a number from 0 to 10^9 with at most 6 decimals");
            };
            let name = pair_name(name);
            if said.contains(&name) {
                return error(&format!("`{name}` was given before"));
            }
            match name.as_str() {
                "F" => costs.tasks[TaskKind::Forward.index()] = Ticks(number),
                "B" => costs.tasks[TaskKind::BackwardInput.index()] = Ticks(number),
                "W" => costs.tasks[TaskKind::BackwardWeight.index()] = Ticks(number),
                "BW" => fused = Some(Ticks(number)),
                "U" => costs.tasks[TaskKind::Update.index()] = Ticks(number),
                "comm" => costs.latency = Ticks(number),
                "F & B" => costs.pairs[TaskKind::BackwardInput.index()] = Some(Ticks(number)),
                "F & BW" => costs.pairs[TaskKind::Backward.index()] = Some(Ticks(number)),
                // Recomputation: no schedule asks for it yet, and costs may be shared with tools that do.
                "R" => {}
                _ => return error("known costs are F, B, W, BW, F&B, F&BW, R, U and comm"),
            }
            said.push(name);
        }
        let halves = costs.tasks[TaskKind::BackwardInput.index()] + costs.tasks[TaskKind::BackwardWeight.index()];
        costs.tasks[TaskKind::Backward.index()] = fused.unwrap_or(halves);
        match costs.hasty_pair() {
            Some((_, reason)) => Err(CostError(reason)),
            None => Ok(costs),
        }
    }

    /// A pair that is said to end before one of its tasks could alone, and the words for it.
    #[must_use]
    pub fn hasty_pair(&self) -> Option<(TaskKind, String)> {
        [TaskKind::BackwardInput, TaskKind::Backward].into_iter().find_map(|backward| {
            let pair = self.pairs[backward.index()]?;
            let longer = |kind: &TaskKind| self.tasks[kind.index()] > pair;
            let kind = [TaskKind::Forward, backward].into_iter().find(longer)?;
            let (alone, letters, own) = (self.tasks[kind.index()], backward.letters(), kind.letters());
            Some((backward, format!("`F & {letters}` takes {pair}, and `{own}` alone takes {alone}")))
        })
    }
}

/// `F & BW` for `BW&F`, other names as they are.
#[must_use]
pub fn pair_name(name: &str) -> String {
    match name.split_once('&').map(|(one, other)| (one.trim(), other.trim())) {
        Some(("F", other)) => format!("F & {other}"),
        Some((one, "F")) => format!("F & {one}"),
        Some((one, other)) => format!("{one} & {other}"),
        None => name.trim().to_owned(),
    }
}

/// The same costs for every stage.
#[must_use]
pub fn of_stages(costs: &StageCosts, n_stages: usize) -> Costs {
    Costs { tasks: vec![costs.tasks; n_stages], pairs: costs.pairs, latency: costs.latency }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_read_exactly_and_fused_backward_follows_from_its_halves() {
        let costs = StageCosts::parse("F=1.5, B=2,W=0.000001,comm=.25").expect("well-formed");
        assert_eq!(costs.tasks[TaskKind::Forward.index()], Ticks(1_500_000));
        assert_eq!(costs.tasks[TaskKind::Backward.index()], Ticks(2_000_001));
        assert_eq!(costs.latency, Ticks(250_000));
        assert_eq!(StageCosts::parse(""), Ok(StageCosts::default()));
        let pair = StageCosts::parse("BW & F = 2.5").expect("well-formed");
        assert_eq!(pair.pairs[TaskKind::Backward.index()], Some(Ticks(2_500_000)));
        assert_eq!(StageCosts::parse("F&BW=2.5"), Ok(pair));
        let fused = StageCosts::parse("BW=7,B=1").expect("well-formed");
        assert_eq!(fused.tasks[TaskKind::Backward.index()], Ticks(7_000_000));
    }

    #[test]
    fn malformed_costs_name_the_pair() {
        for text in ["F", "F=", "F=-1", "G=1", "F=1e9", "F==1", "F&W=1", "F&F=1", "&=1"] {
            let error = StageCosts::parse(text).expect_err("malformed");
            assert!(error.to_string().contains(&format!("`{text}`")), "{error}");
        }
        let error = StageCosts::parse("F=1,B=1,F=2").expect_err("contradicts itself");
        assert!(error.to_string().starts_with("`F=2`: `F` was given before"), "{error}");
        let error = StageCosts::parse("F&BW=1.5").expect_err("too short");
        assert_eq!(error.to_string(), "`F & BW` takes 1.5, and `BW` alone takes 2");
    }
}
