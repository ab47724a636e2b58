//! What to compile, and what to compare it with: the options of every command that compiles.

use crate::cluster::{self, Cluster};
use crate::elaborate;
use crate::megatron::job::Job;
use crate::profile::Profile;
use crate::resolve_costs;
use pipe_ir::units::Bytes;
use pipe_model::pipeline::{Elaborated, Pipeline};
use pipe_model::stage_set::StageSet;
use pipe_schedule::memory_limit::MemoryLimit;
use pipe_schedule::timing::costs::{self, CostName, StageCosts};
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};
use pipe_syntax::source::Sources;
use pipe_syntax::torch::Runtime;

/// What to compile, and how to judge it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Request {
    /// Which declaration, with which parameters.
    pub choice: elaborate::Request,
    /// Durations, instead of the profile's and the pipeline's.
    pub costs: Option<StageCosts>,
    /// Durations that were measured, instead of the pipeline's.
    pub profile: Option<Profile>,
    /// The machines that the target is to run on: their durations come before the pipeline's.
    pub cluster: Option<Cluster>,
    /// The most activation memory of devices.
    pub memory: Option<MemoryLimit>,
    /// What each device has, instead of what the pipeline or the cluster says.
    pub device_memory: Option<Bytes>,
    /// Whether what holds for every number of microbatches may be the whole answer.
    pub certificate: Certificates,
    /// Whether a program is wanted, so that a target that has none is refused.
    pub program: bool,
    /// Whether only the verdict counts: nothing is proved for other numbers of microbatches, and no help is looked for
    /// where something does not fit.
    pub verdict: bool,
    /// Whether the program is to run every half of a backward on its own, so that each can be measured.
    pub apart: bool,
    /// The version of PyTorch that is to run a schedule in its form, and how ranks send to each other there.
    pub torch: Runtime,
    /// The command of Megatron-LM that the target was made of, whose options help names then.
    pub megatron: Option<Job>,
}

impl Request {
    /// The costs that were given: those of the request, or else of its profile, or else, without a
    /// cluster, of the pipeline.
    pub fn given(&self, pipeline: Option<&Pipeline>) -> Option<StageCosts> {
        match (self.costs.clone(), self.profile.as_ref().map(Profile::costs)) {
            (Some(own), Some(measured)) => Some(own.or(measured)),
            (None, None) if self.cluster.is_none() => pipeline.and_then(|pipeline| pipeline.costs.clone()),
            (own, measured) => own.or(measured),
        }
    }

    /// Lets the cluster, if there is one, point into its file and say what memory there is, where
    /// the pipeline does not.
    pub(crate) fn equip(&self, sources: &mut Sources) -> Self {
        Self { cluster: self.cluster.as_ref().map(|cluster| cluster.placed(sources)), ..self.clone() }
    }

    /// What the devices have, where the request says it, and they and their hosts, where the pipeline does not.
    pub(crate) fn furnish(&self, elaborated: &mut Elaborated) {
        let Some(pipeline) = &mut elaborated.pipeline else { return };
        pipeline.memory = self.device_memory.map(|memory| (memory.into(), pipeline.span)).or(pipeline.memory.take());
        let Some(cluster) = &self.cluster else { return };
        let span = cluster.memory_span().unwrap_or(pipeline.span);
        pipeline.memory.get_or_insert((cluster.memory().into(), span));
        let host = cluster.host_of_device().map(|host| (host.into(), cluster.host_span().unwrap_or(pipeline.span)));
        pipeline.host = pipeline.host.take().or(host);
    }

    /// The same for a search, whose devices have a processor each, and which takes no proof instead of a step.
    pub fn of_search(&self) -> Self {
        let profile = self.profile.clone().map(Profile::unshared);
        Self { profile, certificate: Certificates::Beside, ..self.clone() }
    }

    /// Warns of what the durations of the cluster leave out of a model.
    pub(crate) fn unmodelled(&self, pipeline: Option<&Pipeline>) -> Option<Diagnostic> {
        let transformer = pipeline?.transformer.as_ref()?;
        cluster::unmodelled::warning(transformer, self.cluster.as_ref()?.name())
    }

    /// A warning for each cost of the request, or else of the pipeline, that nothing in the schedule takes.
    pub(crate) fn unused_costs(&self, elaborated: &Elaborated, stages: &StageSet) -> Diagnostics {
        let pipeline = elaborated.pipeline.as_ref();
        let only_own = self.profile.is_none() && self.cluster.is_none();
        let of_pipeline = || pipeline.filter(|_| only_own)?.costs.as_ref();
        let mut found: Diagnostics = pipeline.and_then(|pipeline| self.unused_speeds(pipeline)).into_iter().collect();
        let Some(costs) = self.costs.as_ref().or_else(of_pipeline) else { return found };
        let all = resolve_costs::given(self, pipeline, stages, &elaborated.schedule);
        let has_sums = pipe_lower::reductions::has_any(&elaborated.schedule, stages);
        found.extend(all.iter().flat_map(|all| costs::unused::check(costs, all, &elaborated.schedule, has_sums)));
        found
    }

    /// A warning where the devices were measured or described, so that what the pipeline says of their speeds is idle.
    fn unused_speeds(&self, pipeline: &Pipeline) -> Option<Diagnostic> {
        let (_, span) = pipeline.speeds.as_ref().filter(|(speeds, _)| speeds.matter())?;
        let measured = match (&self.profile, &self.cluster) {
            (Some(_), _) => "the profile was measured on the devices",
            (None, Some(_)) => "the cluster says what its devices do",
            (None, None) => return None,
        };
        let message = format!("`speed` is not used: {measured}");
        Some(Diagnostic::warning(Code::UnusedCost, *span, "not used", message).help("leave it out, or time without it"))
    }

    /// Rule: a pair has one duration on all devices, so each of them has the usual speed.
    fn one_speed_for_pairs(&self, pipeline: Option<&Pipeline>) -> Option<Diagnostic> {
        let (_, span) = resolve_costs::speeds(self, pipeline)?;
        let given = self.given(pipeline)?;
        let pair = given.entries.iter().find(|entry| matches!(entry.name, CostName::Pair(_)))?;
        let message =
            format!("`cost {}` is one time for all devices, and `speed` changes what its tasks take", pair.name);
        let error = Diagnostic::error(Code::OutOfRange, span, "speeds of devices", message);
        let error = pair.span.into_iter().fold(error, |error, span| error.label(span, "one duration for all"));
        Some(error.help("leave one of them out; without a cost of its own a pair takes what its two tasks take"))
    }

    /// Compares costs and limits with the stages and devices that there are.
    pub(crate) fn check(&self, elaborated: &Elaborated) -> Result<(), Diagnostics> {
        let (schedule, pipeline) = (&elaborated.schedule, elaborated.pipeline.as_ref());
        let given = self.given(pipeline);
        let mut found = given.and_then(|given| costs::check(&given, schedule).err()).unwrap_or_default();
        found.extend(self.one_speed_for_pairs(pipeline));
        found.extend(self.memory.as_ref().and_then(|limit| limit.miscounted(schedule)));
        if let Some(memory) = self.device_memory.filter(|_| !pipeline.is_some_and(Pipeline::has_model)) {
            let message = format!("`--memory {memory}` is in bytes, and without a model nothing has a size");
            let error = Diagnostic::error(Code::OutOfRange, schedule.span, "no model", message);
            found.push(error.help("give activation memory in units, as in `--memory 4`, or a pipeline with a `model`"));
        }
        found.extend(self.cluster.as_ref().and_then(|cluster| cluster::check(cluster, elaborated)));
        if found.is_empty() { Ok(()) } else { Err(found) }
    }
}

/// Whether what holds for every number of microbatches may be the whole answer, without a step written out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Certificates {
    /// No: the step is wanted.
    #[default]
    Beside,
    /// Where the step has too many tasks to be written out.
    Instead,
    /// Yes, where there is a certificate.
    Alone,
}
