//! Candidates: a way to divide a model among the devices of a cluster, with a schedule and what is
//! kept, as settings and as source.

use super::families::Variant;
use super::problem::Problem;
use pipe_ir::units::Bytes;
use pipe_model::pipeline::{Pipeline, TrainingFiles};
use pipe_model::transformer::{Layers, Recompute, Settings, Transformer};
use pipe_schedule::policy::offload::Offload;
use pipe_schedule::policy::zero::Zero;
use serde::Serialize;
use std::fmt::Write;

/// The setting `nodes` where the target does not say it: node 0 first, then the others.
pub(super) const AS_NUMBERED: [u64; 1] = [0];

/// How a model is divided.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct Layout {
    /// Devices that divide each layer.
    pub tensor: u64,
    /// Devices of a pipeline.
    pub devices: u64,
    /// Pipelines side by side.
    pub data: u64,
    /// Of these, how many divide the experts.
    pub expert: u64,
    /// Rows of a microbatch.
    pub rows: u64,
    /// Microbatches of a pipeline in a step.
    pub microbatches: u64,
}

/// What devices keep of a layer, and what of the state.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Keeping {
    /// What is computed once more.
    pub recompute: Recompute,
    /// What pipelines side by side divide.
    pub zero: u64,
    /// Whether devices that divide a layer also divide the sequence.
    pub sequence_parallel: bool,
    /// What of the state lives with the hosts.
    pub offload: Offload,
}

/// A layout with a schedule, and what it keeps.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Candidate {
    /// How the model is divided.
    pub layout: Layout,
    /// The schedule.
    pub variant: Variant,
    /// What is kept.
    pub keeping: Keeping,
    /// The order in which nodes are filled; empty for that of the target.
    pub nodes: Vec<u32>,
}

impl Layout {
    /// The settings of a transformer that is divided so, and keeps this.
    pub fn settings(&self, base: &Settings, keeping: Keeping) -> Settings {
        Settings {
            rows: self.rows,
            tensor: self.tensor,
            sequence_parallel: keeping.sequence_parallel,
            data: self.data,
            expert: self.expert,
            zero: keeping.zero,
            recompute: keeping.recompute,
            layers: Layers::Balanced,
            ..base.clone()
        }
    }
}

impl Candidate {
    /// The pipeline as it is elaborated.
    pub fn pipeline(&self, problem: &Problem) -> Pipeline {
        let keeping = self.keeping;
        let mut settings = self.layout.settings(&problem.transformer.settings, keeping);
        if !self.nodes.is_empty() {
            settings.nodes = self.nodes.iter().copied().map(u64::from).collect();
        }
        Pipeline {
            name: problem.name.clone(),
            span: problem.span,
            model: None,
            transformer: Some(Transformer { settings, ..problem.transformer.clone() }),
            tensor: None,
            memory: Some((problem.limit.into(), problem.span)),
            host: problem.cluster.host_of_device().map(|host| (host.into(), problem.span)),
            speeds: None,
            offload: keeping.offload,
            may_offload: false,
            zero: Zero::default(),
            costs: None,
            requirements: Vec::new(),
            training: None,
            files: TrainingFiles::default(),
        }
    }

    /// The pipeline as source, behind a comment.
    pub fn source(&self, problem: &Problem, comment: &str) -> String {
        let mut text: String = comment.lines().map(|line| format!("// {line}").trim_end().to_owned() + "\n").collect();
        if let Some(trained) = &problem.trained {
            text.push_str(if text.is_empty() { "" } else { "\n" });
            return text + &trained.source(problem, self);
        }
        let Self { layout, variant, keeping, nodes } = self;
        let base = &problem.transformer.settings;
        let path = &problem.transformer.config.path;
        let mut settings = vec![("sequence", base.sequence.to_string()), ("rows", layout.rows.to_string())];
        let mut say = |name, value: u64, usual: u64| {
            if value != usual {
                settings.push((name, value.to_string()));
            }
        };
        say("tensor", layout.tensor, 1);
        say("sequence_parallel", keeping.sequence_parallel.into(), 0);
        say("data", layout.data, 1);
        say("expert", layout.expert, 1);
        say("zero", keeping.zero, 0);
        say("flash", base.flash.into(), 1);
        say("gradient_bytes", base.gradient_bytes, 4);
        if keeping.recompute != Recompute::None {
            settings.push(("recompute", keeping.recompute.word().to_owned()));
        }
        if !nodes.is_empty() {
            settings.push(("nodes", format!("{nodes:?}")));
        } else if base.nodes != AS_NUMBERED {
            settings.push(("nodes", format!("{:?}", base.nodes)));
        }
        let settings: Vec<String> = settings.iter().map(|(name, value)| format!("        {name} = {value}")).collect();
        let offload = keeping.offload;
        let offload = if offload.any() { format!("\n    offload {offload}") } else { String::new() };
        write!(
            text,
            "pipeline {} {{\n    model \"{path}\"(\n{}\n    )\n    devices {} memory {}\n    microbatches {}\n    schedule {}{offload}\n}}\n",
            problem.name,
            settings.join(",\n"),
            layout.devices,
            exactly(problem.limit),
            layout.microbatches,
            variant.call()
        )
        .expect("writing to a string cannot fail");
        text
    }
}

/// Bytes as a source says them, in the largest unit that needs no fraction.
pub(super) fn exactly(bytes: Bytes) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let found = units.into_iter().find(|(_, shift)| bytes.0 > 0 && bytes.0.is_multiple_of(1 << shift));
    found.map_or_else(|| format!("{}B", bytes.0), |(name, shift)| format!("{}{name}", bytes.0 >> shift))
}

#[cfg(test)]
mod tests {
    use super::exactly;
    use pipe_ir::units::Bytes;

    #[test]
    fn limits_are_written_to_the_byte() {
        let words = [80 << 30, 1 << 40, 80_000_000_000, (80 << 30) + 1, 0].map(|bytes| exactly(Bytes(bytes)));
        assert_eq!(words, ["80GiB", "1TiB", "78125000KiB", "85899345921B", "0B"]);
    }
}
