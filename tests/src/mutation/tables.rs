//! Damage to tables: buffers, values, executables and their graphs, and what a program states about itself.

use super::kinds::Kind;
use super::{near, pick, some};
use crate::schedules::Dice;
use pipe_ir::graph::{DType, Graph, Op, TensorType};
use pipe_ir::ids::{GroupId, StageId, ValueId};
use pipe_ir::program::{Access, Body, Chunk, DeviceProgram, Edge, Exec, Piece, Program, Space};
use pipe_ir::task::TaskKind;
use pipe_ir::training::Optimizer;
use pipe_ir::units::Bytes;
use pipe_ir::value::{Init, Share, Split, TensorSlot, Value, ValueKind};

/// Changes a table of one device, or what is stated about it.
pub(super) fn device(kind: Kind, code: &mut DeviceProgram, dice: &mut Dice) {
    // A new table has to be damaged here too.
    let DeviceProgram { limit, arena, peak, host, buffers, operands, n_tokens, setup: _, step: _ } = code;
    let n_buffers = buffers.len();
    match kind {
        Kind::OperandEntry => {
            if let Some(entry) = pick(operands, dice) {
                entry.0 = near(entry.0, n_buffers, dice);
            }
        }
        Kind::OperandSwap => swap(operands, dice),
        Kind::BufferBytes => {
            if let Some(buffer) = pick(buffers, dice) {
                bytes(&mut buffer.bytes, dice);
            }
        }
        Kind::BufferOffset => {
            let other = pick(buffers, dice).map(|buffer| buffer.offset);
            if let (Some(buffer), Some(other)) = (pick(buffers, dice), other) {
                match dice.below(2) {
                    0 => buffer.offset = other,
                    _ => bytes(&mut buffer.offset, dice),
                }
            }
        }
        Kind::BufferSpace => {
            if let Some(buffer) = pick(buffers, dice) {
                let [device, host] = Space::ALL;
                buffer.space = if buffer.space == device { host } else { device };
            }
        }
        Kind::BufferSwap => swap(buffers, dice),
        Kind::BufferDrop => drop(buffers.pop()),
        Kind::Tokens => *n_tokens = near(*n_tokens, *n_tokens as usize, dice),
        Kind::Arena => bytes(arena, dice),
        Kind::Peak => bytes(peak, dice),
        Kind::Host => match dice.below(3) {
            0 => bytes(&mut host.arena, dice),
            1 => bytes(&mut host.peak, dice),
            _ => {
                let mut stated = host.limit.unwrap_or(host.arena);
                bytes(&mut stated, dice);
                host.limit = some(stated, dice);
            }
        },
        Kind::Limit => {
            let mut stated = limit.unwrap_or(*arena);
            bytes(&mut stated, dice);
            *limit = some(stated, dice);
        }
        _ => {}
    }
}

/// Changes a table of the whole program, or what is stated about it.
pub(super) fn program(kind: Kind, program: &mut Program, dice: &mut Dice) {
    // A new table has to be damaged here too.
    let Program {
        name: _,
        n_stages,
        n_microbatches,
        n_slices,
        slice_shares,
        n_steps,
        lags,
        lanes: _,
        members,
        groups,
        values,
        execs,
        devices,
        training,
    } = program;
    let (n_values, stages) = (values.len(), *n_stages as usize);
    match kind {
        Kind::DeviceSwap => swap(devices, dice),
        Kind::DeviceDrop => drop(devices.pop()),
        Kind::Members => *members = [0, 1, 2, 3, 1 << 31][dice.below(5)],
        Kind::Stages => *n_stages = near(*n_stages, stages, dice),
        Kind::Microbatches if *n_steps > 1 && dice.below(2) == 0 => *n_steps = near(*n_steps, *n_steps as usize, dice),
        Kind::Microbatches if !lags.is_empty() && dice.below(2) == 0 => {
            if let Some(lag) = pick(lags, dice).and_then(|lags| pick(lags, dice)) {
                *lag = near(*lag, 3, dice);
            }
        }
        Kind::Microbatches => *n_microbatches = near(*n_microbatches, *n_microbatches as usize, dice),
        Kind::Slices if !slice_shares.is_empty() && dice.below(2) == 0 => {
            if let Some(share) = pick(slice_shares, dice) {
                *share = near(*share, 8, dice);
            }
        }
        Kind::Slices => *n_slices = near(*n_slices, *n_microbatches as usize, dice),
        Kind::Training => match (training.as_mut(), dice.below(4)) {
            (Some(_), 0) => *training = None,
            (Some(training), 3) => training.clip_norm = [None, Some(1.0), Some(f64::NAN), Some(0.0)][dice.below(4)],
            (Some(training), 1) => training.optimizer = Optimizer::Sgd { momentum: 0.5, weight_decay: 0.0 },
            (Some(training), _) => training.learning_rate.peak = f64::NAN,
            (None, _) => {}
        },
        Kind::GroupDrop => drop(groups.pop()),
        Kind::GroupMembers => {
            if let Some(group) = pick(groups, dice) {
                let member = dice.below(group.len());
                match dice.below(3) {
                    0 => drop(group.remove(member)),
                    1 => group.push(group[member]),
                    _ => group[member].0 = near(group[member].0, devices.len(), dice),
                }
            }
        }
        Kind::ValueDrop => drop(values.pop()),
        Kind::ValueName => {
            let other = pick(values, dice).map(|value| value.name.clone());
            if let (Some(value), Some(other)) = (pick(values, dice), other) {
                value.name = other;
            }
        }
        Kind::ExecDrop => drop(execs.pop()),
        _ if dice.below(2) == 0 => {
            if let Some(one) = pick(values, dice) {
                value(kind, one, stages, dice);
            }
        }
        _ => {
            if let Some(one) = pick(execs, dice) {
                exec(kind, one, n_values, stages, dice);
            }
        }
    }
}

fn value(kind: Kind, value: &mut Value, stages: usize, dice: &mut Dice) {
    let Value { name: _, kind: role, stage, bytes: size, tensors, share } = value;
    match kind {
        Kind::ValueBytes => bytes(size, dice),
        Kind::ValueKind => *role = ValueKind::ALL[dice.below(ValueKind::ALL.len())],
        Kind::ValueStage => *stage = StageId(near(stage.0, stages, dice)),
        Kind::ValueShare => {
            let mut other = share.unwrap_or(Share { whole: ValueId(0), group: GroupId(0), member: 0 });
            match dice.below(3) {
                0 => other.whole.0 = near(other.whole.0, 8, dice),
                1 => other.group.0 = near(other.group.0, 2, dice),
                _ => other.member = near(other.member, 4, dice),
            }
            *share = some(other, dice);
        }
        Kind::TensorDrop if !tensors.is_empty() => drop(tensors.remove(dice.below(tensors.len()))),
        Kind::TensorOffset | Kind::TensorType | Kind::TensorInit | Kind::TensorSplit => {
            if let Some(TensorSlot { name: _, ty, offset, init, part: _, split }) = pick(tensors, dice) {
                match kind {
                    Kind::TensorSplit => {
                        let [axis, blocks, members, padding] = [3, 4, 4, 3].map(|most| dice.below(most) as u64);
                        *split = some(Split { axis: axis as u32, blocks, members, padding }, dice);
                    }
                    Kind::TensorOffset => bytes(offset, dice),
                    Kind::TensorType => tensor(ty, dice),
                    _ => {
                        *init =
                            Some([Init::Zeros, Init::Ones, Init::Normal(0.5), Init::Normal(f64::NAN)][dice.below(4)])
                    }
                }
            }
        }
        _ => {}
    }
}

fn exec(kind: Kind, exec: &mut Exec, n_values: usize, stages: usize, dice: &mut Dice) {
    let Exec { kind: task, stage, slice, edge, is_repeated, chunk, piece, operands, body, flops } = exec;
    match kind {
        Kind::ExecKind => *task = TaskKind::ALL[dice.below(TaskKind::ALL.len())],
        Kind::ExecStage => *stage = StageId(near(stage.0, stages, dice)),
        Kind::ExecSlice => {
            let other = near(slice.unwrap_or(0), 4, dice);
            *slice = some(other, dice);
        }
        Kind::ExecEdge => {
            let other = edge.unwrap_or(Edge { before: 0, after: 0 });
            let (before, after) = (near(other.before, 3, dice), near(other.after, 3, dice));
            *edge = some(Edge { before, after }, dice);
        }
        Kind::ExecRepeated => *is_repeated = !*is_repeated,
        Kind::ExecChunk => {
            let mut other = chunk.unwrap_or(Chunk { number: 0, from: Bytes(0), to: Bytes(64), group: None });
            match dice.below(4) {
                0 => other.number = near(other.number, 4, dice),
                1 => bytes(&mut other.from, dice),
                2 => bytes(&mut other.to, dice),
                _ => other.group = some(GroupId(dice.below(3) as u32), dice),
            }
            *chunk = some(other, dice);
        }
        Kind::ExecPiece => {
            let other = piece.unwrap_or(Piece { number: 0, count: 1 });
            let (number, count) = (near(other.number, 4, dice), near(other.count, 4, dice));
            *piece = some(Piece { number, count }, dice);
        }
        Kind::ExecValue => {
            if let Some(operand) = pick(operands, dice) {
                operand.value.0 = near(operand.value.0, n_values, dice);
            }
        }
        Kind::ExecAccess => {
            if let Some(operand) = pick(operands, dice) {
                operand.access = [Access::Read, Access::Write, Access::Update][dice.below(3)];
            }
        }
        Kind::OperandAhead => {
            if let Some(operand) = pick(operands, dice) {
                let all = [-2, -1, 0, 1, 2, i32::MIN, i32::MAX, -operand.ahead];
                operand.ahead = all[dice.below(all.len())];
            }
        }
        Kind::ExecOperands => match dice.below(2) {
            0 => swap(operands, dice),
            _ => drop(operands.pop()),
        },
        Kind::ExecBody => {
            *body =
                [Body::Abstract, Body::Optimizer, Body::Squares, Body::Graph(Graph::default())][dice.below(4)].clone();
        }
        Kind::ExecFlops => *flops = flops.wrapping_add(1),
        _ => {
            if let Body::Graph(body) = body {
                graph(kind, body, operands.len(), dice);
            }
        }
    }
}

fn graph(kind: Kind, graph: &mut Graph, n_operands: usize, dice: &mut Dice) {
    let n_nodes = graph.nodes.len();
    let other = pick(&mut graph.nodes, dice).map(|node| node.op.clone());
    match (kind, pick(&mut graph.nodes, dice)) {
        (Kind::NodeOp, Some(node)) => match (&mut node.op, other) {
            (Op::Input { operand, offset }, _) => match dice.below(2) {
                0 => *operand = near(*operand, n_operands, dice),
                _ => bytes(offset, dice),
            },
            (op, Some(other)) => *op = other,
            _ => {}
        },
        (Kind::NodeInput, Some(node)) => {
            if let Some(input) = pick(&mut node.inputs, dice) {
                input.0 = near(input.0, n_nodes, dice);
            }
        }
        (Kind::NodeType, Some(node)) => tensor(&mut node.ty, dice),
        (Kind::NodeDrop, Some(_)) => drop(graph.nodes.remove(dice.below(n_nodes))),
        (Kind::Store, _) => {
            if let Some(store) = pick(&mut graph.stores, dice) {
                match dice.below(5) {
                    4 => bytes(&mut store.own, dice),
                    0 => store.node.0 = near(store.node.0, n_nodes, dice),
                    1 => store.operand = near(store.operand, n_operands, dice),
                    2 => bytes(&mut store.offset, dice),
                    _ => store.accumulate = !store.accumulate,
                }
            }
        }
        (Kind::StoreDrop, _) if !graph.stores.is_empty() => match dice.below(2) {
            0 => drop(graph.stores.remove(dice.below(graph.stores.len()))),
            _ => graph.stores.push(graph.stores[dice.below(graph.stores.len())].clone()),
        },
        _ => {}
    }
}

fn tensor(ty: &mut TensorType, dice: &mut Dice) {
    match dice.below(4) {
        0 => ty.dtype = [DType::F32, DType::F64, DType::I32][dice.below(3)],
        1 => swap(&mut ty.shape, dice),
        2 => ty.shape.push(1),
        _ => {
            if let Some(size) = pick(&mut ty.shape, dice) {
                *size = [0, 1, *size + 1, *size * 2, u64::MAX][dice.below(5)];
            }
        }
    }
}

/// Another number of bytes: a little more or less, aligned or not, none or far too much.
fn bytes(bytes: &mut Bytes, dice: &mut Dice) {
    let old = bytes.0;
    let all = [
        0,
        4,
        64,
        old + 64,
        old + 4,
        old + 1,
        old.saturating_sub(64),
        old.saturating_sub(4),
        old * 2,
        u64::MAX,
        u64::MAX - 63,
    ];
    *bytes = Bytes(all[dice.below(all.len())]);
}

fn swap<T>(items: &mut [T], dice: &mut Dice) {
    if !items.is_empty() {
        let (from, to) = (dice.below(items.len()), dice.below(items.len()));
        items.swap(from, to);
    }
}
