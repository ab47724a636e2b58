//! Pipelines.

use super::{Builder, Parts, Rule, unexpected, unquoted};
use crate::ast::{Call, DataFile, Limit, Name, PipelineItem, Recomputed, Setting, SettingValue, Subject, TaskNumber};
use crate::source::Span;
use pest::iterators::Pair;
use pipe_ir::graph::DType;
use pipe_ir::training::{DecayShape, DecayedWeights};

impl Builder<'_> {
    pub(super) fn pipeline_item(&mut self, pair: Pair<'_, Rule>) -> PipelineItem {
        let (span, rule) = (self.span(&pair), pair.as_rule());
        if rule == Rule::requirement {
            return self.requirement(pair);
        }
        match rule {
            Rule::frozen_stages => return PipelineItem::Frozen(self.frozen_stages(pair)),
            Rule::phase => return PipelineItem::Phase(self.section(pair, Self::pipeline_item)),
            Rule::lane => return PipelineItem::Lane(self.lane(pair)),
            Rule::parts => return PipelineItem::Parts(self.stage_parts(pair)),
            _ => {}
        }
        let mut parts = Parts::of(pair);
        match rule {
            Rule::model_use => {
                let used = parts.need();
                match used.as_rule() {
                    Rule::config_use => PipelineItem::Config(self.config(used)),
                    _ => PipelineItem::Model(self.call(used)),
                }
            }
            Rule::precision => {
                let dtype = match parts.need().as_str() {
                    "f64" => DType::F64,
                    "bf16" => DType::BF16,
                    _ => DType::F32,
                };
                PipelineItem::Precision { dtype, span }
            }
            Rule::devices => PipelineItem::Devices {
                count: self.expr(parts.need()),
                memory: parts.next().map(|memory| self.expr(memory)),
                host: parts.next().map(|host| self.expr(host)),
                span,
            },
            Rule::device => PipelineItem::Device {
                variable: self.name(&parts.need()),
                numbers: parts
                    .map(|number| {
                        let mut parts = Parts::of(number);
                        (self.name(&parts.need()), self.expr(parts.need()))
                    })
                    .collect(),
                span,
            },
            Rule::microbatches => PipelineItem::Microbatches { count: self.expr(parts.need()), span },
            Rule::cut => PipelineItem::Cut { layers: parts.next().map(|layers| self.expr(layers)), span },
            Rule::schedule_use => PipelineItem::Schedule(self.call(parts.need())),
            Rule::recomputation => {
                let tasks = parts.map(|part| {
                    if part.as_rule() == Rule::recomputed_tasks {
                        let has_condition = Parts::of(part.clone()).any(|inner| inner.as_rule() == Rule::cost_stages);
                        return match has_condition {
                            true => Recomputed::Tasks(self.task_number(part)),
                            false => Recomputed::Part(self.task_name(&mut Parts::of(part)).0),
                        };
                    }
                    let mut ends = Parts::of(part);
                    Recomputed::Stages(self.expr(ends.need()), ends.next().map(|end| self.expr(end)))
                });
                let tasks: Vec<Recomputed> = tasks.collect();
                PipelineItem::Recompute { tasks: (!tasks.is_empty()).then_some(tasks), span }
            }
            Rule::offload => {
                PipelineItem::Offload { words: parts.map(|word| word.as_str().to_owned()).collect(), span }
            }
            Rule::tensor => PipelineItem::Tensor { members: self.expr(parts.need()), span },
            Rule::data_parallel => PipelineItem::Data { pipelines: self.expr(parts.need()), span },
            Rule::zero => PipelineItem::Zero { stage: self.expr(parts.need()), span },
            Rule::activation => {
                PipelineItem::Activation { shares: parts.map(|entry| self.task_number(entry)).collect(), span }
            }
            Rule::cost => PipelineItem::Cost { durations: parts.map(|entry| self.task_number(entry)).collect(), span },
            Rule::train => PipelineItem::Train { settings: parts.map(|setting| self.setting(setting)).collect(), span },
            other => unexpected(other),
        }
    }

    /// A call whose name is a path.
    fn config(&mut self, pair: Pair<'_, Rule>) -> Call {
        let path = Parts::of(pair.clone()).need();
        let name = Name { text: unquoted(&path), span: self.span(&path) };
        Call { name, ..self.call(pair) }
    }

    /// A name, perhaps of some stages, of each or of a link, with its number: `F[0..4] = 2`.
    fn task_number(&mut self, pair: Pair<'_, Rule>) -> TaskNumber {
        let mut parts = Parts::of(pair);
        let (mut name, part) = self.task_name(&mut parts);
        let mut variables = Vec::new();
        for (rule, between) in [(Rule::cost_stages, ".."), (Rule::cost_link, "-")] {
            if let Some(place) = parts.optional(rule) {
                name.span.end = self.span(&place).end;
                let inside: Vec<Pair<'_, Rule>> = Parts::of(place).collect();
                variables.extend(inside.iter().filter(|part| part.as_rule() == Rule::name).map(|part| self.name(part)));
                let words: Vec<&str> = inside.iter().map(Pair::as_str).collect();
                name.text = format!("{}[{}]", name.text, words.join(if variables.is_empty() { between } else { ", " }));
            }
        }
        TaskNumber { name, part, variables, value: self.expr(parts.need()) }
    }

    /// `F`, `comm`, or `F.dispatch`, with the part that it names.
    fn task_name(&mut self, parts: &mut Parts<'_>) -> (Name, Option<Name>) {
        let mut name = self.cost_name(&parts.need());
        let part = parts.optional(Rule::part_name).map(|part| self.name(&Parts::of(part).need()));
        if let Some(part) = &part {
            name.span.end = part.span.end;
            name.text = format!("{}.{}", name.text, part.text);
        }
        (name, part)
    }

    /// `comm`, or `F & BW` with one space around the mark.
    fn cost_name(&mut self, pair: &Pair<'_, Rule>) -> Name {
        if pair.as_rule() != Rule::cost_pair {
            return self.name(pair);
        }
        let kinds = Parts::of(pair.clone()).map(|kind| kind.as_str().to_owned());
        Name { text: kinds.collect::<Vec<_>>().join(" & "), span: self.span(pair) }
    }

    fn requirement(&mut self, pair: Pair<'_, Rule>) -> PipelineItem {
        let span = self.span(&pair);
        let named = |word: Pair<'_, Rule>| Subject::ALL.into_iter().find(|subject| subject.word() == word.as_str());
        let subject = pair.clone().into_inner().find_map(named);
        let right = Parts::of(pair).need();
        let limit = match right.as_rule() {
            Rule::peak_limit => self.peak_limit(right),
            _ => Limit::Number(self.expr(right)),
        };
        PipelineItem::Require { subject: subject.expect("the grammar demands a subject"), limit, span }
    }

    fn peak_limit(&mut self, pair: Pair<'_, Rule>) -> Limit {
        let mut parts = Parts::of(pair);
        let factor = parts.optional(Rule::part_of).map(|factor| self.expr(factor));
        let right = parts.need();
        match right.as_rule() {
            Rule::expr => Limit::Number(self.expr(right)),
            _ => Limit::Schedule { factor, schedule: self.call(right) },
        }
    }

    fn setting(&mut self, pair: Pair<'_, Rule>) -> Setting {
        let (span, rule) = (self.span(&pair), pair.as_rule());
        let mut parts = Parts::of(pair);
        let value = match rule {
            Rule::set_data => {
                let path = parts.optional(Rule::string);
                let place = path.as_ref().map(|path| self.span(path));
                let details = place.zip(parts.optional(Rule::arguments)).map(|(place, arguments)| Call {
                    name: Name { text: "data".to_owned(), span: place },
                    span: Span { end: self.span(&arguments).end, ..place },
                    arguments: Parts::of(arguments).map(|argument| self.argument(argument)).collect(),
                });
                let files = self.data_files(path, &mut parts);
                let is_shuffled = parts.optional(Rule::shuffled).is_some();
                SettingValue::Data { files, details, is_shuffled }
            }
            Rule::set_tokenizer => SettingValue::Tokenizer(unquoted(&parts.need())),
            Rule::set_validation => {
                let path = parts.optional(Rule::string);
                let files = self.data_files(path, &mut parts);
                let share = if files.is_empty() { Some(self.expr(parts.need())) } else { None };
                SettingValue::Validation { files, share, every: self.expr(parts.need()) }
            }
            Rule::set_init => SettingValue::Init(unquoted(&parts.need())),
            Rule::set_steps => SettingValue::Steps(self.expr(parts.need())),
            Rule::set_seed => SettingValue::Seed(self.expr(parts.need())),
            Rule::set_optimizer => SettingValue::Optimizer(self.call(parts.need())),
            Rule::set_warmup => SettingValue::Warmup(self.expr(parts.need())),
            Rule::set_minimum => SettingValue::Minimum(self.expr(parts.need())),
            Rule::set_clip_norm => SettingValue::ClipNorm(self.expr(parts.need())),
            Rule::set_decay => {
                let word = parts.need();
                let named = DecayShape::ALL.into_iter().find(|shape| shape.word() == word.as_str());
                SettingValue::Decay {
                    shape: named.expect("the grammar knows these shapes"),
                    over: parts.next().map(|over| self.expr(over)),
                }
            }
            Rule::set_weight_decay => SettingValue::WeightDecay(DecayedWeights::Matrices),
            Rule::set_checkpoint => SettingValue::Checkpoint {
                path: unquoted(&parts.need()),
                every: parts.next().map(|every| self.expr(every)),
            },
            other => unexpected(other),
        };
        Setting { value, span }
    }

    /// The one file that is named, or those of data tensors.
    fn data_files<'p>(&mut self, path: Option<Pair<'p, Rule>>, parts: &mut Parts<'p>) -> Vec<DataFile> {
        let one = path.map(|path| DataFile { tensor: None, path: unquoted(&path) });
        let several = parts.optional(Rule::data_files).into_iter().flat_map(Parts::of).map(|file| {
            let mut parts = Parts::of(file);
            DataFile { tensor: Some(self.name(&parts.need())), path: unquoted(&parts.need()) }
        });
        one.into_iter().chain(several).collect()
    }
}
