//! Keywords: misspelt, of another language, or at a place that does not know them.

use crate::parse::errors;
use crate::parse::grammar::{Grammar, Rule};
use crate::parse::mistakes::mistake::Mistake;
use crate::parse::mistakes::resume;
use crate::parse::mistakes::view::{Detector, View, is_name};
use crate::parse::mistakes::within::Within;
use crate::suggest;
use pest::Parser;

/// Those that know how keywords are spelt.
pub(in crate::parse::mistakes) const SPELLING: &[Detector] = &[capital, misspelt, no_value];
/// Those that know what stands where.
pub(in crate::parse::mistakes) const DETECTORS: &[Detector] =
    &[synonym, misspelt_before, weight_decay, validation, value, misplaced, superfluous];

/// Words that others have for a keyword.
const SYNONYMS: &[(Within, &[&str], &str)] = &[
    (Within::File, &["use", "include", "using", "require", "load"], "import"),
    (Within::Schedule, &["num_stages", "n_stages", "nstages", "stage_count", "S"], "stages"),
    (Within::Schedule, &["placement", "put", "map", "assign", "where"], "place"),
    (Within::Schedule, &["assert", "requires", "check", "ensure"], "require"),
    (Within::Schedule, &["for_each", "program", "sequence", "actions"], "order"),
    (Within::Schedule, &["pattern", "steady"], "block"),
    (Within::Schedule, &["num_slices", "n_slices", "chunks"], "slices"),
    (Within::Order, &["when"], "if"),
    (Within::Order, &["otherwise"], "else"),
    (Within::Layer, &["return", "returns", "result", "out", "yield"], "output"),
    (Within::Layer, &["param", "parameter", "parameters", "weights", "learnable", "bias"], "weight"),
    (Within::Layer, &["inputs", "arg", "in"], "input"),
    (Within::Layer, &["objective", "minimize"], "loss"),
    (Within::Layer, &["tokens", "batch"], "data"),
    (
        Within::Pipeline,
        &[
            "device",
            "gpus",
            "gpu",
            "ranks",
            "workers",
            "nodes",
            "world_size",
            "processes",
            "num_devices",
            "n_devices",
            "pp_size",
            "cores",
        ],
        "devices",
    ),
    (Within::Pipeline, &["num_microbatches", "n_microbatches", "micro_batches", "batches", "batch"], "microbatches"),
    (Within::Pipeline, &["dtype", "type"], "precision"),
    (Within::Pipeline, &["checkpointing", "activation_checkpointing", "recomputation", "remat"], "recompute"),
    (Within::Pipeline, &["costs", "time", "times", "duration"], "cost"),
    (Within::Pipeline, &["network", "net", "module"], "model"),
    (Within::Pipeline, &["fsdp", "zero_stage"], "zero"),
    (Within::Pipeline, &["training", "fit"], "train"),
    (Within::Pipeline, &["assert", "limit", "ensure"], "require"),
    (Within::Train, &["iterations", "iters", "max_steps", "num_steps", "n_steps"], "steps"),
    (Within::Train, &["dataset", "corpus", "dataloader"], "data"),
    (Within::Train, &["optim", "optimiser"], "optimizer"),
    (Within::Train, &["save", "checkpoints", "save_to"], "checkpoint"),
    (Within::Train, &["random_seed", "rng"], "seed"),
    (Within::Train, &["warmup_steps"], "warmup"),
    (Within::Train, &["min_lr", "minimum_lr"], "minimum"),
    (Within::Train, &["clip", "grad_clip", "clip_grad", "max_norm", "max_grad_norm", "gradient_clipping"], "clip_norm"),
    (Within::Train, &["valid", "validate", "eval", "evaluation", "dev"], "validation"),
    (Within::Train, &["lr_decay", "lr_schedule", "scheduler"], "decay"),
];

/// Words that a place has no line for, with what to write.
const ELSEWHERE: &[(Within, &[&str], &str)] = &[
    (
        Within::Train,
        &["lr", "learning_rate", "beta1", "beta2", "momentum"],
        "it is an argument of the optimizer: `optimizer adamw(learning_rate = 0.001)`",
    ),
    (Within::Train, &["epochs", "num_epochs"], "training counts steps: `steps 300`"),
    (Within::Train, &["shuffle"], "it stands behind the file: `data \"train.bin\" shuffled`"),
    (
        Within::Train,
        &["batch_size", "batch"],
        "the rows of a microbatch are a parameter of the model: `model gpt(rows = 4)`",
    ),
    (
        Within::Pipeline,
        &["batch_size", "rows", "seq_len", "sequence_length", "hidden", "layers", "num_layers"],
        "it is an argument of the model: `model gpt(rows = 4, sequence = 128)`",
    ),
    (Within::Pipeline, &["memory", "host"], "the memory stands behind the number of devices: `devices 4 memory 64MiB`"),
    (
        Within::Pipeline,
        &["tensor_parallel", "tp"],
        "`tensor 2` lets two devices stand behind each device, and divide the tensors of its stages",
    ),
    (
        Within::Pipeline,
        &["data_parallel", "dp"],
        "a schedule whose stages have replicas does that; of a `config.json` that is not trained it is an argument: `data = 2`",
    ),
    (Within::Order, &["match", "switch", "case"], "branches are written `if d == 0 { .. } else { .. }`"),
    (
        Within::Schedule,
        &["devices", "microbatches", "M", "D"],
        "a schedule is for every number of devices `D` and microbatches `M`; a pipeline or `--set devices=4` chooses one",
    ),
    (
        Within::Schedule,
        &["warmup", "cooldown", "memory", "peak", "cost"],
        "a schedule says what runs where and when; a pipeline has costs and limits",
    ),
];

/// The words that lines begin with inside of something.
pub(in crate::parse::mistakes) fn beginnings(within: Within) -> Vec<String> {
    let text = format!("{}\u{0}", within.beginning());
    let phrases = Grammar::parse(Rule::file, &text).err().map(|error| errors::expected_at(&error, text.len() - 1));
    let words = phrases
        .into_iter()
        .flatten()
        .flat_map(|phrase| phrase.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>());
    words.filter(|word| is_name(word)).collect()
}

/// Whether a word is one of lower case letters.
fn is_lower(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

/// Whether the grammar knows a word.
pub(in crate::parse::mistakes) fn is_keyword(word: &str) -> bool {
    keywords().iter().any(|known| known == word)
}

/// All words that the grammar knows.
fn keywords() -> Vec<String> {
    let rules = Rule::all_rules().iter().filter(|rule| format!("{rule:?}").starts_with("kw_"));
    rules.map(|rule| errors::word_of(*rule)).collect()
}

/// `Schedule`.
fn capital(view: &View<'_>) -> Option<Mistake> {
    let word = view.word(0);
    let expected = view.expected_words();
    let meant = expected.iter().find(|meant| is_lower(meant) && meant.eq_ignore_ascii_case(word) && *meant != word)?;
    Some(
        Mistake::new(view.range(0), "not a keyword", format!("unknown keyword `{word}`"))
            .help(format!("keywords are in lower case: write `{meant}`"))
            .replace(view.range(0), meant.as_str()),
    )
}

/// `gpus 4`.
fn synonym(view: &View<'_>) -> Option<Mistake> {
    let within = view.within();
    let known = |index: usize| {
        let word = view.token(index);
        let meant = SYNONYMS.iter().find(|(place, words, _)| *place == within && words.contains(&word))?.2;
        Some((index, word, meant))
    };
    let first = view.at.checked_sub(1).and_then(known).filter(|_| !view.is_between_lines());
    let (index, word, meant) = known(view.at).filter(|_| view.is_between_lines()).or(first)?;
    Some(
        Mistake::new(view.span(index, index), "not a keyword", format!("unknown keyword `{word}`"))
            .help(format!("did you mean `{meant}`?"))
            .replace(view.span(index, index), meant),
    )
}

/// `schedul`.
fn misspelt(view: &View<'_>) -> Option<Mistake> {
    let word = view.word(0);
    let expected = view.expected_words();
    let words: Vec<&str> =
        expected.iter().map(String::as_str).filter(|meant| is_name(meant) && meant.len() > 2).collect();
    let meant = suggest::closest(word, words).filter(|meant| is_name(word) && word.len() > 2 && *meant != word)?;
    Some(
        Mistake::new(view.range(0), "not a keyword", format!("unknown keyword `{word}`"))
            .help(format!("did you mean `{meant}`?"))
            .replace(view.range(0), meant),
    )
}

/// `repet 3 { block() }` in a model, where `repet` could be a layer.
fn misspelt_before(view: &View<'_>) -> Option<Mistake> {
    let index = view.at.checked_sub(1)?;
    let word = view.token(index);
    let known = keywords();
    let meant =
        suggest::closest(word, known.iter().map(String::as_str)).filter(|meant| *meant != word && is_name(word))?;
    Some(
        Mistake::new(view.range(-1), "not a keyword", format!("unknown keyword `{word}`"))
            .help(format!("did you mean `{meant}`?"))
            .replace(view.range(-1), meant),
    )
}

/// `stages` and nothing behind it.
fn no_value(view: &View<'_>) -> Option<Mistake> {
    let known = beginnings(view.within());
    let is_keyword = |index: usize| known.iter().any(|word| word == view.token(index)) || view.token(index) == "memory";
    // The next keyword was read as the value, and then something else was expected.
    let last = view.at.checked_sub(if view.expects_expression() { 1 } else { 2 })?;
    let ends = if view.expects_expression() {
        matches!(view.word(0), "" | "}") || view.begins_line(view.at)
    } else {
        view.begins_line(last + 1) && is_keyword(last + 1)
    };
    let (word, end) = (view.token(last), view.span(last, last).end);
    (ends && is_keyword(last)).then(|| {
        Mistake::new(end..end, "a value is missing here", format!("`{word}` has no value"))
            .help(format!("write it behind `{word}`"))
            .insert(end, " 1")
            .guess()
    })
}

/// `weight_decay 0.1` as a line.
fn weight_decay(view: &View<'_>) -> Option<Mistake> {
    let is_number = view.word(0).starts_with(|first: char| first.is_ascii_digit()) || view.word(0) == "=";
    (view.word(-1) == "weight_decay" && view.expects(&[Rule::decayed]) && is_number).then(|| {
        let number = view.range(0);
        let end = resume::statement(view).end.max(number.end);
        Mistake::new(
            number.clone(),
            "not at this place",
            "a line `weight_decay` says which weights decay, not how much",
        )
        .help("how much is an argument of the optimizer: `optimizer adamw(learning_rate = 0.001, weight_decay = 0.1)`")
        .replace(number.start..end, "matrices")
        .guess()
    })
}

/// `validation 0.1` and nothing behind it.
fn validation(view: &View<'_>) -> Option<Mistake> {
    let first = view.first_of_line(view.at.checked_sub(1)?);
    let ends = view.begins_line(view.at) || matches!(view.word(0), "" | "}");
    (view.token(first) == "validation" && view.expects(&[Rule::kw_every]) && ends).then(|| {
        let end = view.range(-1).end;
        let line = view.slice(first, view.at - 1);
        Mistake::new(end..end, "`every` is missing here", "`validation` does not say after how many steps it comes")
            .help(format!("write `{line} every 100`"))
            .insert(end, " every 100")
    })
}

/// What stands at a place that knows few words: what it is called, words of others for them, and help.
type Values = (&'static [Rule], &'static str, &'static [(&'static str, &'static str)], &'static str);

/// A word where only a few are possible, such as a precision (`precision fp16`) or an optimizer.
fn value(view: &View<'_>) -> Option<Mistake> {
    let word = view.word(0);
    let kinds: &[Values] = &[
        (
            &[Rule::number_type],
            "precision",
            &[
                ("fp32", "f32"),
                ("float32", "f32"),
                ("float", "f32"),
                ("single", "f32"),
                ("fp64", "f64"),
                ("float64", "f64"),
                ("double", "f64"),
                ("bfloat16", "bf16"),
                ("fp16", "bf16"),
                ("f16", "bf16"),
                ("half", "bf16"),
                ("float16", "bf16"),
                ("fp8", "bf16"),
                ("f8", "bf16"),
                ("float8", "bf16"),
                ("int8", "bf16"),
                ("i8", "bf16"),
                ("fp4", "bf16"),
                ("mixed", "bf16"),
            ],
            "precisions are `f32`, `f64` and `bf16`",
        ),
        (
            &[Rule::dtype],
            "type of data",
            &[
                ("int32", "i32"),
                ("int", "i32"),
                ("int64", "i32"),
                ("i64", "i32"),
                ("long", "i32"),
                ("float32", "f32"),
                ("float", "f32"),
                ("fp32", "f32"),
                ("f64", "f32"),
                ("bf16", "f32"),
                ("u32", "i32"),
            ],
            "data are `i32` or `f32`",
        ),
        (
            &[Rule::init],
            "first values",
            &[
                ("one", "ones"),
                ("zero", "zeros"),
                ("0", "zeros"),
                ("1", "ones"),
                ("randn", "normal(0.02)"),
                ("random", "normal(0.02)"),
                ("gaussian", "normal(0.02)"),
                ("none", "zeros"),
                ("uniform", "normal(0.02)"),
                ("rand", "normal(0.02)"),
                ("xavier", "normal(0.02)"),
                ("kaiming", "normal(0.02)"),
            ],
            "weights start as `zeros`, `ones` or `normal(deviation)`",
        ),
        (
            &[Rule::version],
            "version of the weights",
            &[
                ("latest", "newest"),
                ("new", "newest"),
                ("current", "newest"),
                ("last", "newest"),
                ("old", "previous"),
                ("stale", "previous"),
                ("sync", "flush"),
            ],
            "versions are `flush`, `previous` and `newest`",
        ),
        (
            &[Rule::offloaded],
            "state to offload",
            &[
                ("weights", "parameters"),
                ("params", "parameters"),
                ("optimizer_state", "optimizer"),
                ("activation", "activations"),
                ("all", "auto"),
            ],
            "the hosts can hold `activations`, `optimizer` and `parameters`, or what `auto` chooses",
        ),
        (
            &[Rule::decay_shape],
            "decay",
            &[("cos", "cosine"), ("line", "linear"), ("lin", "linear")],
            "the learning rate falls along a line (`linear`) or half a `cosine`",
        ),
        (
            &[Rule::decayed],
            "kind of weights",
            &[("matrix", "matrices"), ("weights", "matrices"), ("kernels", "matrices")],
            "the only kind are those with two dimensions or more",
        ),
        (
            &[Rule::kw_synthetic],
            "data",
            &[("random", "synthetic"), ("fake", "synthetic"), ("dummy", "synthetic"), ("none", "synthetic")],
            "data are `synthetic`, or the path of a file in quotes",
        ),
    ];
    let (_, what, words, help) = kinds.iter().find(|(rules, ..)| view.expects(rules))?;
    let meant = words.iter().find(|(other, _)| *other == word).map(|(_, meant)| *meant)?;
    let mut last = view.at;
    if matches!(view.word(1), "(") && meant.ends_with(')') {
        last = view.closer(view.at + 1)?;
    }
    Some(
        Mistake::new(view.range(0), "not known here", format!("unknown {what} `{word}`"))
            .help(format!("{help}: write `{meant}`"))
            .replace(view.span(view.at, last), meant),
    )
}

/// `stages 4` in a pipeline.
fn misplaced(view: &View<'_>) -> Option<Mistake> {
    let (word, within) = (view.word(0), view.within());
    let is_number = matches!(word, "M" | "D") && view.begins_line(view.at);
    if !view.is_between_lines() || !(is_lower(word) || is_number) {
        return None;
    }
    let statement = resume::statement(view);
    let line = if statement.contains(&view.range(0).start) { statement } else { view.range(0) };
    if let Some((.., help)) = ELSEWHERE.iter().find(|(place, words, _)| *place == within && words.contains(&word)) {
        return Some(
            Mistake::new(view.range(0), "not at this place", format!("{} has no `{word}`", within.phrase()))
                .help(*help)
                .remove(line)
                .guess(),
        );
    }
    let place = Within::ALL
        .into_iter()
        .filter(|place| *place != within)
        .find(|place| beginnings(*place).iter().any(|known| known == word))?;
    let message = format!("{} has no `{word}`", within.phrase());
    Some(
        Mistake::new(view.range(0), "not at this place", message)
            .help(format!("`{word}` stands in {}", place.phrase()))
            .remove(line)
            .guess(),
    )
}

/// `pass`, `return` and `end`.
fn superfluous(view: &View<'_>) -> Option<Mistake> {
    let word = view.word(0);
    if !view.is_between_lines() {
        return None;
    }
    let help = match word {
        "pass" | "noop" | "nothing" => "leave it out: braces with nothing between them do nothing",
        "return" | "break" | "continue" => "leave it out: a loop runs as often as its numbers say",
        "end" | "endif" | "endfor" | "done" | "fi" | "begin" => {
            "leave it out: braces begin and end what belongs together"
        }
        "print" | "assert" | "log" | "println" => "leave it out: `pipec check` prints the figures of a schedule",
        _ => return None,
    };
    let end =
        if view.word(1) == "(" { view.closer(view.at + 1).map(|closer| view.span(closer, closer).end) } else { None };
    Some(
        Mistake::new(view.range(0), "not a keyword", format!("unknown keyword `{word}`"))
            .help(help)
            .remove(view.range(0).start..end.unwrap_or(view.range(0).end)),
    )
}
