//! Targets that train: their layouts are written as source, and the compiler judges the program that `pipec run` runs.
//!
//! A target without `train` is counted by the sizes of its model, as a job of Megatron-LM has them.

use super::candidate::{Candidate, Keeping, Layout, exactly};
use super::evaluate::StepTime;
use super::families::variants;
use super::problem::Problem;
use pipe_compiler::{Request, compile};
use pipe_ir::ids::DeviceId;
use pipe_ir::units::Bytes;
use pipe_model::pipeline::Pipeline;
use pipe_model::transformer::{self, Recompute, Transformer};
use pipe_schedule::policy::offload::Offload;
use pipe_schedule::units::Ticks;
use pipe_syntax::ast::{self, Call, PipelineItem, Setting, SettingValue};
use pipe_syntax::diagnostic::{Code, Diagnostics, Edit, edited};
use pipe_syntax::edits::whole_line;
use pipe_syntax::expr::arguments::Values;
use pipe_syntax::expr::known::Known;
use pipe_syntax::files::Files;
use pipe_syntax::format::format;
use pipe_syntax::source::{Source, Sources, Span};
use std::collections::BTreeMap;

/// A target that trains.
#[derive(Clone, Debug)]
pub struct Trained {
    /// The text of the file that declares it.
    text: String,
    /// Its declaration.
    declared: ast::Pipeline,
    /// Other pipelines of the file.
    others: Vec<Span>,
    /// The call of its `config.json`.
    model: Call,
    /// How many layers there are to be cut at.
    pub n_layers: u64,
    /// The path of its folder from the folder of what is written, with a `/` behind it; empty if both are the same.
    pub folder: String,
}

impl Trained {
    /// The target of this name, if it trains a model from a `config.json`.
    pub(super) fn new(files: &Files, text: &str, pipeline: &Pipeline, n_layers: u64) -> Option<Self> {
        let declared = files.root_pipelines().find(|one| one.name.text == pipeline.name)?;
        let others = files.root_pipelines().filter(|one| one.name.text != pipeline.name).map(|one| one.span);
        let model = declared.items.iter().find_map(|item| match item {
            PipelineItem::Config(call) => Some(call.clone()),
            _ => None,
        })?;
        pipeline.training.as_ref()?;
        let (others, declared) = (others.collect(), declared.clone());
        Some(Self { text: text.to_owned(), declared, others, model, n_layers, folder: String::new() })
    }

    /// The sizes of its model.
    pub(super) fn transformer(
        &self,
        files: &Files,
        set: &[(String, i64)],
        parameters: &Values,
    ) -> Result<Transformer, Diagnostics> {
        let known = Known::new(files.definitions(), parameters.clone());
        let (settings, places) = transformer::settings(&self.model, set, &known)?;
        let path = &self.model.name.text;
        let (file, text) = files.config(path).unwrap_or((self.model.span.file, ""));
        let config = transformer::read(file, path, text)?;
        Ok(Transformer { config, settings, span: self.model.name.span, places })
    }

    /// The file with the layout of a candidate instead of its own.
    pub(super) fn source(&self, problem: &Problem, candidate: &Candidate) -> String {
        let Candidate { layout, variant, keeping, .. } = candidate;
        let degrees = [("tensor", layout.tensor, 1), ("data", layout.data, 1), ("zero", keeping.zero, 0)];
        let unusual = degrees.into_iter().filter(|(_, value, usual)| value != usual);
        let mut said: BTreeMap<&str, String> =
            unusual.map(|(word, value, _)| (word, format!("{word} {value}"))).collect();
        if keeping.recompute == Recompute::Full {
            said.insert("recompute", "recompute all".to_owned());
        }
        if keeping.offload.any() {
            said.insert("offload", format!("offload {}", keeping.offload));
        }
        let mut edits: Vec<Edit> = self.others.iter().map(|span| Edit { span: *span, text: String::new() }).collect();
        let mut schedule = self.declared.name.span;
        for item in &self.declared.items {
            let (span, text) = match item {
                PipelineItem::Config(call) => {
                    (Span { start: call.name.span.end, ..call.span }, brackets(problem, candidate))
                }
                PipelineItem::Devices { count, memory: Some(memory), .. } => {
                    edits.push(Edit { span: memory.span, text: exactly(problem.limit) });
                    (count.span, layout.devices.to_string())
                }
                PipelineItem::Devices { count, memory: None, .. } => {
                    (count.span, format!("{} memory {}", layout.devices, exactly(problem.limit)))
                }
                PipelineItem::Microbatches { count, .. } => (count.span, layout.microbatches.to_string()),
                PipelineItem::Schedule(call) => {
                    schedule = call.span;
                    (call.span, variant.call())
                }
                PipelineItem::Cut { span, .. } => (*span, String::new()),
                PipelineItem::Tensor { span, .. } => (*span, said.remove("tensor").unwrap_or_default()),
                PipelineItem::Data { span, .. } => (*span, said.remove("data").unwrap_or_default()),
                PipelineItem::Zero { span, .. } => (*span, said.remove("zero").unwrap_or_default()),
                PipelineItem::Recompute { span, .. } => (*span, said.remove("recompute").unwrap_or_default()),
                PipelineItem::Offload { span, .. } => (*span, said.remove("offload").unwrap_or_default()),
                _ => continue,
            };
            edits.push(Edit { span, text });
        }
        edits.extend(self.moved_files());
        // Above the schedule, so that a comment beside it stays there.
        let more: String = said.into_values().map(|line| format!("{line}\n    ")).collect();
        let line = self.text[..schedule.start as usize].rfind("schedule").and_then(|start| u32::try_from(start).ok());
        let start = line.unwrap_or(schedule.start);
        edits.push(Edit { span: Span { start, end: start, ..schedule }, text: more });
        for edit in edits.iter_mut().filter(|edit| edit.text.is_empty() && edit.span.start < edit.span.end) {
            edit.span = whole_line(&self.text, edit.span);
        }
        let text = edited(&self.text, &edits);
        let text = without_header(&text);
        format(self.declared.name.span.file, text).unwrap_or_else(|_| text.to_owned())
    }

    /// Paths of data, tokenizer and initial weights, from the folder of what is written.
    fn moved_files(&self) -> impl Iterator<Item = Edit> {
        let settings = self.declared.items.iter().flat_map(|item| match item {
            PipelineItem::Train { settings, .. } => settings.as_slice(),
            _ => &[],
        });
        let lines = settings.map(|setting| (setting.span, paths(setting)));
        lines.filter(|(_, paths)| !self.folder.is_empty() && !paths.is_empty()).map(|(span, paths)| {
            let mut rest = &self.text[span.start as usize..span.end as usize];
            let mut text = String::new();
            for path in paths {
                let quoted = format!("\"{path}\"");
                let Some((before, after)) = rest.split_once(&quoted) else { continue };
                let folder = if path.starts_with('/') { "" } else { &self.folder };
                text.push_str(&format!("{before}\"{folder}{path}\""));
                rest = after;
            }
            Edit { span, text: text + rest }
        })
    }
}

/// The paths that a setting names.
fn paths(setting: &Setting) -> Vec<&str> {
    match &setting.value {
        SettingValue::Init(path) | SettingValue::Tokenizer(path) => vec![path.as_str()],
        SettingValue::Data { files, .. } | SettingValue::Validation { files, .. } => {
            files.iter().map(|file| file.path.as_str()).collect()
        }
        _ => Vec::new(),
    }
}

/// How the comment begins that says where a source comes from.
pub const FOUND: &str = "Found by `pipec tune`";

/// A text without what an earlier tuning said of it.
fn without_header(text: &str) -> &str {
    if !text.starts_with(&format!("// {FOUND}")) {
        return text;
    }
    let header: usize = text.split_inclusive('\n').take_while(|line| line.starts_with("//")).map(str::len).sum();
    text[header..].trim_start_matches('\n')
}

/// The settings of the model.
fn brackets(problem: &Problem, candidate: &Candidate) -> String {
    let settings = &problem.transformer.settings;
    let lora = if settings.lora > 0 { format!(", lora = {}", settings.lora) } else { String::new() };
    let parallel = if candidate.keeping.sequence_parallel { ", sequence_parallel = 1" } else { "" };
    format!("(sequence = {}, rows = {}{parallel}{lora})", settings.sequence, candidate.layout.rows)
}

/// Times a candidate and counts its bytes: all of its arenas, where it does not fit.
pub(super) fn evaluate(
    (problem, trained): (&Problem, &Trained),
    request: &Request,
    candidate: &Candidate,
) -> Result<StepTime, String> {
    let root = Source { name: "candidate.pipe".to_owned(), text: trained.source(problem, candidate) };
    let request = Request { verdict: true, ..request.clone() };
    let mut sources = Sources::default();
    let compilation = compile(&mut sources, root, &|path| problem.load(path), &request);
    if let Some(mistake) = compilation.mistakes().next() {
        return Err(mistake);
    }
    let other = compilation.diagnostics.iter().find(|one| one.severity.is_error() && one.code != Code::MemoryExceeded);
    if let Some(other) = other {
        let condition = other.labels.last().filter(|_| other.code == Code::ConditionFailed);
        let text = condition.and_then(|label| {
            sources.get(label.span.file).text.get(label.span.start as usize..label.span.end as usize)
        });
        return Err(text.map_or_else(|| other.message.clone(), |text| format!("`{}` does not hold", text.trim())));
    }
    let (Some(analysis), Some(program)) = (&compilation.analysis, compilation.lowered()) else {
        return Err("it has no program".to_owned());
    };
    let fits = compilation.program.is_some();
    let most = program.devices.iter().map(|device| device.arena).max().unwrap_or_default();
    if let Some(limit) =
        compilation.diagnostics.iter().find(|one| one.severity.is_error() && !fits && most <= problem.limit)
    {
        // Another limit than the bytes of a device.
        return Err(limit.message.clone());
    }
    let held = program.devices.iter().map(|device| if fits { device.peak } else { device.arena });
    let (device, bytes) = (0..)
        .map(DeviceId)
        .zip(held)
        .max_by_key(|(device, held)| (*held, std::cmp::Reverse(*device)))
        .unwrap_or((DeviceId(0), Bytes::ZERO));
    let host = program.devices.iter().map(|device| device.host.peak).max().unwrap_or_default();
    Ok(StepTime { time: analysis.timeline.makespan(), device, bytes, host, is_exact: true })
}

/// What one microbatch of so many rows takes at least, on all devices together: what it takes on one.
pub(super) fn work((problem, trained): (&Problem, &Trained), request: &Request, layout: Layout) -> Ticks {
    // Durations that are given may be shorter.
    if request.costs.is_some() {
        return Ticks::ZERO;
    }
    let layout = Layout { tensor: 1, devices: 1, data: 1, expert: 1, microbatches: 1, ..layout };
    let offload = Offload::default();
    let keeping = Keeping { recompute: Recompute::None, zero: 0, sequence_parallel: false, offload };
    let variant = variants(1, trained.n_layers).swap_remove(0);
    let one = Candidate { layout, variant, keeping, nodes: Vec::new() };
    let taken = evaluate((problem, trained), request, &one);
    taken.map_or(Ticks::ZERO, |taken| Ticks(taken.time.0 - taken.time.0 / SLACK))
}

/// The share of the work that rounding may take off where it is divided: one part of so many.
const SLACK: u64 = 1_000;
