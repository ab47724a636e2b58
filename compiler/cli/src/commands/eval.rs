//! `pipec eval TARGET`: the loss of trained weights on a file of data, forward only.

use crate::Outcome;
use crate::input::{Format, TargetArguments, load, whole_number};
use crate::output::figures::{duration, grouped, percent};
use crate::output::findings::json;
use crate::output::{Failure, print, print_page, warn};
use crate::ranks::lost::{Origins, ProgramSource};
use crate::ranks::session::Session;
use crate::ranks::{self, RankArguments};
use crate::training::backend::{self, BackendChoice};
use crate::training::evaluation::{Evaluated, evaluate};
use crate::training::trained::Weights;
use crate::training::{self, is_computable};
use pipe_compiler::{Request, elaborate, prediction};
use pipe_ir::program::Program;
use pipe_ir::training::{DataSource, HeldOut};
use pipe_ir::verify::Verified;
use pipe_runtime::checkpoint::{self, Resumption};
use pipe_runtime::data::Data;
use pipe_runtime::windows::Steps;
use pipe_runtime::{Backend, Options, weights};
use pipe_syntax::diagnostic::Severity;
use pipe_syntax::source::Sources;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

const EXAMPLES: &str = "\
Examples:
  pipec eval examples/shakespeare.pipe                 # its validation, or its data
  pipec eval examples/shakespeare.pipe --data val.txt
  pipec eval x.pipe --data val.bin --steps 20 --format json
  pipec eval x.pipe --data images=x.npy --data labels=y.npy
  pipec eval x.pipe --checkpoint checkpoints/x/step-00000300.5aed06ae02a0.safetensors

Reads the newest checkpoint of the pipeline, as `pipec run --resume` does, or else the weights that
`init` names; and the windows of the file in order, without overlap, so that the number is always
the same. It keeps the devices and the schedule of the pipeline, freezes all stages, and saves
nothing.";

/// Name and version of the form.
pub(crate) const SCHEMA: &str = "pipec.eval/1";

/// The most steps that are done where no option says how many.
const MOST_STEPS: u64 = 100;

/// Arguments of `pipec eval`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    target: TargetArguments,
    /// A file of text, of tokens (`.bin`, `.npy`) or of examples (`.safetensors`), or one for each data tensor
    /// (`images=x.npy`) [default: the `validation` of the pipeline, or else its data]
    #[arg(long, value_name = "FILE")]
    data: Vec<String>,
    /// A checkpoint, or a folder with checkpoints, of which the newest is read [default: the folder of the pipeline]
    #[arg(long, value_name = "PATH")]
    checkpoint: Option<PathBuf>,
    /// Steps, whose windows are spread over the file [default: the whole file, or 100 steps of a longer one]
    #[arg(long, value_name = "N", value_parser = whole_number::<u64>(1..=u64::MAX))]
    steps: Option<u64>,
    /// What executes
    #[arg(long, value_parser = BackendChoice::computing(), default_value = "auto")]
    backend: BackendChoice,
    #[command(flatten)]
    ranks: RankArguments,
}

/// What was found.
#[derive(Serialize)]
struct Report {
    schema: &'static str,
    ok: bool,
    name: String,
    /// On what: `cpu` or `cuda`.
    backend: &'static str,
    /// Where the weights come from.
    weights: String,
    /// Steps that trained them, where that is known.
    step: Option<u64>,
    /// What was read.
    data: String,
    /// Mean over what was read, in nats per token where it is a cross-entropy.
    loss: f64,
    /// Where the loss is the cross-entropy of the next token and nothing else.
    perplexity: Option<f64>,
    /// Whether windows are examples.
    #[serde(skip)]
    has_examples: bool,
    /// Windows that were read.
    windows: Option<u64>,
    /// Windows that the data have.
    windows_of_data: Option<u64>,
    /// Tokens that were predicted.
    tokens: u64,
    /// Steps that were done.
    steps: u64,
    seconds: f64,
}

impl Report {
    fn page(&self) -> String {
        let unit = if self.perplexity.is_some() { " nats per token" } else { "" };
        let trained = self.step.map_or_else(String::new, |step| format!(", step {}", grouped(step)));
        let mut page = format!("{} on {}\n\n  loss        {:.4}{unit}\n", self.name, self.data, self.loss);
        if let Some(perplexity) = self.perplexity {
            page += &format!("  perplexity  {perplexity:.2}\n");
        }
        page += &format!("  weights     {}{trained}\n", self.weights);
        let (unit, tokens) = match self.has_examples {
            true => ("example", String::new()),
            false => ("window", format!("{} tokens, ", grouped(self.tokens))),
        };
        let windows = match (self.windows, self.windows_of_data) {
            (Some(1), Some(1)) => format!("the only {unit}, "),
            (Some(read), Some(all)) if read == all => format!("all {} {unit}s, ", grouped(all)),
            (Some(read), Some(all)) => format!("{} of {} {unit}s, ", grouped(read), grouped(all)),
            _ => String::new(),
        };
        let took = duration(1e3 * self.seconds);
        page + &format!("  read        {tokens}{windows}in {took} on {}\n", self.backend)
    }
}

/// What is to be evaluated.
struct Prepared {
    program: Arc<Verified>,
    source: ProgramSource,
    weights: Weights,
    data: Data,
    words: String,
    is_cross_entropy: bool,
}

/// Evaluates. Fails if the target, its data or a checkpoint cannot be read.
pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let Arguments { ranks, target, backend, .. } = arguments;
    ranks::enter(ranks, target, *backend, SCHEMA, |session| arguments.execute(session))
}

impl Arguments {
    fn execute(&self, session: &Session<'_>) -> Result<Outcome, Failure> {
        let prepared = session.agree(self.prepare(session), |prepared| {
            vec![
                ("version of pipec", ranks::agreement::of_option(&env!("CARGO_PKG_VERSION"))),
                ("program", pipe_ir::text::digest(prepared.program.program())),
                ("weights", ranks::agreement::of_option(&prepared.weights.words())),
                ("number of steps (`--steps`)", ranks::agreement::of_option(&self.steps)),
            ]
        })?;
        let Some(Prepared { program, source, weights, data, words, is_cross_entropy }) = prepared else {
            return Ok(Outcome::Rejected);
        };
        let mut backend = session.backend(program.program());
        session.begin(Origins { program: Arc::clone(&program), written: source }, backend);
        let (order, has_examples, began) = (data.order(), data.has_examples(), Instant::now());
        let found = self.evaluate((&program, Arc::new(data)), &weights, &mut backend, session);
        let (step, evaluated) = match found {
            Ok(found) => found,
            Err(failure) => return session.fail(&failure.to_string()),
        };
        if !session.speaks() {
            return Ok(Outcome::Accepted);
        }
        let report = Report {
            schema: SCHEMA,
            ok: true,
            name: program.program().name.clone(),
            backend: backend::name(backend),
            weights: weights.words(),
            step,
            data: words,
            loss: evaluated.loss,
            perplexity: is_cross_entropy.then(|| evaluated.loss.exp()),
            has_examples,
            windows: order.map(|order| order.read()),
            windows_of_data: order.map(|order| order.windows),
            tokens: evaluated.tokens,
            steps: evaluated.steps,
            seconds: began.elapsed().as_secs_f64(),
        };
        if self.target.format() == Format::Json {
            print(&json(&report)?)?;
        } else if !self.target.quiet {
            print_page(&report.page())?;
        }
        Ok(Outcome::Accepted)
    }

    /// Everything that an evaluation needs; nothing if the target is rejected, and that is said. Fails if something
    /// cannot be read, or there are no weights or no data.
    fn prepare(&self, session: &Session<'_>) -> Result<Option<Prepared>, Failure> {
        let request = self.target.request();
        let choice = elaborate::Request { forward_only: true, ..request.choice.clone() };
        let request = Request { program: true, choice, ..request };
        let (mut compilation, sources) = self.target.compile_for(&request)?;
        compilation.diagnostics.retain(|found| found.severity == Severity::Error);
        let Some((program, analysis)) = session.accepted(compilation, &sources)? else { return Ok(None) };
        let source = ProgramSource::Schedule(Box::new(analysis.schedule.clone()), sources);
        let program = Arc::new(program.of_members());
        if !is_computable(program.program()) {
            let message = "there is no model: a pipeline with `model` can be evaluated".to_owned();
            return Err(Failure::Usage(message));
        }
        let (training, folder) = (program.program().training.as_ref(), self.target.folder());
        let weights = Weights::find(self.checkpoint.as_deref(), (&program.program().name, training), &folder)?;
        let (data, words) = self.open(program.program(), &folder)?;
        let is_cross_entropy = self.is_cross_entropy(&request)?;
        Ok(Some(Prepared { program, source, weights, data, words, is_cross_entropy }))
    }

    /// The data, and what they are called. Fails if there are none.
    fn open(&self, program: &Program, folder: &Path) -> Result<(Data, String), Failure> {
        let steps = Steps::AtMost(self.steps.unwrap_or(MOST_STEPS));
        let usage = |error: &dyn std::fmt::Display| Failure::Usage(error.to_string());
        if !self.data.is_empty() {
            let data = Data::in_order(program, &self.source()?, folder, steps).map_err(|error| usage(&error))?;
            return Ok((data, self.data.join(" and ")));
        }
        let Some(training) = &program.training else {
            return Err(Failure::Usage("the pipeline names no data: `--data FILE` does".to_owned()));
        };
        let words = |source: &DataSource| match source {
            DataSource::Synthetic => "synthetic data".to_owned(),
            DataSource::Bytes(_) | DataSource::Tokens(_) | DataSource::Examples(_) | DataSource::ExamplesOf(_) => {
                let paths = source.paths().into_iter().map(|path| folder.join(path).display().to_string());
                paths.collect::<Vec<_>>().join(" and ")
            }
        };
        let held_out = Data::held_out(program, folder, steps).map_err(|error| usage(&error))?;
        match (held_out, training.validation.as_ref().map(|validation| &validation.data)) {
            (Some(data), Some(HeldOut::File(source))) => Ok((data, words(source))),
            (Some(data), Some(HeldOut::Share(share))) => {
                Ok((data, format!("the last {} of {}", percent(*share), words(&training.data))))
            }
            _ => {
                let data = Data::in_order(program, &training.data, folder, steps).map_err(|error| usage(&error))?;
                Ok((data, words(&training.data)))
            }
        }
    }

    /// The files that the options name. Fails if there are several, and one lacks the name of its data tensor.
    fn source(&self) -> Result<DataSource, Failure> {
        // The folder of the pipeline is where its tokenizer is.
        let whole = |path: &str| match std::path::absolute(path) {
            Ok(whole) => Ok(whole.to_string_lossy().into_owned()),
            Err(error) => Err(Failure::Usage(error.to_string())),
        };
        if let [path] = self.data.as_slice()
            && (!path.contains('=') || Path::new(path).exists())
        {
            return Ok(DataSource::of_file(&whole(path)?));
        }
        let named = self.data.iter().map(|option| match option.split_once('=') {
            Some((tensor, path)) => Ok((tensor.to_owned(), whole(path)?)),
            None => {
                let message =
                    format!("`--data {option}` does not say which data tensor it fills: write `--data NAME={option}`");
                Err(Failure::Usage(message))
            }
        });
        named.collect::<Result<_, _>>().map(DataSource::ExamplesOf)
    }

    /// Whether the loss is the cross-entropy of the next token, and nothing else.
    fn is_cross_entropy(&self, request: &Request) -> Result<bool, Failure> {
        // What comes through a pipe can be read once.
        if self.target.target == crate::input::stream::STANDARD_INPUT {
            return Ok(false);
        }
        let (root, folder) = self.target.read()?;
        let mut sources = Sources::default();
        let found = prediction::prediction(&mut sources, root, &|path| load(&folder, path), request, None);
        Ok(found.is_ok_and(|(found, _)| found.is_loss))
    }

    /// Steps that trained the weights, where that is known, and what they lose.
    fn evaluate(
        &self,
        (program, data): (&Arc<Verified>, Arc<Data>),
        weights: &Weights,
        backend: &mut Backend,
        session: &Session<'_>,
    ) -> Result<(Option<u64>, Evaluated), training::Failure> {
        let steps = data.order().map_or(self.steps.unwrap_or(1), |order| order.steps);
        let order = data.order();
        let mut run = session.attempt(backend, |backend| {
            training::start(program, Arc::clone(&data), &Options::new(backend, 0), session.job())
        })?;
        run.notes()?.iter().for_each(|note| warn(note));
        let step = match weights {
            Weights::Checkpoint(path) => {
                let how = Resumption { weights_only: true, ..Resumption::default() };
                let resumed = checkpoint::resume_as(&mut run, path, &how)?;
                resumed.notes.iter().for_each(|note| session.warn(note));
                Some(resumed.saved_step)
            }
            Weights::Init(path) => {
                let notes = weights::fill(&mut run, path)?;
                notes.iter().for_each(|note| session.warn(note));
                None
            }
        };
        let evaluated = evaluate(&mut run, order.as_ref(), steps, !session.is_quiet())?;
        Ok((step, evaluated))
    }
}
