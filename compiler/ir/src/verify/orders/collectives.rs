//! Rules about collectives: all members of a group join the same ones, in the same order, with the same bytes.

use super::report::{Report, at};
use super::{Joined, List, devices};
use crate::graph::Op;
use crate::ids::{DeviceId, GroupId, NodeId, ValueId};
use crate::instruction::{Collective, Instruction};
use crate::program::{Access, Body, Program};
use crate::task::TaskKind;
use crate::value::ValueKind;
use crate::verify::tables::shares::{Divided, divided};
use std::collections::BTreeMap;

/// Which devices hold each persistent value since the set-up, and which weights are updated there.
pub(in crate::verify) struct Holders {
    /// By value: the devices whose set-up fills it, or whose step does where it is gradients that
    /// come and go, ascending.
    devices: Vec<Vec<DeviceId>>,
    /// By value: whether an update changes these weights, or this state of the optimizer.
    updated: Vec<bool>,
    divided: Divided,
    /// By value that members exchange, where graphs store and read it: what they do with it.
    exchanged: BTreeMap<ValueId, Collective>,
}

impl Holders {
    pub(in crate::verify) fn of(program: &Program) -> Self {
        let mut holders = vec![Vec::new(); program.values.len()];
        for (device, code) in devices(program) {
            let mut stays = vec![false; code.buffers.len()];
            let filled = code.setup.iter().map(|one| (one, true)).chain(code.step.iter().map(|one| (one, false)));
            for (instruction, sets_up) in filled {
                if let (Instruction::Alloc { buffer }, true) = (*instruction, sets_up) {
                    stays[buffer.index()] = true;
                }
                let Instruction::Fill { buffer, value, .. } = *instruction else { continue };
                let comes = program.value(value).kind == ValueKind::ParameterGradients && !stays[buffer.index()];
                if !sets_up && !comes {
                    continue;
                }
                // Who has a share of weights holds them with the others.
                let whole = program.value(value).share.map(|own| own.whole);
                for value in [Some(value), whole].into_iter().flatten() {
                    let own: &mut Vec<DeviceId> = &mut holders[value.index()];
                    if own.last() != Some(&device) {
                        own.push(device);
                    }
                }
            }
        }
        let mut updated = vec![false; program.values.len()];
        for exec in program.execs.iter().filter(|exec| exec.kind == TaskKind::Update) {
            for operand in exec.operands.iter().filter(|operand| operand.access != Access::Read) {
                let kind = program.value(operand.value).kind;
                let has_versions = matches!(kind, ValueKind::Parameters | ValueKind::OptimizerState);
                let whole = program.value(operand.value).share.map_or(operand.value, |own| own.whole);
                updated[operand.value.index()] |= has_versions;
                updated[whole.index()] |= has_versions;
            }
        }
        Self { devices: holders, updated, divided: divided(program), exchanged: exchanged(program) }
    }

    /// What members do with a value that they exchange, where that is known.
    pub(in crate::verify) fn exchanges(&self, value: ValueId) -> Option<Collective> {
        self.exchanged.get(&value).copied()
    }

    /// The devices that hold a value, ascending.
    pub(in crate::verify) fn of_value(&self, value: ValueId) -> &[DeviceId] {
        &self.devices[value.index()]
    }

    /// Whether updates change a value, which are then weights or the state of the optimizer.
    pub(in crate::verify) fn changes(&self, value: ValueId) -> bool {
        self.updated[value.index()]
    }

    /// The group whose members update a share each of these weights.
    pub(in crate::verify) fn divides(&self, value: ValueId) -> Option<GroupId> {
        self.divided.get(&value).copied()
    }

    /// How many devices hold a value, where these are several.
    pub(in crate::verify) fn shared(&self, value: ValueId) -> Option<usize> {
        Some(self.of_value(value).len()).filter(|count| *count > 1)
    }
}

/// What members do with each value that they exchange: gather it where each stores a part of its own, keep parts of the
/// sum where these alone are read, give each other parts where the second half alone is read, otherwise add it up.
fn exchanged(program: &Program) -> BTreeMap<ValueId, Collective> {
    let mut found = BTreeMap::new();
    for exec in &program.execs {
        let Body::Graph(graph) = &exec.body else { continue };
        let is_exchanged = |position: &usize| {
            let operand = exec.operands[*position];
            program.value(operand.value).kind == ValueKind::Exchanged
        };
        for position in (0..exec.operands.len()).filter(is_exchanged) {
            let value = exec.operands[position].value;
            if graph.stores.iter().any(|store| store.operand as usize == position && !store.own.is_zero()) {
                found.insert(value, Collective::AllGather);
                continue;
            }
            let half = program.value(value).bytes.0 / 2;
            let is_input =
                |id: &NodeId| matches!(graph.node(*id).op, Op::Input { operand, .. } if operand as usize == position);
            let is_second = |id: &NodeId| matches!(graph.node(*id).op, Op::Input { offset, .. } if offset.0 >= half);
            for node in &graph.nodes {
                for id in node.inputs.iter().filter(|id| is_input(id)) {
                    let read = match node.op {
                        _ if half > 0 && is_second(id) => Collective::AllToAll,
                        Op::OwnPart => Collective::ReduceScatter,
                        _ => Collective::AllReduce,
                    };
                    let known = found.entry(value).or_insert(read);
                    if *known != read && *known != Collective::AllGather {
                        *known = Collective::AllReduce;
                    }
                }
            }
        }
    }
    found
}

/// Checks the whole program. `joined` is what each device's `coll.start` instructions join.
pub(super) fn check(program: &Program, holders: &Holders, joined: &[Vec<Joined>], report: &mut Report) {
    let mut sorted = vec![Vec::new(); program.groups.len()];
    for (group, members) in program.groups.iter().enumerate() {
        sorted[group].clone_from(members);
        sorted[group].sort_unstable();
    }
    // What the members of a device exchange is of that device alone.
    let is_exchanged = |one: &Joined| match program.value(one.value).kind {
        ValueKind::Exchanged => true,
        // By the members of each device first, and then by all devices.
        ValueKind::GradientNorm => program.members > 1 && sorted[one.group.index()].len() == 1,
        _ => false,
    };
    let fits = |one: &&Joined| match is_exchanged(one) {
        true => sorted[one.group.index()].len() == 1,
        false => sorted[one.group.index()] == holders.of_value(one.value),
    };
    // By group: what its first member joins.
    let mut expected: Vec<Vec<Joined>> = vec![Vec::new(); program.groups.len()];
    for (device, own) in joined.iter().enumerate() {
        let device = DeviceId::from_index(device);
        for one in own {
            if is_exchanged(one) && !fits(&one) {
                let name = &program.value(one.value).name;
                let message = format!("`{name}` is exchanged by the members of {device}, and {} has others", one.group);
                report.error(at(device, List::Step, one.index as usize), message);
            } else if !fits(&one) {
                let name = &program.value(one.value).name;
                let message = format!("the members of {} are not the devices that hold `{name}`", one.group);
                report.error(at(device, List::Step, one.index as usize), message);
            } else if program.group(one.group).first() == Some(&device) {
                expected[one.group.index()].push(*one);
            }
        }
    }
    let mut turns: BTreeMap<(GroupId, DeviceId), usize> = BTreeMap::new();
    for (device, own) in joined.iter().enumerate() {
        let device = DeviceId::from_index(device);
        for one in own.iter().filter(fits) {
            let turn = turns.entry((one.group, device)).or_default();
            compare(program, device, *turn, one, &expected[one.group.index()], report);
            *turn += 1;
        }
    }
    for (group, members) in program.groups.iter().enumerate() {
        for device in members {
            let turn = turns.get(&(GroupId::from_index(group), *device)).copied().unwrap_or(0);
            if let (Some(lacks), Some(first)) = (expected[group].get(turn), members.first()) {
                report.error(at(*first, List::Step, lacks.index as usize), format!("is never joined by {device}"));
            }
        }
    }
}

/// Compares a member's collective with the first member's.
fn compare(program: &Program, device: DeviceId, turn: usize, one: &Joined, expected: &[Joined], report: &mut Report) {
    let place = at(device, List::Step, one.index as usize);
    let first = program.group(one.group).first().copied().unwrap_or(device);
    let name = |joined: &Joined| &program.value(joined.value).name;
    match expected.get(turn) {
        None => report.error(place, format!("is never joined by {first}")),
        Some(other) if other.value != one.value => {
            let (own, other) = (name(one), name(other));
            let message = format!("joins `{own}` as number {turn} of {}, but {first} joins `{other}` there", one.group);
            report.error(place, message);
        }
        Some(other) if other.collective != one.collective => {
            let (own, other) = (one.collective.word(), other.collective.word());
            report.error(place, format!("joins `{}` by {own}, but {first} by {other}", name(one)));
        }
        Some(Joined { version: Some(other), .. }) if one.version.is_some_and(|own| own != *other) => {
            let own = one.version.unwrap_or_default();
            report.error(place, format!("gathers version {own} of `{}`, but {first} version {other}", name(one)));
        }
        Some(other) if other.bytes != one.bytes => {
            report.error(place, format!("joins {} bytes, but {first} joins {}", one.bytes.0, other.bytes.0));
        }
        Some(_) => {}
    }
}
