//! Accounts: what each stage of a transformer takes on one device. The first stage has the
//! embedding, the last one the head.

use super::activations::{self, Kept, KeptTensor, Until};
use super::balance::balanced;
use super::flops::{Flops, flops_of_head, flops_of_layer};
use super::weights::{self, Kind, Weight};
use super::{Config, Layers, Settings, Transformer};
use pipe_ir::ids::StageId;
use pipe_schedule::placement::Placement;
use pipe_schedule::policy::offload::Offload;
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::source::Span;
use std::ops::Range;

/// Bytes of a weight.
const WEIGHT: u128 = 2;
/// Bytes of the optimizer's state of a weight: the weight itself and two moments, in single precision (Adam).
const STATE: u128 = 12;

/// What a stage takes on each of its devices.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StageAccount {
    /// Its layers.
    pub layers: Range<u64>,
    /// Whether it is the first one, with the embedding.
    pub has_embedding: bool,
    /// Whether it is the last one, with the head and the loss.
    pub has_head: bool,
    /// Parameters of the stage, over all devices that divide its layers. A tied head that is a copy counts.
    pub parameters: u128,
    /// Those of one device, without experts.
    pub dense: u128,
    /// Those of the experts of one device.
    pub expert: u128,
    /// Bytes of the weights.
    pub weights: u128,
    /// Bytes of their gradients.
    pub gradients: u128,
    /// Bytes of the optimizer's state.
    pub optimizer: u128,
    /// What is kept of a microbatch from the forward pass on, what flows in included.
    pub saved: Vec<KeptTensor>,
    /// What lies between the halves of the backward pass, where it is split.
    pub deferred: u128,
    /// What flows in from another stage, and stays until the backward pass; nothing flows into the first stage.
    pub input: u128,
    /// What flows out; nothing flows out of the last stage.
    pub output: u128,
    /// Temporaries of a forward task.
    pub scratch_forward: u128,
    /// Temporaries of a backward task.
    pub scratch_backward: u128,
    /// Floating-point operations of one microbatch.
    pub flops: Flops,
}

impl StageAccount {
    /// Weights, gradients and optimizer state.
    pub const fn state(&self) -> u128 {
        self.weights + self.gradients + self.optimizer
    }

    /// Leaves out what a stage does not have whose weights stay as they are, and perhaps no backward either. What a
    /// backward keeps for the gradients of weights is counted all the same: which part of it that is, is not known.
    pub(super) fn freeze(&mut self, has_backward: bool) {
        (self.gradients, self.optimizer, self.deferred) = (0, 0, 0);
        self.flops.backward_weight = 0;
        if !has_backward {
            self.saved.clear();
            self.flops.backward_input = 0;
        }
    }

    /// What of the state lives in the memory of the host: it comes for its uses and, where an
    /// update changes it, goes back.
    pub const fn away(&self, offload: Offload) -> u128 {
        let optimizer = if offload.optimizer { self.optimizer } else { 0 };
        let weights = if offload.parameters { self.weights } else { 0 };
        optimizer + weights
    }

    /// What of the state is always on the device.
    pub const fn staying(&self, offload: Offload) -> u128 {
        self.state() - self.away(offload)
    }

    /// What is kept of one microbatch from the forward pass on.
    pub fn activations(&self) -> u128 {
        self.saved.iter().map(|held| held.bytes).sum()
    }

    /// The same for one half of the backward pass, without what flows in: that is a buffer of its own.
    pub fn saved_until(&self, until: Until) -> u128 {
        let all: u128 = self.saved.iter().filter(|held| held.until == until).map(|held| held.bytes).sum();
        if until == Until::Input { all.saturating_sub(self.input) } else { all }
    }
}

/// The parameters of the whole model.
pub fn parameters(transformer: &Transformer) -> u128 {
    weights::total(&transformer.config, &transformer.settings)
}

/// The accounts of the stages of a placement. A tied head that lives where the embedding does needs no copy.
///
/// # Errors
/// If the layers cannot be divided so.
pub fn accounts(
    transformer: &Transformer,
    placement: &Placement,
    schedule: Span,
) -> Result<Vec<StageAccount>, Diagnostic> {
    let cuts = cut(transformer, placement, schedule)?;
    let (last, Transformer { config, settings, .. }) = (cuts.len().saturating_sub(1), transformer);
    let shares_table = share_home(placement) && config.is_tied;
    let stages = cuts.into_iter().enumerate();
    Ok(stages
        .map(|(stage, layers)| account(config, settings, layers, (stage == 0, stage == last), shares_table))
        .collect())
}

/// Whether the last stage lives on the devices of the first one.
fn share_home(placement: &Placement) -> bool {
    let home = |stage: usize| placement.devices_of(StageId::from_index(stage)).to_vec();
    let n_stages = placement.n_stages();
    n_stages < 2 || home(0) == home(n_stages - 1)
}

fn account(
    config: &Config,
    settings: &Settings,
    layers: Range<u64>,
    (has_embedding, has_head): (bool, bool),
    shares_table: bool,
) -> StageAccount {
    let mut stage = StageAccount { layers: layers.clone(), has_embedding, has_head, ..StageAccount::default() };
    let flowing = activations::flowing(config, settings);
    (stage.input, stage.output) = (if has_embedding { 0 } else { flowing }, if has_head { 0 } else { flowing });
    let mut largest = 0;
    let mut add = |weights: &[Weight]| {
        let of =
            |kinds: fn(Kind) -> bool| weights.iter().filter(|one| kinds(one.what)).map(|one| one.local).sum::<u128>();
        let (dense, expert) = (of(|kind| kind != Kind::Expert), of(|kind| kind == Kind::Expert));
        stage.parameters += weights.iter().map(|one| one.whole).sum::<u128>();
        stage.dense += dense;
        stage.expert += expert;
        largest = largest.max(dense + expert);
    };
    if has_embedding {
        add(&weights::of_embedding(config, settings));
    }
    layers.clone().for_each(|layer| add(&weights::of_layer(config, settings, layer)));
    if has_head {
        add(&weights::of_head(config, settings, shares_table));
    }
    let mut again = 0;
    let mut keep = |kept: Kept| {
        kept.saved.into_iter().for_each(|held| merge(&mut stage.saved, held));
        stage.deferred += kept.deferred;
        again = again.max(kept.again);
    };
    if has_embedding {
        keep(activations::of_embedding(config, settings));
    }
    for layer in layers {
        keep(activations::of_layer(config, settings, layer));
        stage.flops += flops_of_layer(config, settings, layer);
    }
    if has_head {
        let kept = activations::of_head(config, settings);
        stage.scratch_forward = kept.again;
        keep(kept);
        stage.flops += flops_of_head(config, settings);
    }
    stage.scratch_backward = again;
    stage.divide(settings, largest);
    stage
}

/// Tensors with the same name count as one.
fn merge(all: &mut Vec<KeptTensor>, held: KeptTensor) {
    let same = |other: &&mut KeptTensor| (other.what, other.part, other.until) == (held.what, held.part, held.until);
    match all.iter_mut().find(same) {
        Some(other) => other.bytes += held.bytes,
        None => all.push(held),
    }
}

impl StageAccount {
    /// The bytes of the state, after what pipelines side by side divide of it (ZeRO, arXiv
    /// 1910.02054, section 5): experts are divided by those pipelines only that have the same ones.
    /// What is divided is put together for one layer at a time.
    fn divide(&mut self, settings: &Settings, largest: u128) {
        let (data, alike) = (u128::from(settings.data), u128::from(settings.data / settings.expert));
        let parts = |stage: u64| {
            let is_divided = settings.zero >= stage;
            if is_divided { self.dense.div_ceil(data) + self.expert.div_ceil(alike) } else { self.dense + self.expert }
        };
        let gradient = u128::from(settings.gradient_bytes);
        let (optimizer, gradients, weights) = (STATE * parts(1), gradient * parts(2), WEIGHT * parts(3));
        (self.optimizer, self.gradients, self.weights) = (optimizer, gradients, weights);
        let whole_weights = if settings.zero >= 3 { WEIGHT * largest } else { 0 };
        let whole_gradients = if settings.zero >= 2 { gradient * largest } else { 0 };
        self.scratch_forward += whole_weights;
        self.scratch_backward += whole_weights + whole_gradients;
    }
}

/// The layers of each stage.
fn cut(transformer: &Transformer, placement: &Placement, schedule: Span) -> Result<Vec<Range<u64>>, Diagnostic> {
    let (Transformer { config, settings, .. }, n_stages) = (transformer, placement.n_stages());
    let total = config.layers;
    let refuse = |message: String| {
        let error = Diagnostic::error(Code::TooFewLayers, transformer.place("layers"), "these layers", message);
        error.label(schedule, format!("{n_stages} stages"))
    };
    let counts = match &settings.layers {
        Layers::Balanced => {
            return balanced(transformer, placement).ok_or_else(|| {
                let path = &config.path;
                let message =
                    format!("the schedule has {n_stages} stages, but the model `{path}` has only {total} layers");
                refuse(message).help("use fewer devices, or fewer stages on each")
            });
        }
        Layers::Each(each) => vec![*each; n_stages],
        Layers::List(list) => list.clone(),
    };
    let sum = counts.iter().fold(0_u64, |sum, count| sum.saturating_add(*count));
    if counts.len() != n_stages || sum != total {
        let (stages, path) = (counts.len(), &config.path);
        let message = format!("{sum} layers on {stages} stages, and `{path}` has {total} for {n_stages} stages");
        let help = "leave `layers` out, and stages are as equally long as they can be";
        return Err(refuse(message).help(help).edit_with(transformer.cut("layers")));
    }
    let inner = counts.get(1..n_stages.saturating_sub(1)).unwrap_or_default();
    if inner.contains(&0) {
        return Err(refuse("a stage between the first and the last one has no layer".to_owned()));
    }
    let mut end = 0;
    let next = |count: u64| {
        end += count;
        end - count..end
    };
    Ok(counts.into_iter().map(next).collect())
}
