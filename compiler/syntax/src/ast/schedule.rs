//! The syntax tree of schedules.

use super::{Call, Carried, Expr, Let, Name, Parameter, Section, StepTaskKind, SwapKind, Weights};
use crate::source::Span;
use pipe_ir::task::TaskKind;

/// `schedule name(parameters) { ... }`.
pub type Schedule = Section<ScheduleItem>;

/// A line of a schedule.
#[derive(Clone, PartialEq, Debug)]
pub enum ScheduleItem {
    /// `stages n`: how many there are.
    Stages {
        /// The number.
        count: Expr,
        /// The whole item.
        span: Span,
    },
    /// `slices n`: in how many parts each microbatch is cut along its sequence.
    Slices {
        /// The number.
        count: Expr,
        /// The whole item.
        span: Span,
    },
    /// `place s on device`, `place s on 0..n`, `place s on [0, 2]`, or by microbatch
    /// `place s, m on device`: where each stage lives.
    Place {
        /// The name of the stage's number in `device`.
        stage: Name,
        /// The name of the microbatch's number, where the device depends on it.
        microbatch: Option<Name>,
        /// The device's number, or those of several devices.
        device: Expr,
        /// The whole item.
        span: Span,
    },
    /// `lane link`: a queue beside compute on each device.
    Lane(Lane),
    /// `parts s = attention, dispatch on link, experts`: the parts of each stage's tasks.
    Parts(StageParts),
    /// `reads s from s - 1, S - 1 - s`: which stages a stage reads.
    Reads(Reads),
    /// `swap s to D - 1 - s`: where the activations of stages may wait.
    Swap(Swap),
    /// `frozen s if s < D`: whose weights stay as they are.
    Frozen(FrozenStages),
    /// `slots F = 1, BW = 2`: how long tasks take in a building block.
    Slots {
        /// Each entry of the line.
        durations: Vec<SlotDuration>,
        /// The whole item.
        span: Span,
    },
    /// `weights newest`: which version of the weights tasks read.
    Weights {
        /// Conditions with the version that is read where they are the first to hold.
        branches: Vec<(Expr, Weights)>,
        /// The version that is read where none holds.
        otherwise: Weights,
        /// The whole item.
        span: Span,
    },
    /// `require M % D == 0`: a condition on the parameters.
    Require {
        /// What must hold.
        condition: Expr,
        /// The whole item.
        span: Span,
    },
    /// A shorthand: evaluated where it is used.
    Let(Let),
    /// The same with parameters.
    Function(Function),
    /// `block every period { ... }`: start slots of one microbatch, or of some.
    Block(Block),
    /// `order d { ... }`: the tasks of a device, one after the other.
    Order(Order),
    /// `reorder`: improve warm-up and cool-down.
    Reorder {
        /// The word.
        span: Span,
    },
}

/// `lane link`, or `lane link: send, reduce`: a queue beside compute on each device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lane {
    /// Its name.
    pub name: Name,
    /// What takes turns there beside parts, each with its word.
    pub carries: Vec<(Carried, Span)>,
    /// The whole item.
    pub span: Span,
}

/// `parts s = attention, dispatch on link, experts`: the parts of each stage's tasks.
#[derive(Clone, PartialEq, Debug)]
pub struct StageParts {
    /// The name of a stage's number.
    pub stage: Name,
    /// The parts, in the order of the forward.
    pub list: PartList,
    /// The whole item.
    pub span: Span,
}

/// A list of parts, or a choice between lists.
#[derive(Clone, PartialEq, Debug)]
pub struct PartList {
    /// Conditions, each with the list for stages where it is the first that holds.
    pub branches: Vec<(Expr, Self)>,
    /// The list if no condition holds.
    pub otherwise: Vec<PartItem>,
}

impl PartList {
    /// Visits its conditions and counts, in the order of the text.
    pub fn each_expr<'a>(&'a self, visit: &mut impl FnMut(&'a Expr)) {
        for (condition, list) in &self.branches {
            visit(condition);
            list.each_expr(visit);
        }
        for item in &self.otherwise {
            if let PartItem::Repeat { count, body } = item {
                visit(count);
                body.each_expr(visit);
            }
        }
    }

    /// Visits every part with its lane, in all branches.
    pub fn each_part<'a>(&'a self, visit: &mut dyn FnMut(&'a Name, Option<&'a Name>)) {
        self.branches.iter().for_each(|(_, then)| then.each_part(visit));
        for item in &self.otherwise {
            match item {
                PartItem::Part { name, lane } => visit(name, lane.as_ref()),
                PartItem::Repeat { body, .. } => body.each_part(visit),
            }
        }
    }
}

/// An entry of a list of parts.
#[derive(Clone, PartialEq, Debug)]
pub enum PartItem {
    /// `dispatch on link`.
    Part {
        /// Its name.
        name: Name,
        /// Its lane; compute if none is named.
        lane: Option<Name>,
    },
    /// `repeat 2 { attention, experts }`.
    Repeat {
        /// How often.
        count: Expr,
        /// What is repeated.
        body: PartList,
    },
}

/// `F = 1`, or `F.dispatch = 1`: an entry of `slots`.
#[derive(Clone, PartialEq, Debug)]
pub struct SlotDuration {
    /// The kind of task.
    pub kind: TaskKind,
    /// The part of the stage, if one is named.
    pub part: Option<Name>,
    /// The number of slots.
    pub slots: Expr,
}

/// `reads s from s - 1, S - 1 - s`: which stages a stage reads, where no model says it.
#[derive(Clone, PartialEq, Debug)]
pub struct Reads {
    /// The name of a stage's number.
    pub stage: Name,
    /// A list of the stages that it reads, or a choice between lists.
    pub sources: Expr,
    /// The whole item.
    pub span: Span,
}

/// `swap s to D - 1 - s`, or `swap s to host`: where the activations of stages may wait.
#[derive(Clone, PartialEq, Debug)]
pub struct Swap {
    /// The name of a stage's number.
    pub stage: Name,
    /// The device's number; none for the host.
    pub device: Option<Expr>,
    /// The whole item.
    pub span: Span,
}

/// `frozen all`, or `frozen s if s < D`: stages whose weights stay as they are.
#[derive(Clone, PartialEq, Debug)]
pub struct FrozenStages {
    /// The name of a stage's number, and the condition under which it is frozen; none where all are.
    pub rule: Option<(Name, Expr)>,
    /// The whole item.
    pub span: Span,
}

/// `let name(parameters) = value`, or `let name(parameters) { statements }`.
#[derive(Clone, PartialEq, Debug)]
pub struct Function {
    /// Lines of `///` above it.
    pub doc: String,
    /// What it is called.
    pub name: Name,
    /// What callers give it.
    pub parameters: Vec<Parameter>,
    /// What a call of it stands for.
    pub body: FunctionBody,
    /// The whole declaration.
    pub span: Span,
}

impl Function {
    /// Whether a call stands for statements, and not for a value.
    pub const fn has_statements(&self) -> bool {
        matches!(self.body, FunctionBody::Statements(_))
    }
}

/// What a call stands for.
#[derive(Clone, PartialEq, Debug)]
pub enum FunctionBody {
    /// A number or a condition.
    Value(Expr),
    /// Statements of an `order`.
    Statements(Vec<Statement>),
}

/// `block of microbatches every period { tasks }`.
#[derive(Clone, PartialEq, Debug)]
pub struct Block {
    /// How many microbatches it has, where not one.
    pub microbatches: Option<Expr>,
    /// Slots from one block to the next.
    pub period: Expr,
    /// One line for each kind, usually.
    pub tasks: Vec<BlockTask>,
    /// The whole item.
    pub span: Span,
}

impl Block {
    /// The names that its lines give to stages and microbatches.
    pub fn names(&self) -> impl Iterator<Item = &Name> {
        self.tasks.iter().flat_map(|task| std::iter::once(&task.stage).chain(&task.microbatch))
    }
}

/// `F[s] at slot`, `F[s, m] at slot` or `W[s] fill`.
#[derive(Clone, PartialEq, Debug)]
pub struct BlockTask {
    /// What is done.
    pub kind: TaskKind,
    /// The part of the stage, if one is named.
    pub part: Option<Name>,
    /// The name of the stage's number in the slot's expression.
    pub stage: Name,
    /// The name of the number of the microbatch in its block, where the slot depends on it.
    pub microbatch: Option<Name>,
    /// The start slot in the first block; none for `fill`.
    pub at: Option<Expr>,
    /// The whole line.
    pub span: Span,
}

/// `order d { statements }`.
#[derive(Clone, PartialEq, Debug)]
pub struct Order {
    /// The name of the device's number in the statements.
    pub device: Name,
    /// What each device does.
    pub body: Vec<Statement>,
    /// The whole item.
    pub span: Span,
}

/// A statement of an `order`.
#[derive(Clone, PartialEq, Debug)]
pub enum Statement {
    /// `let warmup = ...`: evaluated here, once.
    Let(Let),
    /// `repeat n { ... }`.
    Repeat {
        /// How often; negative counts as 0.
        count: Expr,
        /// What is repeated.
        body: Vec<Self>,
    },
    /// `for k in 0..n { ... }`.
    For {
        /// The name of the number.
        variable: Name,
        /// The first number.
        start: Expr,
        /// One past the last number.
        end: Expr,
        /// The bracket behind it.
        open: Span,
        /// What is repeated.
        body: Vec<Self>,
    },
    /// `if c { ... } else if c { ... } else { ... }`.
    If {
        /// Conditions with what is done where they are the first to hold.
        branches: Vec<(Expr, Vec<Self>)>,
        /// What is done where none holds.
        otherwise: Vec<Self>,
    },
    /// `F[stage]` takes the next microbatch of that kind and stage; `F[stage, microbatch]` names it, and
    /// `F[stage, microbatch, slice]` its slice as well.
    Task {
        /// What is done.
        kind: TaskKind,
        /// The part of the stage, if one is named.
        part: Option<Name>,
        /// Of which stage.
        stage: Expr,
        /// On which microbatch.
        microbatch: Option<Expr>,
        /// On which slice of it.
        slice: Option<Expr>,
        /// The whole statement.
        span: Span,
    },
    /// `evict[stage, microbatch]` or `fetch[stage, microbatch]`: an activation goes to wait elsewhere, or comes back.
    Movement {
        /// Which way.
        kind: SwapKind,
        /// Of which stage.
        stage: Expr,
        /// Of which microbatch; the next one if it is left out.
        microbatch: Option<Expr>,
        /// Of which slice of it.
        slice: Option<Expr>,
        /// The whole statement.
        span: Span,
    },
    /// `reduce[stage]` or `update[stage]`: what a device does once a step with the gradients of a stage.
    StepTask {
        /// What.
        kind: StepTaskKind,
        /// Of which stage.
        stage: Expr,
        /// The whole statement.
        span: Span,
    },
    /// `drain(3)`: the statements of a function.
    Call(Call),
    /// `F[a] & BW[b]`: the two share the device.
    Pair {
        /// The two tasks.
        halves: Vec<Self>,
        /// The whole statement.
        span: Span,
    },
}
