//! The compiler: `.pipe` text in, a proved schedule and a program out. Pure: no files, clocks,
//! threads or hash-map order.

pub mod analyze;
pub mod block_family;
pub mod certificate;
pub mod cluster;
mod comparisons;
pub mod elaborate;
mod library_fault;
pub mod mapping;
pub mod megatron;
pub mod memory;
pub mod phases;
pub mod prediction;
pub mod profile;
pub mod report;
mod request;
pub mod resolve_costs;
mod results;
pub mod stuck;
mod suggest_fix;
pub mod timing;
pub mod torch;

pub use request::{Certificates, Request};

use analyze::Analysis;
use pipe_ir::program::Program;
use pipe_ir::verify::{Verified, VerifyError, verify};
use pipe_model::pipeline::Elaborated;
use pipe_model::stage_set::StageSet;
use pipe_schedule::check;
use pipe_schedule::stage_graph::StageGraph;
use pipe_syntax::diagnostic::{self, Diagnostics};
use pipe_syntax::edits;
use pipe_syntax::files::{self, Files};
use pipe_syntax::source::{Source, Sources};
use report::{Finding, Report};
use results::Results;
use stuck::Stuck;

/// Everything that is known about a target. What could not be computed is missing.
#[derive(Clone, PartialEq, Debug)]
pub struct Compilation {
    /// The figures, and the verdict.
    pub report: Report,
    /// The schedule with its times, if it runs to its end.
    pub analysis: Option<Analysis>,
    /// What devices do, if the target is accepted; none where a stage lives on several devices at once.
    pub program: Option<Verified>,
    /// How far the schedule comes, if it is stuck.
    pub stuck: Option<Stuck>,
    /// The program of a target that needs more memory than it may have: never to be run, but drawn.
    pub misfit: Option<Program>,
    /// Everything that speaks against the target, and warnings.
    pub diagnostics: Diagnostics,
    /// Rules of the instruction form that we ourselves broke: always empty, or a bug of ours.
    pub our_mistakes: Vec<VerifyError>,
}

impl Compilation {
    /// Of a target of which nothing is known but what speaks against it.
    pub fn rejected(target: &str, diagnostics: Diagnostics, sources: &Sources) -> Self {
        let mut report = Report::new(target);
        report.conclude(&diagnostics, sources);
        Self { report, analysis: None, stuck: None, program: None, misfit: None, diagnostics, our_mistakes: Vec::new() }
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
    pub fn lowered(&self) -> Option<&Program> {
        self.program.as_ref().map(Verified::program).or(self.misfit.as_ref())
    }
}

/// The whole compiler: what its steps give, the report of that, and the verdict of the verifier.
pub fn compile(sources: &mut Sources, root: Source, loader: &files::Loader<'_>, request: &Request) -> Compilation {
    let (target, mut results) = (root.name.clone(), Results::default());
    let found = steps(sources, root, loader, request, &mut results);
    let mut compilation =
        Compilation { report: Report::of(&target, &results), ..Compilation::rejected(&target, Vec::new(), sources) };
    compilation.diagnostics = results.warnings;
    compilation.analysis = results.analysis;
    compilation.stuck = results.stuck;
    match (found, results.program) {
        (Err(found), program) => {
            compilation.diagnostics.extend(found);
            compilation.misfit = program;
        }
        (Ok(()), Some(program)) => match verify(program) {
            Ok(verified) => compilation.program = Some(verified),
            Err(mistakes) => compilation.our_mistakes = mistakes,
        },
        (Ok(()), None) => {}
    }
    compilation.diagnostics.sort_by_key(|found| (found.labels.first().map(|label| label.span), found.code));
    compilation.diagnostics = diagnostic::joined(compilation.diagnostics);
    compilation.diagnostics.iter_mut().for_each(|found| edits::settle(found, sources));
    compilation.conclude(sources);
    compilation
}

/// Returns what tasks compute. If several devices run one stage with parts at once, the schedule has no program, and
/// nothing reads the values between its parts. Then this builds the values of a chain of parts, to save time.
pub(crate) fn stage_set(files: &Files, elaborated: &mut Elaborated) -> Result<StageSet, Diagnostics> {
    let schedule = &mut elaborated.schedule;
    if schedule.parts.is_empty() || !schedule.graph.has_joins() {
        return pipe_model::stage_set(files, elaborated);
    }
    let chain = StageGraph::chain(schedule.n_stages());
    let graph = std::mem::replace(&mut schedule.graph, chain);
    let stages = pipe_model::stage_set(files, elaborated);
    elaborated.schedule.graph.clone_from(&graph);
    stages.map(|stages| StageSet { graph, ..stages })
}

/// What speaks against the tasks of a text; nothing where it is refused before they are looked at.
fn judge(root: Source, loader: &files::Loader<'_>, request: &Request) -> Option<Diagnostics> {
    let files = files::load(&mut Sources::default(), root, loader).ok()?;
    let mut elaborated = elaborate::elaborate(&files, &request.choice).ok()?;
    request.furnish(&mut elaborated);
    stage_set(&files, &mut elaborated).ok()?.tell(&mut elaborated.schedule);
    Some(check::check(&elaborated.schedule).err().unwrap_or_default())
}

/// The steps, one after the other; each leaves what it gives in `results`.
///
/// # Errors
/// Everything that speaks against the target, of the first step that finds something.
fn steps(
    sources: &mut Sources,
    root: Source,
    loader: &files::Loader<'_>,
    request: &Request,
    results: &mut Results,
) -> Result<(), Diagnostics> {
    let name = root.name.clone();
    let files = results.files.insert(files::load(sources, root, loader)?); // text -> what the user wrote
    results.warnings.extend_from_slice(files.warnings());
    let request = &*results.request.insert(request.equip(sources));
    // gives the numbers of microbatches that it speaks for
    results.numbers = if request.verdict { None } else { block_family::numbers(files, request)? };
    // gives what holds for all of them
    let proof = certificate::certify(files, request, results.numbers);
    let proof = match proof {
        Some(proof) if request.certificate == Certificates::Alone => {
            return certificate::alone(proof, request, &mut results.alone);
        }
        proof => proof,
    };
    // gives tasks: what, where, in which order
    let elaborated = elaborate::elaborate(files, &request.choice);
    let (mut elaborated, proof) = match (elaborated, proof) {
        (Ok(elaborated), proof) => (elaborated, proof),
        (Err(found), Some(proof)) if certificate::is_enough(&found, &proof, request) => {
            return certificate::alone(proof, request, &mut results.alone);
        }
        (Err(found), _) => {
            return Err(match files.root_table() {
                Some(table) => torch::in_cells(found, table),
                None => found,
            });
        }
    };
    request.furnish(&mut elaborated);
    // gives what tasks compute, and who reads whom
    let stages =
        stage_set(files, &mut elaborated).map_err(|found| library_fault::at_the_call(found, &elaborated, sources));
    if let Ok(stages) = &stages {
        stages.tell(&mut elaborated.schedule);
    }
    let elaborated = &*results.elaborated.insert(elaborated);
    // gives evidence: nothing waits forever
    let order = check::check(&elaborated.schedule);
    if let (Err(found), Ok(stages)) = (&order, &stages) {
        results.stuck = stuck::of(elaborated, stages, request, found, sources);
    }
    let order = order.map_err(|found| {
        if let Some(table) = files.table(elaborated.schedule.span.file) {
            return torch::in_cells(found, table);
        }
        let judge = |text| judge(Source { name: name.clone(), text }, loader, request);
        let found = suggest_fix::order::with_edits(found, &elaborated.schedule, sources, judge);
        suggest_fix::statements::with_edits(found, &elaborated.schedule, sources, judge)
    });
    let (order, stages) = both(order, stages)?;
    let stages = &*results.stages.insert(stages);
    if let Some(table) = files.table(elaborated.schedule.span.file) {
        results.is_table = true;
        // what PyTorch makes of the rest of a table
        let (warnings, verdict) = pipe_syntax::torch::check(table, request.torch);
        results.warnings.extend(warnings);
        verdict?;
    }
    results.warnings.extend(check::lint::lint(&elaborated.schedule));
    results.warnings.extend(elaborate::unused_lanes(files, &request.choice));
    results.warnings.extend(request.unmodelled(elaborated.pipeline.as_ref()));
    if let Some(profile) = &request.profile {
        // what was measured is this target
        profile.check(sources, &elaborated.schedule, stages, request.costs.as_ref())?;
        results.is_profiled = true;
    }
    // costs and limits are about what is there
    request.check(elaborated)?;
    results.warnings.extend(request.unused_costs(elaborated, stages));
    let parameters = elaborated.parameters.clone();
    let elaborated = results.elaborated.take().expect("it was put there above");
    // gives when, and how much is alive
    let analysis = analyze::analyze(files, elaborated, order, stages, request);
    let analysis = results.analysis.insert(analysis);
    analyze::countable(analysis)?;
    results.is_countable = true;
    results.certified = proof.transpose()?.map(|(_, certified)| certified);
    if let Some(undivided) = pipe_lower::undivided(&analysis.schedule) {
        return analyze::without_program(analysis, undivided, request);
    }
    // what is to be built or run has tensor graphs
    analyze::has_graph(analysis, request)?;
    // gives instructions; what has no room leaves, if it may
    let (program, copies) = analysis.carry_out(stages, request);
    if let Some(copies) = copies {
        results.is_countable = false;
        // who waits for copies or weights, and who for them
        analyze::countable(analysis)?;
        results.is_countable = true;
        results.copies = Some(copies);
    }
    results.warnings.extend(pipe_lower::unused_gathers(&analysis.schedule, &program));
    let program = &*results.program.insert(program);
    // what others hold
    let (bytes, mut found) = comparisons::in_bytes(files, (analysis, program), &parameters, request);
    let within = (request.memory.as_ref(), bytes.as_ref());
    // every device fits, ..
    found.extend(analyze::limits(analysis, program, stages, within).err().into_iter().flatten());
    if found.is_empty() {
        return Ok(());
    }
    if request.verdict {
        return Err(found);
    }
    results.changes = suggest_fix::advise(files, analysis, request, &mut found); // .. or what would
    suggest_fix::recompute::advise(files, (analysis, program), request, &mut found);
    suggest_fix::offload::advise(analysis, stages, &mut found);
    Err(found)
}

/// Both, or everything that speaks against either.
fn both<T, U>(one: Result<T, Diagnostics>, other: Result<U, Diagnostics>) -> Result<(T, U), Diagnostics> {
    match (one, other) {
        (Ok(one), Ok(other)) => Ok((one, other)),
        (one, other) => Err(one.err().into_iter().chain(other.err()).flatten().collect()),
    }
}
