//! The compiler: `.pipe` text in, a proved schedule and a program out. Pure: no files, clocks, threads or hash-map order.

pub mod activation;
pub mod bounds;
pub mod certificate;
pub mod check;
pub mod cluster;
mod compared;
pub mod costs;
pub mod critical_path;
pub mod dependencies;
pub mod diagnostic;
pub mod dispatch;
pub mod elaborate;
#[cfg(test)]
mod examples;
pub mod family;
pub mod files;
pub mod format;
mod fraction;
mod gathered;
mod json;
pub mod judge;
pub mod latency;
mod lint;
pub mod lower;
pub mod mapping;
pub mod megatron;
pub mod memory_limit;
pub mod model;
pub mod names;
pub mod offload;
pub mod pace;
pub mod picture;
pub mod pipeline;
pub mod placement;
pub mod profile;
pub mod recompute;
pub mod reductions;
mod remedy;
pub mod reorder;
pub mod report;
mod saved_bytes;
pub mod schedule;
pub mod search;
pub mod sharing;
pub mod slices;
pub mod source;
pub mod stage_graph;
pub mod staleness;
pub mod stdlib;
pub mod suggest;
pub mod sums;
pub mod syntax;
mod timed;
pub mod timeline;
pub mod torch;
pub mod transformer;
pub mod tune;
pub mod turn;
pub mod units;
pub mod window;
pub mod zero;

use cluster::Cluster;
use diagnostic::{Diagnostic, Diagnostics};
use judge::Judged;
use memory_limit::MemoryLimit;
use pipe_ir::program::Program;
use pipe_ir::verify::{Verified, VerifyError, verify};
use pipeline::{Pipeline, StageCosts};
use profile::Profile;
use report::certificate::CertificateReport;
use report::offload::OffloadReport;
use report::profile::ProfileReport;
use report::torch::TorchReport;
use report::zero::ZeroReport;
use report::{Finding, Report};
use source::{Source, Sources};

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
    /// Whether what holds for every number of microbatches may be the whole answer.
    pub certificate: Certificates,
    /// Whether a program is wanted, so that a target that has none is refused.
    pub program: bool,
    /// Whether the program is to run every half of a backward on its own, so that each can be measured.
    pub apart: bool,
    /// The version of PyTorch that is to run a schedule in its form; otherwise the newest one that has its words.
    pub torch: Option<torch::version::Version>,
}

impl Request {
    /// The costs that were given: those of the request, or else of its profile, or else, without a cluster, of the pipeline.
    pub(crate) fn given(&self, pipeline: Option<&Pipeline>) -> Option<StageCosts> {
        match (self.costs.clone(), self.profile.as_ref().map(Profile::costs)) {
            (Some(own), Some(measured)) => Some(own.or(measured)),
            (None, None) if self.cluster.is_none() => pipeline.and_then(|pipeline| pipeline.costs.clone()),
            (own, measured) => own.or(measured),
        }
    }

    /// Lets the cluster, if there is one, point into its file and say what memory there is, where the pipeline does not.
    fn equip(&self, sources: &mut Sources) -> Self {
        Self { cluster: self.cluster.as_ref().map(|cluster| cluster.placed(sources)), ..self.clone() }
    }

    /// What the devices and their hosts have, where the pipeline does not say it.
    pub(crate) fn furnish(&self, elaborated: &mut elaborate::Elaborated) {
        let Some(cluster) = &self.cluster else { return };
        let Some(pipeline) = &mut elaborated.pipeline else { return };
        let span = cluster.memory_span().unwrap_or(pipeline.span);
        pipeline.memory.get_or_insert((cluster.memory(), span));
        let host = cluster.host_of_device().map(|host| (host, cluster.host_span().unwrap_or(pipeline.span)));
        pipeline.host = pipeline.host.or(host);
    }

    /// The same for a search, whose devices have a processor each, and which takes no proof instead of a step.
    pub(crate) fn of_search(&self) -> Self {
        let profile = self.profile.clone().map(Profile::unshared);
        Self { profile, certificate: Certificates::Beside, ..self.clone() }
    }

    /// Warns of what the durations of the cluster leave out of a model.
    pub(crate) fn unmodelled(&self, pipeline: Option<&Pipeline>) -> Option<Diagnostic> {
        let transformer = pipeline?.transformer.as_ref()?;
        cluster::unmodelled::warning(transformer, self.cluster.as_ref()?.name())
    }

    /// Compares costs and limits with the stages and devices that there are.
    pub(crate) fn check(&self, elaborated: &elaborate::Elaborated) -> Result<(), Diagnostics> {
        let (schedule, pipeline) = (&elaborated.schedule, elaborated.pipeline.as_ref());
        let given = self.given(pipeline);
        let mut found = given.and_then(|given| costs::check(&given, schedule).err()).unwrap_or_default();
        found.extend(self.memory.as_ref().and_then(|limit| limit.miscounted(schedule)));
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

/// Everything that is known about a target. What could not be computed is missing.
#[derive(Clone, PartialEq, Debug)]
pub struct Compilation {
    /// The figures, and the verdict.
    pub report: Report,
    /// The schedule with its times, if it runs to its end.
    pub judged: Option<Judged>,
    /// What devices do, if the target is accepted; none where a stage lives on several devices at once.
    pub program: Option<Verified>,
    /// The program of a target that needs more memory than it may have: never to be run, but drawn.
    pub misfit: Option<Program>,
    /// Everything that speaks against the target, and warnings.
    pub diagnostics: Diagnostics,
    /// Rules of the instruction form that we ourselves broke: always empty, or a bug of ours.
    pub our_mistakes: Vec<VerifyError>,
}

impl Compilation {
    /// Of a target of which nothing is known but what speaks against it.
    #[must_use]
    pub fn rejected(target: &str, diagnostics: Diagnostics, sources: &Sources) -> Self {
        let mut report = Report::new(target);
        report.conclude(&diagnostics, sources);
        Self { report, judged: None, program: None, misfit: None, diagnostics, our_mistakes: Vec::new() }
    }

    /// Takes the verdict from what was found; mistakes of ours are findings like others.
    pub fn conclude(&mut self, sources: &Sources) {
        self.report.conclude(&self.diagnostics, sources);
        let mistakes: Vec<Finding> =
            self.mistakes().map(|message| Finding::internal(message, &self.report.target)).collect();
        self.report.ok &= mistakes.is_empty();
        self.report.diagnostics.extend(mistakes);
    }

    /// What to say of each mistake of ours.
    pub fn mistakes(&self) -> impl Iterator<Item = String> + '_ {
        let all = self.our_mistakes.iter();
        all.map(|mistake| format!("this is a bug in pipec, please report it with the source: {mistake}"))
    }

    /// The program, also one that does not fit.
    #[must_use]
    pub fn lowered(&self) -> Option<&Program> {
        self.program.as_ref().map(Verified::program).or(self.misfit.as_ref())
    }
}

/// The whole compiler, one line per step.
#[must_use]
pub fn compile(sources: &mut Sources, root: Source, loader: &files::Loader<'_>, request: &Request) -> Compilation {
    let mut compilation = Compilation::rejected(&root.name, Vec::new(), sources);
    if let Err(found) = steps(sources, root, loader, request, &mut compilation) {
        compilation.diagnostics.extend(found);
    }
    compilation.diagnostics.sort_by_key(|found| (found.labels.first().map(|label| label.span), found.code));
    compilation.diagnostics = diagnostic::joined(compilation.diagnostics);
    compilation.conclude(sources);
    compilation
}

fn steps(
    sources: &mut Sources,
    root: Source,
    loader: &files::Loader<'_>,
    request: &Request,
    compilation: &mut Compilation,
) -> Result<(), Diagnostics> {
    let files = files::load(sources, root, loader)?; //                  text -> what the user wrote
    let request = &request.equip(sources);
    let numbers = family::numbers(&files, request)?; //                  -> the numbers of microbatches that it speaks for
    let certified = certificate::certify(&files, request, numbers); //   -> what holds for all of them
    if request.certificate == Certificates::Alone
        && let Some(found) = &certified
    {
        return certificate::alone(found, request, &mut compilation.report);
    }
    let elaborated = elaborate::elaborate(&files, &request.choice); //   -> tasks: what, where, in which order
    let mut elaborated = match (elaborated, &certified) {
        (Ok(elaborated), _) => elaborated,
        (Err(found), Some(proof)) if certificate::is_enough(&found, proof, request) => {
            return certificate::alone(proof, request, &mut compilation.report);
        }
        (Err(found), _) => return Err(found),
    };
    request.furnish(&mut elaborated);
    compilation.report.describe(&elaborated.schedule, elaborated.pipeline.as_ref());
    let stages = model::stage_set(&files, &elaborated); //               -> what tasks compute, and who reads whom
    if let Ok(stages) = &stages {
        stages.tell(&mut elaborated.schedule);
    }
    let (order, stages) = both(check::check(&elaborated.schedule), stages)?;
    if let Some(table) = files.table(elaborated.schedule.span.file) {
        compilation.report.torch = Some(TorchReport::new(table, request.torch));
        let (warnings, verdict) = torch::check(table, request.torch); // what PyTorch makes of the rest of a table
        compilation.diagnostics.extend(warnings);
        verdict?;
    }
    compilation.diagnostics.extend(lint::lint(&elaborated.schedule));
    compilation.diagnostics.extend(request.unmodelled(elaborated.pipeline.as_ref()));
    if let Some(profile) = &request.profile {
        profile.check(sources, &elaborated.schedule, &stages, request.costs.as_ref())?; // what was measured is this target
        compilation.report.profile = Some(ProfileReport::new(profile));
    }
    request.check(&elaborated)?; //                                      costs and limits of what is there
    compilation.diagnostics.extend(costs::unused::check(request, elaborated.pipeline.as_ref(), &elaborated.schedule));
    let parameters = elaborated.parameters.clone();
    let judged = judge::judge(&files, elaborated, order, &stages, request); // -> when, and how much is alive
    judge::countable(&judged)?;
    compilation.report.measure(&judged, &stages, request, numbers);
    let certified = certified.transpose()?;
    compilation.report.certificate = certified.map(|(_, certified)| CertificateReport::new(&certified));
    let judged = compilation.judged.insert(judged);
    if let Some(undivided) = lower::undivided(&judged.schedule) {
        return judge::without_program(judged, undivided, request);
    }
    judge::has_graph(judged, request)?; //                               what is to be built or run has tensor graphs
    let (program, copies) = judged.carry_out(&stages, request); //       -> instructions; what has no room leaves, if it may
    if let Some(copies) = copies {
        judge::countable(judged)?; //                                        who waits for copies or weights, and who for them
        compilation.report.measure(judged, &stages, request, numbers);
        compilation.report.offload = OffloadReport::new(judged, &program, &copies);
    }
    compilation.report.count(&program, judged.has_model());
    if let Some(weights) = compilation.report.weights.as_mut().filter(|_| judged.has_model()) {
        weights.count(&stages, &judged.schedule);
    }
    compilation.report.zero = ZeroReport::new(judged, &program, &stages);
    compilation.report.account(judged, &program, &stages);
    let (bytes, mut found) = compared::in_bytes(&files, (judged, &program), &parameters, request); // what others hold
    let within = (request.memory.as_ref(), bytes.as_ref());
    found.extend(judge::limits(judged, &program, &stages, within).err().into_iter().flatten());
    if !found.is_empty() {
        // every device fits, ..
        compilation.report.account.changes = remedy::advise(&files, judged, request, &mut found);
        remedy::state::advise(judged, &stages, &mut found);
        compilation.misfit = Some(program);
        return Err(found);
    }
    match verify(program) {
        Ok(verified) => compilation.program = Some(verified),
        Err(mistakes) => compilation.our_mistakes = mistakes,
    }
    Ok(())
}

/// Both, or everything that speaks against either.
fn both<T, U>(one: Result<T, Diagnostics>, other: Result<U, Diagnostics>) -> Result<(T, U), Diagnostics> {
    match (one, other) {
        (Ok(one), Ok(other)) => Ok((one, other)),
        (one, other) => Err(one.err().into_iter().chain(other.err()).flatten().collect()),
    }
}
