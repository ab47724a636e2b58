//! Jobs: the command that starts Megatron-LM, with its launcher or without, as a pipeline.
//!
//! What Megatron refuses is read in `validate_args` (`megatron/training/arguments.py`) and in
//! `forward_backward_pipelining_with_interleaving` (`megatron/core/pipeline_parallel/schedules.py`), August 2026,
//! d98e8a6.

mod options;
mod stages;

use options::Options;
use pipe_model::transformer::{self, Config, Recompute, Settings};
use pipe_syntax::source::FileId;
use stages::Stages;
use std::fmt::Write;
use std::str::FromStr;

/// The options of a job that say how it is divided and scheduled. Others are left out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Job {
    options: Options,
}

impl FromStr for Job {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(Self { options: Options::read(text)? })
    }
}

impl Job {
    /// The job as a source: a pipeline whose model has the sizes of a `config.json`, with the path of that file from
    /// the source on. Whether the file is one is found by whoever compiles the source.
    ///
    /// # Errors
    /// What Megatron refuses, and what has no counterpart here.
    pub fn source(&self, path: &str, config: &str) -> Result<String, String> {
        let options = &self.options;
        let Ok(Config { layers: n_layers, .. }) = transformer::read(FileId(0), path, config) else {
            return Ok(format!(
                "pipeline job {{\n    model \"{path}\"(sequence = 1)\n    devices 1\n    microbatches 1\n    schedule 1f1b\n}}\n"
            ));
        };
        let [tensor, devices, context, expert] = [
            "tensor-model-parallel-size",
            "pipeline-model-parallel-size",
            "context-parallel-size",
            "expert-model-parallel-size",
        ]
        .map(|name| options.number(name));
        let [tensor, devices, context, expert] =
            [tensor?.unwrap_or(1), devices?.unwrap_or(1), context?.unwrap_or(1), expert?.unwrap_or(1)];
        if context > 1 {
            return Err(format!("`--context-parallel-size {context}`: pipec has no context parallelism"));
        }
        let data = data(options, tensor.saturating_mul(devices))?;
        let rows = options.number("micro-batch-size")?.ok_or("`--micro-batch-size` is missing")?;
        let sequence = options.number("seq-length")?.ok_or("`--seq-length` is missing")?;
        let microbatches = microbatches(options, rows, data)?;
        if let Some(said) = options.number("num-layers")?.filter(|said| *said != n_layers) {
            return Err(format!("`--num-layers {said}`, but {path} has {n_layers} layers"));
        }
        let stages = Stages::of(options, devices, n_layers)?;
        let schedule = schedule(options, &stages, devices, microbatches)?;
        // Without tensor parallelism Megatron turns it off.
        let parallel = u64::from(options.has("sequence-parallel") && tensor > 1);
        let zero = u64::from(options.has("use-distributed-optimizer"));
        let layers: Vec<String> = stages.layers.iter().map(u64::to_string).collect();
        let mut text = String::from("/// What Megatron-LM runs with the options of `--megatron`.\npipeline job {\n");
        let _ = write!(
            text,
            "    model \"{path}\"(\n        sequence = {sequence},\n        rows = {rows},\n        tensor = {tensor},\n        \
             sequence_parallel = {parallel},\n        data = {data},\n        expert = {expert},\n        \
             recompute = {},\n        zero = {zero},\n        layers = [{}]\n    )\n",
            recompute(options)?.word(),
            layers.join(", ")
        );
        let _ = write!(text, "    devices {devices}\n    microbatches {microbatches}\n    schedule {schedule}\n}}\n");
        Ok(text)
    }
}

impl Job {
    /// Settings of its pipeline as options of the command, with what its step then has; none where Megatron-LM has no
    /// option for one of them.
    pub(crate) fn options(&self, settings: &[(&str, i64)], step: &Settings, microbatches: u32) -> Option<Vec<String>> {
        let option = |(name, value): &(&str, i64)| match (*name, *value) {
            ("tensor", ways) => Some(format!("--tensor-model-parallel-size {ways}")),
            ("devices", ranks) => Some(format!("--pipeline-model-parallel-size {ranks}")),
            ("rows", rows) => Some(format!("--micro-batch-size {rows}")),
            ("sequence_parallel", _) => Some("--sequence-parallel".to_owned()),
            ("zero", 1) => Some("--use-distributed-optimizer".to_owned()),
            ("recompute", 1) => Some("--recompute-granularity selective".to_owned()),
            ("recompute", 2) => {
                Some("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1".to_owned())
            }
            // Microbatches follow from the batch.
            ("microbatches", _) => {
                let batch = u64::from(microbatches).saturating_mul(step.rows).saturating_mul(step.data);
                Some(format!("--global-batch-size {batch}"))
            }
            _ => None,
        };
        let is_said = |(name, _): &&(&str, i64)| *name == "microbatches" && self.options.has("global-batch-size");
        settings.iter().filter(|one| !is_said(one)).map(option).collect()
    }
}

/// Pipelines side by side: what is left of all devices.
fn data(options: &Options, devices: u64) -> Result<u64, String> {
    let world = options.world()?.ok_or(
        "how many GPUs does the job have? Write its launcher before the options, as in `torchrun --nnodes 16 \
         --nproc-per-node 8`, or `WORLD_SIZE=128`",
    )?;
    if world % devices.max(1) != 0 {
        return Err(format!(
            "{world} GPUs are not a multiple of {devices}: `--tensor-model-parallel-size` times \
             `--pipeline-model-parallel-size`"
        ));
    }
    Ok(world / devices.max(1))
}

/// Microbatches of a pipeline in a step.
fn microbatches(options: &Options, rows: u64, data: u64) -> Result<u64, String> {
    let at_once = rows.saturating_mul(data);
    let batch = options.number("global-batch-size")?.unwrap_or(at_once);
    if batch % at_once.max(1) != 0 {
        return Err(format!(
            "`--global-batch-size {batch}` is not a multiple of {at_once}: `--micro-batch-size {rows}` times {data} \
             data-parallel replicas"
        ));
    }
    Ok(batch / at_once.max(1))
}

/// What runs once more, if Megatron takes these options together.
fn recompute(options: &Options) -> Result<Recompute, String> {
    let method = options.value("recompute-method");
    let granularity = options.value("recompute-granularity");
    match granularity.or(options.has("recompute-activations").then_some("selective")) {
        None => Ok(Recompute::None),
        Some("selective") if method.is_some() => {
            Err("Megatron takes no `--recompute-method` with `--recompute-granularity selective`".to_owned())
        }
        Some("selective") => Ok(Recompute::Selective),
        Some("full") => match (method, options.number("recompute-num-layers")?) {
            (None, _) => Err("Megatron wants a `--recompute-method` with `--recompute-granularity full`".to_owned()),
            (Some("uniform"), Some(1)) => Ok(Recompute::Full),
            (Some("uniform"), None) => Err("Megatron wants `--recompute-num-layers` with `uniform`".to_owned()),
            _ => Err("pipec recomputes all layers one by one: `--recompute-method uniform --recompute-num-layers 1`; \
                      other ways are not modelled"
                .to_owned()),
        },
        Some(other) => Err(format!("expected `selective` or `full` for `--recompute-granularity`, found `{other}`")),
    }
}

/// The schedule that Megatron's loops run, as a pipeline names it.
fn schedule(options: &Options, stages: &Stages, devices: u64, microbatches: u64) -> Result<String, String> {
    if stages.chunks == 1 {
        return Ok("1f1b".to_owned());
    }
    let overlaps = !options.has("no-overlap-p2p-communication");
    if devices == 1 || (devices == 2 && !overlaps) {
        return Err(format!(
            "Megatron interleaves chunks on {} ranks or more, and there {} {devices}",
            if overlaps { 2 } else { 3 },
            if devices == 1 { "is" } else { "are" }
        ));
    }
    if options.has("overlap-moe-expert-parallel-comm") {
        return Err("`--overlap-moe-expert-parallel-comm` runs a forward at once with a backward, which no standard \
                    schedule does in this order"
            .to_owned());
    }
    let group = options.number("microbatch-group-size-per-virtual-pipeline-stage")?.unwrap_or(devices);
    let rest = microbatches % group.max(1);
    if group < devices {
        return Err(format!(
            "groups have {group} microbatches, and Megatron wants {devices} or more, one for each rank"
        ));
    }
    if microbatches < devices || (0 < rest && rest < devices) {
        return Err(format!(
            "the last group has {} of {microbatches} microbatches, and Megatron wants {devices} or more, one for each \
             rank",
            if microbatches < devices { microbatches } else { rest }
        ));
    }
    // A single group that is larger than the step is one of all its microbatches.
    Ok(format!("interleaved_1f1b(chunks = {}, group = {})", stages.chunks, group.min(microbatches)))
}
