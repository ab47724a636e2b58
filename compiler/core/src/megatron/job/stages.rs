//! How many layers each stage of a job has.

use super::options::Options;
use crate::megatron::layout::Layout;

/// Layers by stage; stage s lives on rank s % ranks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Stages {
    /// Stages of a rank: chunks of the model, or virtual stages.
    pub chunks: u64,
    /// By stage.
    pub layers: Vec<u64>,
}

const LAYOUT: &str = "pipeline-model-parallel-layout";
const CHUNKS: &str = "num-virtual-stages-per-pipeline-rank";
const LAYERS: &str = "num-layers-per-virtual-pipeline-stage";
const FIRST: &str = "decoder-first-pipeline-num-layers";
const LAST: &str = "decoder-last-pipeline-num-layers";

impl Stages {
    /// Those that Megatron makes of a model.
    ///
    /// # Errors
    /// If it refuses that, or a layout has another number of layers.
    pub(super) fn of(options: &Options, ranks: u64, n_layers: u64) -> Result<Self, String> {
        let said: Vec<String> = [LAYOUT, CHUNKS, LAYERS]
            .iter()
            .filter(|name| options.has(name))
            .map(|name| format!("`--{name}`"))
            .collect();
        if said.len() > 1 {
            return Err(format!("Megatron takes only one of {}", said.join(" and ")));
        }
        if let Some(text) = options.value(LAYOUT) {
            return Self::of_layout(text, ranks, n_layers);
        }
        let ends = [options.number(FIRST)?, options.number(LAST)?];
        // The embedding and the head may count as layers.
        let [embedding, head] = ["account-for-embedding-in-pipeline-split", "account-for-loss-in-pipeline-split"]
            .map(|name| u64::from(options.has(name)));
        if ends != [None, None] {
            if embedding + head > 0 {
                return Err(format!("Megatron takes `--{FIRST}` and `--{LAST}` without `--account-for-..`"));
            }
            return Self::of_ends(options, ends, ranks, n_layers);
        }
        let counted = n_layers + embedding + head;
        let of_rank = divided(counted, ranks, "pipeline ranks")?;
        let chunks = match (options.number(CHUNKS)?, options.number(LAYERS)?) {
            (Some(chunks), _) => chunks,
            (None, Some(layers)) => of_a_rank(of_rank, layers, "layers in each virtual stage")?,
            (None, None) => 1,
        };
        let of_stage = of_a_rank(of_rank, chunks, "virtual stages")?;
        let mut layers = vec![of_stage; usize::try_from(ranks.saturating_mul(chunks)).unwrap_or_default()];
        if let Some(first) = layers.first_mut() {
            *first -= embedding;
        }
        match layers.last_mut() {
            Some(last) if *last >= head => *last -= head,
            _ => return Err("a stage would have no layer for the embedding or the head that it counts".to_owned()),
        }
        Ok(Self { chunks, layers })
    }

    fn of_layout(text: &str, ranks: u64, n_layers: u64) -> Result<Self, String> {
        let Layout { layers } = text.parse::<Layout>().map_err(|wrong| format!("`--{LAYOUT}`: {wrong}"))?;
        let (stages, sum) = (layers.len() as u64, layers.iter().sum::<u64>());
        if sum != n_layers {
            return Err(format!("the layout has {sum} layers, and the model {n_layers}"));
        }
        if stages % ranks != 0 {
            return Err(format!("the layout has {stages} stages, no multiple of {ranks} pipeline ranks"));
        }
        Ok(Self { chunks: stages / ranks, layers })
    }

    /// The first rank, the last one or both have as many layers as is said, the others the same number each.
    fn of_ends(options: &Options, ends: [Option<u64>; 2], ranks: u64, n_layers: u64) -> Result<Self, String> {
        if options.has(LAYERS) {
            return Err(format!("Megatron takes `--{CHUNKS}` beside `--{FIRST}` and `--{LAST}`, not `--{LAYERS}`"));
        }
        let chunks = options.number(CHUNKS)?.unwrap_or(1);
        let said: u64 = ends.iter().flatten().sum();
        let others = ranks.saturating_sub(ends.iter().flatten().count() as u64);
        let rest = n_layers.checked_sub(said).filter(|_| ranks > 1);
        let rest = rest.ok_or_else(|| {
            format!("the first and the last of {ranks} ranks cannot have {said} of {n_layers} layers")
        })?;
        let middle = if others == 0 && rest == 0 { 0 } else { divided(rest, others, "other ranks")? };
        let of_rank = |rank: u64| match ends {
            [Some(first), _] if rank == 0 => first,
            [_, Some(last)] if rank + 1 == ranks => last,
            _ => middle,
        };
        let of_stage = |stage: u64| of_a_rank(of_rank(stage % ranks), chunks, "virtual stages");
        let layers = (0..ranks.saturating_mul(chunks)).map(of_stage).collect::<Result<_, String>>()?;
        Ok(Self { chunks, layers })
    }
}

fn of_a_rank(number: u64, by: u64, what: &str) -> Result<u64, String> {
    divided(number, by, what).map_err(|_| format!("a rank has {number} layers, which {by} {what} do not divide evenly"))
}

fn divided(number: u64, by: u64, what: &str) -> Result<u64, String> {
    if by == 0 || !number.is_multiple_of(by) {
        return Err(format!("{number} layers are not divided evenly among {by} {what}"));
    }
    Ok(number / by)
}
