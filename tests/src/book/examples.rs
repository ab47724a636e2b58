//! `docs/examples.md`: the files of `examples/` as they are.

use crate::cases::{files, read, root};
use std::fmt::Write;

/// Opens the page.
const HEAD: &str = "# Examples

The files of the folder `examples/`, as they are; `cargo bless` writes them here again. `pipec check examples/NAME.pipe` proves one, and `pipec run examples/NAME.pipe` trains it, if its model is of the language.
";

/// An example with its picture in `docs/images/book/`, and the options to draw it where no other page does.
struct Picture {
    example: &'static str,
    image: &'static str,
    options: Option<&'static str>,
    words: &'static str,
}

const fn drawn(example: &'static str, options: &'static str, words: &'static str) -> Picture {
    Picture { example, image: example, options: Some(options), words }
}

const fn shared(example: &'static str, image: &'static str, words: &'static str) -> Picture {
    Picture { example, image, options: None, words }
}

const PICTURES: &[Picture] = &[
    shared("adapipe", "adapipe", "1F1B that recomputes attention on two devices"),
    shared("bpipe", "bpipe", "1F1B whose activations wait on other devices"),
    drawn("by_hand", " --set microbatches=10 --set wave=3", "Waves of three microbatches: no device holds more"),
    drawn("decode", "", "A token of each of four groups in turn: no device waits"),
    shared("early_gathers", "early_gathers", "Weights come while the stage before runs"),
    shared("early_sums", "early_sums", "Sums of gradients on the link of their device"),
    shared("experts", "experts", "1F1B whose all-to-alls hide behind compute"),
    drawn("experts_interleaved", "", "Interleaved 1F1B: pairs hide each other's all-to-alls"),
    shared("frozen", "frozen", "ZB-H1 whose first two stages are frozen"),
    drawn("packed", "", "ZB-H1 whose microbatches differ in length"),
    drawn("permuted", "", "1F1B whose stage 1 lives on device 3"),
    shared("first_schedule", "first_schedule", "1F1B on four devices"),
    shared("llama3_70b", "cluster", "Llama 3 70B on the machines of cluster.toml, with the memory of each device"),
    drawn("mixture", "", "1F1B of a model of experts: what they exchange has a lane"),
    shared("mlp", "mlp", "Two devices, with the operations of the model as times"),
    drawn(
        "offload_activations",
        " --show copies,memory",
        "Activations leave a device for a while: copies hide behind tasks",
    ),
    shared("recompute", "recompute", "1F1B in which every stage recomputes (R)"),
    drawn("recompute_some", "", "1F1B whose first stage recomputes every other microbatch (R)"),
    shared("reinforce", "reinforce", "A step of three phases"),
    drawn("terapipe", "", "Four slices of unequal length, on four devices"),
    drawn("tied", "", "V-Half: the first and the last stage are on the same device"),
    drawn("two_tower", "", "Two towers run at the same time, and the decoder reads both"),
    drawn("uneven", "", "1F1B on two fast and two slow devices"),
    shared("unet", "unet", "Tensors skip devices on their way"),
    shared("vocabulary", "vocabulary", "1F1B whose vocabulary is divided over all devices"),
    shared("vocabulary_one_barrier", "vocabulary_one_barrier", "Vocabulary parallelism with one barrier"),
    shared("zero", "zero", "Four replicas that divide state and gradients"),
];

/// The picture of an example; nothing where there is none.
fn picture(name: &str) -> String {
    let Some(Picture { image, options, words, .. }) = PICTURES.iter().find(|picture| picture.example == name) else {
        return String::new();
    };
    let command = options.map(|options| format!("<!-- pipec plot examples/{name}.pipe{options} -->\n"));
    format!("{}![{words}](images/book/{image}.svg)\n\n", command.unwrap_or_default())
}

/// The page.
#[must_use]
pub fn page() -> String {
    let mut text = HEAD.to_owned();
    for path in files(&root().join("examples"), "pipe") {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let _ = write!(text, "\n## {name}\n\n{}```pipe\n{}```\n", picture(&name), read(&path));
    }
    text
}
