//! Links: which run of a program reads what a run of another device made, as its sends and receives say.

use pipe_ir::ids::{BufferId, DeviceId};
use pipe_ir::instruction::{Class, Instruction};
use pipe_ir::lanes::queues;
use pipe_ir::operand::Touch;
use pipe_ir::program::Program;
use std::collections::BTreeMap;

/// From the run that made a value to the first one of another device that reads it; both as a
/// queue and which of its runs in a step. Behind the devices come their first lanes, then their second ones, and so on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Link {
    pub(crate) from: Run,
    pub(crate) to: Run,
    pub(crate) class: Class,
}

/// A queue of a device, and which of its runs.
type Run = (DeviceId, usize);

/// A queue between two devices: sender, receiver, class.
type Channel = (DeviceId, DeviceId, Class);

/// All links of a step. The n-th send of a channel meets its n-th receive.
pub(crate) fn links(program: &Program) -> Vec<Link> {
    let mut sent: BTreeMap<Channel, Vec<Option<Run>>> = BTreeMap::new();
    let mut received: BTreeMap<Channel, Vec<Option<Run>>> = BTreeMap::new();
    for (device, own) in (0..).map(DeviceId).zip(&program.devices) {
        let mut makers: BTreeMap<BufferId, Run> = BTreeMap::new();
        let mut arriving: BTreeMap<BufferId, (Channel, usize)> = BTreeMap::new();
        let mut runs = vec![0; 1 + program.lanes.len()];
        for (instruction, lane) in own.step.iter().zip(queues(&own.step)) {
            let lane = lane.map_or(0, |lane| lane.index() + 1);
            let run = (DeviceId::from_index(device.index() + lane * program.devices.len()), runs[lane]);
            match *instruction {
                Instruction::Run { .. } => {
                    instruction.accesses(program, own, |buffer, touch| {
                        if let Some((channel, place)) = arriving.remove(&buffer) {
                            received.entry(channel).or_default()[place] = Some(run);
                        }
                        if touch != Touch::Read {
                            makers.insert(buffer, run);
                        }
                    });
                    runs[lane] += 1;
                }
                Instruction::SendStart { buffer, to, class, .. } => {
                    sent.entry((device, to, class)).or_default().push(makers.get(&buffer).copied());
                }
                Instruction::RecvStart { buffer, from, class, .. } => {
                    let channel = (from, device, class);
                    let places = received.entry(channel).or_default();
                    arriving.insert(buffer, (channel, places.len()));
                    places.push(None);
                }
                Instruction::Alloc { .. }
                | Instruction::Free { .. }
                | Instruction::Fill { .. }
                | Instruction::Load { .. }
                | Instruction::Emit { .. }
                | Instruction::CollStart { .. }
                | Instruction::GatherStart { .. }
                | Instruction::CopyStart { .. }
                | Instruction::LaneStart { .. }
                | Instruction::Wait { .. } => {}
            }
        }
    }
    let of_channel = |((from, to, class), makers): (Channel, Vec<Option<Run>>)| {
        let readers = received.get(&(from, to, class)).cloned().unwrap_or_default();
        let pairs = makers.into_iter().zip(readers).filter_map(|(maker, reader)| maker.zip(reader));
        pairs.map(move |(maker, reader)| Link { from: maker, to: reader, class }).collect::<Vec<_>>()
    };
    sent.into_iter().flat_map(of_channel).collect()
}
