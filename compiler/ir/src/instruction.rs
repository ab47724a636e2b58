//! The instruction table: one row per instruction; enum, printer, parser, buffer accesses,
//! reference and classes of Python follow from it.
//!
//! A row names the fields of an instruction with their [`crate::operand`] kinds, in the order of
//! its text; a literal before a field is written before it.

use crate::ids::{BufferId, DeviceId, ExecId, GroupId, LaneId, MicrobatchId, TokenId, ValueId};
use crate::operand::{Alloc, Free, Kind, Read, Receive, Reduce, Send, Touch, Write};
use crate::program::{Access, DeviceProgram, Program, Space};
use crate::text::cursor::{Cursor, ParseError, Scope};
use crate::text::print::Names;
use serde::{Deserialize, Serialize};

/// A range of the device's operand table: the buffers of one `run`, in the order of its executable's operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OperandRange {
    /// First entry.
    pub start: u32,
    /// Number of entries.
    pub len: u32,
}

crate::words! {
    /// The queue pair that a transfer goes through. Transfers of different classes never wait for each other.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Class {
        /// Forward values.
        Activation "activation"
        /// Backward values.
        Gradient "gradient"
        /// Sums of weight gradients on their way from replica to replica.
        Sum "sum"
    }
}

crate::words! {
    /// Which way a copy goes: the queue of its device that carries it, one copy after the other.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
    pub enum Direction {
        /// From the host's memory into the device's.
        #[serde(rename = "h2d")]
        HostToDevice "h2d"
        /// From the device's memory into the host's.
        #[serde(rename = "d2h")]
        DeviceToHost "d2h"
    }
}

impl Direction {
    /// Where a copy reads, and where it writes.
    pub const fn spaces(self) -> (Space, Space) {
        match self {
            Self::HostToDevice => (Space::Host, Space::Device),
            Self::DeviceToHost => (Space::Device, Space::Host),
        }
    }
}

crate::words! {
    /// What a `fill` writes.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Fill {
        /// Zero bytes.
        Zero "zero"
        /// The initial contents of the value's tensors, from the run's seed.
        Init "init"
    }
}

crate::words! {
    /// What the devices of a group do together.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Collective {
        /// Adds up the buffers of all members, in the order of the group; each member ends with the
        /// sum, bit for bit the same.
        AllReduce "all_reduce"
        /// The same, but each member ends with its own share of the sum (see [`crate::shares`]); what
        /// it has beside that is not to be relied on.
        ReduceScatter "reduce_scatter"
        /// Each member gives its own share of the buffer to all others, and ends with those of all.
        AllGather "all_gather"
        /// The buffer has two halves, each with an equal part for every member. Each member gives the `n`-th part of
        /// its first half to member `n`, and ends with what every member gave it in its second half, in their order.
        AllToAll "all_to_all"
    }
}

/// How many instructions behind a `lane.start` run on its lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Count(pub u32);

/// What an instruction starts, and who takes part in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// A transfer to a device.
    Send(DeviceId, Class),
    /// A transfer from a device.
    Receive(DeviceId, Class),
    /// The next collective of a group.
    Join(GroupId),
    /// A copy between the device and its host, for which nobody else is needed.
    Copy(Direction),
    /// Instructions on a lane of the device, for which nobody else is needed.
    Lane(LaneId),
}

/// The beginning or the end of a lifespan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LifespanEvent {
    /// That of the buffer begins.
    Begins(BufferId),
    /// That of the buffer ends.
    Ends(BufferId),
}

impl LifespanEvent {
    /// Whose lifespan it is.
    pub const fn buffer(self) -> BufferId {
        match self {
            Self::Begins(buffer) | Self::Ends(buffer) => buffer,
        }
    }
}

/// A row of the reference page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// The word that it begins with.
    pub word: &'static str,
    /// What follows, in the order of the text.
    pub fields: &'static [Field],
    /// What it does.
    pub doc: &'static str,
}

/// A field of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field {
    /// The literal before it; empty where there is none.
    pub before: &'static str,
    /// What it is called, also in JSON.
    pub name: &'static str,
    /// What it looks like, such as `%buffer`.
    pub shape: &'static str,
}

macro_rules! field_type {
    (Alloc) => {
        BufferId
    };
    (Free) => {
        BufferId
    };
    (Read) => {
        BufferId
    };
    (Write) => {
        BufferId
    };
    (Send) => {
        BufferId
    };
    (Receive) => {
        BufferId
    };
    (Reduce) => {
        BufferId
    };
    ($other:ident) => {
        $other
    };
}

macro_rules! instructions {
    ($(
        $(#[doc = $doc:literal])*
        $name:ident $word:literal { $($($before:literal)? $field:ident: $kind:ident),* }
    )*) => {
        /// One step of a device.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
        pub enum Instruction {$(
            $(#[doc = $doc])*
            #[serde(rename = $word)]
            $name {$(
                #[doc = concat!("As its kind says: `", stringify!($kind), "`.")]
                $field: field_type!($kind),
            )*},
        )*}

        /// Every instruction, for the reference page.
        pub const REFERENCE: &[Row] = &[$(
            Row {
                word: $word,
                fields: &[$(Field {
                    before: concat!($($before)?),
                    name: stringify!($field),
                    shape: <$kind as Kind>::SHAPE,
                }),*],
                doc: concat!($($doc),*),
            },
        )*];

        impl Instruction {
            /// The word that its text starts with.
            pub const fn word(&self) -> &'static str {
                match self { $(Self::$name { .. } => $word,)* }
            }

            /// Appends its text.
            pub(crate) fn write(&self, names: &Names<'_>, out: &mut String) {
                out.push_str(self.word());
                match *self {$(
                    Self::$name { $($field),* } => {$(
                        $(out.push(' '); out.push_str($before);)?
                        out.push(' ');
                        <$kind as Kind>::write($field, names, out);
                    )*}
                )*}
            }

            /// Reads what follows the word that an instruction starts with; `None` if no instruction starts with it.
            pub(crate) fn parse(
                word: &str,
                cursor: &mut Cursor<'_>,
                scope: &mut Scope<'_>,
            ) -> Result<Option<Self>, ParseError> {
                Ok(Some(match word {
                    $($word => {
                        $(
                            $(cursor.expect($before)?;)?
                            let $field = <$kind as Kind>::parse(cursor, scope)?;
                        )*
                        Self::$name { $($field),* }
                    })*
                    _ => return Ok(None),
                }))
            }

            /// Calls `visit` with every buffer that is a field, in the order of the text.
            #[inline]
            pub fn fields(&mut self, mut visit: impl FnMut(&mut BufferId, Touch)) {
                match self {$(
                    Self::$name { $($field),* } => {$(
                        if let (Some(buffer), Some(touch)) = (<$kind as Kind>::buffer($field), <$kind as Kind>::TOUCH) {
                            visit(buffer, touch);
                        }
                    )*}
                )*}
            }
        }
    };
}

instructions! {
    /// Begins the lifespan of a buffer.
    Alloc "alloc" { buffer: Alloc }
    /// Ends the lifespan of a buffer.
    Free "free" { buffer: Free }
    /// Writes zeros or initial contents; the buffer then holds the value, of no microbatch.
    Fill "fill" { buffer: Write, "=" value: ValueId, with: Fill }
    /// Writes a microbatch's data of the next step.
    Load "load" { buffer: Write, "=" value: ValueId, microbatch: MicrobatchId }
    /// Runs an executable on its operands. An update writes the first microbatch of its step.
    Run "run" { exec: ExecId, microbatch: MicrobatchId, operands: OperandRange }
    /// Hands a buffer's contents to the host: the loss of a microbatch.
    Emit "emit" { buffer: Read }
    /// Queues a buffer on the queue to a device and class. It may be read, not written or freed, before the `wait`.
    SendStart "send.start" { buffer: Send, "to" to: DeviceId, class: Class, "->" token: TokenId }
    /// Queues a buffer on the queue from a device and class. It may not be touched before the `wait`.
    RecvStart "recv.start" {
        buffer: Receive, "=" value: ValueId, microbatch: MicrobatchId, "from" from: DeviceId, class: Class,
        "->" token: TokenId
    }
    /// Joins the next collective of a group: gradients of the same weights are added up, whole or
    /// each member its share, or shares of weights are exchanged. Not to be touched before the
    /// `wait`.
    CollStart "coll.start" { buffer: Reduce, collective: Collective, group: GroupId, "->" token: TokenId }
    /// Joins the next collective of a group: the share of weights that the device keeps, and those
    /// of the other members, come into a buffer for all of them. Until the `wait`, the share may be
    /// read, and the other buffer not be touched.
    GatherStart "gather.start" { buffer: Receive, "=" share: Send, group: GroupId, "->" token: TokenId }
    /// Queues a copy of a buffer into one of the other memory space, on the device's queue of that
    /// direction. Until the `wait`, the one that is read may be read, and the one that is written
    /// not be touched.
    CopyStart "copy.start" { buffer: Receive, "=" from: Send, direction: Direction, "->" token: TokenId }
    /// Queues the next N instructions, which are `wait`, `run` and `send.start`, on a lane of the device: a queue
    /// beside its list. They run there one after the other, behind those that the lane was given before. Until the
    /// `wait`, what they read may be read, and what they write, or wait for, not be touched, but by later ones of the
    /// lane.
    LaneStart "lane.start" { lane: LaneId, count: Count, "->" token: TokenId }
    /// Waits until the transfer, collective or copy has ended, or the instructions on a lane. Each token is waited for
    /// exactly once.
    Wait "wait" { token: TokenId }
}

const _: () = assert!(size_of::<Instruction>() <= 24, "programs have millions of instructions");

impl Instruction {
    /// Its text in the textual IR. Ids without a row in the program's tables are written as numbers.
    pub fn text(&self, program: &Program, device: &DeviceProgram) -> String {
        let mut out = String::new();
        self.write(&Names { program, operands: &device.operands }, &mut out);
        out
    }

    /// What it starts, and the token that is waited for.
    pub const fn starts(&self) -> Option<(TokenId, Start)> {
        match *self {
            Self::SendStart { to, class, token, .. } => Some((token, Start::Send(to, class))),
            Self::RecvStart { from, class, token, .. } => Some((token, Start::Receive(from, class))),
            Self::CollStart { group, token, .. } | Self::GatherStart { group, token, .. } => {
                Some((token, Start::Join(group)))
            }
            Self::CopyStart { direction, token, .. } => Some((token, Start::Copy(direction))),
            Self::LaneStart { lane, token, .. } => Some((token, Start::Lane(lane))),
            Self::Alloc { .. }
            | Self::Free { .. }
            | Self::Fill { .. }
            | Self::Load { .. }
            | Self::Run { .. }
            | Self::Emit { .. }
            | Self::Wait { .. } => None,
        }
    }

    /// Whether it joins a collective of a group.
    pub fn joins(&self, group: GroupId) -> bool {
        self.starts().is_some_and(|(_, start)| start == Start::Join(group))
    }

    /// The lifespan that begins or ends, if one does.
    pub fn lifespan(&self) -> Option<LifespanEvent> {
        let mut found = None;
        let mut own = *self;
        own.fields(|buffer, touch| match touch {
            Touch::Alloc => found = Some(LifespanEvent::Begins(*buffer)),
            Touch::Free => found = Some(LifespanEvent::Ends(*buffer)),
            Touch::Read | Touch::Write | Touch::Update | Touch::Send | Touch::Receive | Touch::Reduce => {}
        });
        found
    }

    /// Calls `visit` with every buffer that it touches: its fields, and for `run` the operands of the executable.
    #[inline]
    pub fn accesses(&self, program: &Program, device: &DeviceProgram, mut visit: impl FnMut(BufferId, Touch)) {
        if let Self::Run { exec, operands, .. } = *self {
            let buffers = device.operands(operands);
            for (operand, buffer) in program.exec(exec).operands.iter().zip(buffers) {
                visit(
                    *buffer,
                    match operand.access {
                        Access::Read => Touch::Read,
                        Access::Write => Touch::Write,
                        Access::Update => Touch::Update,
                    },
                );
            }
            return;
        }
        let mut own = *self;
        own.fields(|buffer, touch| visit(*buffer, touch));
    }
}

/// The table of the reference page, in Markdown.
pub fn reference() -> String {
    let mut out = String::from("| instruction | what it does |\n|---|---|\n");
    for row in REFERENCE {
        let parts = row.fields.iter().flat_map(|field| [field.before, field.shape]).filter(|part| !part.is_empty());
        let shape: Vec<&str> = [row.word].into_iter().chain(parts).collect();
        out.push_str(&format!("| `{}` |{} |\n", shape.join(" ").replace('|', "\\|"), row.doc));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::reference;

    /// `docs/ir.md` has the table as it is generated here, and its example is a sound program.
    #[test]
    fn the_page_is_up_to_date() {
        let page = include_str!("../../../docs/ir.md");
        assert!(page.contains(&reference()), "the table in docs/ir.md should be:\n{}", reference());
        let example = page.split("```").nth(1).expect("an example");
        assert_eq!(crate::text::check(example).map(|_| ()), Ok(()));
    }
}
