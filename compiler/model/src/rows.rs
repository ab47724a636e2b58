//! Rows: the layers of each part of a stage, where a schedule runs parts.
//!
//! What a schedule calls a part is a part of a layer with that name, or a layer whose declaration has it. A layer of
//! another name runs with the next part, or with the one before if the next is on a lane.

use crate::{Layer, Model};
use pipe_ir::ids::StageId;
use pipe_schedule::parts::Part;
use pipe_schedule::schedule::Schedule;
use pipe_syntax::diagnostic::{Code, Diagnostic};
use std::ops::Range;

/// A part of a layer, or a layer without parts.
struct Group<'a> {
    name: &'a str,
    is_part: bool,
    layers: Range<usize>,
}

/// Divides the layers of each stage into those of its parts.
///
/// # Errors
/// If a stage has other parts than the schedule says, or a part on a lane has weights or the loss.
pub(super) fn rows(
    model: &Model,
    stages: Vec<Range<usize>>,
    schedule: &Schedule,
) -> Result<Vec<Range<usize>>, Diagnostic> {
    if schedule.parts.is_empty() {
        return Ok(stages);
    }
    let mut rows = Vec::with_capacity(schedule.n_stages());
    for (stage, layers) in (0..).map(StageId::from_index).zip(stages) {
        let parts: Vec<&Part> = schedule
            .parts
            .positions(stage)
            .filter_map(|rows| schedule.parts.part(StageId::from_index(rows.start)))
            .collect();
        if parts.iter().any(|part| part.member.is_some()) {
            return Err(spread(schedule, stage));
        }
        let groups = groups(model, layers);
        let own = matched(&groups, &parts).ok_or_else(|| different(model, schedule, stage, (&groups, &parts)))?;
        for (part, layers) in parts.iter().zip(&own).filter(|(part, _)| part.lane.is_some()) {
            on_lane(model, schedule, part, layers.clone())?;
        }
        rows.extend(own);
    }
    Ok(rows)
}

/// The parts of some layers, in a row.
fn groups(model: &Model, layers: Range<usize>) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut before = None;
    for index in layers {
        let layer = &model.layers[index];
        let written = model.written.partition_point(|range| range.end <= index);
        let here = Some((written, layer.part.clone()));
        match groups.last_mut().filter(|_| before == here && layer.part.is_some()) {
            Some(group) => group.layers.end = index + 1,
            None => {
                let name = layer.part.as_deref().unwrap_or_else(|| declared(layer));
                groups.push(Group { name, is_part: layer.part.is_some(), layers: index..index + 1 });
            }
        }
        before = here;
    }
    groups
}

/// The name of a layer's declaration: that of `3.block` is `block`.
fn declared(layer: &Layer) -> &str {
    layer.name.split_once('.').map_or(layer.name.as_str(), |(_, name)| name)
}

/// The layers of each part; none if these are not the parts.
fn matched(groups: &[Group<'_>], parts: &[&Part]) -> Option<Vec<Range<usize>>> {
    let mut rows: Vec<Range<usize>> = Vec::with_capacity(parts.len());
    let mut start = groups.first()?.layers.start;
    for Group { name, is_part, layers } in groups {
        let next = parts.get(rows.len());
        if next.is_some_and(|part| &*part.name == *name) {
            rows.push(start..layers.end);
        } else if *is_part {
            return None;
        } else if next.is_some_and(|part| part.lane.is_none()) {
            // It runs with the next part.
            continue;
        } else {
            let last = rows.len().checked_sub(1).filter(|last| parts[*last].lane.is_none())?;
            rows[last].end = layers.end;
        }
        start = layers.end;
    }
    let is_all = rows.len() == parts.len() && rows.last()?.end == groups.last()?.layers.end;
    is_all.then_some(rows)
}

fn different(
    model: &Model,
    schedule: &Schedule,
    stage: StageId,
    (groups, parts): (&[Group<'_>], &[&Part]),
) -> Diagnostic {
    let list = |names: Vec<&str>| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let of_model = list(groups.iter().map(|group| group.name).collect());
    let said = list(parts.iter().map(|part| &*part.name).collect());
    let message = format!(
        "{stage} of the model `{}` consists of {of_model}, but `{}` gives it the parts {said}",
        model.name, schedule.name
    );
    let error = Diagnostic::error(Code::WrongPart, model.span, "this model", message);
    error.label(schedule.span, "a schedule of parts").help(
        "`parts` names what the layers of a stage call `part`, in their order; a layer without parts may stand \
         there by its own name",
    )
}

fn spread(schedule: &Schedule, stage: StageId) -> Diagnostic {
    let message = format!("{stage} lives on several devices at once, and how its tensors are divided is not known");
    let error = Diagnostic::error(Code::UndividedStage, schedule.placement_span, "no model can run there", message);
    error.help("place every stage on one device, or leave the model out")
}

/// Rule: what runs on a lane has no weights, and computes no loss.
fn on_lane(model: &Model, schedule: &Schedule, part: &Part, layers: Range<usize>) -> Result<(), Diagnostic> {
    let lane = part.lane.and_then(|lane| schedule.parts.lanes().get(lane)).map_or("a lane", |lane| lane);
    let has = if let Some(weight) = model.layers[layers.clone()].iter().flat_map(|layer| &layer.weights).next() {
        format!("has the weight `{}`", weight.name)
    } else if layers.end == model.layers.len() {
        "computes the loss".to_owned()
    } else {
        return Ok(());
    };
    let message = format!("the part `{}` of {} runs on `{lane}`, and {has}", part.words(), part.stage);
    let error = Diagnostic::error(Code::WrongPart, model.span, "this model", message);
    Err(error.label(schedule.span, "a schedule of parts").help("begin another part, on compute, for what has weights"))
}
