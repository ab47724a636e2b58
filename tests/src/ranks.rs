//! Jobs of several ranks, each a thread of the test: what they learn together.

use crate::training::places;
use pipe_distributed::{Job, Settings, job_of_threads};
use pipe_ir::value::ValueKind;
use pipe_ir::verify::Verified;
use pipe_runtime::data::Data;
use pipe_runtime::{Backend, Options, Run};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Of jobs that lose no rank.
#[must_use]
pub fn settings() -> Settings {
    let lost = |lost: &[pipe_distributed::Lost]| panic!("{lost:?}");
    Settings {
        stall: Duration::from_secs(60),
        lost: Arc::new(lost),
        cut: Arc::new(|why| panic!("{why}")),
        away: Arc::new(|stood| panic!("{stood:?}")),
        end: Arc::new(|| {}),
    }
}

/// Has every rank do something, each on a thread of its own.
///
/// # Panics
/// If one of them does.
pub fn on_ranks<T: Send>(n_ranks: u32, work: impl Fn(Job) -> T + Sync) -> Vec<T> {
    let jobs = job_of_threads(n_ranks, |_| settings());
    thread::scope(|scope| {
        let threads: Vec<_> = jobs.into_iter().map(|job| scope.spawn(|| work(job))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no rank panics")).collect()
    })
}

/// A rank's run on CPU devices with random data and weights.
///
/// # Panics
/// If it does not start.
#[must_use]
pub fn join(program: &Arc<Verified>, stress: Option<u64>, job: &Job) -> Run {
    let data = Arc::new(Data::synthetic(program.program()));
    let options = Options { stress, ..Options::new(Backend::Cpu, 3) };
    Run::join(Arc::clone(program), &options, data, job).unwrap_or_else(|error| panic!("{error}"))
}

/// A tensor's name, and its bytes on every device that holds it, in the order of the devices.
pub type Copies = (String, Vec<Vec<u8>>);

/// Weights, gradients and optimizer state as the devices of a run hold them.
#[must_use]
pub fn held(run: &Run) -> Vec<Copies> {
    let kinds = [ValueKind::Parameters, ValueKind::ParameterGradients, ValueKind::OptimizerState];
    let places = kinds.into_iter().flat_map(|kind| places(run.program(), kind));
    let copies = places
        .map(|(value, tensor)| (run.program().value(value).tensors[tensor].name.clone(), run.read_all(value, tensor)));
    copies.collect()
}

/// What the devices of all ranks hold together.
#[must_use]
pub fn together(ranks: Vec<Vec<Copies>>) -> Vec<Copies> {
    let mut ranks = ranks.into_iter();
    let mut all = ranks.next().unwrap_or_default();
    for rank in ranks {
        all.iter_mut().zip(rank).for_each(|((_, all), (_, own))| all.extend(own));
    }
    all
}
