//! Problems: a model, the rows of a step and a cluster, and what of a layout is given.

use super::candidate::AS_NUMBERED;
use super::trained::Trained;
use pipe_compiler::Request;
use pipe_compiler::cluster::Cluster;
use pipe_compiler::elaborate::{self, elaborate};
use pipe_ir::units::Bytes;
use pipe_model::pipeline::{Elaborated, Pipeline};
use pipe_model::transformer::{SETTINGS, Transformer};
use pipe_schedule::units::Ticks;
use pipe_syntax::ast::PipelineItem;
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};
use pipe_syntax::files::{self, Files, Loader};
use pipe_syntax::limits::MAX_DEVICES;
use pipe_syntax::source::{Source, Sources, Span};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// What `--set` may hold fast: every other value of a layout is free.
pub const FIXED: [&str; 8] = ["devices", "tensor", "data", "expert", "rows", "recompute", "zero", "sequence_parallel"];

/// What is to be tuned.
#[derive(Clone, Debug)]
pub struct Problem {
    /// Name of the pipeline.
    pub name: String,
    /// Where that is.
    pub span: Span,
    /// The model, with the settings that stay.
    pub transformer: Transformer,
    /// Rows of a step, over all pipelines.
    pub batch: u64,
    /// The machines.
    pub cluster: Cluster,
    /// What a device may hold.
    pub limit: Bytes,
    /// Values that are given, by the names of [`FIXED`].
    pub fixed: BTreeMap<String, u64>,
    /// The schedules that may be used; all if empty.
    pub schedules: Vec<String>,
    /// Whether state may live with the hosts.
    pub may_offload: bool,
    /// The name of the optimizer if it updates whole matrices, which then cannot be divided.
    pub whole_matrices: Option<&'static str>,
    /// Durations and limits that are given, as `--cost` and `--memory` say them, and the cluster.
    pub request: Request,
    /// The target itself, where it trains: candidates are then counted as `pipec run` runs them.
    pub trained: Option<Trained>,
    /// The texts of the model's `config.json` and of files that the target imports, by path.
    pub read: BTreeMap<String, String>,
    /// The standard library.
    pub files: Files,
    /// The texts behind it.
    pub sources: Sources,
}

/// What is asked for, beside what a target says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TuneRequest {
    /// Rows of a step, over all pipelines; those of the target as it is written, where none are said.
    pub batch: Option<u64>,
    /// The schedules that may be used; all if empty.
    pub schedules: Vec<String>,
    /// Whether state may live with the hosts, where it does not fit otherwise.
    pub may_offload: bool,
}

/// Reads a target. `--set microbatches` counts for the rows of its step; other settings of a layout hold it fast.
///
/// # Errors
/// Everything that is wrong with the target, or that it has no model from a `config.json`, or no
/// cluster, or that nobody says how long copies take that may be made.
pub fn problem(
    sources: &mut Sources,
    root: Source,
    loader: &Loader<'_>,
    request: &Request,
    asked: TuneRequest,
) -> Result<Problem, Diagnostics> {
    let (text, read) = (root.text.clone(), RefCell::new(BTreeMap::new()));
    let noted = |path: &str| {
        let found = loader(path)?;
        read.borrow_mut().insert(path.to_owned(), found.clone());
        Ok(found)
    };
    let files = files::load(sources, root, &noted)?;
    let is_fixed = |name: &String| FIXED.contains(&name.as_str());
    let (fixed, others): (Vec<_>, Vec<_>) =
        request.choice.settings.iter().cloned().partition(|(name, _)| is_fixed(name));
    let choice = elaborate::Request { settings: others, ..request.choice.clone() };
    let Elaborated { schedule, pipeline, parameters } = elaborate(&files, &choice)?;
    let refuse = |span, label: &str, message: String, help: &str| {
        vec![Diagnostic::error(Code::CannotTune, span, label, message).help(help)]
    };
    let written = "name one, as in `model \"config.json\"(sequence = 4096)`";
    let Some(pipeline) = pipeline else {
        let message = format!("`{}` is a schedule without a pipeline, so there is no model to divide", schedule.name);
        return Err(refuse(schedule.span, "no model", message, written));
    };
    let trained = match pipeline.model.as_ref().filter(|call| call.config.is_some()) {
        Some(call) => {
            let n_layers = pipe_model::n_layers(&files, call, &parameters).unwrap_or_default() as u64;
            Trained::new(&files, &text, &pipeline, n_layers)
        }
        None => None,
    };
    let of_trained = match &trained {
        Some(trained) => Some(trained.transformer(&files, &choice.settings, &parameters)?),
        None => None,
    };
    if let Some((name, value)) = choice.settings.iter().find(|(name, _)| trained.is_some() && name != "microbatches") {
        let message = format!("`{name}` is set to {value} from outside, and what is written would not say it");
        let help = "write it in the file, and tune that";
        return Err(refuse(pipeline.span, "set from outside", message, help));
    }
    let Some(transformer) = pipeline.transformer.clone().or(of_trained) else {
        let message = format!("the model of `{}` does not come from a `config.json`", pipeline.name);
        let help =
            "layers that are declared have no setting that divides them; `pipec search` finds schedules for them";
        return Err(refuse(pipeline.span, "how to divide it is not known", message, help));
    };
    if !schedule.parts.is_empty() {
        let message = format!("stages of `{}` have parts, and layouts are for whole stages", pipeline.name);
        return Err(refuse(pipeline.span, "parts", message, "leave `parts` out"));
    }
    if !schedule.swaps.is_empty() {
        let message = format!("`{}` evicts activations, and layouts keep them on their devices", schedule.name);
        return Err(refuse(pipeline.span, "evicts", message, "leave `evict` and `fetch` out"));
    }
    if !schedule.carried.is_empty() || !schedule.step_tasks.is_empty() {
        let message = format!("`{}` places sums or transfers, and layouts place them by themselves", schedule.name);
        return Err(refuse(pipeline.span, "places them", message, "leave `reduce`, `update` and what lanes carry out"));
    }
    let freezes = pipeline_freezes(&files, &pipeline.name);
    if schedule.frozen.any() && (trained.is_none() || freezes) {
        let message = format!("some stages of `{}` are frozen, and layouts are for stages that train", pipeline.name);
        return Err(refuse(pipeline.span, "frozen", message, "leave `frozen` out"));
    }
    let differing = pipeline.speeds.as_ref().filter(|(speeds, _)| speeds.matter()).map(|(_, span)| *span);
    let differing = differing.or(pipeline.memory.as_ref().filter(|(all, _)| all.differs()).map(|(_, span)| *span));
    if let Some(span) = differing {
        let message = format!("the devices of `{}` differ, and layouts are for devices that are alike", pipeline.name);
        return Err(refuse(span, "by device", message, "say `memory` in the line `devices`, and leave out `device`"));
    }
    let Some(cluster) = request.cluster.as_ref().map(|cluster| cluster.placed(sources)) else {
        let message = format!("there is no cluster to divide `{}` on", pipeline.name);
        return Err(refuse(pipeline.span, "which devices?", message, "name one by `--cluster cluster.toml`"));
    };
    let TuneRequest { batch, schedules, may_offload } = asked;
    let is_copy_said = cluster.copy().or(request.costs.as_ref().and_then(|costs| costs.copy)).is_some();
    if may_offload && !is_copy_said {
        let message = format!("`{}` does not say how long copies between a device and its host take", cluster.name());
        let help = "say it as `bandwidth` of its `[host]`, or by `--cost copy=..` (milliseconds for 1 MiB)";
        return Err(refuse(pipeline.span, "may live with the hosts", message, help));
    }
    let fixed = held(fixed, pipeline.span)?;
    let cuts = |(name, least): (&'static str, u64)| Some((name, *fixed.get(name).filter(|value| **value >= least)?));
    let whole_matrices = pipeline.whole_matrices();
    if let Some((optimizer, (name, value))) =
        whole_matrices.zip([("zero", 1), ("tensor", 2)].into_iter().find_map(cuts))
    {
        let message = format!("`{name}` is held at {value}, but `{optimizer}` updates whole matrices");
        let help = format!("leave `{name}` out, or use `adamw`");
        return Err(refuse(pipeline.span, "cuts matrices", message, &help));
    }
    let of_jobs = [("expert", 1), ("recompute", 0), ("recompute", 2)]
        .map(|(name, value)| (name, Some(&value) == fixed.get(name)));
    let is_of_job = |name: &str| fixed.contains_key(name) && !of_jobs.contains(&(name, true));
    if let Some(name) = ["expert", "recompute"].into_iter().find(|name| trained.is_some() && is_of_job(name)) {
        let message = format!("`{name}` is held at {}, which is for jobs of Megatron-LM", fixed[name]);
        let help = "a model that trains keeps its experts whole, and computes nothing (0) or all (2) once more";
        return Err(refuse(pipeline.span, "this trains", message, help));
    }
    let settings = &transformer.settings;
    // The schedule of a target that trains has the microbatches of all pipelines.
    let pipelines = if trained.is_some() { 1 } else { settings.data };
    let of_pipeline = u64::from(schedule.microbatches_of_step() / schedule.slices.count())
        .saturating_mul(settings.rows)
        .saturating_mul(pipelines);
    let limits = pipeline.byte_limit().map(|(bytes, _)| bytes.least()).into_iter().chain([cluster.memory()]);
    let limit = request.device_memory.or(limits.min()).unwrap_or_default();
    let Pipeline { name, span, .. } = pipeline;
    let (nothing, mut standard) = (Source { name: "std".to_owned(), text: String::new() }, Sources::default());
    Ok(Problem {
        name,
        span,
        transformer,
        trained,
        batch: batch.unwrap_or(of_pipeline).max(1),
        request: Request {
            costs: request.costs.clone(),
            memory: request.memory.clone(),
            device_memory: request.device_memory,
            cluster: Some(cluster.clone()),
            ..Request::default()
        },
        cluster,
        limit,
        fixed,
        schedules,
        may_offload,
        whole_matrices,
        read: read.into_inner(),
        files: files::load(&mut standard, nothing, &|_| Err("nothing is imported".to_owned()))?,
        sources: standard,
    })
}

/// Whether a line of a pipeline freezes stages by their number.
fn pipeline_freezes(files: &Files, name: &str) -> bool {
    let mut declared = files.root_pipelines().filter(|one| one.name.text == name);
    declared.any(|one| one.items.iter().any(|item| matches!(item, PipelineItem::Frozen(_))))
}

/// Values that the settings of a layout can have.
fn held(fixed: Vec<(String, i64)>, span: Span) -> Result<BTreeMap<String, u64>, Diagnostics> {
    let mut found = Diagnostics::new();
    let mut all = BTreeMap::new();
    for (name, value) in fixed {
        let own = SETTINGS.iter().find(|setting| setting.name == name).map(|setting| setting.range);
        let (low, high) = own.unwrap_or((1, i64::from(MAX_DEVICES)));
        match u64::try_from(value).ok().filter(|_| (low..=high).contains(&value)) {
            Some(value) => drop(all.insert(name, value)),
            None => {
                let message = format!("`{name}` is held at {value}; it must be {low} to {high}");
                found.push(Diagnostic::error(Code::OutOfRange, span, "with this setting", message));
            }
        }
    }
    if found.is_empty() { Ok(all) } else { Err(found) }
}

impl Problem {
    /// Whether nodes may be filled in any order, and that makes a difference.
    pub fn is_order_free(&self) -> bool {
        let is_even = self.cluster.is_even() && self.cluster.is_even_inside();
        !is_even && self.trained.is_none() && self.transformer.settings.nodes == AS_NUMBERED
    }

    /// The text of the model's `config.json`.
    pub fn config(&self) -> &str {
        self.read.get(&self.transformer.config.path).map_or("", String::as_str)
    }

    /// A file that the target reads, as loaders return it.
    ///
    /// # Errors
    /// If the target does not read it.
    pub fn load(&self, path: &str) -> Result<String, String> {
        self.read.get(path).cloned().ok_or_else(|| "the target does not read it".to_owned())
    }

    /// How many layers there are to be cut at.
    pub fn n_layers(&self) -> u64 {
        self.trained.as_ref().map_or(self.transformer.config.layers, |trained| trained.n_layers)
    }

    /// The time that so many bytes take between a device and its host.
    pub fn copying(&self, bytes: u128) -> Ticks {
        let said = self.request.costs.as_ref().and_then(|costs| costs.copy).or(self.cluster.copy());
        let time = bytes.saturating_mul(said.unwrap_or_default().0.into()) >> 20;
        Ticks(u64::try_from(time).unwrap_or(u64::MAX))
    }

    /// Whether a setting may have a value.
    pub fn allows(&self, name: &str, value: u64) -> bool {
        self.fixed.get(name).is_none_or(|fixed| *fixed == value)
    }
}
