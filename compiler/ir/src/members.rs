//! Members: the program of all that stand behind the devices of a program, each a device by itself.
//!
//! Every member runs the list of its device, with the members at its place of other devices as peers. So a step of a
//! program in which one device does something is a step of this one in which all its members do, and a collective of
//! the members of a device has all of them at the same place of the same list: what was proved of the program, that
//! nobody waits forever and what is alive when, holds of this one. [`crate::graph::Graph::of_member`]
//! makes the graph of each member.

use crate::ids::{DeviceId, ExecId, GroupId, ValueId};
use crate::instruction::Instruction;
use crate::program::{Body, Chunk, DeviceProgram, Exec, Program};
use crate::value::{Share, Value};

impl Program {
    /// How many devices stand behind each device.
    pub const fn members(&self) -> u32 {
        if self.members == 0 { 1 } else { self.members }
    }

    /// Which member a device of the program of all members is.
    pub const fn member(&self, device: DeviceId) -> u32 {
        device.0 % self.members()
    }

    /// The program with one device for each member. The members of device 0 come first.
    #[must_use]
    pub(crate) fn of_members(&self) -> Self {
        let members = self.members();
        if members == 1 {
            return self.clone();
        }
        let mut all = Self { groups: Vec::new(), devices: Vec::new(), ..self.clone() };
        let own = |device: DeviceId, member: u32| DeviceId(device.0 * members + member);
        // By group: the number of its first group here, and whether each member has a group of its own.
        let mut groups = Vec::with_capacity(self.groups.len());
        for group in &self.groups {
            groups.push((all.groups.len(), group.len() > 1));
            if let [device] = group[..] {
                all.groups.push((0..members).map(|member| own(device, member)).collect());
            } else {
                let of = |member| group.iter().map(|device| own(*device, member)).collect();
                all.groups.extend((0..members).map(of));
            }
        }
        let groups = &groups;
        let tables = (0..members).map(|member| {
            let group = move |id: GroupId| {
                let (first, are_apart) = groups[id.index()];
                GroupId::from_index(first + if are_apart { member as usize } else { 0 })
            };
            let peer = move |device| own(device, member);
            Member { group, peer, values: Vec::new(), execs: Vec::new() }.with_tables(self, &mut all, member)
        });
        let tables: Vec<_> = tables.collect();
        for device in &self.devices {
            for (number, member) in tables.iter().enumerate() {
                // All members have the loss, and the first one hands it to the host.
                let runs = |one: &&Instruction| number == 0 || !matches!(one, Instruction::Emit { .. });
                let write =
                    |list: &[Instruction]| list.iter().filter(runs).map(|one| member.instruction(*one)).collect();
                let (setup, step) = (write(&device.setup), write(&device.step));
                all.devices.push(DeviceProgram { setup, step, ..device.clone() });
            }
        }
        all
    }
}

/// What a member has instead of what the program says.
struct Member<G, P> {
    group: G,
    peer: P,
    /// By row of the program's tables: its row. Rows that name a group, or differ, are written again for each member.
    values: Vec<ValueId>,
    execs: Vec<ExecId>,
}

impl<G: Fn(GroupId) -> GroupId, P: Fn(DeviceId) -> DeviceId> Member<G, P> {
    fn with_tables(mut self, program: &Program, all: &mut Program, member: u32) -> Self {
        for (index, value) in program.values.iter().enumerate() {
            let id = ValueId::from_index(index);
            let Some(share) = value.share else {
                self.values.push(id);
                continue;
            };
            let share = Share { group: (self.group)(share.group), whole: self.values[share.whole.index()], ..share };
            let name = if member == 0 { value.name.clone() } else { format!("{}.t{member}", value.name) };
            let row = Value { name, share: Some(share), ..value.clone() };
            self.values.push(place(&mut all.values, index, member, row, ValueId::from_index));
        }
        for (index, exec) in program.execs.iter().enumerate() {
            let id = ExecId::from_index(index);
            let is_own = |value: ValueId| self.values[value.index()] != value;
            let group = exec.chunk.and_then(|chunk| chunk.group);
            let graph = match &exec.body {
                Body::Graph(graph) if graph.differs() => Some(graph.of_member(member.into())),
                Body::Graph(_) | Body::Abstract | Body::Optimizer | Body::Squares => None,
            };
            // Members add up squares of different tensors.
            if group.is_none()
                && graph.is_none()
                && !exec.is_squares()
                && !exec.operands.iter().any(|operand| is_own(operand.value))
            {
                self.execs.push(id);
                continue;
            }
            let mut row: Exec = exec.clone();
            row.chunk = exec.chunk.map(|chunk| Chunk { group: chunk.group.map(&self.group), ..chunk });
            row.body = graph.map_or(row.body, Body::Graph);
            row.operands.iter_mut().for_each(|operand| operand.value = self.values[operand.value.index()]);
            self.execs.push(place(&mut all.execs, index, member, row, ExecId::from_index));
        }
        self
    }

    fn instruction(&self, mut instruction: Instruction) -> Instruction {
        match &mut instruction {
            Instruction::Fill { value, .. } | Instruction::Load { value, .. } => *value = self.values[value.index()],
            Instruction::RecvStart { value, from, .. } => {
                *value = self.values[value.index()];
                *from = (self.peer)(*from);
            }
            Instruction::SendStart { to, .. } => *to = (self.peer)(*to),
            Instruction::Run { exec, .. } => *exec = self.execs[exec.index()],
            Instruction::CollStart { group, .. } | Instruction::GatherStart { group, .. } => {
                *group = (self.group)(*group)
            }
            Instruction::Alloc { .. }
            | Instruction::Free { .. }
            | Instruction::Emit { .. }
            | Instruction::CopyStart { .. }
            | Instruction::LaneStart { .. }
            | Instruction::Wait { .. } => {}
        }
        instruction
    }
}

/// Puts the row of a member into a table. The first member replaces the row of the program; others append.
fn place<T, I>(table: &mut Vec<T>, index: usize, member: u32, row: T, id: impl Fn(usize) -> I) -> I {
    if member == 0 {
        table[index] = row;
        return id(index);
    }
    table.push(row);
    id(table.len() - 1)
}
