//! `pipec sample TARGET`: text of a language model, token by token, on the processor.

use crate::Outcome;
use crate::input::{Format, TargetArguments, load, whole_number};
use crate::output::findings::{check_names, json, show};
use crate::output::{Failure, print, warn};
use crate::training::trained::Weights;
use pipe_compiler::prediction::prediction;
use pipe_ir::training::{DataSource, Training};
use pipe_runtime::prediction::{PredictionError, Predictor, Sampler, Sampling};
use pipe_runtime::tokenizer::Tokenizer;
use pipe_syntax::source::Sources;
use serde::Serialize;
use std::borrow::Cow;
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  pipec sample examples/shakespeare.pipe --prompt \"To be\" --tokens 200
  pipec sample examples/shakespeare.pipe --temperature 0          # the most likely token, always
  pipec sample x.pipe --checkpoint checkpoints/x/step-00000300.5aed06ae02a0.safetensors --seed 2
  pipec sample published.pipe --prompt \"Once\" --stop \"<|endoftext|>\"   # with the weights of `init`

Reads the newest checkpoint of the pipeline, as `pipec run --resume` does, or else the weights that
`init` names. The model sees as many tokens as a row has: of a longer text, the last ones.
It runs on the processor, on one thread, whatever the devices of the pipeline.";

/// Name and version of the form.
pub(crate) const SCHEMA: &str = "pipec.sample/1";

/// Arguments of `pipec sample`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    target: TargetArguments,
    /// What the text begins with: text, or ids of tokens between spaces where the data are tokens and no tokenizer is
    /// named
    #[arg(long, value_name = "TEXT", default_value = "\n")]
    prompt: String,
    /// How many tokens are written
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = whole_number::<u64>(0..=u64::MAX))]
    tokens: u64,
    /// What logits are divided by: higher values are more random, and 0 takes the most likely token
    #[arg(long, value_name = "T", default_value_t = 1.0, value_parser = temperature, allow_negative_numbers = true)]
    temperature: f64,
    /// Choose among the most likely tokens that have this probability together
    #[arg(long, value_name = "P", default_value_t = 1.0, value_parser = probability, allow_negative_numbers = true)]
    top_p: f64,
    /// Of the draws: the same seed writes the same text
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole_number::<u64>(0..=u64::MAX))]
    seed: u64,
    /// End where this text has come
    #[arg(long, value_name = "TEXT")]
    stop: Option<String>,
    /// A checkpoint, or a folder with checkpoints, of which the newest is read [default: the folder of the pipeline]
    #[arg(long, value_name = "PATH")]
    checkpoint: Option<PathBuf>,
}

fn temperature(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.parse().ok().filter(|number| (0.0..=100.0).contains(number));
    number.ok_or_else(|| "expected a number from 0 to 100, as in `0.8`".to_owned())
}

fn probability(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.parse().ok().filter(|number| *number > 0.0 && *number <= 1.0);
    number.ok_or_else(|| "expected a number above 0 and up to 1, as in `0.95`".to_owned())
}

/// What was written, for programs.
#[derive(Serialize)]
struct Report {
    schema: &'static str,
    ok: bool,
    name: String,
    /// Where the weights come from.
    weights: String,
    /// Steps that trained them, where that is known.
    step: Option<u64>,
    prompt: String,
    /// What was written behind the prompt.
    text: String,
    /// The same as ids.
    tokens: Vec<i32>,
}

/// What tokens stand for.
enum Encoding {
    /// A byte each.
    Bytes,
    /// What a tokenizer says.
    Text(Box<Tokenizer>),
    /// Nothing that is known.
    Ids,
}

impl Encoding {
    /// Fails if the tokenizer, whose path starts from the folder, cannot be read.
    fn of(training: Option<&Training>, folder: &Path) -> Result<Self, Failure> {
        if let Some(path) = training.and_then(|training| training.tokenizer.as_ref()) {
            let tokenizer = Tokenizer::open(&folder.join(path)).map_err(|error| Failure::Usage(error.to_string()))?;
            return Ok(Self::Text(Box::new(tokenizer)));
        }
        Ok(match training.map(|training| &training.data) {
            Some(DataSource::Bytes(_)) => Self::Bytes,
            Some(
                DataSource::Synthetic | DataSource::Tokens(_) | DataSource::Examples(_) | DataSource::ExamplesOf(_),
            )
            | None => Self::Ids,
        })
    }

    /// The tokens of a prompt. Fails if it has none, or one that the model does not know.
    fn encode(&self, prompt: &str, vocabulary: u64) -> Result<Vec<i32>, Failure> {
        let tokens: Vec<i32> = match self {
            Self::Bytes => prompt.bytes().map(i32::from).collect(),
            Self::Text(tokenizer) => tokenizer.encode(prompt).map_err(Failure::Usage)?,
            // Whatever stands for nothing is a prompt of the first token.
            Self::Ids if prompt.trim().is_empty() => vec![0],
            Self::Ids => {
                let ids = prompt.split_whitespace().map(|word| word.parse().map_err(|_| word));
                ids.collect::<Result<_, _>>().map_err(|word| {
                    Failure::Usage(format!(
                        "`{word}` is no id of a token: the data are tokens, so the prompt is ids, as in `--prompt \"15 8\"`, or `train` names a `tokenizer`"
                    ))
                })?
            }
        };
        let outside = tokens.iter().find(|token| u64::try_from(**token).map_or(true, |token| token >= vocabulary));
        match (outside, tokens.is_empty()) {
            (Some(token), _) => Err(Failure::Usage(format!(
                "the prompt has the token {token}, and the model knows {vocabulary} tokens, from 0 on"
            ))),
            (None, true) => Err(Failure::Usage("the prompt is empty: the model begins behind a text".to_owned())),
            (None, false) => Ok(tokens),
        }
    }
}

/// Writes text token by token. A token may end inside a character, whose bytes then wait for the next one.
struct Writer {
    encoding: Encoding,
    /// Bytes of a character that is not whole.
    rest: Vec<u8>,
    has_ids: bool,
    /// Tokens of a tokenizer: those whose text is out stand first, as many as the number says.
    tokens: Vec<i32>,
    n_out: usize,
}

impl Writer {
    const fn new(encoding: Encoding) -> Self {
        Self { encoding, rest: Vec::new(), has_ids: false, tokens: Vec::new(), n_out: 0 }
    }

    /// What can be read of tokens, with those before.
    fn text(&mut self, tokens: &[i32], is_last: bool) -> String {
        match &self.encoding {
            Encoding::Text(tokenizer) => {
                self.tokens.extend(tokens);
                let out = tokenizer.decode(&self.tokens[..self.n_out]);
                let all = tokenizer.decode(&self.tokens);
                // The last character may still come.
                let Some(text) = all.strip_prefix(&out).filter(|text| is_last || !text.ends_with('\u{fffd}')) else {
                    return String::new();
                };
                // What stands before a token may change how its text begins.
                self.tokens.drain(..self.n_out);
                self.n_out = self.tokens.len();
                text.to_owned()
            }
            Encoding::Ids => {
                let mut text = String::new();
                for token in tokens {
                    text += &format!("{}{token}", if self.has_ids { " " } else { "" });
                    self.has_ids = true;
                }
                text
            }
            Encoding::Bytes => {
                self.rest.extend(tokens.iter().map(|token| u8::try_from(*token).unwrap_or(b'?')));
                characters(&mut self.rest, is_last)
            }
        }
    }
}

/// Writes a piece of text. Whether anybody reads it.
fn told(text: &str) -> Result<bool, Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true).map_err(|error| Failure::Io("standard output".to_owned(), error)),
    }
}

/// As a terminal shows it: what would move the cursor or change colours is replaced.
fn shown(text: &str) -> Cow<'_, str> {
    let is_plain = |character: char| !character.is_control() || matches!(character, '\n' | '\t');
    if !std::io::stdout().is_terminal() || text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    text.chars().map(|own| if is_plain(own) { own } else { char::REPLACEMENT_CHARACTER }).collect()
}

/// Takes whole characters from the front of bytes. What is none becomes the replacement character.
fn characters(bytes: &mut Vec<u8>, is_last: bool) -> String {
    let mut text = String::new();
    let mut taken = 0;
    for chunk in bytes.utf8_chunks() {
        text += chunk.valid();
        taken += chunk.valid().len();
        // The last bytes may be the beginning of a character.
        let is_open =
            taken + chunk.invalid().len() == bytes.len() && chunk.invalid().len() < 4 && is_begun(chunk.invalid());
        if chunk.invalid().is_empty() || is_open && !is_last {
            break;
        }
        text.push(char::REPLACEMENT_CHARACTER);
        taken += chunk.invalid().len();
    }
    bytes.drain(..taken);
    text
}

/// Whether bytes are the beginning of a character.
fn is_begun(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

/// Writes text.
pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let Arguments { target, prompt, tokens: n_tokens, .. } = arguments;
    let mut sources = Sources::default();
    let (root, folder) = target.read()?;
    // A row that is no longer than what is written takes less time.
    let wanted = prompt.len() as u64 + n_tokens;
    let positions = wanted.div_ceil(ROUNDED).max(1) * ROUNDED;
    let request = pipe_compiler::Request::default();
    let choice = pipe_compiler::elaborate::Request { forward_only: true, ..target.request().choice };
    let request = pipe_compiler::Request { choice, ..request };
    let found = prediction(&mut sources, root, &|path| load(&folder, path), &request, Some(positions));
    let (prediction, pipeline) = match found {
        Ok(found) => found,
        Err(found) => {
            check_names(&found)?;
            show(&found, &sources);
            return Ok(Outcome::Rejected);
        }
    };
    let usage = |error: PredictionError| Failure::Usage(error.to_string());
    let training = pipeline.training.as_ref();
    let weights = Weights::find(arguments.checkpoint.as_deref(), (&pipeline.name, training), &target.folder())?;
    let mut predictor = Predictor::new(prediction).map_err(usage)?;
    let step = match &weights {
        Weights::Checkpoint(path) => {
            let taken = predictor.resume(path).map_err(usage)?;
            taken.notes.iter().for_each(|note| warn(note));
            Some(taken.step)
        }
        Weights::Init(path) => {
            let config = training.and_then(|training| training.config.as_deref());
            predictor.fill(path, config).map_err(usage)?;
            None
        }
    };
    let encoding = Encoding::of(training, &target.folder())?;
    let mut tokens = encoding.encode(prompt, predictor.vocabulary())?;
    if predictor.looks_ahead(&tokens).map_err(usage)? {
        warn("what this model predicts depends on later tokens too, which are not there yet: its text is a guess");
    }
    let streams = target.format() == Format::Human;
    let mut writer = Writer::new(encoding);
    if streams {
        print(&shown(&writer.text(&tokens, *n_tokens == 0)))?;
    }
    let n_prompt = tokens.len();
    let mut text = String::new();
    let (temperature, top_p, seed) = (arguments.temperature, arguments.top_p, arguments.seed);
    let mut sampler = Sampler::new(Sampling { temperature, top_p, seed });
    for number in 1..=*n_tokens {
        let token = sampler.choose(&predictor.logits(&tokens).map_err(usage)?);
        tokens.push(i32::try_from(token).unwrap_or(i32::MAX));
        let more = writer.text(&tokens[tokens.len() - 1..], number == *n_tokens);
        text += &more;
        // Whoever read it may have gone, as in `pipec sample .. | head`.
        if streams && !told(&shown(&more))? {
            return Ok(Outcome::Accepted);
        }
        if arguments.stop.as_ref().is_some_and(|stop| text.contains(stop)) {
            break;
        }
    }
    if streams {
        print("\n")?;
        return Ok(Outcome::Accepted);
    }
    let report = Report {
        schema: SCHEMA,
        ok: true,
        name: pipeline.name.clone(),
        weights: weights.words(),
        step,
        prompt: prompt.clone(),
        text,
        tokens: tokens.split_off(n_prompt),
    };
    print(&json(&report)?)?;
    Ok(Outcome::Accepted)
}

/// The length of a row is rounded up to a multiple of this.
const ROUNDED: u64 = 64;

#[cfg(test)]
mod tests {
    use super::{Encoding, Writer};

    #[test]
    fn characters_come_when_they_are_whole() {
        let mut writer = Writer::new(Encoding::Bytes);
        let bytes: Vec<i32> = "aé€😀".bytes().map(i32::from).collect();
        let shown: Vec<String> = bytes.iter().map(|byte| writer.text(&[*byte], false)).collect();
        assert_eq!(shown, ["a", "", "é", "", "", "€", "", "", "", "😀"]);
    }

    #[test]
    fn what_is_no_text_is_replaced() {
        let mut writer = Writer::new(Encoding::Bytes);
        assert_eq!(writer.text(&[0xC3, 0x28, 0xFF, 0x61], false), "\u{fffd}(\u{fffd}a");
        assert_eq!(writer.text(&[0xE2, 0x82], false), "");
        assert_eq!(writer.text(&[], true), "\u{fffd}");
    }

    #[test]
    fn ids_have_spaces_between() {
        let mut writer = Writer::new(Encoding::Ids);
        assert_eq!(writer.text(&[5, 6], false) + &writer.text(&[7], true), "5 6 7");
    }
}
