//! Balance: how many layers each stage has, so that the device with most operations has as few as possible.
//!
//! A device may hold several stages, and one that holds the head or the embedding should have less
//! of the rest. So a cut is judged, in this order, by the most operations of a device, by the sum
//! of the squares of all devices' operations, by the same two figures of single stages, and by the
//! sum of the squares of the devices' weights: the embedding computes nothing, but it is held. The
//! first cut is that whose largest stage is smallest; then single layers move from stage to stage
//! as long as that makes it better.

use super::flops::{Flops, flops_of_head, flops_of_layer};
use super::{Transformer, weights};
use crate::partition;
use pipe_ir::ids::MicrobatchId;
use pipe_schedule::placement::Placement;
use std::ops::Range;

/// What a cut is judged by; less is better.
type Merit = [u128; 5];

/// The layers of each stage of a placement; none where there are fewer layers than stages.
pub(super) fn balanced(transformer: &Transformer, placement: &Placement) -> Option<Vec<Range<u64>>> {
    let scale = Balance::new(transformer, placement);
    // The head belongs to the last layer: a stage of its own would have nothing to keep its pace with.
    let mut costs: Vec<u64> =
        scale.operations.windows(2).map(|sums| u64::try_from(sums[1] - sums[0]).unwrap_or(u64::MAX)).collect();
    let head = u64::try_from(scale.head).unwrap_or(u64::MAX);
    costs.last_mut().into_iter().for_each(|last| *last = last.saturating_add(head));
    let ranges = partition(&costs, placement.n_stages())?;
    let mut cuts: Vec<usize> = [0].into_iter().chain(ranges.iter().map(|range| range.end)).collect();
    let mut best = scale.merit(&cuts);
    while let Some((better, merit)) = scale.improved(&cuts, best) {
        (cuts, best) = (better, merit);
    }
    Some(cuts.windows(2).map(|ends| ends[0] as u64..ends[1] as u64).collect())
}

/// What layers weigh, and where stages are.
struct Balance {
    /// Operations of all layers before each.
    operations: Vec<u128>,
    /// Operations of the head.
    head: u128,
    /// Weights of all layers before each.
    weights: Vec<u128>,
    /// Those of the embedding and of the head.
    ends: [u128; 2],
    n_devices: usize,
    /// By stage: the devices that run its microbatches, once for each turn of the placement.
    homes: Vec<Vec<usize>>,
}

impl Balance {
    fn new(transformer: &Transformer, placement: &Placement) -> Self {
        let Transformer { config, settings, .. } = transformer;
        let all = |flops: Flops| flops.forward + flops.backward_input + flops.backward_weight;
        let local = |weights: Vec<weights::Weight>| weights.iter().map(|weight| weight.local).sum::<u128>();
        let sums = |of: &dyn Fn(u64) -> u128| {
            let mut sum = 0;
            let each = (0..config.layers).map(|layer| {
                sum += of(layer);
                sum
            });
            [0].into_iter().chain(each).collect()
        };
        let homes: Vec<Vec<usize>> = placement
            .stages()
            .map(|stage| {
                let turns = (0..placement.period()).map(MicrobatchId);
                turns.flat_map(|turn| placement.devices(stage, turn)).map(|device| device.index()).collect()
            })
            .collect();
        Self {
            operations: sums(&|layer| all(flops_of_layer(config, settings, layer))),
            head: all(flops_of_head(config, settings)),
            weights: sums(&|layer| local(weights::of_layer(config, settings, layer))),
            ends: [weights::of_embedding(config, settings), weights::of_head(config, settings, false)].map(local),
            n_devices: homes.iter().flatten().max().map_or(0, |last| last + 1),
            homes,
        }
    }

    fn merit(&self, cuts: &[usize]) -> Merit {
        let last = self.homes.len().saturating_sub(1);
        let (mut devices, mut held) = (vec![0_u128; self.n_devices], vec![0_u128; self.n_devices]);
        let (mut largest, mut squares) = (0_u128, 0_u128);
        for (stage, homes) in self.homes.iter().enumerate() {
            let between = |sums: &[u128]| sums[cuts[stage + 1]] - sums[cuts[stage]];
            let (mut operations, mut weights) = (between(&self.operations), between(&self.weights));
            if stage == last {
                (operations, weights) = (operations + self.head, weights + self.ends[1]);
            }
            weights += if stage == 0 { self.ends[0] } else { 0 };
            (largest, squares) = (largest.max(operations), squares.saturating_add(square(operations)));
            homes.iter().for_each(|home| devices[*home] += operations);
            homes.iter().for_each(|home| held[*home] += weights);
        }
        let sum = |all: &[u128]| all.iter().fold(0_u128, |sum, one| sum.saturating_add(square(*one)));
        [devices.iter().copied().max().unwrap_or_default(), sum(&devices), largest, squares, sum(&held)]
    }

    /// The first move of a layer from one stage to another that makes a cut better.
    fn improved(&self, cuts: &[usize], merit: Merit) -> Option<(Vec<usize>, Merit)> {
        let n_stages = self.homes.len();
        let donors = (0..n_stages).filter(|stage| cuts[stage + 1] - cuts[*stage] > 1);
        let mut moved = cuts.to_vec();
        for (from, to) in donors.flat_map(|from| (0..n_stages).map(move |to| (from, to))) {
            // All layers between the two move up, or down, by one stage's end.
            if from < to {
                moved[from + 1..=to].iter_mut().for_each(|cut| *cut -= 1);
            } else {
                moved[to + 1..=from].iter_mut().for_each(|cut| *cut += 1);
            }
            let found = self.merit(&moved);
            if found < merit {
                return Some((moved, found));
            }
            moved.copy_from_slice(cuts);
        }
        None
    }
}

fn square(number: u128) -> u128 {
    number.saturating_mul(number)
}
