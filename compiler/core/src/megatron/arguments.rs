//! The options with which Megatron-LM runs a schedule: of the pipeline, and with a model from a `config.json` of its
//! layers, its division and its batch.
//!
//! Which options exclude each other is read in `validate_args` (`megatron/training/arguments.py`, August 2026,
//! d98e8a6).

use super::layout::Layout;
use super::table::Table;
use crate::analyze::Analysis;
use pipe_model::transformer::{Recompute, Settings, Transformer};
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};
use std::fmt;

/// Options in the order in which they are written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Arguments {
    options: Vec<(&'static str, Option<String>)>,
}

impl Arguments {
    /// The options of a schedule that Megatron's own loops run.
    ///
    /// # Errors
    /// If they do not run it, or there is no option for what the pipeline asks for.
    pub fn of(analysis: &Analysis) -> Result<Self, Diagnostics> {
        let table = Table::of(analysis)?;
        let schedule = &analysis.schedule;
        let transformer = analysis.pipeline.as_ref().and_then(|pipeline| pipeline.transformer.as_ref());
        let (ranks, chunks) = (schedule.n_devices(), schedule.n_stages() / schedule.n_devices().max(1));
        let mut options = vec![("pipeline-model-parallel-size", Some(ranks.to_string()))];
        // The layout says how many chunks there are; Megatron refuses both.
        if transformer.is_some() {
            options.push(("pipeline-model-parallel-layout", Some(format!("\"{}\"", Layout::of(analysis)?))));
        } else if chunks > 1 {
            options.push(("num-virtual-stages-per-pipeline-rank", Some(chunks.to_string())));
        }
        if chunks > 1 {
            options.push(("microbatch-group-size-per-virtual-pipeline-stage", Some(table.group.to_string())));
        }
        if table.overlaps_experts {
            options.push(("overlap-moe-expert-parallel-comm", None));
        }
        if let Some(transformer) = transformer {
            refuse_shards(transformer).map_or(Ok(()), |error| Err(vec![error]))?;
            sizes(&transformer.settings, schedule.n_microbatches, &mut options);
        }
        Ok(Self { options })
    }
}

/// Megatron's optimizer divides its state; gradients and weights are divided by its FSDP, which runs other loops.
fn refuse_shards(transformer: &Transformer) -> Option<Diagnostic> {
    let zero = transformer.settings.zero;
    (zero > 1).then(|| {
        let span = transformer.place("zero");
        let message = format!("`zero = {zero}` divides gradients, and Megatron's distributed optimizer its state only");
        Diagnostic::error(Code::CannotExport, span, "no option for this", message).help("write `zero = 1`")
    })
}

fn sizes(settings: &Settings, microbatches: u32, options: &mut Vec<(&'static str, Option<String>)>) {
    let rows = u64::from(microbatches).saturating_mul(settings.rows).saturating_mul(settings.data);
    let mut number = |name, value: u64| options.push((name, Some(value.to_string())));
    number("tensor-model-parallel-size", settings.tensor);
    if settings.expert > 1 {
        number("expert-model-parallel-size", settings.expert);
    }
    number("micro-batch-size", settings.rows);
    number("global-batch-size", rows);
    number("seq-length", settings.sequence);
    // Without tensor parallelism Megatron turns it off.
    if settings.sequence_parallel && settings.tensor > 1 {
        options.push(("sequence-parallel", None));
    }
    if settings.zero == 1 {
        options.push(("use-distributed-optimizer", None));
    }
    let mut word = |name, value: &str| options.push((name, Some(value.to_owned())));
    match settings.recompute {
        Recompute::None => {}
        // A method goes with full recomputation only.
        Recompute::Selective => word("recompute-granularity", "selective"),
        Recompute::Full => {
            word("recompute-granularity", "full");
            word("recompute-method", "uniform");
            word("recompute-num-layers", "1");
        }
    }
}

impl fmt::Display for Arguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (name, value)) in self.options.iter().enumerate() {
            write!(f, "--{name}")?;
            if let Some(value) = value {
                write!(f, " {value}")?;
            }
            // One command, over several lines of a shell.
            f.write_str(if place + 1 < self.options.len() { " \\\n" } else { "\n" })?;
        }
        Ok(())
    }
}
