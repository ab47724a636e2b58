//! The compiler: `.pipe` text in, a proved schedule and a program out. Pure: no files, clocks,
//! threads or hash-map order.

pub mod analyze;
pub mod block_family;
pub mod certificate;
pub mod cluster;
mod comparisons;
pub mod elaborate;
pub mod mapping;
pub mod megatron;
pub mod memory;
pub mod profile;
pub mod report;
mod request;
pub mod resolve_costs;
mod suggest_fix;
pub mod timing;
pub mod torch;

pub use request::{Certificates, Request};

use analyze::Analysis;
use pipe_ir::program::Program;
use pipe_ir::verify::{Verified, VerifyError, verify};
use pipe_schedule::check;
use pipe_syntax::diagnostic::{self, Diagnostics};
use pipe_syntax::files;
use pipe_syntax::source::{Source, Sources};
use report::certificate::CertificateReport;
use report::offload::OffloadReport;
use report::profile::ProfileReport;
use report::torch::TorchReport;
use report::zero::ZeroReport;
use report::{Finding, Report};

/// Everything that is known about a target. What could not be computed is missing.
#[derive(Clone, PartialEq, Debug)]
pub struct Compilation {
    /// The figures, and the verdict.
    pub report: Report,
    /// The schedule with its times, if it runs to its end.
    pub analysis: Option<Analysis>,
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
        Self { report, analysis: None, program: None, misfit: None, diagnostics, our_mistakes: Vec::new() }
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
    let numbers = block_family::numbers(&files, request)?; //                  -> the numbers of microbatches that it speaks for
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
    let stages = pipe_model::stage_set(&files, &elaborated); //               -> what tasks compute, and who reads whom
    if let Ok(stages) = &stages {
        stages.tell(&mut elaborated.schedule);
    }
    let (order, stages) = both(check::check(&elaborated.schedule), stages)?;
    if let Some(table) = files.table(elaborated.schedule.span.file) {
        compilation.report.torch = Some(TorchReport::new(table, request.torch));
        let (warnings, verdict) = pipe_syntax::torch::check(table, request.torch); // what PyTorch makes of the rest of a table
        compilation.diagnostics.extend(warnings);
        verdict?;
    }
    compilation.diagnostics.extend(pipe_schedule::check::lint::lint(&elaborated.schedule));
    compilation.diagnostics.extend(request.unmodelled(elaborated.pipeline.as_ref()));
    if let Some(profile) = &request.profile {
        profile.check(sources, &elaborated.schedule, &stages, request.costs.as_ref())?; // what was measured is this target
        compilation.report.profile = Some(ProfileReport::new(profile));
    }
    request.check(&elaborated)?; //                                      costs and limits of what is there
    compilation.diagnostics.extend(request.unused_costs(&elaborated));
    let parameters = elaborated.parameters.clone();
    let analysis = analyze::analyze(&files, elaborated, order, &stages, request); // -> when, and how much is alive
    analyze::countable(&analysis)?;
    compilation.report.measure(&analysis, &stages, request, numbers);
    let certified = certified.transpose()?;
    compilation.report.certificate = certified.map(|(_, certified)| CertificateReport::new(&certified));
    let analysis = compilation.analysis.insert(analysis);
    if let Some(undivided) = pipe_lower::undivided(&analysis.schedule) {
        return analyze::without_program(analysis, undivided, request);
    }
    analyze::has_graph(analysis, request)?; //                               what is to be built or run has tensor graphs
    let (program, copies) = analysis.carry_out(&stages, request); //       -> instructions; what has no room leaves, if it may
    if let Some(copies) = copies {
        analyze::countable(analysis)?; //                                        who waits for copies or weights, and who for them
        compilation.report.measure(analysis, &stages, request, numbers);
        compilation.report.offload = OffloadReport::new(analysis, &program, &copies);
    }
    compilation.report.count(&program, analysis.has_model());
    if let Some(weights) = compilation.report.weights.as_mut().filter(|_| analysis.has_model()) {
        weights.count(&stages, &analysis.schedule);
    }
    compilation.report.zero = ZeroReport::new(analysis, &program, &stages);
    compilation.report.account(analysis, &program, &stages);
    let (bytes, mut found) = comparisons::in_bytes(&files, (analysis, &program), &parameters, request); // what others hold
    let within = (request.memory.as_ref(), bytes.as_ref());
    found.extend(analyze::limits(analysis, &program, &stages, within).err().into_iter().flatten());
    if !found.is_empty() {
        // every device fits, ..
        compilation.report.account.changes = suggest_fix::advise(&files, analysis, request, &mut found);
        suggest_fix::offload::advise(analysis, &stages, &mut found);
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
