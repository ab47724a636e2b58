//! The lines of schedules, layers, models and pipelines, with the names that they declare and use.

use super::{NameKind, Walker};
use pipe_syntax::ast::{self, LayerItem, Limit, ModelItem, PipelineItem, Recomputed, ScheduleItem, SettingValue};
use pipe_syntax::source::Span;

impl Walker {
    pub(super) fn schedule(&mut self, schedule: &ast::Schedule) {
        // Shorthands may use what is declared below them, and each name has one meaning: names first.
        for item in &schedule.items {
            match item {
                ScheduleItem::Let(binding) => drop(self.bind_let(binding)),
                ScheduleItem::Function(function) => drop(self.bind_function(function)),
                ScheduleItem::Place { stage, microbatch, .. } => {
                    std::iter::once(stage).chain(microbatch).for_each(|name| self.bind_once(name));
                }
                ScheduleItem::Parts(parts) => self.bind_once(&parts.stage),
                ScheduleItem::Reads(reads) => self.bind_once(&reads.stage),
                ScheduleItem::Swap(swap) => self.bind_once(&swap.stage),
                ScheduleItem::Frozen(frozen) => frozen.rule.iter().for_each(|(stage, _)| self.bind_once(stage)),
                ScheduleItem::Block(block) => block.names().for_each(|name| self.bind_once(name)),
                ScheduleItem::Order(order) => self.bind_once(&order.device),
                ScheduleItem::Stages { .. }
                | ScheduleItem::Slices { .. }
                | ScheduleItem::Slots { .. }
                | ScheduleItem::Lane(_)
                | ScheduleItem::Weights { .. }
                | ScheduleItem::Require { .. }
                | ScheduleItem::Reorder { .. } => {}
            }
        }
        for item in &schedule.items {
            match item {
                ScheduleItem::Stages { count, .. } | ScheduleItem::Slices { count, .. } => self.value(count),
                ScheduleItem::Place { device, .. } => self.value(device),
                ScheduleItem::Slots { durations, .. } => {
                    durations.iter().for_each(|entry| self.part(entry.part.as_ref()));
                    self.values(durations.iter().map(|entry| &entry.slots));
                }
                ScheduleItem::Weights { branches, .. } => self.values(branches.iter().map(|(condition, _)| condition)),
                ScheduleItem::Require { condition, .. } => self.value(condition),
                ScheduleItem::Parts(parts) => {
                    parts.list.each_expr(&mut |expr| self.value(expr));
                    self.lanes_of(parts);
                }
                ScheduleItem::Reads(reads) => self.value(&reads.sources),
                ScheduleItem::Swap(swap) => self.values(&swap.device),
                ScheduleItem::Frozen(frozen) => self.values(frozen.rule.iter().map(|(_, condition)| condition)),
                ScheduleItem::Let(binding) => self.value(&binding.value),
                ScheduleItem::Function(function) => self.function(function),
                ScheduleItem::Block(block) => {
                    self.values(block.microbatches.iter().chain([&block.period]));
                    block.tasks.iter().for_each(|task| self.part(task.part.as_ref()));
                    self.values(block.tasks.iter().filter_map(|task| task.at.as_ref()));
                }
                ScheduleItem::Order(order) => self.within(|walker| walker.statements(&order.body)),
                ScheduleItem::Lane(_) | ScheduleItem::Reorder { .. } => {}
            }
        }
    }

    /// What a layer has that models can name, or that flows.
    pub(super) fn tensors(&mut self, owner: usize, layer: &ast::Layer) {
        for item in &layer.items {
            let (kind, name, whole) = match item {
                LayerItem::Input { name } => (NameKind::Input, name, name.span),
                LayerItem::Data { name, span, .. } => (NameKind::Data, name, *span),
                LayerItem::Weight { name, span, .. } => (NameKind::Weight, name, *span),
                LayerItem::Let(_) | LayerItem::Part { .. } | LayerItem::Output { .. } | LayerItem::Loss { .. } => {
                    continue;
                }
            };
            let index = self.define(kind, name, whole, "");
            self.members.entry((owner, kind, name.text.clone())).or_insert(index);
        }
    }

    pub(super) fn layer(&mut self, layer: &ast::Layer) {
        for item in &layer.items {
            match item {
                LayerItem::Input { .. } | LayerItem::Part { .. } => {}
                LayerItem::Data { shape, .. } => self.values(shape),
                LayerItem::Weight { shape, split, init, given, .. } => {
                    self.values(shape);
                    if let Some(split) = split {
                        self.value(&split.axis);
                        split.blocks.iter().for_each(|blocks| self.value(blocks));
                    }
                    given.iter().for_each(|given| self.value(given));
                    if let ast::Init::Normal { deviation } = init {
                        self.value(deviation);
                    }
                }
                LayerItem::Let(binding) => {
                    self.value(&binding.value);
                    self.bind_let(binding);
                }
                LayerItem::Output { values, .. } => self.values(values),
                LayerItem::Loss { value, given, .. } => {
                    self.value(value);
                    given.iter().for_each(|given| self.value(given));
                }
            }
        }
    }

    /// Numbers for tasks, whose variables are known in them.
    fn numbers(&mut self, numbers: &[ast::TaskNumber]) {
        for number in numbers {
            self.part(number.part.as_ref());
            self.within(|walker| {
                for variable in &number.variables {
                    walker.bind(NameKind::Variable, variable, variable.span);
                }
                walker.value(&number.value);
            });
        }
    }

    pub(super) fn model_items(&mut self, items: &[ModelItem]) {
        for item in items {
            match item {
                ModelItem::Let(binding) => {
                    let layer = match &binding.value.kind {
                        ast::ExprKind::Call(call) => self.call(call, NameKind::Layer),
                        _ => {
                            self.value(&binding.value);
                            None
                        }
                    };
                    let index = self.bind_let(binding);
                    self.layers.extend(layer.map(|layer| (index, layer)));
                }
                ModelItem::Layer(layer) => self.layer_use(layer),
                ModelItem::Repeat { count, body, .. } => {
                    self.value(count);
                    self.within(|walker| walker.model_items(body));
                }
                ModelItem::For { variable, start, end, body } => {
                    self.values([start, end]);
                    self.within(|walker| {
                        walker.bind(NameKind::Variable, variable, variable.span);
                        walker.model_items(body);
                    });
                }
            }
        }
    }

    /// What a name of a layer stands for. One with an index is the same in all braces of a model.
    fn layer_name(&mut self, layer: &ast::LayerName) -> Option<usize> {
        self.values(&layer.index);
        let indexed = layer.index.as_ref().and_then(|_| self.indexed.get(&layer.name.text)).copied();
        let found = indexed.or_else(|| self.lookup(&layer.name.text));
        self.refer(layer.name.span, found);
        found
    }

    fn layer_use(&mut self, layer: &ast::LayerUse) {
        let callee = self.call(&layer.call, NameKind::Layer);
        for source in &layer.sources {
            self.layer_name(source);
        }
        for tie in &layer.ties {
            let weight = |walker: &Self, of: Option<usize>, name: &ast::Name| {
                of.and_then(|layer| walker.member(layer, NameKind::Weight, &name.text))
            };
            self.refer(tie.weight.span, weight(self, callee, &tie.weight));
            let named = self.layer_name(&tie.layer);
            let of = named.and_then(|named| self.layers.get(&named).copied());
            self.refer(tie.owner.span, weight(self, of, &tie.owner));
        }
        self.values(layer.frozen.iter().filter_map(|frozen| frozen.given.as_ref()));
        for name in &layer.names {
            self.output_name(name, layer, callee);
        }
    }

    /// A name of an output of a layer.
    fn output_name(&mut self, named: &ast::LayerName, layer: &ast::LayerUse, callee: Option<usize>) {
        let ast::LayerName { name, index, .. } = named;
        self.values(index);
        if index.is_some()
            && let Some(first) = self.indexed.get(&name.text).copied()
        {
            return self.refer(name.span, Some(first));
        }
        let bound = self.bind(NameKind::Let, name, Span { end: layer.call.span.end, ..name.span });
        self.layers.extend(callee.map(|callee| (bound, callee)));
        if index.is_some() {
            self.indexed.insert(name.text.clone(), bound);
        }
    }

    /// The schedule that one of these lines names.
    pub(super) fn schedule_of(&self, items: &[PipelineItem]) -> Option<usize> {
        items.iter().find_map(|item| match item {
            PipelineItem::Schedule(call) => self.global(NameKind::Schedule, &call.name.text),
            _ => None,
        })
    }

    pub(super) fn pipeline_item(&mut self, item: &PipelineItem) {
        match item {
            PipelineItem::Model(call) => drop(self.call(call, NameKind::Model)),
            PipelineItem::Schedule(call) => drop(self.call(call, NameKind::Schedule)),
            PipelineItem::Config(call) => self.values(call.arguments.iter().map(|argument| &argument.value)),
            PipelineItem::Devices { count, memory, host, .. } => {
                self.values(std::iter::once(count).chain(memory).chain(host));
            }
            PipelineItem::Device { variable, numbers, .. } => self.within(|walker| {
                walker.bind(NameKind::Variable, variable, variable.span);
                walker.values(numbers.iter().map(|(_, number)| number));
            }),
            PipelineItem::Microbatches { count, .. } => self.value(count),
            PipelineItem::Cut { layers, .. } => self.values(layers),
            PipelineItem::Zero { stage, .. } => self.value(stage),
            PipelineItem::Tensor { members, .. } => self.value(members),
            PipelineItem::Data { pipelines, .. } => self.value(pipelines),
            PipelineItem::Phase(phase) => {
                let outside = self.schedule;
                self.schedule = self.schedule_of(&phase.items).or(outside);
                phase.items.iter().for_each(|item| self.pipeline_item(item));
                self.schedule = outside;
            }
            PipelineItem::Lane(_) => {}
            PipelineItem::Parts(parts) => self.within(|walker| {
                walker.bind(NameKind::Variable, &parts.stage, parts.stage.span);
                parts.list.each_expr(&mut |expr| walker.value(expr));
                walker.lanes_of(parts);
            }),
            PipelineItem::Frozen(frozen) => self.within(|walker| {
                if let Some((stage, condition)) = &frozen.rule {
                    walker.bind(NameKind::Variable, stage, stage.span);
                    walker.value(condition);
                }
            }),
            PipelineItem::Recompute { tasks, .. } => {
                for recomputed in tasks.iter().flatten() {
                    match recomputed {
                        Recomputed::Stages(first, end) => self.values(std::iter::once(first).chain(end)),
                        Recomputed::Tasks(tasks) => self.numbers(std::slice::from_ref(tasks)),
                        Recomputed::Part(name) => self.part_behind(name),
                    }
                }
            }
            PipelineItem::Require { limit: Limit::Number(number), .. } => self.value(number),
            PipelineItem::Require { limit: Limit::Schedule { factor, schedule }, .. } => {
                self.values(factor);
                // `require peak <= n` may also be about a number.
                if self.call(schedule, NameKind::Schedule).is_none() && schedule.arguments.is_empty() {
                    self.refer(schedule.name.span, self.lookup(&schedule.name.text));
                }
            }
            PipelineItem::Activation { shares: numbers, .. } | PipelineItem::Cost { durations: numbers, .. } => {
                self.numbers(numbers);
            }
            PipelineItem::Train { settings, .. } => {
                for setting in settings {
                    match &setting.value {
                        SettingValue::Data { .. }
                        | SettingValue::Init(_)
                        | SettingValue::Tokenizer(_)
                        | SettingValue::WeightDecay(_) => {}
                        SettingValue::Validation { share, every, .. } => {
                            self.values(share);
                            self.values(Some(every));
                        }
                        SettingValue::Steps(value)
                        | SettingValue::Seed(value)
                        | SettingValue::Warmup(value)
                        | SettingValue::Minimum(value)
                        | SettingValue::ClipNorm(value) => self.value(value),
                        SettingValue::Optimizer(call) => {
                            self.values(call.arguments.iter().map(|argument| &argument.value));
                        }
                        SettingValue::Checkpoint { every: number, .. } | SettingValue::Decay { over: number, .. } => {
                            self.values(number);
                        }
                    }
                }
            }
            PipelineItem::Precision { .. } | PipelineItem::Offload { .. } => {}
        }
    }
}
