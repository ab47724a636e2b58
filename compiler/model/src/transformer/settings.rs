//! Settings: how a transformer is divided among devices and trained, as the pipeline says behind its `config.json`.

use pipe_syntax::ast::{Call, Expr, ExprKind};
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};
use pipe_syntax::edits;
use pipe_syntax::expr::arguments::Signature;
use pipe_syntax::expr::evaluate::exact;
use pipe_syntax::expr::known::Known;
use pipe_syntax::source::Span;
use std::collections::BTreeMap;

/// A setting that can be said.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// What it is called.
    pub name: &'static str,
    /// What it is where it is not said; none must be said.
    pub default: Option<i64>,
    /// The values that it may have.
    pub range: (i64, i64),
    /// What it means.
    pub doc: &'static str,
}

const fn setting(name: &'static str, default: Option<i64>, range: (i64, i64), doc: &'static str) -> Setting {
    Setting { name, default, range, doc }
}

/// All of them.
pub static SETTINGS: [Setting; 13] = [
    setting("sequence", None, (1, 1 << 24), "Tokens of a row."),
    setting("rows", Some(1), (1, 1 << 16), "Rows of a microbatch."),
    setting(
        "tensor",
        Some(1),
        (1, 1 << 10),
        "Tensor parallelism: how many devices divide each layer. Each device of the schedule is a group of this size.",
    ),
    setting(
        "sequence_parallel",
        Some(0),
        (0, 1),
        "1: the devices of `tensor` also divide what lies between the matrices, along the sequence.",
    ),
    setting("data", Some(1), (1, 1 << 20), "Pipelines side by side, each with `microbatches` of its own."),
    setting("expert", Some(1), (1, 1 << 16), "How many of the pipelines side by side divide the experts among them."),
    setting(
        "zero",
        Some(0),
        (0, 3),
        "What pipelines side by side divide: optimizer state (1), gradients too (2), weights too (3).",
    ),
    setting(
        "recompute",
        Some(0),
        (0, 2),
        "What the backward computes again: `none`, `selective` (the scores of attention) or `full` (whole layers).",
    ),
    setting("flash", Some(1), (0, 1), "1: attention in tiles that are never written out (FlashAttention)."),
    setting("gradient_bytes", Some(4), (2, 4), "Bytes of a gradient: 4, or 2."),
    setting(
        "layers",
        Some(0),
        (0, 1 << 14),
        "Layers of each stage: a list as in `[4, 5, 5, 4]`, or one number for all of them.",
    ),
    setting("nodes", Some(0), (0, 1 << 20), "Nodes of a cluster that are filled first, as in `[3, 0, 2]`."),
    setting("lora", Some(0), (0, 1 << 12), "LoRA: the rank of the updates that are trained, all else being frozen."),
];
/// Those of them that may be lists.
const LISTS: [&str; 2] = ["layers", "nodes"];

pipe_ir::words! {
    /// What the layers of a stage keep, and what they compute once more inside the backward.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub enum Recompute {
        /// Everything is kept.
        None "none"
        /// All but what attention makes of queries and keys.
        Selective "selective"
        /// The inputs of the layers, one layer being computed once more at a time.
        Full "full"
    }
}

/// Which layers each stage has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Layers {
    /// So that the device with most operations has as few as possible.
    Balanced,
    /// As many on each.
    Each(u64),
    /// As many on each as is listed.
    List(Vec<u64>),
}

/// Where the text has a setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Its value.
    pub value: Span,
    /// What to remove to leave it out.
    pub cut: Option<Span>,
}

/// How a transformer is divided and trained.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Tokens of a row.
    pub sequence: u64,
    /// Rows of a microbatch.
    pub rows: u64,
    /// Devices that divide each layer among them.
    pub tensor: u64,
    /// Whether they also divide, along the sequence, what lies between the matrices.
    pub sequence_parallel: bool,
    /// Pipelines side by side, each with microbatches of its own.
    pub data: u64,
    /// Of these pipelines, how many divide the experts among them.
    pub expert: u64,
    /// What pipelines side by side divide among them: optimizer state from 1 on, gradients from 2
    /// on, weights from 3 on.
    pub zero: u64,
    /// What is kept.
    pub recompute: Recompute,
    /// Whether attention is computed in tiles that are never written out (FlashAttention).
    pub flash: bool,
    /// Bytes in which an element of the gradients is added up.
    pub gradient_bytes: u64,
    /// Which layers each stage has.
    pub layers: Layers,
    /// Nodes of a cluster in the order in which they are filled; the others follow as they are numbered.
    pub nodes: Vec<u64>,
    /// The rank of the updates that are trained instead of the weights; 0 where these are trained.
    pub lora: u64,
}

/// Evaluates the arguments behind a `config.json`. `set` goes before them; `visible` are the names that they may use.
///
/// # Errors
/// Arguments that are none, that are missing, or whose value makes no sense.
pub fn settings(
    call: &Call,
    set: &[(String, i64)],
    visible: &Known<'_>,
) -> Result<(Settings, BTreeMap<&'static str, Place>), Diagnostics> {
    let mut visible = visible.clone();
    for kind in Recompute::ALL {
        if !visible.numbers().contains_key(kind.word()) {
            visible.insert(kind.word(), kind as i64);
        }
    }
    let mut bound =
        Bound { call, values: BTreeMap::new(), places: BTreeMap::new(), lists: BTreeMap::new(), found: Vec::new() };
    let names = SETTINGS.iter().map(|setting| setting.name).collect();
    let signature = Signature { has_positions: false, ..Signature::undeclared(&call.name.text, names, "setting") };
    let given = signature.arguments(call, &mut bound.found);
    for (setting, argument) in SETTINGS.iter().zip(given) {
        if let Some(argument) = argument {
            bound.argument(setting, &argument.value, &visible);
        }
    }
    for (name, value) in set {
        if let Some(setting) = SETTINGS.iter().find(|setting| setting.name == name) {
            bound.take(setting, *value, call.name.span);
            bound.lists.remove(setting.name);
        }
    }
    bound.finish(&signature)
}

struct Bound<'a> {
    call: &'a Call,
    values: BTreeMap<&'static str, i64>,
    places: BTreeMap<&'static str, Place>,
    /// What is listed.
    lists: BTreeMap<&'static str, Vec<u64>>,
    found: Diagnostics,
}

impl Bound<'_> {
    fn argument(&mut self, setting: &'static Setting, written: &Expr, visible: &Known<'_>) {
        let cut = edits::argument(self.call, written.span);
        self.places.insert(setting.name, Place { value: written.span, cut });
        match &written.kind {
            ExprKind::List(items) if LISTS.contains(&setting.name) => {
                let mut list = Vec::new();
                for item in items {
                    match exact(item, visible) {
                        Ok(value) => list.extend(self.within(setting, value, item.span)),
                        Err(error) => self.found.push(*error),
                    }
                }
                self.lists.insert(setting.name, list);
            }
            _ => match exact(written, visible) {
                Ok(value) => self.take(setting, value, written.span),
                Err(error) => self.found.push(*error),
            },
        }
    }

    fn take(&mut self, setting: &Setting, value: i64, span: Span) {
        if self.within(setting, value, span).is_some() {
            self.values.insert(setting.name, value);
        }
    }

    fn within(&mut self, setting: &Setting, value: i64, span: Span) -> Option<u64> {
        let (low, high) = setting.range;
        let is_odd = setting.name == "gradient_bytes" && value == 3;
        if !(low..=high).contains(&value) || is_odd {
            let range = if high - low == 1 || is_odd { format!("{low} or {high}") } else { format!("{low} to {high}") };
            let message = format!("`{}` is {value}; it must be {range}", setting.name);
            self.found.push(Diagnostic::error(Code::OutOfRange, span, format!("this is {value}"), message));
            return None;
        }
        u64::try_from(value).ok()
    }

    fn finish(mut self, signature: &Signature<'_>) -> Result<(Settings, BTreeMap<&'static str, Place>), Diagnostics> {
        let path = &self.call.name.text;
        if !self.values.contains_key("sequence") && self.found.is_empty() {
            let error = signature.missing("sequence", self.call.name.span);
            let edit = edits::one_more(self.call, "sequence = 4096");
            self.found.push(error.help(format!("write `model \"{path}\"(sequence = 4096)`")).edit_with(edit));
        }
        if !self.found.is_empty() {
            return Err(self.found);
        }
        let of = |name: &str| {
            let default = SETTINGS.iter().find(|setting| setting.name == name).and_then(|setting| setting.default);
            u64::try_from(self.values.get(name).copied().or(default).unwrap_or(1)).unwrap_or(1)
        };
        let settings = Settings {
            sequence: of("sequence"),
            rows: of("rows"),
            tensor: of("tensor"),
            sequence_parallel: of("sequence_parallel") == 1,
            data: of("data"),
            expert: of("expert"),
            zero: of("zero"),
            recompute: Recompute::ALL[of("recompute") as usize],
            flash: of("flash") == 1,
            gradient_bytes: of("gradient_bytes"),
            layers: match (self.lists.get("layers"), of("layers")) {
                (Some(list), _) => Layers::List(list.clone()),
                (None, 0) => Layers::Balanced,
                (None, each) => Layers::Each(each),
            },
            // A number is a list of one.
            nodes: self.lists.get("nodes").cloned().unwrap_or_else(|| vec![of("nodes")]),
            lora: of("lora"),
        };
        Ok((settings, self.places))
    }
}
