//! Input: the options that every command with a target takes, and where targets come from.

mod foreign;
pub(crate) mod memory;
pub(crate) mod near;
pub(crate) mod stream;

use crate::output::findings::check_names;
use crate::output::{Failure, reason};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, FromArgMatches, ValueEnum};
use memory::Memory;
use near::{near_file, refuse_settings};
use pipe_compiler::cluster::Cluster;
use pipe_compiler::megatron::job::Job;
use pipe_compiler::megatron::layout::Layout;
use pipe_compiler::profile::Profile;
use pipe_compiler::{Certificates, Compilation, Request, elaborate};
use pipe_schedule::policy::activation::Shares;
use pipe_schedule::policy::offload::Wanted;
use pipe_schedule::policy::recompute::Recomputation;
use pipe_schedule::policy::zero::Zero;
use pipe_schedule::timing::costs::StageCosts;
use pipe_syntax::diagnostic::Diagnostics;
use pipe_syntax::source::{Source, Sources};
use pipe_syntax::torch::Runtime;
use pipe_syntax::torch::transport::Transport;
use pipe_syntax::torch::version::Version;
use pipe_syntax::{stdlib, suggest};
use std::io::ErrorKind;
use std::ops::RangeInclusive;
use std::path::{Component, Path, PathBuf};
use stream::STANDARD_INPUT;

/// The options that every command with a target takes.
#[derive(Args, Clone, Debug)]
pub(crate) struct TargetArguments {
    /// A `.pipe` file, a schedule of PyTorch as `.csv`, a schedule of the standard library as
    /// `std:NAME`, or `-` for standard input
    pub(crate) target: String,
    /// Which pipeline, where the file declares several
    #[arg(long, value_name = "NAME")]
    pub(crate) pipeline: Option<String>,
    /// Which schedule, where the file declares several
    #[arg(long, value_name = "NAME", conflicts_with = "pipeline")]
    pub(crate) schedule: Option<String>,
    /// Overrides parameters, such as `devices=8` or `chunks=2,group=4`
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = parse_setting, value_delimiter = ',')]
    settings: Vec<(String, i64)>,
    /// Short for `--set devices=N`
    #[arg(long, value_name = "N", value_parser = count)]
    devices: Option<i64>,
    /// Short for `--set microbatches=N`
    #[arg(long, value_name = "N", value_parser = count)]
    microbatches: Option<i64>,
    /// Durations of one task of one stage in any one unit, such as `F=1,B=1,W=1,comm=0`; of some
    /// stages `F[7]=1.3` or `F[0..4]=2`, between two devices `comm[0-1]=0.5`
    #[arg(long, value_name = "COSTS", value_parser = StageCosts::parse)]
    pub(crate) cost: Option<StageCosts>,
    /// Activation limit of all devices, or of each as in `4,4,3,3`, in units: one device's share of
    /// the activations of one microbatch; or the bytes of each device, as in `30MiB`
    #[arg(long, value_name = "UNITS", value_parser = str::parse::<Memory>, allow_negative_numbers = true)]
    pub(crate) memory: Option<Memory>,
    /// How many units activations take: `F` what a stage saves in its forward, `W` the share of it
    /// that its `W` still needs after its `B`, as in `W=0.366`, `W=11/30` or `W=0.5,F[0]=1.5`
    #[arg(long, value_name = "SHARES", value_parser = str::parse::<Shares>)]
    pub(crate) activation: Option<Shares>,
    /// Stages that run their forward once more for the backward pass, so that they hold less:
    /// `all`, `none`, or stages as in `0..3,5`
    #[arg(long, value_name = "STAGES", value_parser = str::parse::<Recomputation>)]
    pub(crate) recompute: Option<Recomputation>,
    /// What lives in the memory of the hosts and is copied to a device when it is used:
    /// `activations`, `optimizer`, `parameters`, several between commas, `none`, or `auto` for what
    /// makes it fit
    #[arg(long, value_name = "WHAT", value_parser = str::parse::<Wanted>)]
    pub(crate) offload: Option<Wanted>,
    /// What the replicas of a stage divide instead of each keeping all of it, by the stages of
    /// ZeRO: `1` the optimizer's state, `2` gradients too, `3` weights too, `0` nothing
    #[arg(long, value_name = "STAGE", value_parser = str::parse::<Zero>)]
    pub(crate) zero: Option<Zero>,
    /// The layers of each stage of a model from a `config.json`, as Megatron-LM's
    /// `--pipeline-model-parallel-layout` has them: `"Et*3|(t*4|)*6t*3L"`
    #[arg(long, value_name = "LAYOUT", value_parser = str::parse::<Layout>)]
    pub(crate) layout: Option<Layout>,
    /// The target is a model's `config.json`, divided and scheduled as the command that starts Megatron-LM says:
    /// `"torchrun --nnodes 2 --nproc-per-node 8 .. --pipeline-model-parallel-size 4 .."`
    #[arg(long, value_name = "COMMAND", value_parser = str::parse::<Job>, allow_hyphen_values = true)]
    pub(crate) megatron: Option<Job>,
    /// The version of PyTorch that loads the schedule, such as `2.9`, where the target is one in
    /// its form (`.csv`) or is written in it
    #[arg(long, value_name = "VERSION", value_parser = str::parse::<Version>)]
    pub(crate) torch: Option<Version>,
    /// How PyTorch's ranks send to each other, where the target is in its form or is written in it: `eager`, a
    /// communicator for all ranks; `pair`, one for two ranks; `edge`, one for each direction between two
    #[arg(long, value_name = "TRANSPORT", value_parser = str::parse::<Transport>)]
    pub(crate) transport: Option<Transport>,
    /// A report for people, or JSON for programs
    #[arg(long, value_name = "FORMAT", default_value = "human", value_parser = report_formats())]
    format: Format,
    /// Short for `--format json`
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Prints nothing but errors and warnings
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// The options of commands that look at the times of a target.
#[derive(Args, Clone, Debug)]
pub(crate) struct TimedArguments {
    #[command(flatten)]
    pub(crate) target: TargetArguments,
    /// Durations as `pipec profile` measured them; those of `--cost` come before them
    #[arg(long, value_name = "PATH")]
    pub(crate) profile: Option<PathBuf>,
    /// Machines to run on: durations in milliseconds and the memory limit come from this `cluster.toml`
    #[arg(long, value_name = "PATH")]
    pub(crate) cluster: Option<PathBuf>,
    /// The cluster's devices compute at the rates of this profile, whatever layout or model it was measured with
    #[arg(long, value_name = "PATH", requires = "cluster", conflicts_with = "profile")]
    pub(crate) rates: Option<PathBuf>,
}

impl TimedArguments {
    /// What the options ask for, or what speaks against the profile or the cluster. Fails if one of them cannot be
    /// read.
    pub(crate) fn request(&self) -> Result<Result<Request, Box<(Compilation, Sources)>>, Failure> {
        let mut request = self.target.request();
        let rejected = |found: Diagnostics, sources: Sources| {
            Ok(Err(Box::new((Compilation::rejected(&self.target.target, found, &sources), sources))))
        };
        if let Some(path) = &self.profile {
            match Profile::read(source(path)?) {
                Ok(profile) => request.profile = Some(profile),
                Err(wrong) => return rejected(vec![wrong.0], wrong.1),
            }
        }
        if let Some(path) = &self.cluster {
            match cluster(path, self.rates.as_deref())? {
                Ok(cluster) => request.cluster = Some(cluster),
                Err(wrong) => return rejected(wrong.0, wrong.1),
            }
        }
        Ok(Ok(request))
    }

    /// The same options for a pipeline of the target.
    pub(crate) fn of_pipeline(&self, name: &str) -> Self {
        let target = TargetArguments { pipeline: Some(name.to_owned()), ..self.target.clone() };
        Self { target, ..self.clone() }
    }

    /// The files that these options name.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        let target = Some(Path::new(&self.target.target)).filter(|_| !self.target.target.starts_with("std:"));
        let others = [&self.profile, &self.cluster, &self.rates].into_iter().flatten().map(PathBuf::as_path);
        target.into_iter().chain(others)
    }

    /// Compiles the target, or only proves what holds for every number of microbatches. Fails if the target, the
    /// profile or the cluster cannot be read, or the target names no schedule of the standard library.
    pub(crate) fn compile(&self, certificate: Certificates) -> Result<(Compilation, Sources), Failure> {
        match self.request()? {
            Ok(request) => self.target.compile_for(&Request { certificate, ..request }),
            Err(rejected) => Ok(*rejected),
        }
    }

    /// Compiles the target, which must have a program.
    ///
    /// # Errors
    /// As [`Self::compile`].
    pub(crate) fn compile_program(&self) -> Result<(Compilation, Sources), Failure> {
        match self.request()? {
            Ok(request) => self.target.compile_for(&Request { program: true, ..request }),
            Err(rejected) => Ok(*rejected),
        }
    }
}

/// The machines of a file, with devices that compute at the rates of a profile if one is named; or what is wrong with
/// either. Fails if a file cannot be read.
pub(crate) fn cluster(
    path: &Path,
    rates: Option<&Path>,
) -> Result<Result<Cluster, Box<(Diagnostics, Sources)>>, Failure> {
    let cluster = Cluster::read(source(path)?);
    let Some(profile) = rates.map(source).transpose()? else { return Ok(cluster) };
    Ok(cluster.and_then(|cluster| {
        let calibrated = Profile::read(profile).and_then(|profile| profile.calibrate(cluster));
        calibrated.map_err(|wrong| Box::new((vec![wrong.0], wrong.1)))
    }))
}

/// A file that an option names. Fails if it cannot be read.
pub(crate) fn source(path: &Path) -> Result<Source, Failure> {
    let name = path.display().to_string();
    match stream::source_text(&path.to_string_lossy()) {
        Ok(text) => Ok(Source { name, text }),
        Err(error) => Err(Failure::Io(name, error)),
    }
}

/// Who reads the report.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Format {
    /// For people
    Human,
    /// For programs
    Json,
    /// For code review: SARIF 2.1.0
    Sarif,
}

/// The formats of commands whose output is more than findings.
fn report_formats() -> impl TypedValueParser<Value = Format> {
    PossibleValuesParser::new([Format::Human, Format::Json].iter().filter_map(Format::to_possible_value))
        .map(|name| Format::from_str(&name, false).expect("it is one of the two"))
}

/// A number of seconds. Fails if the text has another form.
pub(crate) fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds: Option<f64> = text.parse().ok().filter(|seconds| (0.0..=1e9).contains(seconds));
    seconds.ok_or_else(|| "expected a number of seconds, as in `10` or `0.5`".to_owned())
}

/// A whole number in a range.
pub(crate) fn whole_number<T: TryFrom<u64>>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number: u64 = text.trim().parse().map_err(|_| "expected a whole number, as in `8`".to_owned())?;
        let fits = T::try_from(number).ok().filter(|_| range.contains(&number));
        fits.ok_or_else(|| match *range.end() {
            u64::MAX => format!("expected {} or more", range.start()),
            end => format!("expected a number from {} to {end}", range.start()),
        })
    }
}

/// A number of devices or microbatches.
fn count(text: &str) -> Result<i64, String> {
    whole_number(1..=u64::from(u32::MAX))(text)
}

const EXPECTED_SETTING: &str = "expected NAME=VALUE, as in `devices=8`";

fn parse_setting(text: &str) -> Result<(String, i64), String> {
    let (name, value) = text.split_once('=').ok_or(EXPECTED_SETTING)?;
    let (name, value) = (name.trim(), value.trim());
    if name.is_empty() || value.is_empty() {
        return Err(EXPECTED_SETTING.to_owned());
    }
    let value = value.parse().map_err(|_| format!("expected a whole number for `{name}`, found `{value}`"))?;
    Ok((name.to_owned(), value))
}

impl TargetArguments {
    /// Who reads the report.
    pub(crate) fn format(&self) -> Format {
        if self.json { Format::Json } else { self.format }
    }

    /// The same options with another target.
    pub(crate) fn with_target(&self, target: &str) -> Self {
        Self { target: target.to_owned(), ..self.clone() }
    }

    /// The target without options, but for how its report is written.
    pub(crate) fn report_as(&mut self, other: &Self) {
        (self.format, self.json, self.quiet) = (other.format, other.json, other.quiet);
    }

    /// Fails if options of a source stand beside a program, which is compiled already.
    pub(crate) fn beside_program(&self) -> Result<(), Failure> {
        let parsed = Self::augment_args(clap::Command::new("run")).try_get_matches_from(["run", "--", &self.target]);
        let plain = parsed.and_then(|matches| Self::from_arg_matches(&matches));
        let mut plain = plain.map_err(|error| Failure::Bug(error.to_string()))?;
        plain.report_as(self);
        if format!("{plain:?}") == format!("{self:?}") {
            return Ok(());
        }
        let message = format!("`{}` is compiled already: give options of its source to `pipec build`", self.target);
        Err(Failure::Usage(message))
    }

    /// Parameters that have an option of their own, with its value where it is used.
    fn short_settings(&self) -> impl Iterator<Item = (&'static str, i64)> {
        let short = [("devices", self.devices), ("microbatches", self.microbatches)];
        short.into_iter().filter_map(|(name, value)| Some((name, value?)))
    }

    /// Values for parameters. A later one counts.
    fn settings(&self) -> Vec<(String, i64)> {
        let short = self.short_settings().map(|(name, value)| (name.to_owned(), value));
        self.settings.iter().cloned().chain(short).collect()
    }

    /// Fails if `--set` says of a parameter what its own option does not say.
    fn check_settings(&self) -> Result<(), Failure> {
        for (name, short) in self.short_settings() {
            let mut set = self.settings.iter().filter(|(other, _)| other == name);
            if let Some((_, set)) = set.next_back().filter(|(_, set)| *set != short) {
                let message =
                    format!("`--{name} {short}` and `--set {name}={set}` contradict each other: leave one out");
                return Err(Failure::Usage(message));
            }
        }
        Ok(())
    }

    /// The phases of the pipeline that is asked for, which are pipelines of their own. Empty if it has none, and if
    /// the target is no `.pipe` file. Fails as [`Self::compile_for`] does.
    pub(crate) fn phases(&self) -> Result<Vec<String>, Failure> {
        // What is no file is read once, by who compiles it.
        let is_source = self.target.ends_with(".pipe") && Path::new(&self.target).is_file();
        if !is_source || self.schedule.is_some() || self.megatron.is_some() {
            return Ok(Vec::new());
        }
        let (root, folder) = self.read()?;
        Ok(pipe_compiler::phases::names(root, &|path| load(&folder, path), self.pipeline.as_deref()))
    }

    /// Compiles the target as it is asked for. Fails if the target cannot be read, or the command line names something
    /// that is not there: a standard schedule, a declaration or a parameter.
    pub(crate) fn compile_for(&self, request: &Request) -> Result<(Compilation, Sources), Failure> {
        let mut sources = Sources::default();
        let (root, folder) = self.read()?;
        let compilation = pipe_compiler::compile(&mut sources, root, &|path| load(&folder, path), request);
        check_names(&compilation.diagnostics)?;
        Ok((compilation, sources))
    }

    /// What the options ask for.
    pub(crate) fn request(&self) -> Request {
        Request {
            choice: elaborate::Request {
                pipeline: self.pipeline.clone(),
                schedule: self.schedule.clone(),
                settings: self.settings(),
                recompute: self.recompute.clone(),
                activation: self.activation.clone(),
                offload: self.offload,
                zero: self.zero,
                layout: self.layout.clone(),
                ..elaborate::Request::default()
            },
            costs: self.cost.clone(),
            memory: self.memory.as_ref().and_then(Memory::units).cloned(),
            device_memory: self.memory.as_ref().and_then(Memory::bytes),
            torch: self.runtime(),
            megatron: self.megatron.clone(),
            ..Request::default()
        }
    }

    /// The PyTorch that is to run a table.
    pub(crate) fn runtime(&self) -> Runtime {
        Runtime { version: self.torch, transport: self.transport }
    }

    /// The folder that paths in the target are relative to.
    pub(crate) fn folder(&self) -> PathBuf {
        let parent = Path::new(&self.target).parent().filter(|_| !self.target.starts_with("std:"));
        parent.map(Path::to_owned).unwrap_or_default()
    }

    /// The target's text, and the folder that its imports are relative to. Fails if it cannot be read, or names no
    /// schedule of the standard library, or if options contradict each other.
    pub(crate) fn read(&self) -> Result<(Source, PathBuf), Failure> {
        self.check_settings()?;
        let here = PathBuf::from(".");
        if let Some(name) = self.target.strip_prefix("std:") {
            let text = standard(name)?.to_owned();
            return Ok((Source { name: self.target.clone(), text }, here));
        }
        if self.target.ends_with(".ir") {
            let message = format!("{}: a program in the instruction form; `check` and `run` take it", self.target);
            return Err(Failure::Usage(message));
        }
        if self.target == STANDARD_INPUT {
            return Ok((standard_input()?, here));
        }
        let text = stream::source_text(&self.target);
        let is_missing = text.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound);
        if is_missing && stdlib::schedule(&self.target).is_some() {
            let name = &self.target;
            return Err(Failure::Usage(format!("there is no file `{name}`; did you mean `std:{name}`?")));
        }
        let whole = format!("{}.pipe", self.target);
        if is_missing && Path::new(&whole).exists() {
            return Err(Failure::Usage(format!("there is no file `{}`; did you mean `{whole}`?", self.target)));
        }
        if is_missing {
            refuse_settings([&self.target])?;
        }
        if let Some(near) = near_file(Path::new(&self.target)).filter(|_| is_missing) {
            return Err(Failure::Usage(format!("there is no file `{}`; did you mean `{near}`?", self.target)));
        }
        let text = text.map_err(|error| Failure::Io(self.target.clone(), error))?;
        let folder = Path::new(&self.target).parent().map(Path::to_owned).unwrap_or(here);
        let Some(job) = &self.megatron else {
            return match foreign::about(&self.target, &text) {
                Some(message) => Err(Failure::Usage(message)),
                None => Ok((Source { name: self.target.clone(), text }, folder)),
            };
        };
        let config = Path::new(&self.target).file_name().map(|name| name.to_string_lossy().into_owned());
        let config = config.filter(|name| name.ends_with(".json")).ok_or_else(|| {
            let message = "`--megatron` divides the model of a `config.json`: name that file as the target";
            Failure::Usage(message.to_owned())
        })?;
        let text = job.source(&config, &text).map_err(|wrong| Failure::Usage(format!("`--megatron`: {wrong}")))?;
        Ok((Source { name: "job.pipe".to_owned(), text }, folder))
    }
}

/// What comes from standard input. Fails if it cannot be read.
pub(crate) fn standard_input() -> Result<Source, Failure> {
    let text = stream::source_text(STANDARD_INPUT);
    let text = text.map_err(|error| Failure::Io("standard input".to_owned(), error))?;
    Ok(Source { name: "<stdin>".to_owned(), text })
}

/// The text of a standard schedule. Fails if there is none with this name.
pub(crate) fn standard(name: &str) -> Result<&'static str, Failure> {
    stdlib::schedule(name).ok_or_else(|| {
        let asked = suggest::question(name, stdlib::SCHEDULES.iter().map(|(name, _)| *name));
        let asked = asked.map_or_else(String::new, |question| format!("{question} "));
        Failure::Usage(format!("the standard library has no schedule `{name}`; {asked}`pipec std` lists all"))
    })
}

/// Reads an imported file. Imports stay below the root file's folder.
pub(crate) fn load(folder: &Path, path: &str) -> Result<String, String> {
    let relative = Path::new(path);
    if !relative.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
        return Err("imports stay below the folder of the importing file".to_owned());
    }
    stream::import(&folder.join(relative)).map_err(|error| {
        let near = if error.kind() == ErrorKind::NotFound { near_file(&folder.join(relative)) } else { None };
        let name = near.as_ref().and_then(|near| Path::new(near).file_name());
        match name.map(|name| relative.with_file_name(name)) {
            Some(near) => format!("{}; did you mean `{}`?", reason(&error), near.display()),
            None => reason(&error),
        }
    })
}
