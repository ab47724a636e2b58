//! The options of a command line that matter for the pipeline, with their values.

use pipe_syntax::suggest;
use std::collections::BTreeMap;

/// Options with a value, of Megatron-LM and of launchers.
const VALUES: [&str; 19] = [
    "context-parallel-size",
    "decoder-first-pipeline-num-layers",
    "decoder-last-pipeline-num-layers",
    "expert-model-parallel-size",
    "global-batch-size",
    "micro-batch-size",
    "microbatch-group-size-per-virtual-pipeline-stage",
    "nnodes",
    "nproc-per-node",
    "num-layers",
    "num-layers-per-virtual-pipeline-stage",
    "num-virtual-stages-per-pipeline-rank",
    "pipeline-model-parallel-layout",
    "pipeline-model-parallel-size",
    "recompute-granularity",
    "recompute-method",
    "recompute-num-layers",
    "seq-length",
    "tensor-model-parallel-size",
];

/// Options without one.
const SWITCHES: [&str; 7] = [
    "account-for-embedding-in-pipeline-split",
    "account-for-loss-in-pipeline-split",
    "no-overlap-p2p-communication",
    "overlap-moe-expert-parallel-comm",
    "recompute-activations",
    "sequence-parallel",
    "use-distributed-optimizer",
];

/// What a launcher is told by the environment: `WORLD_SIZE=128`.
const WORLD: &str = "WORLD_SIZE";

/// Options by name, without dashes; switches have no value.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Options {
    values: BTreeMap<String, Option<String>>,
}

impl Options {
    /// Reads a command as a shell does. Where an option stands twice, the later one counts.
    ///
    /// # Errors
    /// If a quote is not closed, a value is missing, an option is nearly one of these, or none of the options says
    /// how a job is divided.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let words = shlex::split(text).ok_or("a quote is not closed")?;
        let mut options = Self::default();
        let mut words = words.into_iter().peekable();
        while let Some(word) = words.next() {
            if let Some((WORLD, value)) = word.split_once('=') {
                options.values.insert(WORLD.to_owned(), Some(value.to_owned()));
            }
            let Some(option) = word.strip_prefix("--") else { continue };
            let (name, inline) = option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
            let name = name.replace('_', "-");
            if SWITCHES.contains(&name.as_str()) {
                options.values.insert(name, None);
            } else if VALUES.contains(&name.as_str()) {
                let next = || words.next_if(|word| !word.starts_with("--"));
                let value = inline.map(str::to_owned).or_else(next).filter(|value| !value.trim().is_empty());
                let value = value.ok_or_else(|| format!("`--{name}` has no value"))?;
                options.values.insert(name, Some(value));
            } else if let Some(known) = suggest::slip(&name, VALUES.into_iter().chain(SWITCHES)) {
                return Err(format!("`--{name}` is not an option of Megatron-LM: did you mean `--{known}`?"));
            }
        }
        if options.values.is_empty() {
            return Err(
                "none of these options says how a job is divided, as `--pipeline-model-parallel-size 8`".to_owned()
            );
        }
        Ok(options)
    }

    /// Whether an option is there.
    pub(super) fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// The value of an option.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.values.get(name)?.as_deref()
    }

    /// The value of an option that takes a number from 1 on.
    ///
    /// # Errors
    /// If it is something else.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, String> {
        let number = |text: &str| text.parse().ok().filter(|number| (1..=u64::from(u32::MAX)).contains(number));
        let read = |text: &str| {
            let hint = if text.contains('$') { ": variables of the shell are not known here" } else { "" };
            number(text).ok_or_else(|| format!("expected a number from 1 on for `--{name}`, found `{text}`{hint}"))
        };
        self.value(name).map(read).transpose()
    }

    /// The processes of the job, one for each GPU, if that is said.
    pub(super) fn world(&self) -> Result<Option<u64>, String> {
        if let Some(text) = self.value(WORLD) {
            let world = text.parse().ok().filter(|world| (1..=u64::from(u32::MAX)).contains(world));
            return world.map(Some).ok_or_else(|| format!("expected a number from 1 on for `{WORLD}`, found `{text}`"));
        }
        let (nodes, of_each) = (self.number("nnodes")?, self.number("nproc-per-node")?);
        Ok(of_each.map(|of_each| of_each.saturating_mul(nodes.unwrap_or(1))))
    }
}
