//! The reference of single words: what the grammar says of a keyword, and what names mean that nobody declares.

/// The text of the grammar, whose comments are the reference.
const GRAMMAR: &str = include_str!("../../../grammar/pipe.pest");
/// The most rules that are told of one word.
const TOLD: usize = 3;

/// Names that are there without a declaration, with what they mean.
pub const CONSTANTS: [(&str, &str); 4] = [
    ("D", "The number of devices: `devices` of a pipeline or `--set devices=..`, and 4 where nothing says it."),
    (
        "M",
        "The number of microbatches of a step: `microbatches` of a pipeline or `--set microbatches=..`, and 8 where nothing says it.",
    ),
    ("S", "The number of stages, as `stages` says it."),
    ("Q", "The number of slices of a microbatch, in a schedule with `slices`."),
];

/// Kinds of tasks, with what they mean.
pub const KINDS: [(&str, &str); 5] = [
    ("F", "Forward of a stage, for one microbatch."),
    ("B", "Backward for the input only: the gradient of the activation. Each `B` needs its `W`."),
    ("W", "Backward for the weights only."),
    ("BW", "Both halves of the backward at once."),
    ("R", "Recomputes the forward of a stage before its backward."),
];

/// Functions of schedules: name, usage and description. [`functions`] has those of layers.
pub const NUMBERS: [(&str, &str, &str); 3] = [
    ("min", "min(x, y, ..)", "The smallest of some numbers."),
    ("max", "max(x, y, ..)", "The largest of some numbers."),
    ("abs", "abs(x)", "A number without its sign."),
];

/// Words that are neither keywords nor names, with what they mean.
const VALUES: [(&str, &str); 22] = [
    ("i32", "Whole numbers of 32 bits, such as tokens."),
    ("f32", "Single precision: 4 bytes for each number."),
    ("f64", "Double precision: 8 bytes for each number, and more than twice the time."),
    (
        "bf16",
        "Mixed precision: activations, messages and matrix products take 2 bytes (bfloat16). Sums, weights, gradients \
         and the optimizer's state stay in single precision.",
    ),
    ("flush", "All microbatches of a step read the same weights; the update waits until the pipeline is empty."),
    ("previous", "Tasks read the weights of the step before."),
    ("newest", "Tasks read the newest weights that are there when they start."),
    ("activations", "What forwards keep for backwards is with the host where no task uses it for a while."),
    ("optimizer", "The optimizer's state lives with the host, and comes to the device for the update."),
    ("parameters", "The weights live with the host, and come for each task of their stage that finds them gone."),
    ("comm", "The latency of a transfer between two devices. `comm[0-1]` sets it for one link."),
    ("copy", "What a copy of 1 MiB between a device and its host takes."),
    ("evict", "An activation leaves for where `swap` says. With `cost`: how long that takes."),
    ("fetch", "An activation comes back from where `swap` says. With `cost`: how long that takes."),
    (
        "reduce",
        "A device joins the sum of the gradients of a stage. On a lane: such sums take turns there. With `cost`: how long each takes.",
    ),
    ("send", "What a device sends takes turns on this lane."),
    ("update", "The weights of a stage are updated: the device waits for the sum of its gradients."),
    ("shuffled", "Every window of the file comes once, in an order that follows from the seed; then all come anew."),
    ("linear", "The learning rate falls along a straight line."),
    ("cosine", "The learning rate falls along half a period of a cosine."),
    ("matrices", "Weights with two dimensions or more decay; gains of norms and biases do not."),
    ("gather", "A device joins the next all-gather of a stage's weights, where `zero 3` divides them."),
];

/// Functions of layers, with their arguments and what they give.
pub fn functions() -> impl Iterator<Item = (&'static str, String, &'static str)> {
    pipe_model::functions()
}

/// What a word means that is neither a keyword nor a name.
pub fn value(word: &str) -> Option<&'static str> {
    VALUES.iter().find(|(name, _)| *name == word).map(|(_, text)| *text)
}

/// What a function gives: of layers, or of schedules and all else.
pub fn function(name: &str, of_tensors: bool) -> Option<String> {
    let told = |usage: &str, doc: &str| format!("`{usage}`\n\n{doc}");
    let tensors = || functions().find(|(known, ..)| *known == name).map(|(_, usage, doc)| told(&usage, doc));
    let numbers = || NUMBERS.iter().find(|(known, ..)| *known == name).map(|(_, usage, doc)| told(usage, doc));
    if of_tensors { tensors().or_else(numbers) } else { numbers().or_else(tensors) }
}

/// Every rule with its comment and what it consists of.
fn rules() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let mut comment = "";
    GRAMMAR.lines().filter_map(move |line| {
        if let Some(text) = line.strip_prefix("/// ") {
            comment = text;
            return None;
        }
        let (name, body) = line.split_once(" = ")?;
        Some((name, comment, body))
    })
}

/// Words of the language that are neither keywords nor names: versions of weights, types, what lives with hosts.
pub fn words() -> impl Iterator<Item = &'static str> {
    let whole = rules().filter(|(name, _, body)| !name.starts_with("kw_") && body.starts_with("@{ (\""));
    whole.flat_map(|(.., body)| body.split('"').skip(1).step_by(2))
}

/// Every keyword, in the order of the grammar.
pub fn keywords() -> impl Iterator<Item = &'static str> {
    rules().filter_map(|(name, ..)| name.strip_prefix("kw_"))
}

/// What the grammar says of the rules with a keyword, those that it begins before others; none where it is no keyword.
pub fn keyword(word: &str) -> Option<String> {
    keywords().find(|keyword| *keyword == word)?;
    let mark = format!("kw_{word}");
    let place = |body: &str| {
        body.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .filter(|part| !part.is_empty())
            .position(|part| part == mark)
    };
    let mut found: Vec<(usize, &str)> =
        rules().filter_map(|(_, comment, body)| place(body).map(|place| (place.min(1), comment))).collect();
    found.sort_by_key(|(place, _)| *place);
    let lines: Vec<String> = found.iter().take(TOLD).map(|(_, comment)| (*comment).to_owned()).collect();
    Some(lines.join("\n\n"))
}

/// What the grammar says of a rule.
pub(crate) fn rule(name: &str) -> Option<String> {
    rules().find(|(known, ..)| *known == name).map(|(_, comment, _)| comment.to_owned())
}

/// What the language says of a word.
pub fn described(word: &str) -> Option<String> {
    let own = KINDS.iter().chain(&CONSTANTS).find(|(name, _)| *name == word).map(|(_, text)| (*text).to_owned());
    own.or_else(|| function(word, false)).or_else(|| keyword(word)).or_else(|| value(word).map(str::to_owned))
}
