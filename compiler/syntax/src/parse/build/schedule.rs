//! Schedules.

use super::{Builder, Parts, Rule, unexpected};
use crate::ast::{
    Block, BlockTask, Carried, FrozenStages, Function, FunctionBody, Lane, Name, Order, PartItem, PartList, Reads,
    ScheduleItem, SlotDuration, StageParts, Statement, StepTaskKind, Swap, SwapKind, Weights,
};
use crate::source::Span;
use pest::iterators::Pair;
use pipe_ir::task::TaskKind;

impl Builder<'_> {
    pub(super) fn schedule_item(&mut self, pair: Pair<'_, Rule>) -> ScheduleItem {
        let span = self.span(&pair);
        match pair.as_rule() {
            Rule::stages => ScheduleItem::Stages { count: self.expr(Parts::of(pair).need()), span },
            Rule::slices => ScheduleItem::Slices { count: self.expr(Parts::of(pair).need()), span },
            Rule::place => {
                let mut parts = Parts::of(pair);
                let stage = self.name(&parts.need());
                let microbatch = parts.optional(Rule::name).map(|name| self.name(&name));
                ScheduleItem::Place { stage, microbatch, device: self.expr(parts.need()), span }
            }
            Rule::reads => {
                let mut parts = Parts::of(pair);
                let stage = self.name(&parts.need());
                ScheduleItem::Reads(Reads { stage, sources: self.expr(parts.need()), span })
            }
            Rule::swap => {
                let mut parts = Parts::of(pair);
                let stage = self.name(&parts.need());
                ScheduleItem::Swap(Swap { stage, device: parts.next().map(|device| self.expr(device)), span })
            }
            Rule::lane => ScheduleItem::Lane(self.lane(pair)),
            Rule::parts => ScheduleItem::Parts(self.stage_parts(pair)),
            Rule::frozen_stages => ScheduleItem::Frozen(self.frozen_stages(pair)),
            Rule::slots => {
                let durations = Parts::of(pair).map(|duration| {
                    let mut parts = Parts::of(duration);
                    let (kind, part) = self.kind_and_part(&mut parts);
                    SlotDuration { kind, part, slots: self.expr(parts.need()) }
                });
                ScheduleItem::Slots { durations: durations.collect(), span }
            }
            Rule::weights => {
                let (mut branches, mut otherwise) = (Vec::new(), Weights::Flush);
                let mut parts = Parts::of(pair);
                while let Some(part) = parts.next() {
                    match part.as_rule() {
                        Rule::version => otherwise = version(&part),
                        _ => branches.push((self.expr(part), version(&parts.need()))),
                    }
                }
                ScheduleItem::Weights { branches, otherwise, span }
            }
            Rule::condition => ScheduleItem::Require { condition: self.expr(Parts::of(pair).need()), span },
            Rule::block => {
                let mut parts = Parts::of(pair);
                let size = parts.optional(Rule::block_size);
                let microbatches = size.map(|size| self.expr(Parts::of(size).need()));
                let period = self.expr(parts.need());
                let tasks = parts.map(|task| self.block_task(task)).collect();
                ScheduleItem::Block(Block { microbatches, period, tasks, span })
            }
            Rule::order => {
                let mut parts = Parts::of(pair);
                let device = self.name(&parts.need());
                ScheduleItem::Order(Order { device, body: self.body(parts.need()), span })
            }
            Rule::reorder => ScheduleItem::Reorder { span },
            Rule::binding => ScheduleItem::Let(self.binding(pair)),
            Rule::function => ScheduleItem::Function(self.function(pair)),
            other => unexpected(other),
        }
    }

    pub(super) fn frozen_stages(&mut self, pair: Pair<'_, Rule>) -> FrozenStages {
        let span = self.span(&pair);
        let mut parts = Parts::of(pair);
        let stage = parts.optional(Rule::name).map(|name| self.name(&name));
        FrozenStages { rule: stage.map(|stage| (stage, self.expr(parts.need()))), span }
    }

    pub(super) fn lane(&mut self, pair: Pair<'_, Rule>) -> Lane {
        let span = self.span(&pair);
        let mut parts = Parts::of(pair);
        let name = self.name(&parts.need());
        let carried = |word: Pair<'_, Rule>| {
            (Carried::from_word(word.as_str()).expect("the grammar knows the same words"), self.span(&word))
        };
        Lane { name, carries: parts.map(carried).collect(), span }
    }

    pub(super) fn stage_parts(&mut self, pair: Pair<'_, Rule>) -> StageParts {
        let span = self.span(&pair);
        let mut parts = Parts::of(pair);
        let stage = self.name(&parts.need());
        StageParts { stage, list: self.part_list(parts.need()), span }
    }

    fn part_list(&mut self, pair: Pair<'_, Rule>) -> PartList {
        let (mut branches, mut otherwise) = (Vec::new(), Vec::new());
        let mut parts = Parts::of(pair);
        while let Some(part) = parts.next() {
            match part.as_rule() {
                Rule::stage_part => otherwise.push(self.part_item(part)),
                _ => branches.push((self.expr(part), self.part_list(parts.need()))),
            }
        }
        PartList { branches, otherwise }
    }

    fn part_item(&mut self, pair: Pair<'_, Rule>) -> PartItem {
        let mut parts = Parts::of(pair);
        match parts.optional(Rule::name) {
            Some(name) => PartItem::Part { name: self.name(&name), lane: parts.next().map(|lane| self.name(&lane)) },
            None => PartItem::Repeat { count: self.expr(parts.need()), body: self.part_list(parts.need()) },
        }
    }

    /// `F`, or `F.dispatch`.
    fn kind_and_part(&mut self, parts: &mut Parts<'_>) -> (TaskKind, Option<Name>) {
        let kind = kind(&parts.need());
        (kind, parts.optional(Rule::part_name).map(|part| self.name(&Parts::of(part).need())))
    }

    pub(super) fn function(&mut self, pair: Pair<'_, Rule>) -> Function {
        let (doc, span) = (self.doc(&pair), self.span(&pair));
        let mut parts = Parts::of(pair);
        let name = self.name(&parts.need());
        let parameters = parts.optional(Rule::parameters);
        let parameters = self.parameters(parameters);
        let body = match parts.optional(Rule::body) {
            Some(body) => FunctionBody::Statements(self.body(body)),
            None => FunctionBody::Value(self.expr(parts.need())),
        };
        Function { doc, name, parameters, body, span }
    }

    fn block_task(&mut self, pair: Pair<'_, Rule>) -> BlockTask {
        let span = self.span(&pair);
        let mut parts = Parts::of(pair);
        let (kind, part) = self.kind_and_part(&mut parts);
        let stage = self.name(&parts.need());
        let microbatch = parts.optional(Rule::name).map(|name| self.name(&name));
        BlockTask { kind, part, stage, microbatch, at: parts.next().map(|slot| self.expr(slot)), span }
    }

    fn body(&mut self, pair: Pair<'_, Rule>) -> Vec<Statement> {
        Parts::of(pair).map(|statement| self.statement(statement)).collect()
    }

    fn statement(&mut self, pair: Pair<'_, Rule>) -> Statement {
        let span = self.span(&pair);
        match pair.as_rule() {
            Rule::repeat => {
                let mut parts = Parts::of(pair);
                Statement::Repeat { count: self.expr(parts.need()), body: self.body(parts.need()) }
            }
            Rule::r#for => {
                let mut parts = Parts::of(pair);
                let variable = self.name(&parts.need());
                let (start, end) = (self.expr(parts.need()), self.expr(parts.need()));
                let body = parts.need();
                let open = self.span(&body);
                let open = Span { end: open.start + 1, ..open };
                Statement::For { variable, start, end, open, body: self.body(body) }
            }
            Rule::r#if => self.branches(pair),
            Rule::task => {
                let mut parts = Parts::of(pair);
                let (kind, part) = self.kind_and_part(&mut parts);
                Statement::Task {
                    kind,
                    part,
                    stage: self.expr(parts.need()),
                    microbatch: parts.next().map(|microbatch| self.expr(microbatch)),
                    slice: parts.next().map(|slice| self.expr(slice)),
                    span,
                }
            }
            Rule::movement => {
                let mut parts = Parts::of(pair);
                Statement::Movement {
                    kind: SwapKind::from_word(parts.need().as_str()).expect("the grammar knows the same words"),
                    stage: self.expr(parts.need()),
                    microbatch: parts.next().map(|microbatch| self.expr(microbatch)),
                    slice: parts.next().map(|slice| self.expr(slice)),
                    span,
                }
            }
            Rule::step_task => {
                let mut parts = Parts::of(pair);
                let kind = StepTaskKind::from_word(parts.need().as_str()).expect("the grammar knows the same words");
                Statement::StepTask { kind, stage: self.expr(parts.need()), span }
            }
            Rule::statement_call => Statement::Call(self.call(Parts::of(pair).need())),
            Rule::pair => Statement::Pair { halves: Parts::of(pair).map(|task| self.statement(task)).collect(), span },
            _ => Statement::Let(self.binding(pair)),
        }
    }

    /// `if c { } else if c { } else { }`: conditions and bodies lie flat in the pair.
    fn branches(&mut self, pair: Pair<'_, Rule>) -> Statement {
        let mut branches = Vec::new();
        let mut otherwise = Vec::new();
        let mut parts = Parts::of(pair);
        while let Some(part) = parts.next() {
            match part.as_rule() {
                Rule::body => otherwise = self.body(part),
                _ => branches.push((self.expr(part), self.body(parts.need()))),
            }
        }
        Statement::If { branches, otherwise }
    }
}

fn version(pair: &Pair<'_, Rule>) -> Weights {
    Weights::from_word(pair.as_str()).expect("the grammar knows the same words")
}

fn kind(pair: &Pair<'_, Rule>) -> TaskKind {
    TaskKind::from_letters(pair.as_str()).expect("the grammar knows the same letters")
}
