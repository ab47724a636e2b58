//! Whether a building block is the same for every number of microbatches: nothing in its declaration names `M`.
//!
//! Only then do the checks of one step speak for all of them. A `require` that names `M` restricts what is possible, so
//! it counts as well.

use crate::syntax::ast::{Call, Expr, ExprKind, Schedule, ScheduleItem};
use crate::window::Weights;

/// Whether a schedule is a building block that does not depend on the number of microbatches.
#[must_use]
pub fn is_uniform(schedule: &Schedule) -> bool {
    let default_mentions = |default: &Option<Expr>| default.as_ref().is_some_and(mentions);
    let parameters = schedule.parameters.iter().any(|parameter| default_mentions(&parameter.default));
    !parameters
        && schedule.items.iter().all(|item| match item {
            ScheduleItem::Stages { count: expr, .. }
            | ScheduleItem::Slices { count: expr, .. }
            | ScheduleItem::Place { device: expr, .. }
            | ScheduleItem::Require { condition: expr, .. } => !mentions(expr),
            ScheduleItem::Let(binding) => !mentions(&binding.value),
            ScheduleItem::Slots { durations, .. } => !durations.iter().any(|(_, slots)| mentions(slots)),
            ScheduleItem::Block(block) => {
                let slots = || block.tasks.iter().filter_map(|task| task.at.as_ref());
                let sizes = || block.microbatches.iter().chain([&block.period]);
                !sizes().chain(slots()).any(mentions)
            }
            ScheduleItem::Order(_) => false,
            // With few microbatches in a step, the previous version may not be there in time.
            ScheduleItem::Weights { branches, otherwise, .. } => {
                let mut all = branches.iter().map(|(_, weights)| *weights).chain([*otherwise]);
                all.all(|weights| weights != Weights::Previous)
                    && !branches.iter().any(|(condition, _)| mentions(condition))
            }
            ScheduleItem::Reorder { .. } => true,
        })
}

/// Whether the arguments of a call name the number of microbatches.
#[must_use]
pub fn call_mentions(call: &Call) -> bool {
    call.arguments.iter().any(|argument| mentions(&argument.value))
}

/// Whether an expression names the number of microbatches. Expressions are far less deep than the stack: the parser
/// bounds them.
fn mentions(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Integer(_) | ExprKind::Decimal(_) => false,
        ExprKind::Name(name) => name == "M",
        ExprKind::Unary(_, operand) => mentions(operand),
        ExprKind::Binary(_, left, right) => mentions(left) || mentions(right),
        ExprKind::If { condition, then, otherwise } => mentions(condition) || mentions(then) || mentions(otherwise),
        ExprKind::Call(call) => call.arguments.iter().any(|argument| mentions(&argument.value)),
        ExprKind::List(items) => items.iter().any(mentions),
    }
}
