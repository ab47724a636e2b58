//! How a schedule depends on the number of microbatches: what in its declaration names `M`.
//!
//! Where nothing does, or only a `require` that says which numbers are possible, the checks of one step speak for all
//! numbers. Otherwise a block is another one for each of them.

use crate::ast::{Call, Expr, ExprKind, FunctionBody, Schedule, ScheduleItem};
use crate::files::Files;
use std::collections::BTreeSet;

/// How a schedule depends on the number of microbatches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dependence {
    /// Nothing names it: what holds of a block holds for every number.
    Nothing,
    /// Only `require`s do: it holds for every number that they allow.
    Conditions,
    /// There is a schedule for each number.
    Varied,
}

/// How a schedule that is called so depends on the number of microbatches. An `order` always does.
pub fn dependence(files: &Files, schedule: &Schedule, call: Option<&Call>) -> Dependence {
    let names = names(files);
    let mentions = |expr: &Expr| mentions(expr, &names);
    if !is_uniform(schedule, mentions)
        || call.is_some_and(|call| call.arguments.iter().any(|argument| mentions(&argument.value)))
    {
        return Dependence::Varied;
    }
    // A `let` that names `M` is told apart from its uses only there: such a schedule is varied.
    let is_condition = |item: &ScheduleItem| match item {
        ScheduleItem::Require { condition, .. } => mentions(condition),
        _ => false,
    };
    if schedule.items.iter().any(is_condition) { Dependence::Conditions } else { Dependence::Nothing }
}

/// `M`, and what files define with it, directly or through others.
fn names(files: &Files) -> BTreeSet<&str> {
    let mut names = BTreeSet::from(["M"]);
    loop {
        let before = names.len();
        for (name, form) in files.definitions() {
            if form.value().is_some_and(|value| mentions(value, &names)) {
                names.insert(&name.text);
            }
        }
        if names.len() == before {
            return names;
        }
    }
}

/// Whether nothing but the `require`s of a building block names the number of microbatches.
fn is_uniform(schedule: &Schedule, mentions: impl Fn(&Expr) -> bool) -> bool {
    let default_mentions = |default: &Option<Expr>| default.as_ref().is_some_and(&mentions);
    let parameters = schedule.parameters.iter().any(|parameter| default_mentions(&parameter.default));
    !parameters
        && schedule.items.iter().all(|item| match item {
            ScheduleItem::Stages { count: expr, .. }
            | ScheduleItem::Slices { count: expr, .. }
            | ScheduleItem::Place { device: expr, .. } => !mentions(expr),
            ScheduleItem::Lane(_) => true,
            ScheduleItem::Parts(parts) => {
                let mut found = false;
                parts.list.each_expr(&mut |expr| found |= mentions(expr));
                !found
            }
            ScheduleItem::Reads(reads) => !mentions(&reads.sources),
            ScheduleItem::Swap(swap) => !swap.device.iter().any(&mentions),
            ScheduleItem::Frozen(frozen) => !frozen.rule.iter().any(|(_, condition)| mentions(condition)),
            ScheduleItem::Let(binding) => !mentions(&binding.value),
            // Statements stand in an `order`.
            ScheduleItem::Function(function) => {
                let defaults = function.parameters.iter().any(|parameter| default_mentions(&parameter.default));
                !defaults && !matches!(&function.body, FunctionBody::Value(value) if mentions(value))
            }
            ScheduleItem::Require { .. } | ScheduleItem::Reorder { .. } => true,
            ScheduleItem::Slots { durations, .. } => !durations.iter().any(|entry| mentions(&entry.slots)),
            ScheduleItem::Block(block) => {
                let slots = || block.tasks.iter().filter_map(|task| task.at.as_ref());
                let sizes = || block.microbatches.iter().chain([&block.period]);
                !sizes().chain(slots()).any(&mentions)
            }
            ScheduleItem::Order(_) => false,
            ScheduleItem::Weights { branches, .. } => !branches.iter().any(|(condition, _)| mentions(condition)),
        })
}

/// Whether an expression has one of some names.
fn mentions(expr: &Expr, names: &BTreeSet<&str>) -> bool {
    let mut found = false;
    expr.walk(&mut |part| {
        found |= match &part.kind {
            ExprKind::Name(name) => names.contains(name.as_str()),
            ExprKind::Call(call) => names.contains(call.name.text.as_str()),
            _ => false,
        };
    });
    found
}
