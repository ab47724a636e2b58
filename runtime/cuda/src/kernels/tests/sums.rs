//! Collectives: the bits of a sum in the order of the group, in every member or in each its share.

use super::arena::Arena;
use super::module::{Address, Module};
use crate::kernels::{MemberSum, Sources};
use pipe_distributed::collective::{own_bytes, sum_up};
use pipe_distributed::memory::Memory;
use pipe_ir::graph::DType;
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

/// All of what members have, for each of them; and a share of it, for one of them or for another place.
#[test]
fn sums_of_a_group_have_the_bits_of_the_cpu() {
    let mut sources = Sources::default();
    let mut all = Vec::new();
    for dtype in [DType::F32, DType::F64] {
        for members in [2, 3, 5] {
            let bytes = 1000 * dtype.bytes().to_usize();
            let share = own_bytes(bytes, members, 1);
            for (to, range) in
                [(None, 0..bytes), (None, share.clone()), (Some(1), share.clone()), (Some(members), share)]
            {
                let sum = MemberSum { dtype, members, to_one: to.is_some(), bytes: range.len() };
                all.push((sum, to, range, bytes, sources.member_sum(sum)));
            }
        }
    }
    let Some(module) = Module::new(sources) else { return };
    let mut random = Counter::new(3, "sums");
    for (sum, to, range, bytes, launch) in all {
        let MemberSum { dtype, members, .. } = sum;
        let bytes = Bytes(bytes as u64);
        // Behind those of the members is another place.
        let arena = Arena::new(vec![bytes; members + 1]);
        (0..=members).for_each(|member| fill(arena.region(member), dtype, &mut random));
        let before: Vec<Vec<u8>> = (0..=members).map(|member| arena.region(member).bytes().to_vec()).collect();
        let expected = Memory::new(bytes).expect("memory");
        let expected = expected.region(Bytes::ZERO, bytes);
        sum_up(dtype, (0..members).map(|member| arena.region(member)), [expected].into_iter());
        arena.launch(&module, &[launch], &|address| match address {
            Address::Part(part) => {
                let place = if part as usize == members { to.expect("one place gets it") } else { part as usize };
                arena.address(place, range.start as u64)
            }
            _ => panic!("{address:?} in a sum"),
        });
        for (place, before) in before.iter().enumerate() {
            let is_written = if let Some(to) = to { place == to } else { place < members };
            let range = if is_written { range.clone() } else { 0..0 };
            let found = arena.region(place).bytes().to_vec();
            assert_eq!(found[range.clone()], expected.bytes()[range.clone()], "{sum:?}");
            assert_eq!((&found[..range.start], &found[range.end..]), (&before[..range.start], &before[range.end..]));
        }
    }
}
