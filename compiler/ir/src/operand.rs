//! Operand kinds: what a field of an instruction is. The role of a buffer is its kind, so that
//! nobody needs to know which instruction touches it in order to know how.

use crate::ids::{BufferId, DeviceId, ExecId, GroupId, LaneId, MicrobatchId, TokenId, ValueId};
use crate::instruction::{Class, Collective, Count, Direction, Fill, OperandRange};
use crate::text::cursor::{Cursor, ParseError, Scope};
use crate::text::print::{Names, push_id, push_name, push_number};

/// How an instruction touches a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Touch {
    /// Its lifespan begins.
    Alloc,
    /// Its lifespan ends.
    Free,
    /// Its contents are read.
    Read,
    /// Its contents are replaced.
    Write,
    /// Its contents are read and changed in place.
    Update,
    /// Its contents are read from here to the `wait` of the instruction's token.
    Send,
    /// Its contents are replaced between here and the `wait` of the instruction's token.
    Receive,
    /// Its contents are read, and replaced, between here and the `wait` of the instruction's token.
    Reduce,
}

/// What a field of an instruction is: its type, its text and the buffer that it touches.
pub(crate) trait Kind {
    /// Type of the field.
    type Field: Copy;
    /// What it looks like in the reference.
    const SHAPE: &'static str;
    /// How it touches the buffer that it is; `None` where it is none.
    const TOUCH: Option<Touch> = None;

    /// Appends its text.
    fn write(field: Self::Field, names: &Names<'_>, out: &mut String);
    /// Reads its text.
    fn parse(cursor: &mut Cursor<'_>, scope: &mut Scope<'_>) -> Result<Self::Field, ParseError>;
    /// The buffer that it is.
    fn buffer(_field: &mut Self::Field) -> Option<&mut BufferId> {
        None
    }
}

macro_rules! buffer_roles {
    ($($(#[$doc:meta])* $role:ident)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub enum $role {}

        impl Kind for $role {
            type Field = BufferId;
            const SHAPE: &'static str = "%buffer";
            const TOUCH: Option<Touch> = Some(Touch::$role);

            fn write(field: BufferId, _: &Names<'_>, out: &mut String) {
                push_id(out, BufferId::PREFIX, field.0);
            }

            fn parse(cursor: &mut Cursor<'_>, _: &mut Scope<'_>) -> Result<BufferId, ParseError> {
                cursor.id('%', "a buffer such as `%0`").map(BufferId)
            }

            fn buffer(field: &mut BufferId) -> Option<&mut BufferId> {
                Some(field)
            }
        }
    )*};
}

buffer_roles! {
    /// A buffer whose lifespan begins.
    Alloc
    /// A buffer whose lifespan ends.
    Free
    /// A buffer that is read.
    Read
    /// A buffer that is overwritten.
    Write
    /// A buffer that is read until its transfer is waited for.
    Send
    /// A buffer that is overwritten until its transfer is waited for.
    Receive
    /// A buffer that is joined with those of others until that is waited for.
    Reduce
}

/// Ids that are a number behind a sign, and what an error calls one.
macro_rules! numbered {
    ($($id:ident $shape:literal $sign:literal $what:literal)*) => {$(
        impl Kind for $id {
            type Field = Self;
            const SHAPE: &'static str = $shape;

            fn write(field: Self, _: &Names<'_>, out: &mut String) {
                push_id(out, Self::PREFIX, field.0);
            }

            fn parse(cursor: &mut Cursor<'_>, _: &mut Scope<'_>) -> Result<Self, ParseError> {
                cursor.id($sign, $what).map(Self)
            }
        }
    )*};
}

numbered! {
    TokenId "!token" '!' "a token such as `!0`"
    DeviceId "dN" 'd' "a device such as `d0`"
    GroupId "gN" 'g' "a group such as `g0`"
    MicrobatchId "mN" 'm' "a microbatch such as `m0`"
}

/// Enums that are one of a few words.
macro_rules! worded {
    ($($kind:ident $shape:literal)*) => {$(
        impl Kind for $kind {
            type Field = Self;
            const SHAPE: &'static str = $shape;

            fn write(field: Self, _: &Names<'_>, out: &mut String) {
                out.push_str(field.word());
            }

            fn parse(cursor: &mut Cursor<'_>, _: &mut Scope<'_>) -> Result<Self, ParseError> {
                cursor.one_of(Self::ALL, Self::word)
            }
        }
    )*};
}

worded! {
    Collective "all_reduce|reduce_scatter|all_gather|all_to_all"
    Class "activation|gradient|sum"
    Direction "h2d|d2h"
    Fill "zero|init"
}

impl Kind for ValueId {
    type Field = Self;
    const SHAPE: &'static str = "value";

    fn write(field: Self, names: &Names<'_>, out: &mut String) {
        match names.program.values.get(field.index()) {
            Some(value) => push_name(out, &value.name),
            None => push_id(out, Self::PREFIX, field.0),
        }
    }

    fn parse(cursor: &mut Cursor<'_>, scope: &mut Scope<'_>) -> Result<Self, ParseError> {
        scope.tables.value(cursor)
    }
}

impl Kind for LaneId {
    type Field = Self;
    const SHAPE: &'static str = "lane";

    fn write(field: Self, names: &Names<'_>, out: &mut String) {
        match names.program.lanes.get(field.index()) {
            Some(lane) => push_name(out, lane),
            None => push_id(out, Self::PREFIX, field.0),
        }
    }

    fn parse(cursor: &mut Cursor<'_>, scope: &mut Scope<'_>) -> Result<Self, ParseError> {
        scope.tables.lane(cursor)
    }
}

impl Kind for Count {
    type Field = Self;
    const SHAPE: &'static str = "N";

    fn write(field: Self, _: &Names<'_>, out: &mut String) {
        push_number(out, u64::from(field.0));
    }

    fn parse(cursor: &mut Cursor<'_>, _: &mut Scope<'_>) -> Result<Self, ParseError> {
        cursor.small("a number of instructions").map(Self)
    }
}

impl Kind for ExecId {
    type Field = Self;
    const SHAPE: &'static str = "@exec";

    fn write(field: Self, names: &Names<'_>, out: &mut String) {
        match names.program.execs.get(field.index()) {
            Some(exec) => {
                out.push('@');
                out.push_str(exec.letters());
                push_id(out, ".s", exec.stage.0);
                exec.slice.into_iter().for_each(|slice| push_id(out, ".q", slice));
                exec.edge.into_iter().for_each(|edge| {
                    push_id(out, ".e", edge.before);
                    push_id(out, "_", edge.after);
                });
                exec.chunk.into_iter().for_each(|chunk| push_id(out, ".c", chunk.number));
                exec.piece.into_iter().for_each(|piece| {
                    push_id(out, ".p", piece.number);
                    push_id(out, "of", piece.count);
                });
                out.push_str(if exec.is_repeated { ".r" } else { "" });
            }
            None => push_id(out, Self::PREFIX, field.0),
        }
    }

    fn parse(cursor: &mut Cursor<'_>, scope: &mut Scope<'_>) -> Result<Self, ParseError> {
        scope.tables.exec(cursor)
    }
}

impl Kind for OperandRange {
    type Field = Self;
    const SHAPE: &'static str = "(%buffer, ..)";

    fn write(field: Self, names: &Names<'_>, out: &mut String) {
        let start = field.start as usize;
        let buffers = names.operands.get(start..start.saturating_add(field.len as usize)).unwrap_or_default();
        out.push('(');
        for (position, buffer) in buffers.iter().enumerate() {
            out.push_str(if position == 0 { "" } else { ", " });
            push_id(out, BufferId::PREFIX, buffer.0);
        }
        out.push(')');
    }

    fn parse(cursor: &mut Cursor<'_>, scope: &mut Scope<'_>) -> Result<Self, ParseError> {
        let start = scope.operands.len();
        cursor.expect("(")?;
        while !cursor.take(")") {
            if scope.operands.len() > start {
                cursor.expect(",")?;
            }
            scope.operands.push(cursor.id('%', "a buffer such as `%0`").map(BufferId)?);
        }
        match (u32::try_from(start), u32::try_from(scope.operands.len() - start)) {
            (Ok(start), Ok(len)) => Ok(Self { start, len }),
            _ => Err(cursor.expected("fewer than 2^32 operands on one device")),
        }
    }
}
