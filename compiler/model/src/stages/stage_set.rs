//! Stage sets: what lowering needs to know about the work, whether it comes from a model or from plain byte counts.

use crate::transformer::StageAccount;
use pipe_ir::digest::Digest;
use pipe_ir::ids::{ExecId, StageId, ValueId};
use pipe_ir::program::{Edge, Exec};
use pipe_ir::task::TaskKind;
use pipe_ir::units::Bytes;
use pipe_ir::value::Value;
use pipe_schedule::schedule::Schedule;
use pipe_schedule::stage_graph::StageGraph;
use std::collections::{BTreeMap, BTreeSet};

/// The values and executables of every stage. May hold executables of kinds that a schedule does not use.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct StageSet {
    /// What buffers may hold, by [`pipe_ir::ids::ValueId`].
    pub values: Vec<Value>,
    /// What devices can run, by [`ExecId`].
    pub execs: Vec<Exec>,
    /// Which stages read which.
    pub graph: StageGraph,
    /// Those of all stages for the first slice of a microbatch, by [`pipe_ir::ids::StageId`], then
    /// for the second one, and so on.
    pub stages: Vec<StageExecs>,
    /// Those for microbatches at the edges of a step, where stages read earlier microbatches.
    pub edges: BTreeMap<(TaskKind, StageId, Edge), ExecId>,
    /// The weights that are trained, in the order in which they are updated.
    pub weights: Vec<WeightGroup>,
    /// Temporaries of executables without a tensor graph, by [`ExecId`]: none where it is shorter.
    pub scratch: Vec<Bytes>,
    /// Floating-point operations that take a tick, where that is more than one.
    pub flops_per_tick: u64,
    /// What stands behind the bytes where the stages are those of a transformer, by [`pipe_ir::ids::StageId`].
    pub accounts: Vec<StageAccount>,
    /// How many devices stand behind each device; 0 stands for one.
    pub members: u32,
    /// Tells the model from others, if there is one.
    pub model: Option<Digest>,
}

impl StageSet {
    /// The stages with weights that are trained.
    pub fn trained(&self) -> BTreeSet<StageId> {
        self.weights.iter().filter(|group| group.update.is_some()).flat_map(|group| &group.stages).copied().collect()
    }

    /// The stages of each group of trained weights that several share.
    pub fn tied(&self) -> Vec<Vec<StageId>> {
        let shared = self.weights.iter().filter(|group| group.update.is_some() && group.stages.len() > 1);
        shared.map(|group| group.stages.clone()).collect()
    }

    /// Tells a schedule which stages read which, and which have weights that are trained.
    pub fn tell(&self, schedule: &mut Schedule) {
        schedule.graph = self.graph.clone();
        let trained = self.trained();
        let stages = schedule.window.iter_mut().flat_map(|window| &mut window.stages);
        (0..).map(StageId).zip(stages).for_each(|(id, stage)| stage.is_trained = trained.contains(&id));
    }
}

/// The executables of one stage, without updates: those belong to its weights.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StageExecs {
    /// By [`TaskKind::index`].
    pub execs: [Option<ExecId>; TaskKind::ALL.len()],
    /// The executable that runs `B` and `W` together, even if the schedule has them as separate tasks.
    pub both: Option<ExecId>,
    /// The forward that saves what the backward reads, if the stage recomputes other microbatches.
    pub keeping: Option<ExecId>,
}

impl StageExecs {
    /// The executable for one kind of task.
    pub const fn exec_of(&self, kind: TaskKind) -> Option<ExecId> {
        self.execs[kind.index()]
    }

    /// The executable that runs a task of this kind. For `BW` that may be the one that runs `B` and `W` together. For
    /// `F` it is the one that saves what the backward reads, unless `R` repeats it.
    pub fn run_of(&self, kind: TaskKind, is_repeated: bool) -> Option<ExecId> {
        let keeping = self.keeping.filter(|_| kind == TaskKind::Forward && !is_repeated);
        keeping.or(self.exec_of(kind)).or(self.both.filter(|_| kind == TaskKind::Backward))
    }
}

/// Weights that are updated at once: those of one stage, or one that several stages share. Every device on which any of
/// the stages lives has them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WeightGroup {
    /// The weights.
    pub parameters: ValueId,
    /// Where their gradients are added up, if they are computed.
    pub gradients: Option<ValueId>,
    /// What changes them at the end of a step, if anything does.
    pub update: Option<ExecId>,
    /// The stages that read them, ascending.
    pub stages: Vec<StageId>,
}
