//! What there is to do: the executables that a schedule uses, each with its scratch, and what they read and write.

mod divided;
mod norm;
mod pieces;

use super::{Buckets, Options, chunks};
use petgraph::unionfind::UnionFind;
use pieces::TaskPiece;
use pipe_ir::ids::{DeviceId, ExecId, LaneId, MicrobatchId, StageId, ValueId};
use pipe_ir::kernels;
use pipe_ir::muon;
use pipe_ir::program::{Access, Body, Edge, Exec, Operand};
use pipe_ir::task::{Task, TaskKind};
use pipe_ir::units::Bytes;
use pipe_ir::value::{Value, ValueKind};
use pipe_model::stage_set::{StageExecs, StageSet, WeightGroup};
use pipe_schedule::parts::StageParts;
use pipe_schedule::placement::Placement;
use pipe_schedule::policy::offload::Offload;
use pipe_schedule::policy::zero::Zero;
use pipe_schedule::schedule::Schedule;
use pipe_schedule::slices::Slices;
use pipe_schedule::stage_graph::StageGraph;
use std::collections::BTreeMap;
use std::iter;

/// The tables of the program, and what lowering asks of them.
pub(super) struct ProgramTables {
    pub(super) values: Vec<Value>,
    pub(super) execs: Vec<Exec>,
    /// By exec that runs in pieces: these.
    pub(super) pieces: BTreeMap<ExecId, Vec<TaskPiece>>,
    /// By exec: temporaries that are said, where it has no tensor graph.
    scratch: Vec<Bytes>,
    /// By slice, stage and kind.
    stages: Vec<StageExecs>,
    /// For each stage that recomputes some microbatches, but not all: whether it recomputes each microbatch.
    recomputed: BTreeMap<StageId, Vec<bool>>,
    /// By exec.
    flows: Vec<Flow>,
    /// By value: the stage that computes it; none for persistent values and data.
    producers: Vec<Option<StageId>>,
    placement: Placement,
    /// The executables of each device.
    homes: Buckets,
    /// The weights, with the numbers of the tables above.
    weights: Vec<WeightGroup>,
    /// By value: buffers that its versions take turns in.
    versions: Vec<u32>,
    /// By value: whether it is gradients of weights that devices divide.
    divided: Vec<bool>,
    /// By weights that are kept in shares: the devices that hold them, each with its share.
    shares: BTreeMap<ValueId, Vec<(DeviceId, ValueId)>>,
    /// By value of the stage set: its number in the table above.
    numbers: Vec<ValueId>,
    n_microbatches: u32,
    slices: Slices,
    graph: StageGraph,
    /// Those for microbatches at the edges of a step.
    edges: BTreeMap<(TaskKind, StageId, Edge), ExecId>,
    offload: Offload,
    zero: Zero,
    /// By stage, or part of one: the lane that runs it.
    lanes: Vec<Option<LaneId>>,
    /// The sum of the squares of all gradients, where these are clipped.
    norm: Option<ValueId>,
    /// How many devices stand behind each device.
    members: u32,
}

const UNUSED: ValueId = ValueId(u32::MAX);

/// The values of a microbatch that an executable reads and writes.
#[derive(Default)]
pub(super) struct Flow {
    /// With how many microbatches ahead each is.
    reads: Vec<(ValueId, i32)>,
    pub(super) writes: Vec<ValueId>,
}

impl ProgramTables {
    /// `schedule` has the lists of devices, and `parts` says what of them runs on lanes.
    pub(super) fn new((schedule, parts): (&Schedule, &StageParts), set: &StageSet, options: &Options) -> Self {
        let (offload, zero) = (options.offload, options.zero);
        let used = used(schedule, set);
        let mut work = Self {
            values: Vec::new(),
            execs: Vec::new(),
            pieces: BTreeMap::new(),
            scratch: Vec::new(),
            stages: vec![StageExecs::default(); set.stages.len()],
            recomputed: schedule.recomputed_microbatches(),
            flows: Vec::new(),
            producers: Vec::new(),
            placement: schedule.placement.clone(),
            homes: Buckets::default(),
            weights: Vec::new(),
            versions: Vec::new(),
            divided: Vec::new(),
            shares: BTreeMap::new(),
            numbers: Vec::new(),
            n_microbatches: schedule.n_microbatches,
            slices: schedule.slices,
            graph: schedule.graph.clone(),
            edges: BTreeMap::new(),
            offload,
            zero,
            lanes: (0..schedule.n_stages())
                .map(|row| parts.lane(StageId::from_index(row)).map(LaneId::from_index))
                .collect(),
            norm: None,
            members: set.members.max(1),
        };
        let numbers = work.take_values(set, &used);
        work.take_execs(set, &used, &numbers);
        let training = options.training.as_ref();
        if training.is_some_and(|training| training.optimizer.state_of_matrices().is_some()) {
            work.find_scratch_of_updates();
        }
        if training.is_some_and(|training| training.clip_norm.is_some()) {
            work.add_norm();
        }
        work.find_versions(schedule);
        work.numbers = numbers;
        work.find_shares();
        work.find_pieces(set.members);
        work.find_homes(schedule.n_devices());
        for lane in iter::once(None).chain((0..parts.lanes().len()).map(LaneId::from_index).map(Some)) {
            work.add_scratch(schedule.n_devices(), lane.map(|lane| (lane, &*parts.lanes()[lane.index()])));
        }
        work.find_flows();
        work.find_divided();
        work
    }

    /// Keeps the used executables, and the weights that they touch.
    fn take_execs(&mut self, set: &StageSet, used: &[bool], values: &[ValueId]) {
        let mut numbers = vec![None; set.execs.len()];
        // By update: how many devices hold its weights.
        let mut homes = vec![None; set.execs.len()];
        for group in &set.weights {
            group.update.into_iter().for_each(|update| homes[update.index()] = Some(self.members(&group.stages).len()));
        }
        for (index, exec) in set.execs.iter().enumerate().filter(|(index, _)| used[*index]) {
            let mut exec = exec.clone();
            for operand in &mut exec.operands {
                operand.value = values[operand.value.index()];
            }
            let number = Some(ExecId::from_index(self.execs.len()));
            numbers[index] = number;
            if exec.kind != TaskKind::Update {
                let row = exec.slice.unwrap_or(0) as usize * self.placement.n_stages() + exec.stage.index();
                match (exec.edge, number) {
                    (Some(edge), Some(number)) => drop(self.edges.insert((exec.kind, exec.stage, edge), number)),
                    _ if exec.kind == TaskKind::Forward
                        && set.stages[row].keeping == Some(ExecId::from_index(index)) =>
                    {
                        self.stages[row].keeping = number;
                    }
                    _ => self.stages[row].execs[exec.kind.index()] = number,
                }
            }
            let execs = match homes[index] {
                Some(members) if self.zero.any() && members > 1 => {
                    chunks::divide(exec, &mut self.values, members, self.zero)
                }
                Some(_) if self.offload.optimizer => chunks::cut(exec, &mut self.values),
                _ => vec![exec],
            };
            let scratch = set.scratch.get(index).copied().unwrap_or_default();
            self.scratch.extend(execs.iter().map(|_| scratch));
            self.execs.extend(execs);
        }
        let is_used = |value: &ValueId| values[value.index()] != UNUSED;
        let groups = set.weights.iter().filter(|group| is_used(&group.parameters));
        self.weights.extend(groups.map(|group| WeightGroup {
            parameters: values[group.parameters.index()],
            gradients: group.gradients.filter(is_used).map(|value| values[value.index()]),
            update: group.update.and_then(|update| numbers[update.index()]),
            stages: group.stages.clone(),
        }));
    }

    /// Adds a piece of a task.
    pub(super) fn add_piece(&mut self, exec: Exec) {
        self.execs.push(exec);
        self.scratch.push(Bytes::ZERO);
    }

    /// Whether the members of a device exchange anything.
    pub(super) fn exchanges(&self) -> bool {
        !self.pieces.is_empty() || self.norm.is_some() && self.members > 1
    }

    /// Counts the buffers of all weights. An update whose old version is still read makes the new one beside it.
    fn find_versions(&mut self, schedule: &Schedule) {
        self.versions = vec![1; self.values.len()];
        let Some(window) = &schedule.window else { return };
        for group in &self.weights {
            let Some(update) = group.update else { continue };
            let buffers = group.stages.iter().map(|stage| window.stages[stage.index()].buffers).max().unwrap_or(1);
            self.versions[group.parameters.index()] = buffers;
            if buffers > 1 {
                let operands = &mut self.execs[update.index()].operands;
                for operand in operands.iter_mut().filter(|operand| operand.value == group.parameters) {
                    operand.access = Access::Write;
                }
                operands.insert(0, Operand::new(group.parameters, Access::Read));
            }
        }
    }

    /// The gradients that a task adds to.
    pub(super) fn gradients_of(&self, task: Task) -> Option<ValueId> {
        let operands = &self.execs[self.exec(task)?.index()].operands;
        let is_gradient = |value: &ValueId| self.values[value.index()].kind == ValueKind::ParameterGradients;
        operands.iter().map(|operand| operand.value).find(is_gradient)
    }

    /// The gradients of a stage's weights, where an update uses them.
    pub(super) fn trained(&self, stage: StageId) -> Option<ValueId> {
        let group = self.weights.iter().find(|group| group.stages.first() == Some(&stage) && group.update.is_some());
        group?.gradients
    }

    /// Whether a value lives in the memory of the host, and comes to the device for its uses.
    pub(super) fn is_offloaded(&self, value: ValueId) -> bool {
        match self.values[value.index()].kind {
            ValueKind::OptimizerState => self.offload.optimizer,
            ValueKind::Parameters => self.offload.parameters,
            _ => false,
        }
    }

    /// Buffers that the versions of a value take turns in.
    pub(super) fn versions(&self, value: ValueId) -> u32 {
        self.versions.get(value.index()).copied().unwrap_or(1)
    }

    /// What updates the weights of a stage.
    pub(super) fn update_of(&self, stage: StageId) -> Option<ExecId> {
        self.weights.iter().filter(|group| group.stages.first() == Some(&stage)).find_map(|group| group.update)
    }

    /// Tasks run where their stage lives, updates wherever one of the stages lives that read the weights.
    fn find_homes(&mut self, n_devices: usize) {
        let mut homes: Vec<(usize, usize)> = Vec::new();
        for (index, exec) in self.execs.iter().enumerate() {
            let members = self.homes_of(exec);
            let share = exec.chunk.filter(|chunk| chunk.group.is_some());
            // Squares that several devices could add up are those of the first.
            let all = !exec.is_squares();
            let is_own =
                |position: usize| share.map_or(all || position == 0, |share| share.number as usize == position);
            let own = members.iter().enumerate().filter(|(position, _)| is_own(*position));
            homes.extend(own.map(|(_, device)| (device.index(), index)));
        }
        self.homes = Buckets::new(n_devices, homes.iter().copied());
    }

    /// The devices that have what an executable works on, ascending.
    fn homes_of(&self, exec: &Exec) -> Vec<DeviceId> {
        let changes = |group: &WeightGroup| {
            let mut values = exec.operands.iter().map(|operand| self.whole(operand.value));
            values.any(|value| value == group.parameters || exec.is_squares() && group.gradients == Some(value))
        };
        let updates = |group: &&WeightGroup| group.update.is_some() && changes(group);
        let group = self.weights.iter().find(updates).filter(|_| exec.kind == TaskKind::Update);
        self.members(group.map_or(std::slice::from_ref(&exec.stage), |group| &group.stages))
    }

    /// The devices on which any of these stages lives, ascending.
    fn members(&self, stages: &[StageId]) -> Vec<DeviceId> {
        let mut devices: Vec<DeviceId> =
            stages.iter().flat_map(|stage| self.placement.devices_of(*stage).iter().copied()).collect();
        devices.sort_unstable();
        devices.dedup();
        devices
    }

    /// Keeps the values that used executables touch; says what becomes of each id.
    fn take_values(&mut self, set: &StageSet, used: &[bool]) -> Vec<ValueId> {
        let mut touched = vec![false; set.values.len()];
        for (exec, _) in set.execs.iter().zip(used).filter(|(_, used)| **used) {
            for operand in &exec.operands {
                touched[operand.value.index()] = true;
            }
        }
        let mut numbers = vec![UNUSED; set.values.len()];
        for (index, value) in set.values.iter().enumerate().filter(|(index, _)| touched[*index]) {
            numbers[index] = ValueId::from_index(self.values.len());
            self.values.push(value.clone());
        }
        numbers
    }

    /// The lane that runs an executable. None if it stands in the lists of devices.
    pub(super) fn lane(&self, exec: ExecId) -> Option<LaneId> {
        let exec = &self.execs[exec.index()];
        self.lanes.get(exec.stage.index()).copied().flatten().filter(|_| exec.kind != TaskKind::Update)
    }

    /// Gives every device one buffer for temporaries of its list, or of a lane, as large as the hungriest executable
    /// there asks. Devices that have an executable in common have the value in common, too.
    fn add_scratch(&mut self, n_devices: usize, lane: Option<(LaneId, &str)>) {
        let needs = self.execs.iter().zip(&self.scratch).enumerate().map(|(index, (exec, said))| match &exec.body {
            _ if self.pieces.contains_key(&ExecId::from_index(index)) => Bytes::ZERO,
            Body::Graph(graph) => kernels::plan(graph).scratch,
            Body::Abstract | Body::Optimizer | Body::Squares => *said,
        });
        let needs: Vec<Bytes> = needs.collect();
        for devices in self.related(n_devices) {
            let mut hungry: Vec<usize> = Vec::new();
            let mut taken = vec![false; if devices.len() > 1 { needs.len() } else { 0 }];
            for exec in devices.iter().flat_map(|device| self.execs_of(*device)).map(ExecId::index) {
                let again = taken.get_mut(exec).is_some_and(|taken| std::mem::replace(taken, true));
                let is_here = self.lane(ExecId::from_index(exec)) == lane.map(|(lane, _)| lane);
                if needs[exec] > Bytes::ZERO && is_here && !again {
                    hungry.push(exec);
                }
            }
            let Some(most) = hungry.iter().map(|exec| needs[*exec]).max() else { continue };
            let value = ValueId::from_index(self.values.len());
            let stage = self.execs[hungry[0]].stage;
            let behind = lane.map_or(String::new(), |(_, name)| format!(".{name}"));
            let name = format!("scratch.{}{behind}", devices[0]);
            self.values.push(Value::plain(name, ValueKind::Scratch, stage, most));
            for exec in hungry {
                self.execs[exec].operands.push(Operand::new(value, Access::Update));
            }
        }
    }

    /// Sets the scratch size of Muon updates.
    fn find_scratch_of_updates(&mut self) {
        for (exec, said) in self.execs.iter().zip(&mut self.scratch).filter(|(exec, _)| exec.body == Body::Optimizer) {
            let of_kind = |kind| {
                let mut values = exec.operands.iter().map(|operand| &self.values[operand.value.index()]);
                values.find(|value| value.kind == kind)
            };
            let values = of_kind(ValueKind::Parameters).zip(of_kind(ValueKind::OptimizerState));
            *said = values.map_or(Bytes::ZERO, |(parameters, state)| muon::scratch(&muon::rules(parameters, state)));
        }
    }

    /// The devices in groups, ascending: those that have executables in common, directly or through others.
    fn related(&self, n_devices: usize) -> Vec<Vec<DeviceId>> {
        let mut first: Vec<Option<usize>> = vec![None; self.execs.len()];
        let mut sets = UnionFind::<usize>::new(n_devices);
        for device in 0..n_devices {
            for exec in self.execs_of(DeviceId::from_index(device)) {
                sets.union(*first[exec.index()].get_or_insert(device), device);
            }
        }
        let mut groups: Vec<Vec<DeviceId>> = Vec::new();
        let mut numbers: Vec<Option<usize>> = vec![None; n_devices];
        for device in 0..n_devices {
            let number = numbers[sets.find(device)].get_or_insert(groups.len());
            if *number == groups.len() {
                groups.push(Vec::new());
            }
            groups[*number].push(DeviceId::from_index(device));
        }
        groups
    }

    fn find_flows(&mut self) {
        self.producers = vec![None; self.values.len()];
        for exec in &self.execs {
            let mut flow = Flow::default();
            for operand in &exec.operands {
                let kind = self.values[operand.value.index()].kind;
                if kind.is_persistent() {
                    continue;
                }
                if operand.access == Access::Write {
                    flow.writes.push(operand.value);
                    self.producers[operand.value.index()] = Some(exec.stage);
                } else {
                    flow.reads.push((operand.value, operand.ahead));
                }
            }
            self.flows.push(flow);
        }
    }

    /// The executable of a task; none where its stage has nothing to do for it.
    pub(super) fn exec(&self, task: Task) -> Option<ExecId> {
        if let Some(edge) = self.graph.edge(task, self.n_microbatches) {
            return self.edges.get(&(task.kind, task.stage, edge)).copied();
        }
        let row = self.slices.slice(task.microbatch) as usize * self.placement.n_stages() + task.stage.index();
        self.stages.get(row)?.run_of(task.kind, is_repeated(&self.recomputed, task))
    }

    /// What a run reads, and of which microbatch each value is.
    pub(super) fn reads(&self, exec: ExecId, run: MicrobatchId) -> impl Iterator<Item = (ValueId, MicrobatchId)> {
        let reads = self.flows[exec.index()].reads.iter();
        reads.map(move |(value, ahead)| (*value, MicrobatchId(run.0.wrapping_add_signed(*ahead))))
    }

    /// The executables of a device, in the order of the table.
    pub(super) fn execs_of(&self, device: DeviceId) -> impl Iterator<Item = ExecId> {
        self.homes.of(device.index()).iter().map(|exec| ExecId(*exec))
    }

    /// The device that computes a microbatch's value; none for persistent values and data.
    pub(super) fn producer(&self, value: ValueId, microbatch: MicrobatchId) -> Option<DeviceId> {
        self.producers[value.index()].map(|stage| self.placement.device(stage, microbatch))
    }

    /// The number of a value of the stage set; none where nothing touches it.
    pub(super) fn value(&self, value: ValueId) -> Option<ValueId> {
        self.numbers.get(value.index()).copied().filter(|number| *number != UNUSED)
    }

    /// The weights that have these gradients.
    pub(super) fn weights_of(&self, gradients: ValueId) -> Option<&WeightGroup> {
        self.weights.iter().find(|group| group.gradients == Some(gradients))
    }

    /// What an executable writes.
    pub(super) fn flow(&self, exec: ExecId) -> &Flow {
        &self.flows[exec.index()]
    }

    /// Position of a microbatch's value in tables with an entry for each.
    pub(super) fn entry(&self, value: ValueId, microbatch: MicrobatchId) -> usize {
        value.index() * self.n_microbatches as usize + microbatch.index()
    }

    /// Size of tables with an entry for each value of each microbatch.
    pub(super) fn n_entries(&self) -> usize {
        self.values.len() * self.n_microbatches as usize
    }
}

/// Whether the stage of a task recomputes some microbatches, but not all, and this one.
fn is_repeated(recomputed: &BTreeMap<StageId, Vec<bool>>, task: Task) -> bool {
    recomputed.get(&task.stage).is_some_and(|own| own[task.microbatch.index()])
}

/// The executables that the schedule runs, and all updates.
fn used(schedule: &Schedule, set: &StageSet) -> Vec<bool> {
    let mut used = vec![false; set.execs.len()];
    let recomputed = schedule.recomputed_microbatches();
    for scheduled in schedule.orders.iter().flatten() {
        let task = scheduled.task;
        let row = schedule.slices.slice(task.microbatch) as usize * schedule.n_stages();
        let exec = match schedule.graph.edge(task, schedule.n_microbatches) {
            Some(edge) => set.edges.get(&(task.kind, task.stage, edge)).copied(),
            None => {
                let stage = set.stages.get(row + task.stage.index());
                stage.and_then(|stage| stage.run_of(task.kind, is_repeated(&recomputed, task)))
            }
        };
        if let Some(exec) = exec {
            used[exec.index()] = true;
        }
    }
    for exec in set.weights.iter().filter_map(|group| group.update) {
        used[exec.index()] = true;
    }
    used
}
