//! Tuning: the layout, schedule and settings with which a model takes the shortest steps on a cluster, and fits.
//!
//! [`space`] lists every layout, [`families`] every schedule. [`bound`] bounds a step from below,
//! for whole groups of candidates and for single ones, and [`evaluate`] writes a schedule out,
//! times it and counts its bytes, as `check` does. [`queue`] looks at what has the least bound
//! first, and stops when nothing left can be shorter than what was found: so the result is the same
//! as if everything had been timed. Where nodes are not alike, [`node_order`] finds the order in
//! which they are filled best. What is found is written as source, which the ordinary compiler
//! judges. The clock is the caller's.

mod bound;
mod candidate;
mod evaluate;
mod families;
mod instantiate;
mod near_misses;
mod node_order;
mod problem;
mod queue;
pub mod report;
mod result;
mod space;
mod trained;

pub use candidate::{Candidate, Keeping, Layout};
pub use evaluate::StepTime;
pub use families::{LEFT_OUT, Variant, variants};
pub use problem::{FIXED, Problem, TuneRequest, problem};
pub use queue::tune;
pub use result::{Counts, Misfit, TuneProgress, TuneResult};
pub use space::{Refusal, Space, away, keepings, space};
pub use trained::{FOUND, Trained};

use instantiate::Instance;
use pipe_compiler::{Compilation, compile};
use pipe_syntax::source::{Source, Sources};

/// Every candidate of a problem in every order of its nodes, timed whatever its bounds say: what
/// [`tune`] must agree with, for small problems.
pub fn exhaustive(problem: &Problem) -> Vec<(Candidate, Result<StepTime, String>)> {
    let written = Instance::new(problem);
    let orders = orders(problem);
    let mut all = Vec::new();
    for layout in space(problem).layouts {
        let plain = keepings(problem, &layout).into_iter();
        for keeping in plain.flat_map(|one| std::iter::once(one).chain(away(problem, one))) {
            for variant in allowed(problem, &layout) {
                for nodes in &orders {
                    let (variant, nodes) = (variant.clone(), nodes.clone());
                    let candidate = Candidate { layout, variant, keeping, nodes };
                    let taken = evaluate::evaluate(problem, (&written, &problem.request), &candidate, true);
                    all.push((candidate, taken));
                }
            }
        }
    }
    all
}

/// Every order of the nodes, where it is free and makes a difference; else the empty one, which is that of the target.
fn orders(problem: &Problem) -> Vec<Vec<u32>> {
    let n_nodes = if problem.is_order_free() { problem.cluster.n_nodes() } else { 0 };
    let longer = |order: Vec<u32>| {
        let others: Vec<u32> = (0..n_nodes).filter(|node| !order.contains(node)).collect();
        others.into_iter().map(move |node| [&order[..], &[node]].concat())
    };
    (0..n_nodes).fold(vec![Vec::new()], |orders, _| orders.into_iter().flat_map(longer).collect())
}

/// The schedules that may be used in a layout.
fn allowed(problem: &Problem, layout: &Layout) -> impl Iterator<Item = Variant> {
    let all = variants(layout.devices, problem.n_layers());
    let schedules = problem.schedules.clone();
    all.into_iter().filter(move |variant| schedules.is_empty() || schedules.iter().any(|name| name == variant.name))
}

/// The source of a candidate, judged as `check` judges it on the problem's cluster.
pub fn analysis(problem: &Problem, source: &str, name: &str) -> (Compilation, Sources) {
    let mut sources = Sources::default();
    let root = Source { name: name.to_owned(), text: source.to_owned() };
    let compilation = compile(&mut sources, root, &|path| problem.load(path), &problem.request);
    (compilation, sources)
}
