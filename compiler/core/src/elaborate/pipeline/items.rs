//! The items of a pipeline, sorted: those that stand once by their word.

use super::{activation, devices, offload, recompute, transformer};
use pipe_ir::graph::DType;
use pipe_schedule::policy::offload::{Offload, Wanted};
use pipe_syntax::ast::{self, Call, Expr, PipelineItem, Subject};
use pipe_syntax::diagnostic::{Code, Diagnostic, Edit};
use pipe_syntax::limits::Report;
use pipe_syntax::source::Span;
use std::collections::BTreeMap;

/// The items of a pipeline, those that stand once by their word.
#[derive(Default)]
pub(super) struct Items<'a> {
    pub(super) model: Option<&'a Call>,
    /// A `config.json` by its sizes.
    pub(super) config: Option<&'a Call>,
    /// A `config.json` that is trained: the model itself.
    pub(super) trained: Option<&'a Call>,
    pub(super) precision: (DType, Option<Span>),
    pub(super) devices: Option<(&'a Expr, [Option<&'a Expr>; 2])>,
    pub(super) device: Option<devices::Line<'a>>,
    pub(super) microbatches: Option<&'a Expr>,
    pub(super) cut: Option<(Option<&'a Expr>, Span)>,
    pub(super) schedule: Option<&'a Call>,
    pub(super) lanes: Vec<&'a ast::Lane>,
    pub(super) parts: Option<&'a ast::StageParts>,
    pub(super) frozen: Option<&'a ast::FrozenStages>,
    pub(super) recompute: Option<recompute::Line<'a>>,
    pub(super) offload: offload::PlacedOffload,
    pub(super) zero: Option<(&'a Expr, Span)>,
    pub(super) tensor: Option<(&'a Expr, Span)>,
    /// How many pipelines there are side by side.
    pub(super) data: Option<(&'a Expr, Span)>,
    pub(super) activation: Option<(activation::Line<'a>, Span)>,
    pub(super) cost: Option<(&'a [ast::TaskNumber], Span)>,
    pub(super) train: Option<(&'a [ast::Setting], Span)>,
    pub(super) requirements: Vec<(Subject, &'a ast::Limit, Span)>,
}

impl<'a> Items<'a> {
    /// Leaves out what is said of a training: all stages are frozen.
    pub(super) fn forward_only(&mut self, all: &'a ast::FrozenStages) {
        self.frozen = Some(all);
        (self.recompute, self.offload, self.zero) = (None, None, None);
        (self.activation, self.cost) = (None, None);
        self.requirements.clear();
    }
}

/// Sorts the items of a pipeline, and says which are missing or there twice.
pub(super) fn items_of<'a>(declared: &'a ast::Pipeline, report: &mut Report) -> Items<'a> {
    let mut items = Items::default();
    let mut said: BTreeMap<&str, Span> = BTreeMap::new();
    for (index, item) in declared.items.iter().enumerate() {
        let (word, span) = match item {
            PipelineItem::Model(call) => ("model", items.model.insert(call).span),
            PipelineItem::Config(call) => ("model", items.config.insert(call).span),
            PipelineItem::Schedule(call) => ("schedule", items.schedule.insert(call).span),
            PipelineItem::Precision { dtype, span } => {
                items.precision = (*dtype, Some(*span));
                ("precision", *span)
            }
            PipelineItem::Devices { count, memory, host, span } => {
                items.devices = Some((count, [memory.as_ref(), host.as_ref()]));
                ("devices", *span)
            }
            PipelineItem::Device { variable, numbers, span } => {
                items.device = Some((variable, numbers));
                ("device", *span)
            }
            PipelineItem::Microbatches { count, span } => {
                items.microbatches = Some(count);
                ("microbatches", *span)
            }
            PipelineItem::Cut { layers, span } => {
                items.cut = Some((layers.as_ref(), *span));
                ("cut", *span)
            }
            // Phases are pipelines of their own.
            PipelineItem::Phase(_) => continue,
            PipelineItem::Lane(lane) => {
                items.lanes.push(lane);
                continue;
            }
            PipelineItem::Parts(parts) => ("parts", items.parts.insert(parts).span),
            PipelineItem::Frozen(frozen) => ("frozen", items.frozen.insert(frozen).span),
            PipelineItem::Recompute { tasks, span } => {
                items.recompute = Some((tasks, *span));
                ("recompute", *span)
            }
            PipelineItem::Offload { words, span } => {
                let each = words.iter().filter_map(|word| Offload::from_word(word));
                let all = each.reduce(Offload::and);
                items.offload = Some((all.map_or(Wanted::Auto, Wanted::This), *span));
                ("offload", *span)
            }
            PipelineItem::Zero { stage, span } => {
                items.zero = Some((stage, *span));
                ("zero", *span)
            }
            PipelineItem::Tensor { members, span } => {
                items.tensor = Some((members, *span));
                ("tensor", *span)
            }
            PipelineItem::Data { pipelines, span } => {
                items.data = Some((pipelines, *span));
                ("data", *span)
            }
            PipelineItem::Activation { shares, span } => {
                items.activation = Some((shares, *span));
                ("activation", *span)
            }
            PipelineItem::Cost { durations, span } => {
                items.cost = Some((durations, *span));
                ("cost", *span)
            }
            PipelineItem::Train { settings, span } => {
                items.train = Some((settings, *span));
                ("train", *span)
            }
            PipelineItem::Require { subject, limit, span } => {
                items.requirements.push((*subject, limit, *span));
                continue;
            }
        };
        if let Some(first) = said.insert(word, span) {
            let message = format!("`{}` sets `{word}` twice", declared.name.text);
            let error = Diagnostic::error(Code::RepeatedItem, span, "given again", message);
            let has_several = matches!(word, "cost" | "activation" | "offload" | "recompute");
            let help =
                if has_several { "write both in one line, with a comma between" } else { "leave one of them out" };
            report.add(error.label(first, "given here").help(help).edit_with(joined(&declared.items[..=index])));
        }
    }
    if items.train.is_some() {
        items.trained = items.config.take();
    }
    if let (Some(call), Some(span)) = (items.config, said.get("precision")) {
        transformer::without_graph(call, *span, report);
    }
    if let (Some(span), None, None, None) = (said.get("precision"), items.model, items.config, items.trained) {
        let message = format!("pipeline `{}` sets `precision`, but has no `model`", declared.name.text);
        let error = Diagnostic::error(Code::MissingItem, *span, "the precision of nothing", message);
        report.add(error.help("name a model, or leave the line out"));
    }
    let needed = ["devices", "microbatches", "schedule"];
    let absent: Vec<String> =
        needed.iter().filter(|word| !said.contains_key(**word)).map(|word| format!("no `{word}`")).collect();
    if !absent.is_empty() {
        let message = format!("pipeline `{}` has {}", declared.name.text, absent.join(" and "));
        let examples =
            [("devices", "`devices 4`"), ("microbatches", "`microbatches 8`"), ("schedule", "`schedule 1f1b`")];
        let examples: Vec<&str> =
            examples.iter().filter(|(word, _)| !said.contains_key(word)).map(|(_, line)| *line).collect();
        let help = format!("write {}", examples.join(" and "));
        let error = Diagnostic::error(Code::MissingItem, declared.name.span, "in this pipeline", message).help(help);
        let lines: String = examples.iter().map(|line| format!("\n{}", line.trim_matches('`'))).collect();
        let last = said.values().map(|span| span.end).max();
        let edit = last.map(|end| Edit { span: Span { start: end, end, ..declared.span }, text: lines });
        report.add(error.edit_with(edit));
    }
    items
}

/// The edit that joins the last of some items with the one before it, where both are lists of the same kind.
fn joined(items: &[PipelineItem]) -> Option<Edit> {
    use PipelineItem::{Activation, Cost, Offload, Recompute};
    let [.., first, second] = items else { return None };
    let (end, behind) = match (first, second) {
        (Cost { span, .. }, Cost { durations: list, .. })
        | (Activation { span, .. }, Activation { shares: list, .. }) => (span.end, list.first()?.name.span),
        (Recompute { tasks: Some(_), span }, Recompute { tasks: Some(list), .. }) => (span.end, list.first()?.start()),
        (Offload { words: first, span }, Offload { words: second, span: line }) => {
            // `auto` stands alone, and what is said again goes as a line.
            if first.is_empty() || second.is_empty() {
                return None;
            }
            if second.iter().all(|word| first.contains(word)) {
                return Some(Edit { span: *line, text: String::new() });
            }
            if second.iter().any(|word| first.contains(word)) {
                return None;
            }
            let keyword = u32::try_from("offload".len()).expect("a short word");
            return Some(Edit {
                span: Span { start: span.end, end: line.start + keyword, ..*line },
                text: ",".to_owned(),
            });
        }
        _ => return None,
    };
    Some(Edit { span: Span { start: end, end: behind.start, ..behind }, text: ", ".to_owned() })
}
