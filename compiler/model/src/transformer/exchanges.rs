//! Exchanges: what devices that divide a transformer tell each other, beside what flows from stage to stage.
//!
//! Devices that divide a layer add up what comes out of its attention and of its feed-forward,
//! forward, and the gradients of what went in, backward (Megatron-LM, arXiv 1909.08053, section 3);
//! with sequence parallelism they scatter these sums and gather them again, which is as many bytes
//! (arXiv 2205.05198, section 4.2.2). Devices that divide experts send each token to its experts
//! and back. Under ZeRO (arXiv 1910.02054, section 7), pipelines side by side gather weights and
//! scatter sums of gradients.

use super::activations::HALF;
use super::layout::Local;
use super::{Recompute, StageAccount, Transformer, activations};
use pipe_ir::task::TaskKind;

/// What a group does together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Collective {
    /// All have the sum of what each had.
    AllReduce,
    /// Each has a part of the sum.
    ReduceScatter,
    /// All have the parts of all.
    AllGather,
    /// Each has something for each other one.
    AllToAll,
}

/// Bytes of what the loss adds up of each token: in three goes, in single precision.
const LOSS: u128 = 4;

/// Who exchanges something.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Among {
    /// Devices that divide each layer.
    Tensor,
    /// Pipelines side by side that divide the experts.
    Experts,
    /// All pipelines side by side.
    Data,
    /// Pipelines side by side that have the same experts.
    Alike,
}

/// Something that is exchanged so many times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exchange {
    /// By whom.
    pub among: Among,
    /// How.
    pub what: Collective,
    /// Bytes of the whole.
    pub bytes: u128,
    /// How often.
    pub times: u64,
}

/// What a task of a stage waits for.
pub fn within(transformer: &Transformer, stage: &StageAccount, kind: TaskKind) -> Vec<Exchange> {
    let again = transformer.settings.recompute == Recompute::Full;
    match kind {
        TaskKind::Forward | TaskKind::Recompute => {
            [forward(transformer, stage), ends(transformer, stage, true)].concat()
        }
        TaskKind::BackwardInput | TaskKind::Backward => {
            let mut all = [forward(transformer, stage), ends(transformer, stage, false)].concat();
            if again {
                all.extend(forward(transformer, stage));
            }
            all
        }
        TaskKind::BackwardWeight | TaskKind::Update => Vec::new(),
    }
}

/// What goes on beside a task of a stage, which ends no earlier: what ZeRO gathers and scatters for every microbatch.
pub fn beside(transformer: &Transformer, stage: &StageAccount, kind: TaskKind) -> Vec<Exchange> {
    let (settings, mut all) = (&transformer.settings, Vec::new());
    let reads = !matches!(kind, TaskKind::BackwardWeight | TaskKind::Update);
    if settings.zero >= 3 && reads {
        all.extend(of_weights(stage, Collective::AllGather, HALF));
    }
    if settings.zero >= 2 && matches!(kind, TaskKind::BackwardWeight | TaskKind::Backward) {
        all.extend(of_weights(stage, Collective::ReduceScatter, settings.gradient_bytes.into()));
    }
    all
}

/// What follows the last backward of a step: sums of gradients, and new weights where each pipeline
/// has made a part of them.
pub fn at_end(transformer: &Transformer, stage: &StageAccount) -> Vec<Exchange> {
    let gradient = transformer.settings.gradient_bytes.into();
    match transformer.settings.zero {
        0 => of_weights(stage, Collective::AllReduce, gradient).into(),
        1 => {
            let scattered = of_weights(stage, Collective::ReduceScatter, gradient);
            scattered.into_iter().chain(of_weights(stage, Collective::AllGather, HALF)).collect()
        }
        2 => of_weights(stage, Collective::AllGather, HALF).into(),
        _ => Vec::new(),
    }
}

/// Of the weights that all pipelines have, and of experts.
fn of_weights(stage: &StageAccount, what: Collective, bytes: u128) -> [Exchange; 2] {
    let of = |among, weights: u128| Exchange { among, what, bytes: bytes * weights, times: 1 };
    [of(Among::Data, stage.dense), of(Among::Alike, stage.expert)]
}

/// What the layers of a stage exchange one way, forward or backward.
fn forward(transformer: &Transformer, stage: &StageAccount) -> Vec<Exchange> {
    let (config, settings) = (&transformer.config, &transformer.settings);
    let n_layers = stage.layers.end - stage.layers.start;
    let mut all = sums(transformer, 2 * n_layers);
    let routed = |layer: u64| config.experts_of(layer).map(|experts| u128::from(experts.per_token));
    let per_token: Vec<u128> = stage.layers.clone().filter_map(routed).collect();
    if let (Some(most), 2..) = (per_token.iter().max(), settings.expert) {
        let bytes = most * activations::flowing(config, settings);
        // To the experts and back.
        let times = 2 * per_token.len() as u64;
        all.push(Exchange { among: Among::Experts, what: Collective::AllToAll, bytes, times });
    }
    all
}

/// Sums of what flows over the devices that divide a layer, so many times.
fn sums(transformer: &Transformer, times: u64) -> Vec<Exchange> {
    let of = |what| Exchange { among: Among::Tensor, what, bytes: whole(transformer), times };
    match transformer.settings.sequence_parallel {
        true => vec![of(Collective::ReduceScatter), of(Collective::AllGather)],
        false => vec![of(Collective::AllReduce)],
    }
}

/// What the embedding adds up forward, and the head backward; the loss is added up forward.
fn ends(transformer: &Transformer, stage: &StageAccount, is_forward: bool) -> Vec<Exchange> {
    let Transformer { config, settings, .. } = transformer;
    let of = |what, bytes, times| Exchange { among: Among::Tensor, what, bytes, times };
    let (is_divided, whole) = (settings.sequence_parallel, whole(transformer));
    let sum = if is_divided { Collective::ReduceScatter } else { Collective::AllReduce };
    let mut all = Vec::new();
    if if is_forward { stage.has_embedding } else { stage.has_head } {
        all.push(of(sum, whole, 1));
    }
    if is_forward && stage.has_head {
        all.extend(is_divided.then(|| of(Collective::AllGather, whole, 1)));
        all.push(of(Collective::AllReduce, LOSS * Local::of(config, settings).tokens, 3));
    }
    all
}

/// Bytes of what flows from layer to layer, over all devices that divide it.
fn whole(transformer: &Transformer) -> u128 {
    let tokens = Local::of(&transformer.config, &transformer.settings).tokens;
    HALF * tokens * u128::from(transformer.config.hidden)
}
