//! Spaces: every layout of a model on a cluster, and what rules out the others.
//!
//! All devices of the cluster are used. Devices that divide a layer sit in one node, because they
//! wait for each other in every layer. Two settings are never better than others, and are not tried
//! beside them: without sequence parallelism, devices that divide a layer hold more and exchange as
//! much; and without ZeRO, pipelines side by side hold more and exchange at least as much as with
//! its first stage.

use super::candidate::{Keeping, Layout};
use super::problem::Problem;
use pipe_model::transformer::{Recompute, Transformer, check};
use pipe_schedule::policy::offload::Offload;

/// Layouts, and why other values are not among them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Space {
    /// All that are possible, those with more devices in a layer first.
    pub layouts: Vec<Layout>,
    /// Values that are not, and why.
    pub refused: Vec<Refusal>,
}

/// Something that is not possible.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Refusal {
    /// Values, such as `tensor = 16, 32`.
    pub what: String,
    /// Why not.
    pub reason: String,
}

/// The numbers that divide another one, ascending.
fn divisors(number: u64) -> Vec<u64> {
    let small: Vec<u64> =
        (1..).take_while(|one| one * one <= number).filter(|one| number.is_multiple_of(*one)).collect();
    let large = small.iter().rev().map(|one| number / one).filter(|one| one * one > number);
    small.iter().copied().chain(large).collect()
}

/// All layouts of a problem.
pub fn space(problem: &Problem) -> Space {
    let mut space = Space::default();
    let mut refused: Vec<(&'static str, u64, String)> = Vec::new();
    let device_slots = u64::from(problem.cluster.n_device_slots());
    for tensor in divisors(device_slots).into_iter().rev().filter(|tensor| problem.allows("tensor", *tensor)) {
        if let Err(reason) = tensor_fits(problem, tensor) {
            refused.push(("tensor", tensor, reason));
            continue;
        }
        let rest = divisors(device_slots / tensor);
        for devices in rest.into_iter().filter(|devices| problem.allows("devices", *devices)) {
            let layers = problem.n_layers();
            if devices > layers {
                refused.push(("devices", devices, format!("the model has {layers} layers")));
                continue;
            }
            let data = device_slots / tensor / devices;
            if problem.allows("data", data) {
                space.layouts.extend(of_data(problem, (tensor, devices, data), &mut refused));
            }
        }
    }
    space.refused = joined(refused);
    space
}

/// Whether so many devices may divide each layer.
fn tensor_fits(problem: &Problem, tensor: u64) -> Result<(), String> {
    let per_node = u64::from(problem.cluster.per_node);
    if !per_node.is_multiple_of(tensor) {
        return Err(format!("they would not fill nodes of {per_node} devices evenly"));
    }
    if let Some(optimizer) = problem.whole_matrices.filter(|_| tensor > 1) {
        return Err(format!("`{optimizer}` updates whole matrices"));
    }
    let mut transformer = problem.transformer.clone();
    transformer.settings.tensor = tensor;
    (transformer.settings.data, transformer.settings.expert) = (1, 1);
    transformer.settings.sequence_parallel = false;
    check(&transformer).map_err(|found| found.into_iter().next().map(|first| first.message).unwrap_or_default())
}

fn of_data(
    problem: &Problem,
    (tensor, devices, data): (u64, u64, u64),
    refused: &mut Vec<(&'static str, u64, String)>,
) -> Vec<Layout> {
    if !problem.batch.is_multiple_of(data) {
        refused.push(("data", data, format!("a step has {} rows", problem.batch)));
        return Vec::new();
    }
    // Experts are divided in jobs of Megatron-LM.
    let experts = problem.transformer.config.experts.as_ref().filter(|_| problem.trained.is_none());
    let experts = experts.map_or(1, |experts| experts.count);
    let divide = |expert: &u64| data.is_multiple_of(*expert) && problem.allows("expert", *expert);
    let each: Vec<u64> = divisors(experts).into_iter().filter(divide).collect();
    let rows = divisors(problem.batch / data);
    let rows = rows.into_iter().filter(|rows| problem.allows("rows", *rows) && *rows <= 1 << 16);
    let of = |rows: u64| {
        let microbatches = problem.batch / data / rows;
        each.iter().map(move |expert| Layout { tensor, devices, data, expert: *expert, rows, microbatches })
    };
    rows.flat_map(of).collect()
}

/// Equal reasons are told once.
fn joined(refused: Vec<(&'static str, u64, String)>) -> Vec<Refusal> {
    let mut all: Vec<(&'static str, Vec<u64>, String)> = Vec::new();
    for (name, value, reason) in refused {
        match all.iter_mut().find(|(other, _, known)| *other == name && *known == reason) {
            Some((_, values, _)) => values.push(value),
            None => all.push((name, vec![value], reason)),
        }
    }
    let words = |(name, mut values, reason): (&str, Vec<u64>, String)| {
        values.sort_unstable();
        values.dedup();
        let values: Vec<String> = values.iter().map(u64::to_string).collect();
        Refusal { what: format!("{name} = {}", values.join(", ")), reason }
    };
    all.into_iter().map(words).collect()
}

/// What may be kept in a layout, what computes least first.
pub fn keepings(problem: &Problem, layout: &Layout) -> Vec<Keeping> {
    let settings = &problem.transformer.settings;
    // Tiles of FlashAttention are never kept, so that there is nothing to select.
    let selective = (!settings.flash).then_some(Recompute::Selective);
    let recompute = [Some(Recompute::None), selective, Some(Recompute::Full)].into_iter().flatten();
    let allowed = |recompute: &Recompute| problem.allows("recompute", *recompute as u64);
    let asked = problem.fixed.get("sequence_parallel").copied();
    let sequence_parallel = asked.map_or(layout.tensor > 1 && divides(problem, layout), |asked| asked == 1);
    let least = u64::from(layout.data > 1);
    let zeros: Vec<u64> = match problem.fixed.get("zero") {
        Some(zero) => vec![*zero],
        None if problem.whole_matrices.is_some() => vec![0],
        None => (least..=3 * least).collect(),
    };
    let offload = Offload::default();
    let of = |recompute| zeros.iter().map(move |zero| Keeping { recompute, zero: *zero, sequence_parallel, offload });
    let all: Vec<Keeping> = recompute.filter(allowed).flat_map(of).collect();
    all.into_iter().filter(|keeping| is_sound(problem, layout, *keeping)).collect()
}

/// The same with state that lives with the hosts, if that is allowed: to be tried where nothing
/// else fits, because copies only add to a step.
pub fn away(problem: &Problem, keeping: Keeping) -> Vec<Keeping> {
    let all = Offload::STATE
        .into_iter()
        .filter(|_| problem.may_offload && problem.whole_matrices.is_none() && !keeping.offload.any());
    all.map(|offload| Keeping { offload, ..keeping }).collect()
}

fn divides(problem: &Problem, layout: &Layout) -> bool {
    problem.transformer.settings.sequence.is_multiple_of(layout.tensor)
}

/// Whether the model can be divided so.
fn is_sound(problem: &Problem, layout: &Layout, keeping: Keeping) -> bool {
    let settings = layout.settings(&problem.transformer.settings, keeping);
    check(&Transformer { settings, ..problem.transformer.clone() }).is_ok()
}

#[cfg(test)]
mod tests {
    use super::divisors;

    #[test]
    fn divisors_are_ascending_and_complete() {
        assert_eq!(divisors(1), [1]);
        assert_eq!(divisors(36), [1, 2, 3, 4, 6, 9, 12, 18, 36]);
        assert_eq!(divisors(97), [1, 97]);
    }
}
