//! Machines for a target: nodes whose links differ, as a `cluster.toml` has them, and the pipeline that
//! runs on them. What they mean is worked out here from the documents (`docs/cluster.md`), and shares
//! nothing with the compiler.

use super::case::{Case, UNIT};
use crate::schedules::Dice;

/// What flows between two stages: 2 bytes for each of 64 positions of 128 numbers.
const BYTES: u64 = 2 * 64 * 128;
/// Bytes that arrive in half a millisecond, in kB/s, and each half as many as the one before.
const RATES: [u64; 4] = [2 * BYTES, BYTES, BYTES / 2, BYTES / 4];

/// Nodes and their links.
#[derive(Clone, Debug)]
pub struct Machines {
    /// Devices of each node.
    pub per_node: usize,
    /// The order in which nodes are filled.
    pub nodes: Vec<usize>,
    /// Which of [`RATES`] each link between nodes has, each way.
    between: Vec<Vec<usize>>,
    /// The same inside nodes.
    inside: usize,
    /// Latency of all links between nodes, in halves of a millisecond.
    latency: u64,
}

/// What the bytes take at a rate, in ticks.
const fn takes(rate: usize) -> u64 {
    (UNIT / 2) << rate
}

impl Machines {
    /// Random ones for so many devices, perhaps with a node more.
    pub(super) fn random(dice: &mut Dice, devices: usize) -> Self {
        let per_node = 1 + dice.below(2).min(dice.below(3));
        let n = (devices.div_ceil(per_node) + dice.below(2)).max(1);
        let is_even = dice.below(8) == 0;
        let mut between = vec![vec![dice.below(RATES.len()); n]; n];
        if !is_even {
            between.iter_mut().flatten().for_each(|rate| *rate = dice.below(RATES.len()));
        }
        let mut nodes: Vec<usize> = (0..n).collect();
        if dice.below(2) == 0 {
            (1..n).for_each(|last| nodes.swap(last, dice.below(last + 1)));
        }
        Self { per_node, nodes, between, inside: dice.below(2), latency: dice.below(3) as u64 }
    }

    /// What a transfer between two devices of the pipeline takes, the slower way, where nodes are filled in this order.
    #[must_use]
    pub fn link(&self, nodes: &[usize], from: usize, to: usize) -> u64 {
        let [from_node, to_node] = [from, to].map(|device| nodes[device / self.per_node]);
        match () {
            () if from == to => 0,
            () if from_node == to_node => takes(self.inside),
            () => {
                let slowest = self.between[from_node][to_node].max(self.between[to_node][from_node]);
                takes(slowest) + self.latency * UNIT / 2
            }
        }
    }

    /// Latencies between so many devices.
    #[must_use]
    pub fn links(&self, nodes: &[usize], devices: usize) -> Vec<Vec<u64>> {
        let row = |from| (0..devices).map(|to| self.link(nodes, from, to)).collect();
        (0..devices).map(row).collect()
    }

    /// The `cluster.toml`.
    #[must_use]
    pub fn text(&self) -> String {
        let n = self.between.len();
        let rate = |own: usize, other: usize, rate: usize| match own == other {
            true => "\"-\"".to_owned(),
            false => RATES[rate].to_string(),
        };
        let row = |(own, rates): (usize, &Vec<usize>)| {
            let rates: Vec<String> = rates.iter().enumerate().map(|(other, one)| rate(own, other, *one)).collect();
            format!("[{}]", rates.join(", "))
        };
        let rows: Vec<String> = self.between.iter().enumerate().map(row).collect();
        let (inside, latency, per_node) = (RATES[self.inside], self.latency * 500, self.per_node);
        let bandwidth = match n {
            1 => format!("\"{}kB/s\"", RATES[0]),
            _ => format!("{{ unit = \"kB/s\", rows = [{}] }}", rows.join(", ")),
        };
        format!(
            "nodes = {n}\ndevices = {per_node}\ndevice = {{ memory = \"8TiB\", flops = \"1TFLOPS\" }}\n\
             [links.node]\nbandwidth = \"{inside}kB/s\"\nlatency = \"0us\"\n\
             [links.cluster]\nbandwidth = {bandwidth}\nlatency = \"{latency}us\"\n"
        )
    }

    /// A pipeline with a schedule, perhaps with its source behind it.
    #[must_use]
    pub fn pipeline(&self, case: &Case, schedule: &str, source: &str) -> String {
        let (devices, microbatches, nodes) = (case.devices, case.microbatches, &self.nodes);
        format!(
            "pipeline machines {{\n    model \"model.json\"(sequence = 64, rows = 1, nodes = {nodes:?})\n    \
             devices {devices}\n    microbatches {microbatches}\n    schedule {schedule}\n}}\n\n{source}"
        )
    }
}

/// The `config.json` of a model with a layer for each stage.
#[must_use]
pub fn config(case: &Case) -> String {
    format!(
        "{{\"model_type\": \"llama\", \"hidden_size\": 128, \"intermediate_size\": 256, \"num_hidden_layers\": {}, \
         \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"vocab_size\": 1000, \"tie_word_embeddings\": false}}",
        case.stages()
    )
}

/// All orders of so many nodes.
#[must_use]
pub fn orders(n: usize) -> Vec<Vec<usize>> {
    let longer = |order: Vec<usize>| {
        let others: Vec<usize> = (0..n).filter(|node| !order.contains(node)).collect();
        others.into_iter().map(move |node| [&order[..], &[node]].concat())
    };
    (0..n).fold(vec![Vec::new()], |orders, _| orders.into_iter().flat_map(longer).collect())
}
