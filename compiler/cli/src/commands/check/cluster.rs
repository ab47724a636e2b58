//! What `pipec check` prints of the machines that a step runs on.

use crate::output::figures::{grouped, percent, time};
use crate::output::table::Fact;
use pipe_compiler::report::Report;
use pipe_compiler::report::cluster::{BesideReport, ClusterReport, MappingReport, RatesReport};
use pipe_ir::task::TaskKind;
use pipe_ir::units::Bytes;

/// What is said of the cluster.
pub(crate) fn summary(own: &ClusterReport, report: &Report) -> Vec<Fact> {
    let name = if report.profile.is_some() { "links" } else { "times" };
    let mut lines = vec![Fact::new(name, own.time_unit, format!("from {}", own.file))];
    lines.extend(own.rates.as_ref().map(rates));
    let there = u64::from(own.nodes) * u64::from(own.devices_per_node);
    let nodes = if own.nodes == 1 { "1 node".to_owned() } else { format!("{} nodes", grouped(own.nodes.into())) };
    let mut remark = format!("devices, {nodes} of {}", own.devices_per_node);
    if let Some(stages) = report.sizes.devices.map(|devices| devices as u64).filter(|own| *own > 0) {
        let each = own.devices_used / stages;
        let all = if stages == 1 { "d0 is".to_owned() } else { format!("each of d0 to d{} is", stages - 1) };
        remark += &if each > 1 { format!("; {all} {} of them", grouped(each)) } else { String::new() };
    }
    let used = format!("{} of {}", grouped(own.devices_used), grouped(there));
    lines.push(Fact::new("cluster", used, remark));
    if let Some(mfu) = own.mfu {
        let tokens = own.tokens_per_second.map(|tokens| format!("{} tokens a second, ", grouped(tokens as u64)));
        let reached = own.peak_flops.map_or(0.0, |peak| own.flops as f64 / peak as f64);
        let reaching = if own.rates.is_some() { "tasks reach" } else { "matrix products reach" };
        let remark = format!("of the peak (MFU), {}{reaching} {}", tokens.unwrap_or_default(), percent(reached));
        lines.push(Fact::new("utilisation", percent(mfu), remark));
    } else if let Some(tokens) = own.tokens_per_second {
        lines.push(Fact::new("speed", grouped(tokens as u64), "tokens a second"));
    }
    lines.extend(own.beside.map(beside));
    lines.extend(own.mapping.as_ref().map(order));
    if own.exchange > 0.0 {
        lines.push(Fact::new("gradients", time(own.exchange, Some(own.time_unit)), "to exchange after the last task"));
    }
    lines
}

/// What a GPU has beside what is counted.
fn beside(own: BesideReport) -> Fact {
    let BesideReport { driver_bytes, products_bytes, nccl_bytes } = own;
    let all = Bytes(driver_bytes + products_bytes + nccl_bytes);
    let [driver, products, nccl] = [driver_bytes, products_bytes, nccl_bytes].map(Bytes);
    let remark = format!("at most, on a GPU: context {driver}, cuBLASLt {products}, NCCL {nccl}");
    Fact::new("beside", all.to_string(), remark)
}

/// How fast devices compute, and which profile says so.
pub(crate) fn rates(own: &RatesReport) -> Fact {
    let most = own.flops.values().copied().max().unwrap_or_default();
    let (unit, name) = if most >= 1_000_000_000_000 { (1e12, "TFLOPS") } else { (1e9, "GFLOPS") };
    let kinds = TaskKind::ALL.into_iter().filter_map(|kind| Some((kind.letters(), own.flops.get(kind.letters())?)));
    let each = kinds.map(|(kind, flops)| format!("{kind} {:.1}", *flops as f64 / unit));
    Fact::new("rates", name, format!("from {}: {}", own.profile, each.collect::<Vec<_>>().join(", ")))
}

/// The order of nodes that was found, and what it is worth.
fn order(mapping: &MappingReport) -> Fact {
    const SHOWN: usize = 16;
    let mut names: Vec<String> = mapping.nodes.iter().take(SHOWN).map(u32::to_string).collect();
    names.extend((mapping.nodes.len() > SHOWN).then(|| "..".to_owned()));
    let gain = if mapping.makespan_before > 0.0 { mapping.makespan / mapping.makespan_before - 1.0 } else { 0.0 };
    let timed = grouped(mapping.timed);
    let proof = match mapping.is_best {
        true => format!("no order is shorter, {timed} timed"),
        false => format!("the best of {timed} that were timed, a shorter one may be left"),
    };
    let remark = format!("`nodes = [{}]`: {proof}", names.join(", "));
    Fact::new("order", percent(gain), remark)
}
