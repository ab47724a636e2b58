//! Collectives: the bits of a sum in the order of the group, in every member or in each its share.

use super::arena::Arena;
use super::module::{Address, Module};
use crate::kernels::Sources;
use pipe_distributed::collective::{own_bytes, sum_up};
use pipe_distributed::memory::Memory;
use pipe_ir::graph::DType;
use pipe_ir::instruction::Collective;
use pipe_ir::units::Bytes;
use pipe_runtime::random::Counter;

/// Writes numbers of very different sizes, so that the order of a sum shows in its bits.
fn fill(region: pipe_distributed::memory::Region, dtype: DType, random: &mut Counter) {
    let mut number = || random.normal() * 10_f64.powi((random.next_u64() % 9) as i32);
    match dtype {
        DType::F64 => region.numbers_mut::<f64>().iter_mut().for_each(|x| *x = number()),
        DType::F32 | DType::BF16 | DType::I32 => {
            region.numbers_mut::<f32>().iter_mut().for_each(|x| *x = number() as f32)
        }
    }
}

#[test]
fn sums_of_a_group_have_the_bits_of_the_cpu() {
    let mut sources = Sources::default();
    let mut all = Vec::new();
    for dtype in [DType::F32, DType::F64] {
        for members in [2, 3, 5] {
            for collective in Collective::ALL.iter().copied() {
                let bytes = Bytes(1000 * dtype.bytes().0);
                all.push((dtype, members, collective, bytes, sources.together(collective, dtype, bytes, members)));
            }
        }
    }
    let Some(module) = Module::new(sources) else { return };
    let mut random = Counter::new(3, "sums");
    for (dtype, members, collective, bytes, launches) in all {
        let arena = Arena::new(vec![bytes; members]);
        (0..members).for_each(|member| fill(arena.region(member), dtype, &mut random));
        let before: Vec<Vec<u8>> = (0..members).map(|member| arena.region(member).bytes().to_vec()).collect();
        let sum = Memory::new(bytes).expect("memory");
        let sum = sum.region(Bytes::ZERO, bytes);
        sum_up(dtype, (0..members).map(|member| arena.region(member)), [sum].into_iter());
        arena.launch(&module, &launches, &|address| match address {
            Address::Part(member, offset) => arena.address(member as usize, offset),
            _ => panic!("{address:?} in a collective"),
        });
        for (member, before) in before.iter().enumerate() {
            let range = match collective {
                Collective::AllReduce => 0..bytes.to_usize(),
                Collective::ReduceScatter => own_bytes(bytes.to_usize(), members, member),
                Collective::AllGather | Collective::AllToAll => 0..0,
            };
            let found = arena.region(member).bytes().to_vec();
            assert_eq!(found[range.clone()], sum.bytes()[range.clone()], "{collective:?} of {members} in {dtype}");
            assert_eq!((&found[..range.start], &found[range.end..]), (&before[..range.start], &before[range.end..]));
        }
    }
}
