//! Stage sets of models that are cut in slices: each slice has executables of its own. All slices share weights. They
//! share values, too, if all have the same length.
//!
//! Executables of a slice read what earlier slices of the microbatch carry over, and hand the
//! gradients of that back: the backward of slice q reads their sum over the slices after q, adds
//! its own, and writes what concerns the slices before.

use super::passes::{Ends, Output, OutputGradient};
use super::stage::StageTape;
use super::stage_set::{StageExecs, StageSet, WeightGroup};
use super::{StageRequest, stages_of_slice};
use crate::Model;
use crate::graph::bundle::{Bundle, ValueOffset, add_value};
use pipe_ir::graph::TensorType;
use pipe_ir::ids::{ExecId, StageId, ValueId};
use pipe_ir::task::TaskKind;
use pipe_ir::units::Bytes;
use pipe_ir::value::{Value, ValueKind};
use std::collections::BTreeMap;

/// Which slice of how many.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Position {
    /// From 0.
    pub index: u32,
    /// All of them.
    pub count: u32,
    /// Whether all have the same length.
    pub is_equal: bool,
}

impl Position {
    /// A whole microbatch.
    pub(super) const WHOLE: Self = Self { index: 0, count: 1, is_equal: true };

    fn is_last(self) -> bool {
        self.index + 1 == self.count
    }
}

/// The stages of all slices, given the model of each, and whether all have the same length.
pub(crate) fn slice_set(slices: &[Model], is_equal: bool, request: &StageRequest<'_>) -> StageSet {
    let mut all = StageSet::default();
    let mut names: BTreeMap<String, ValueId> = BTreeMap::new();
    let count = u32::try_from(slices.len()).unwrap_or(u32::MAX);
    for (index, model) in (0..count).zip(slices) {
        let slice = Position { index, count, is_equal };
        let set = stages_of_slice(model, request, slice);
        let values = set.values.into_iter().map(|value| shared(&mut all.values, &mut names, value, slice));
        let values: Vec<ValueId> = values.collect();
        let mut execs: Vec<Option<ExecId>> = Vec::with_capacity(set.execs.len());
        for mut exec in set.execs {
            let is_update = exec.kind == TaskKind::Update;
            if is_update && index > 0 {
                execs.push(None);
                continue;
            }
            exec.slice = (!is_update).then_some(index);
            exec.operands.iter_mut().for_each(|operand| operand.value = values[operand.value.index()]);
            all.execs.push(exec);
            execs.push(Some(ExecId::from_index(all.execs.len() - 1)));
        }
        let number = |exec: Option<ExecId>| exec.and_then(|exec| execs[exec.index()]);
        all.stages.extend(set.stages.iter().map(|stage| StageExecs {
            execs: stage.execs.map(number),
            both: number(stage.both),
            keeping: number(stage.keeping),
        }));
        if index == 0 {
            all.graph = set.graph;
            all.weights.extend(set.weights.into_iter().map(|group| WeightGroup {
                parameters: values[group.parameters.index()],
                gradients: group.gradients.map(|value| values[value.index()]),
                update: number(group.update),
                stages: group.stages,
            }));
        }
    }
    all
}

/// Adds a value for this slice. Slices whose tensors have the same shapes share it.
fn shared(
    values: &mut Vec<Value>,
    names: &mut BTreeMap<String, ValueId>,
    mut value: Value,
    slice: Position,
) -> ValueId {
    let is_own = match value.kind {
        ValueKind::SavedForInput | ValueKind::SavedForWeight | ValueKind::DeferredGradient => true,
        // Those of pieces of a task come later.
        ValueKind::Held | ValueKind::Exchanged => true,
        ValueKind::Data | ValueKind::Activation | ValueKind::Gradient => !slice.is_equal,
        // The names of carried values already have the slice. All others are the same for all slices.
        ValueKind::Carried
        | ValueKind::CarriedGradient
        | ValueKind::Parameters
        | ValueKind::ParameterGradients
        | ValueKind::OptimizerState
        | ValueKind::GradientNorm
        | ValueKind::Scratch
        | ValueKind::Loss => false,
    };
    if is_own {
        value.name = format!("{}.q{}", value.name, slice.index);
    }
    *names.entry(value.name.clone()).or_insert_with(|| add_value(values, value))
}

/// Adds to the ends of a stage what it carries over to later slices, what it reads of earlier ones,
/// and their gradients.
pub(super) fn carry(values: &mut Vec<Value>, id: StageId, stage: &StageTape, slice: Position, ends: &mut Ends) {
    if stage.carried.is_empty() {
        return;
    }
    // The type of what slice `of` carries through a port.
    let ty = |port: usize, of: u32| {
        let past = stage.past.iter().find(|(_, other, behind)| *other == port && behind + of == slice.index);
        stage.tape.ty(past.map_or(stage.carried[port].0, |(node, ..)| *node))
    };
    let ports = || stage.carried.iter().map(|(_, name)| name.as_str()).enumerate();
    let of_slices = if slice.is_equal { 0..1 } else { 0..slice.index + u32::from(!slice.is_last()) };
    let bundles = of_slices.map(|of| {
        let name = if slice.is_equal { format!("carried.{id}") } else { format!("carried.{id}.q{of}") };
        let of = if slice.is_equal { slice.index } else { of };
        let tensors = ports().map(|(port, name)| (name.to_owned(), ty(port, of)));
        bundle(values, (name, ValueKind::Carried, id), tensors)
    });
    let bundles: Vec<Vec<ValueOffset>> = bundles.collect();
    let carried = |port: usize, behind: u32| {
        let of = if slice.is_equal { 0 } else { (slice.index - behind) as usize };
        ValueOffset { ahead: -i32::try_from(behind).unwrap_or(i32::MAX), ..bundles[of][port] }
    };
    let has_backward = ends.kinds.has_backward();
    let mut gradients = |of: u32| {
        let name = format!("carried_gradient.{id}.q{of}");
        let tensors = ports().flat_map(|(port, name)| (0..of).map(move |slice| (port, name, slice)));
        let tensors = tensors.map(|(port, name, slice)| (format!("{name}.q{slice}"), ty(port, slice)));
        bundle(values, (name, ValueKind::CarriedGradient, id), tensors)
    };
    // The places of slice j of port p are at p * (number of slices before) + j.
    let own = if has_backward && slice.index > 0 { gradients(slice.index) } else { Vec::new() };
    let later = if has_backward && !slice.is_last() { gradients(slice.index + 1) } else { Vec::new() };
    let from_later = |port: usize, of: u32| {
        let place = later.get(port * (slice.index + 1) as usize + of as usize);
        place.map(|place| ValueOffset { ahead: 1, ..*place })
    };
    for (port, (node, _)) in stage.carried.iter().enumerate().filter(|_| !slice.is_last()) {
        let gradient = OutputGradient::Read(from_later(port, slice.index).into_iter().collect());
        ends.outputs.push(Output { node: *node, to: carried(port, 0), gradient });
        ends.kept.insert(*node, carried(port, 0));
    }
    for (node, port, behind) in &stage.past {
        let of = slice.index - behind;
        ends.places.insert(*node, carried(*port, *behind));
        ends.kept.insert(*node, carried(*port, *behind));
        ends.seeds.extend(from_later(*port, of).map(|place| (*node, place)));
        let place = own.get(port * slice.index as usize + of as usize);
        ends.input_gradients.extend(place.map(|place| (*node, *place)));
    }
}

/// Adds a value with these tensors. Returns the place of each.
fn bundle<'t>(
    values: &mut Vec<Value>,
    (name, kind, id): (String, ValueKind, StageId),
    tensors: impl Iterator<Item = (String, &'t TensorType)>,
) -> Vec<ValueOffset> {
    let mut bundle = Bundle::default();
    let offsets: Vec<Bytes> = tensors.map(|(name, ty)| bundle.add(name, ty, None)).collect();
    let value = add_value(values, bundle.into_value(name, kind, id));
    offsets.into_iter().map(|offset| ValueOffset { value, offset, ahead: 0 }).collect()
}
