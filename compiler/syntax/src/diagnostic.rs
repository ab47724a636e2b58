//! Diagnostics: the list of errors and what one of them says. Drawn by miette in the command line.

use crate::source::Span;
use crate::suggest;
use serde::Serialize;
use std::fmt;

/// Declares every code once: its name in kebab-case; its page is `explain/<name>.md`.
macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident $name:literal)*) => {
        /// Every error and warning that a source can cause. Names are never reused.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Code { $($(#[$doc])* $variant),* }

        impl Code {
            /// All codes, in the order of their declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The name that users see.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// The page that `pipec explain` prints.
            pub const fn page(self) -> &'static str {
                match self { $(Self::$variant => include_str!(concat!("explain/", $name, ".md"))),* }
            }
        }
    };
}

codes! {
    /// The text is not of the language's form.
    Syntax "syntax"
    /// An imported file cannot be read.
    ImportFailed "import-failed"
    /// Files import each other in a cycle.
    ImportCycle "import-cycle"
    /// Two declarations have the same name.
    DuplicateName "duplicate-name"
    /// A name that nothing declares, or nothing where it is used.
    UnknownName "unknown-name"
    /// Values for parameters that do not exist, or none for those that need one.
    WrongArguments "wrong-arguments"
    /// A condition where a number is wanted, or the other way round.
    WrongType "wrong-type"
    /// A definition uses itself.
    CyclicDefinition "cyclic-definition"
    /// A declaration lacks a line that it needs.
    MissingItem "missing-item"
    /// A declaration says twice what it can say once.
    RepeatedItem "repeated-item"
    /// A number is divided by zero, or leaves the range of 64 bits.
    Arithmetic "arithmetic"
    /// A number that makes no sense where it is used.
    OutOfRange "out-of-range"
    /// More nesting, tasks, stages, devices or bytes of text than the compiler accepts.
    TooLarge "too-large"
    /// A schedule does not allow these parameters.
    ConditionFailed "condition-failed"
    /// A building block has no free slot for a task.
    NoFreeSlot "no-free-slot"
    /// Weights change while microbatches are under way, and the schedule is not a block that runs on.
    WeightsNeedBlock "weights-need-block"
    /// The version of the weights that a task must read is made after the task starts.
    VersionTooLate "version-too-late"
    /// A file declares several pipelines or schedules, or none that was asked for.
    UnclearTarget "unclear-target"
    /// The search has no order to choose.
    CannotSearch "cannot-search"
    /// `pipec tune` is asked to divide something of which it does not know how.
    CannotTune "cannot-tune"
    /// The search leaves out what a target has: pairs of tasks that share a device.
    PairsLeftOut "pairs-left-out"
    /// A cost that no task or pair of the schedule takes.
    UnusedCost "unused-cost"
    /// Two tensors do not fit, or one does not fit its use.
    ShapeMismatch "shape-mismatch"
    /// Something that a layer declares has no effect.
    UnusedTensor "unused-tensor"
    /// The layers of a model do not form a chain from data to loss.
    BrokenChain "broken-chain"
    /// A model has fewer layers than the schedule has stages.
    TooFewLayers "too-few-layers"
    /// `tensor` puts devices behind each device, and they cannot divide its tensors.
    CannotSplit "cannot-split"
    /// `data` puts pipelines side by side, and what they have cannot stand several times.
    CannotReplicate "cannot-replicate"
    /// A pipeline gives its stages other numbers of layers than the model and the schedule have.
    WrongCut "wrong-cut"
    /// A task of a frozen stage, which has none of its kind, or a weight that it shares with a stage that trains.
    FrozenTask "frozen-task"
    /// A `config.json` that cannot be read, or divided as asked.
    UnusableConfig "unusable-config"
    /// A profile that cannot be read, or is about another target.
    UnusableProfile "unusable-profile"
    /// A cluster that cannot be read, or that a target does not run on.
    UnusableCluster "unusable-cluster"
    /// The times of a model with experts leave out what makes up much of its step.
    ExpertsNotModelled "experts-not-modelled"
    /// Data that cannot feed a model, or files of a training that cannot be opened.
    UnusableData "unusable-data"
    /// A model from a `config.json` has no tensor graph, which something needs.
    NoTensorGraph "no-tensor-graph"
    /// A model cannot be cut into slices along its sequence.
    UncutSequence "uncut-sequence"
    /// What is to live in the memory of hosts is not there, or cannot leave the devices.
    CannotOffload "cannot-offload"
    /// What devices are to divide among them is not there, or is not divided.
    CannotShard "cannot-shard"
    /// Gradients have no norm before the weights change.
    CannotClip "cannot-clip"
    /// A stage that lives on several devices at once has no instructions.
    UndividedStage "undivided-stage"
    /// A task that every step needs is not in the schedule.
    MissingTask "missing-task"
    /// A stage computes input gradients and never weight gradients.
    MissingWeightGradient "missing-weight-gradient"
    /// A task is in the schedule twice.
    DuplicateTask "duplicate-task"
    /// A task of a microbatch that a step does not have.
    TaskOutside "task-outside"
    /// A microbatch takes both the fused and the split backward of a stage.
    MixedBackward "mixed-backward"
    /// Two tasks cannot share a device.
    WrongPair "wrong-pair"
    /// A part that does not exist, or cannot be what its line says.
    WrongPart "wrong-part"
    /// An activation is evicted or fetched where its device does not have it, or cannot wait where its stage says.
    WrongSwap "wrong-swap"
    /// A sum of gradients or an update has a place where it cannot be.
    WrongReduce "wrong-reduce"
    /// A stage is placed on a device that does not exist.
    StageOffDevices "stage-off-devices"
    /// A task is in the order of a device that its stage does not live on.
    WrongDevice "wrong-device"
    /// A device has no stage.
    UnusedDevice "unused-device"
    /// A `gather` that says nothing about any all-gather.
    UnusedGather "unused-gather"
    /// No part is on a lane.
    UnusedLane "unused-lane"
    /// Two tasks of a building block need the same slot of a device.
    SlotCollision "slot-collision"
    /// A task of a building block starts before its input has ended.
    StartsBeforeInput "starts-before-input"
    /// Devices wait for each other forever.
    Deadlock "deadlock"
    /// A device needs more memory than it may use.
    MemoryExceeded "memory-exceeded"
    /// A `require` statement does not hold.
    RequirementFailed "requirement-failed"
    /// A schedule is not for the version of PyTorch that is to load it.
    TorchVersion "torch-version"
    /// A transfer of a schedule of PyTorch lacks an end, or has it in the wrong place.
    MissingTransfer "missing-transfer"
    /// A rank receives in another order than the other one sends.
    TransferOrder "transfer-order"
    /// A backward of the last stage gets the loss of another microbatch.
    LossOrder "loss-order"
    /// Gradients of a stage are not reduced, or not all of them.
    MissingReduction "missing-reduction"
    /// A send or a reduction of a schedule of PyTorch is not waited for.
    MissingWait "missing-wait"
    /// PyTorch cannot run a schedule.
    CannotExport "cannot-export"
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The input is rejected.
    Error,
    /// It is accepted, and probably not what was meant.
    Warning,
    /// It is accepted; what the message says matters in some uses only.
    Note,
}

impl Severity {
    /// Whether the input is rejected.
    pub const fn is_error(self) -> bool {
        matches!(self, Self::Error)
    }
}

/// One finding, with its places and numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diagnostic {
    /// Which rule.
    pub code: Code,
    /// Error, warning or note.
    pub severity: Severity,
    /// The fact with its numbers: lower case, no full stop.
    pub message: String,
    /// What to look at; the first is the main one.
    pub labels: Vec<Label>,
    /// Where the numbers come from.
    pub notes: Vec<String>,
    /// What to change, in words.
    pub help: Option<String>,
    /// The same as edits of the source, where words can be turned into them.
    pub fix: Option<Box<Fix>>,
    /// Whether a name that the caller gave is wrong, and not the text: a parameter that is set and not there.
    pub is_callers: bool,
}

/// Edits that, made together, let a mistake go away. They do not overlap.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fix {
    /// At least one.
    pub edits: Vec<Edit>,
}

/// A part of a source and the text to write instead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Edit {
    /// What to replace; without length to insert.
    pub span: Span,
    /// What to write there.
    pub text: String,
}

/// A place with a few words beside it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Label {
    /// The place.
    pub span: Span,
    /// The words; may be empty.
    pub text: String,
}

impl Diagnostic {
    /// An error at a place.
    pub fn error(code: Code, span: Span, label: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            code,
            severity: Severity::Error,
            message: message.into(),
            labels: vec![Label { span, text: label.into() }],
            notes: Vec::new(),
            help: None,
            fix: None,
            is_callers: false,
        }
    }

    /// A warning at a place.
    pub fn warning(code: Code, span: Span, label: impl Into<String>, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(code, span, label, message) }
    }

    /// Adds a second place.
    #[must_use]
    pub fn label(mut self, span: Span, text: impl Into<String>) -> Self {
        self.labels.push(Label { span, text: text.into() });
        self
    }

    /// Adds an explanation of a number.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// Says that a name is wrong which the caller gave, and not the text.
    #[must_use]
    pub fn of_caller(mut self) -> Self {
        self.is_callers = true;
        self
    }

    /// Says what to change.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Adds an edit, which together with the others makes the mistake go away.
    #[must_use]
    pub fn edit(mut self, span: Span, text: impl Into<String>) -> Self {
        let edit = Edit { span, text: text.into() };
        self.fix.get_or_insert_with(|| Box::new(Fix { edits: Vec::new() })).edits.push(edit);
        self
    }

    /// Adds an edit where one is known.
    #[must_use]
    pub fn edit_with(self, edit: Option<Edit>) -> Self {
        edit.into_iter().fold(self, |found, Edit { span, text }| found.edit(span, text))
    }

    /// The edits of its fix; none where there is no fix.
    #[must_use]
    pub fn edits(&self) -> &[Edit] {
        self.fix.as_ref().map_or(&[], |fix| &fix.edits)
    }

    /// Suggests the known name that `name` was probably meant to be, in words and as an edit of its place; or lists
    /// the names that are known.
    #[must_use]
    pub fn suggest<'n>(mut self, span: Span, name: &str, known: impl IntoIterator<Item = &'n str>) -> Self {
        let known: Vec<&str> = known.into_iter().collect();
        self.help = suggest::help(name, known.iter().copied());
        match suggest::closest(name, known) {
            Some(meant) => self.edit(span, meant),
            None => self,
        }
    }
}

/// A text after some edits of it, which do not overlap.
#[must_use]
pub fn edited(text: &str, edits: &[Edit]) -> String {
    let mut edits: Vec<&Edit> = edits.iter().collect();
    edits.sort_by_key(|edit| (edit.span.start, edit.span.end));
    let (mut written, mut position) = (String::with_capacity(text.len()), 0);
    for Edit { span, text: replacement } in edits {
        let (start, end) = (span.start as usize, span.end as usize);
        written.push_str(text.get(position..start).unwrap_or_default());
        written.push_str(replacement);
        position = end.max(position);
    }
    written + text.get(position..).unwrap_or_default()
}

/// Everything that a pass found; never empty where it stands for a failure.
pub type Diagnostics = Vec<Diagnostic>;

/// Joins findings about the same place that differ in their numbers only, such as one per stage: the first one is told
/// in full, two more by their message, the others are counted. Expects them in the order of their places.
pub fn joined(found: Diagnostics) -> Diagnostics {
    const TOLD: usize = 2;
    let mut groups: Vec<(Diagnostic, Vec<String>)> = Vec::new();
    for diagnostic in found {
        let place = |diagnostic: &Diagnostic| diagnostic.labels.first().map(|label| label.span);
        match groups.last_mut() {
            Some((first, others)) if first.code == diagnostic.code && place(first) == place(&diagnostic) => {
                others.push(diagnostic.message);
            }
            _ => groups.push((diagnostic, Vec::new())),
        }
    }
    let join = |(mut first, others): (Diagnostic, Vec<String>)| {
        first.notes.extend(others.iter().take(TOLD).map(|message| format!("likewise, {message}")));
        if others.len() > TOLD {
            first.notes.push(format!("and {} more likewise", others.len() - TOLD));
        }
        first
    };
    groups.into_iter().map(join).collect()
}
