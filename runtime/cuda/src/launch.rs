//! Launches: what is asked of the driver for one kernel, before anything has an address.

use pipe_ir::kernels::Location;
use pipe_ir::units::Bytes;

/// A function of the device, by its place in the table of [`super::kernels::Sources`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct FunctionId(pub(crate) u32);

/// What a device of the program needs as working memory, beside its arena, for kernels of its
/// compute queue; see `cu/working.cu`. Zero when a run begins.
pub(crate) const WORKING_BYTES: Bytes =
    Bytes(8 + 8 * LOSS_BLOCKS as u64 + 4 * COLUMN_BLOCKS + 8 * STRIP * COLUMN_BLOCKS);

/// Blocks of a sum of losses at most, each of which leaves one number there.
pub(crate) const LOSS_BLOCKS: u32 = 1023;

/// Blocks of a sum of columns at most, where several have the same columns; each leaves a number
/// for each: two blocks for each multiprocessor of a large GPU.
pub(crate) const COLUMN_BLOCKS: u64 = 264;

/// Columns of a block that sums columns.
pub(crate) const STRIP: u64 = 128;

/// One launch of a function.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Launch {
    pub(crate) function: FunctionId,
    /// Blocks in x, y and z.
    pub(crate) grid: [u32; 3],
    /// Threads of a block.
    pub(crate) block: [u32; 3],
    /// Bytes of shared memory beside what the function declares.
    pub(crate) shared: u32,
    /// In the order of the function's parameters.
    pub(crate) arguments: Vec<Argument>,
}

/// What a function is given; as many bytes as its parameter has.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Argument {
    /// The address of a place in an operand or in scratch.
    Address(Location),
    /// The address of one of the places that a sum adds up, or writes.
    Part(u32),
    /// The address of the [`super::kernels::StepNumbers`], in the memory of the device.
    Step,
    /// The address of the device's error word, a `u64`: 0 until a kernel finds something wrong in
    /// the data; see [`super::kernels::fault`].
    Error,
    /// The address of the device's working memory.
    Working,
    /// A count, a size or a stride.
    U64(u64),
    /// A small one.
    U32(u32),
    /// A number in single precision.
    F32(f32),
    /// A number in double precision.
    F64(f64),
}
