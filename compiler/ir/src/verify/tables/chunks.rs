//! Rule: where weights are updated in chunks, these follow each other without gaps, each with an
//! update of its own; all of them by the devices that hold the weights, or each by the member of
//! one group whose share it is.

use super::shares;
use crate::ids::{GroupId, ValueId};
use crate::program::{Access, Body, Chunk, Exec, Program};
use crate::task::TaskKind;
use crate::value::ValueKind;
use crate::verify::Place;
use crate::verify::report::Report;
use std::collections::BTreeMap;

/// Checks the table of executables.
pub(super) fn check(program: &Program, report: &mut Report) {
    // By weights: how far their chunks reach, which number follows, the last of them, and the group that divides them.
    let mut reached: BTreeMap<ValueId, (u64, u32, usize, Option<GroupId>)> = BTreeMap::new();
    for (index, exec) in program.execs.iter().enumerate() {
        // Squares are added up of the same chunks.
        let Some(chunk) = exec.chunk.filter(|_| !exec.is_squares()) else { continue };
        let place = Place::Exec(u32::try_from(index).unwrap_or(u32::MAX));
        match weights(program, exec, chunk) {
            Ok(value) => {
                let (end, number, last, group) = reached.entry(value).or_insert((0, 0, index, chunk.group));
                if (chunk.from.0, chunk.number) != (*end, *number) {
                    let message = format!("chunk {number} of its weights begins at byte {end}, and stands here");
                    report.error(place, message);
                } else if chunk.group != *group {
                    report.error(place, "the chunks of its weights are not all those of one group");
                }
                (*end, *number, *last) = (chunk.to.0, chunk.number.saturating_add(1), index);
            }
            Err(message) => report.error(place, message),
        }
    }
    for (value, (end, _, last, _)) in reached {
        let bytes = program.values.get(value.index()).map_or(0, |value| value.bytes.0);
        if end != bytes {
            let place = Place::Exec(u32::try_from(last).unwrap_or(u32::MAX));
            report.error(place, format!("the chunks of its weights end at byte {end} of {bytes}"));
        }
    }
}

/// The weights of which an executable updates a chunk.
fn weights(program: &Program, exec: &Exec, chunk: Chunk) -> Result<ValueId, String> {
    let Chunk { from, to, .. } = chunk;
    if exec.kind != TaskKind::Update || matches!(exec.body, Body::Graph(_)) {
        return Err("only updates of the optimizer are of a chunk".to_owned());
    }
    let first = exec.operands.first().filter(|operand| operand.access == Access::Update);
    let value = first.and_then(|operand| Some((operand.value, program.values.get(operand.value.index())?)));
    // A share is a chunk of all of the weights.
    let whole = value.and_then(|(_, value)| value.share).map(|own| own.whole);
    let value = whole.map_or(value, |whole| Some((whole, program.values.get(whole.index())?)));
    let Some((id, value)) = value.filter(|(_, value)| value.kind == ValueKind::Parameters) else {
        return Err("an update of a chunk begins with the weights, which it changes in place".to_owned());
    };
    let number = value.dtype().bytes().0;
    if from >= to || to > value.bytes || !from.0.is_multiple_of(number) || !to.0.is_multiple_of(number) {
        return Err(format!("bytes {} to {} are not numbers of `{}`", from.0, to.0, value.name));
    }
    shares::chunk(program, value, chunk)?;
    Ok(id)
}
