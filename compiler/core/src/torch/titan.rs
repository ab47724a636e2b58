//! The configuration that torchtitan needs beside a table of PyTorch: which rank has which stages, the modules of each
//! stage, and how many microbatches there are.
//!
//! torchtitan takes the places of stages from the name of a schedule, also where the schedule itself is a table
//! (`_get_pp_rank_to_stage_indices_mapping` in `torchtitan/distributed/pipeline_parallel.py`, version 0.3.0). Two
//! names, `ZBVZeroBubble` and `DualPipeV`, give each rank two stages in a V; all others place stages round-robin.

use super::refusals::refusals;
use crate::analyze::Analysis;
use pipe_ir::ids::StageId;
use pipe_model::transformer::{Transformer, accounts};
use pipe_schedule::schedule::Schedule;
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};
use std::fmt;

/// The module before the layers of the first stage.
const FIRST: &str = "tok_embeddings";
/// Behind the layers of the last stage.
const LAST: [&str; 2] = ["norm", "lm_head"];

/// What a job is to be configured with, as a Python file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Configuration {
    schedule: String,
    ranks: usize,
    stages: usize,
    /// The name by which torchtitan places stages as the schedule does.
    name: &'static str,
    microbatches: u32,
    model: Option<Model>,
}

/// What a model from a `config.json` adds.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Model {
    rows: u64,
    sequence: u64,
    /// By stage.
    modules: Vec<Vec<String>>,
}

impl Configuration {
    /// The configuration for a schedule.
    ///
    /// # Errors
    /// Everything that PyTorch cannot run, and places that torchtitan has no name for.
    pub fn of(analysis: &Analysis) -> Result<Self, Diagnostics> {
        let found = refusals(analysis);
        if !found.is_empty() {
            return Err(found);
        }
        let schedule = &analysis.schedule;
        let transformer = analysis.pipeline.as_ref().and_then(|pipeline| pipeline.transformer.as_ref());
        Ok(Self {
            schedule: schedule.name.clone(),
            ranks: schedule.n_devices(),
            stages: schedule.n_stages(),
            name: name(schedule).map_err(|error| vec![error])?,
            microbatches: schedule.n_microbatches,
            model: transformer
                .map(|transformer| model(transformer, schedule))
                .transpose()
                .map_err(|error| vec![error])?,
        })
    }
}

/// The name of a schedule of PyTorch that torchtitan places in the same way.
fn name(schedule: &Schedule) -> Result<&'static str, Diagnostic> {
    let (placement, n) = (&schedule.placement, schedule.n_devices());
    let home = |stage| placement.devices_of(stage).first().map_or(0, |device| device.index());
    let n_stages = placement.n_stages();
    let in_turn = |stage: usize| stage % n;
    let in_a_v = |stage: usize| if stage < n { stage } else { 2 * n - 1 - stage };
    let elsewhere =
        |rule: &dyn Fn(usize) -> usize| placement.stages().find(|stage| home(*stage) != rule(stage.index()));
    if n_stages % n == 0 && elsewhere(&in_turn).is_none() {
        return Ok(if n_stages == n { "1F1B" } else { "Interleaved1F1B" });
    }
    if n_stages == 2 * n && elsewhere(&in_a_v).is_none() {
        return Ok("ZBVZeroBubble");
    }
    let stage = elsewhere(&in_turn).unwrap_or(StageId(0));
    let message = format!(
        "{stage} lives on d{}, but torchtitan places stages round-robin, or as a V with two on each rank",
        home(stage)
    );
    let error = Diagnostic::error(Code::CannotExport, schedule.placement_span, "no such placement there", message);
    Err(error.help("`pipec.torchtitan` places any: docs/torchtitan.md"))
}

fn model(transformer: &Transformer, schedule: &Schedule) -> Result<Model, Diagnostic> {
    let stages = accounts(transformer, &schedule.placement, schedule.span)?;
    let last = stages.len().saturating_sub(1);
    let modules = |(stage, layers): (usize, std::ops::Range<u64>)| {
        let first = (stage == 0).then(|| FIRST.to_owned());
        let behind = if stage == last { &LAST[..] } else { &[] };
        let layers = layers.map(|layer| format!("layers.{layer}"));
        first.into_iter().chain(layers).chain(behind.iter().map(|name| (*name).to_owned())).collect()
    };
    Ok(Model {
        rows: transformer.settings.rows,
        sequence: transformer.settings.sequence,
        modules: stages.into_iter().map(|stage| stage.layers).enumerate().map(modules).collect(),
    })
}

impl fmt::Display for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { schedule, ranks, stages, name, microbatches, model } = self;
        let rows = model.as_ref().map_or(1, |model| model.rows);
        writeln!(
            f,
            "\"\"\"{schedule} for torchtitan 0.3, beside the table {schedule}.csv (`pipec build --emit torch-csv`):\n"
        )?;
        writeln!(f, "    config.parallelism = dataclasses.replace(config.parallelism, **PARALLELISM)")?;
        writeln!(f, "    config.training = dataclasses.replace(config.training, **TRAINING)")?;
        writeln!(f, "\"\"\"\n\nPARALLELISM = {{")?;
        writeln!(f, "    \"pipeline_parallel_degree\": {ranks},")?;
        writeln!(f, "    # It says where stages live; what runs is the table.")?;
        writeln!(f, "    \"pipeline_parallel_schedule\": \"{name}\",")?;
        writeln!(f, "    \"pipeline_parallel_schedule_csv\": \"{schedule}.csv\",")?;
        writeln!(f, "    \"pipeline_parallel_microbatch_size\": {rows},")?;
        if let Some(model) = model {
            writeln!(f, "    \"module_fqns_per_model_part\": [")?;
            for stage in &model.modules {
                let names: Vec<String> = stage.iter().map(|name| format!("\"{name}\"")).collect();
                writeln!(f, "        [{}],", names.join(", "))?;
            }
            writeln!(f, "    ],")?;
        } else if *stages > 2 * ranks {
            writeln!(
                f,
                "    # \"module_fqns_per_model_part\" has to name {stages} stages: torchtitan makes two for each rank."
            )?;
        }
        writeln!(f, "}}\n\nTRAINING = {{")?;
        writeln!(f, "    \"local_batch_size\": {},", u64::from(*microbatches) * rows)?;
        if let Some(model) = model {
            writeln!(f, "    \"seq_len\": {},", model.sequence)?;
        }
        writeln!(f, "}}")
    }
}
