//! The items of a schedule's declaration: each line once, each name with one meaning.

use super::{ScheduleSetting, too_many_variables};
use pipe_syntax::ast::{self, Expr, ScheduleItem, Statement, Weights};
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::expr::arguments::Values;
use pipe_syntax::expr::errors::{FIXED, built_in, fixed};
use pipe_syntax::expr::scope::{Form, Scope};
use pipe_syntax::limits::Report;
use pipe_syntax::source::Span;
use std::collections::BTreeMap;

/// The items of a schedule, each at most once.
#[derive(Debug, Default)]
pub(super) struct Items<'a> {
    pub(super) stages: Option<(&'a Expr, Span)>,
    pub(super) slices: Option<(&'a Expr, Span)>,
    pub place: Option<PlaceLine<'a>>,
    pub(super) lanes: Vec<&'a ast::Lane>,
    pub(super) parts: Option<&'a ast::StageParts>,
    pub(super) reads: Option<&'a ast::Reads>,
    pub(super) swap: Option<&'a ast::Swap>,
    pub(super) frozen: Option<&'a ast::FrozenStages>,
    pub(super) slots: Option<(&'a [ast::SlotDuration], Span)>,
    pub(super) body: Option<(Body<'a>, Span)>,
    pub(super) reorder: Option<Span>,
    pub(super) weights: Option<WeightsLine<'a>>,
    pub(super) conditions: Vec<(&'a Expr, Span)>,
    pub(super) lets: Vec<(&'a ast::Name, Form<'a>)>,
}

/// `place`: names for a stage and perhaps a microbatch, and the device or the several that they give.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlaceLine<'a> {
    pub(super) stage: &'a ast::Name,
    pub(super) microbatch: Option<&'a ast::Name>,
    pub(super) device: &'a Expr,
    pub(super) span: Span,
}

impl<'a> Items<'a> {
    /// The block that tasks come from.
    pub(super) fn block(&self) -> Option<&'a ast::Block> {
        match self.body {
            Some((Body::Block(block), _)) => Some(block),
            _ => None,
        }
    }
}

impl<'a> PlaceLine<'a> {
    pub(super) fn names(self) -> impl Iterator<Item = &'a ast::Name> {
        std::iter::once(self.stage).chain(self.microbatch)
    }
}

/// A `weights` line.
#[derive(Clone, Copy, Debug)]
pub(super) struct WeightsLine<'a> {
    pub(super) branches: &'a [(Expr, Weights)],
    pub(super) otherwise: Weights,
    pub(super) span: Span,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Body<'a> {
    Block(&'a ast::Block),
    Order(&'a ast::Order),
}

/// Sorts the items of a schedule, and says which are missing or there twice.
pub(super) fn items_of<'a>(schedule: &'a ast::Schedule, report: &mut Report) -> Items<'a> {
    let mut items = Items::default();
    for item in &schedule.items {
        let again = match item {
            ScheduleItem::Stages { count, span } => {
                items.stages.replace((count, *span)).map(|(_, first)| ("stages", first, *span))
            }
            ScheduleItem::Slices { count, span } => {
                items.slices.replace((count, *span)).map(|(_, first)| ("slices", first, *span))
            }
            ScheduleItem::Place { stage, microbatch, device, span } => {
                let place = PlaceLine { stage, microbatch: microbatch.as_ref(), device, span: *span };
                items.place.replace(place).map(|first| ("place", first.span, *span))
            }
            ScheduleItem::Lane(lane) => {
                items.lanes.push(lane);
                None
            }
            ScheduleItem::Parts(parts) => items.parts.replace(parts).map(|first| ("parts", first.span, parts.span)),
            ScheduleItem::Reads(reads) => items.reads.replace(reads).map(|first| ("reads", first.span, reads.span)),
            ScheduleItem::Swap(swap) => items.swap.replace(swap).map(|first| ("swap", first.span, swap.span)),
            ScheduleItem::Frozen(frozen) => {
                items.frozen.replace(frozen).map(|first| ("frozen", first.span, frozen.span))
            }
            ScheduleItem::Slots { durations, span } => {
                items.slots.replace((durations, *span)).map(|(_, first)| ("slots", first, *span))
            }
            ScheduleItem::Block(block) => {
                let previous = items.body.replace((Body::Block(block), block.span));
                previous.map(|(_, first)| ("block` or `order", first, block.span))
            }
            ScheduleItem::Order(order) => {
                let previous = items.body.replace((Body::Order(order), order.span));
                previous.map(|(_, first)| ("block` or `order", first, order.span))
            }
            ScheduleItem::Reorder { span } => items.reorder.replace(*span).map(|first| ("reorder", first, *span)),
            ScheduleItem::Weights { branches, otherwise, span } => {
                let versions = WeightsLine { branches, otherwise: *otherwise, span: *span };
                items.weights.replace(versions).map(|first| ("weights", first.span, *span))
            }
            ScheduleItem::Require { condition, span } => {
                items.conditions.push((condition, *span));
                None
            }
            ScheduleItem::Let(binding) => {
                items.lets.push((&binding.name, Form::Let(&binding.value)));
                None
            }
            ScheduleItem::Function(function) => {
                items.lets.push((&function.name, Form::Function(function)));
                None
            }
        };
        if let Some((word, first, span)) = again {
            let message = format!("`{}` sets `{word}` twice", schedule.name.text);
            let error = Diagnostic::error(Code::RepeatedItem, span, "given again", message);
            report.add(error.label(first, "given here"));
        }
    }
    missing(schedule, &items, report);
    items
}

fn missing(schedule: &ast::Schedule, items: &Items<'_>, report: &mut Report) {
    let checks = [
        (items.stages.is_none(), "stages", "say how many stages there are, for example `stages D`"),
        (items.place.is_none(), "place", "say where stages live, for example `place s on s % D`"),
        (
            items.body.is_none(),
            "block` or `order",
            "say what is done when, with `block every T { .. }` or `order d { .. }`",
        ),
    ];
    let absent: Vec<_> = checks.into_iter().filter(|(absent, _, _)| *absent).collect();
    if let Some((_, _, help)) = absent.first() {
        let words: Vec<String> = absent.iter().map(|(_, word, _)| format!("no `{word}`")).collect();
        let message = format!("schedule `{}` has {}", schedule.name.text, words.join(" and "));
        let error = Diagnostic::error(Code::MissingItem, schedule.name.span, "in this schedule", message);
        report.add(error.help(*help));
    }
    if let (Some((Body::Order(_), _)), Some(span)) = (items.body, items.reorder) {
        let message = "`reorder` improves a `block`, and this schedule has an `order`";
        report.add(Diagnostic::error(Code::RepeatedItem, span, "nothing to improve", message));
    }
    let Some(versions) = &items.weights else { return };
    let all = versions.branches.iter().map(|(_, weights)| *weights).chain([versions.otherwise]);
    let Some(weights) = all.into_iter().find(|weights| *weights != Weights::Flush) else { return };
    let (word, span) = (weights.word(), versions.span);
    let (place, why) = match (items.body, items.reorder) {
        (Some((Body::Order(order), _)), _) => (order.span, "an `order` says what one step does"),
        (_, Some(reorder)) => (reorder, "`reorder` changes what stands where at the ends of a step"),
        _ => return,
    };
    let message = format!("`weights {word}` needs a `block` that runs on from step to step: {why}");
    let error = Diagnostic::error(Code::WeightsNeedBlock, span, format!("`{word}` weights"), message);
    report.add(error.label(place, "this is of one step").help("write a `block` without `reorder`, or `weights flush`"));
}

/// The scope of a schedule: constants, `let`s and variables, each name with one meaning.
pub(super) fn scope_of<'a>(
    schedule: &'a ast::Schedule,
    items: &Items<'a>,
    arguments: &Values,
    setting: ScheduleSetting<'a>,
    report: &mut Report,
) -> Scope<'a> {
    let mut constants = setting.outside.clone();
    constants.extend(arguments.iter().map(|(name, value)| (name.clone(), *value)));
    constants.insert("D".to_owned(), i64::from(setting.n_devices));
    constants.insert("M".to_owned(), i64::from(setting.n_microbatches));
    let mut scope = Scope::new(constants);
    let mut known = setting.outside.clone();
    known.extend(
        ["D", "M"]
            .into_iter()
            .zip([setting.n_devices, setting.n_microbatches])
            .map(|(name, size)| (name.to_owned(), i64::from(size))),
    );
    scope.share(setting.files.definitions(), known);
    scope.variable("S");
    let mut declared: BTreeMap<&str, Span> = BTreeMap::new();
    for parameter in &schedule.parameters {
        unique(&parameter.name, &mut declared, report);
    }
    for (name, form) in &items.lets {
        unique(name, &mut declared, report);
        report.extend(built_in(name, *form));
        scope.add(&name.text, *form);
    }
    let mut variables = Vec::new();
    variables.extend(items.place.into_iter().flat_map(PlaceLine::names));
    variables.extend(items.parts.map(|parts| &parts.stage));
    variables.extend(items.reads.map(|reads| &reads.stage));
    variables.extend(items.swap.map(|swap| &swap.stage));
    variables.extend(items.frozen.into_iter().flat_map(|frozen| &frozen.rule).map(|(stage, _)| stage));
    match items.body {
        Some((Body::Block(block), _)) => variables.extend(block.names()),
        Some((Body::Order(order), _)) => {
            variables.push(&order.device);
            variables_of(&order.body, &mut variables);
        }
        None => {}
    }
    for name in variables {
        if FIXED.contains(&name.text.as_str()) || declared.contains_key(name.text.as_str()) {
            unique(name, &mut declared, report);
        } else if scope.variable(&name.text).is_none() {
            report.add(*too_many_variables(name));
        }
    }
    scope
}

/// Enters a name, or says what else has it.
fn unique<'a>(name: &'a ast::Name, declared: &mut BTreeMap<&'a str, Span>, report: &mut Report) {
    if let Some(error) = fixed(name) {
        report.add(error);
        return;
    }
    if let Some(first) = declared.get(name.text.as_str()) {
        let message = format!("`{}` has two meanings in this schedule", name.text);
        let error = Diagnostic::error(Code::DuplicateName, name.span, "means something else here", message);
        report.add(error.label(*first, "first meaning"));
        return;
    }
    declared.insert(&name.text, name.span);
}

pub(super) fn variables_of<'a>(body: &'a [Statement], names: &mut Vec<&'a ast::Name>) {
    for statement in body {
        match statement {
            Statement::Let(binding) => names.push(&binding.name),
            Statement::For { variable, body, .. } => {
                names.push(variable);
                variables_of(body, names);
            }
            Statement::Repeat { body, .. } => variables_of(body, names),
            Statement::If { branches, otherwise } => {
                branches.iter().for_each(|(_, body)| variables_of(body, names));
                variables_of(otherwise, names);
            }
            Statement::Task { .. }
            | Statement::Pair { .. }
            | Statement::Movement { .. }
            | Statement::StepTask { .. }
            | Statement::Call(_) => {}
        }
    }
}
