//! One pipeline: its items evaluated, its schedule written out.

mod activation;
mod costs;
mod cut;
mod devices;
mod frozen;
mod items;
mod number;
mod offload;
mod parallel;
mod reads;
mod recompute;
mod rules;
mod training;
mod transformer;

use super::parameters::{chosen, setting};
use super::schedule::parts::PipelineParts;
use super::schedule::{self, ScheduleSetting, Steps};
use super::{DEFAULT_DEVICES, DEFAULT_MICROBATCHES, Request};
use items::items_of;
use number::{ratio, whole};
use parallel::data::{self, DATA};
use parallel::tensor::{self, TENSOR};
use parallel::zero;
use pipe_ir::graph::DType;
use pipe_model::pipeline::{Elaborated, ModelCall, Pipeline};
use pipe_schedule::policy::offload::{Offload, Wanted};
use pipe_schedule::policy::zero::Zero;
use pipe_schedule::ratio::Ratio;
use pipe_schedule::requirement::{Limit, Requirement};
use pipe_schedule::schedule::Schedule;
use pipe_schedule::stage_graph::StageGraph;
use pipe_syntax::ast::{self, Call, Expr, ExprKind, FrozenStages, PipelineItem, Subject};
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};
use pipe_syntax::edits;
use pipe_syntax::expr::arguments::{Callee, Values, bind};
use pipe_syntax::expr::evaluate::{self, evaluate, exact};
use pipe_syntax::expr::known::Known;
use pipe_syntax::expr::scope::Fault;
use pipe_syntax::files::Files;
use pipe_syntax::limits::{MAX_DEVICES, MAX_MICROBATCHES, Report, within};
use pipe_syntax::source::Span;
use pipe_syntax::{stdlib, suggest};
use training::{check_clip_norm, files as training_files, training};

/// A schedule that no pipeline binds.
pub(super) fn stand_alone(
    files: &Files,
    declared: &ast::Schedule,
    request: &Request,
    outside: &Values,
) -> Result<Schedule, Diagnostics> {
    let mut report = Report::default();
    let mut size = |name: &str, default: u32, high: u32| {
        let value = chosen(request, outside, name).unwrap_or(i64::from(default));
        report.take(within(name, value, 1..=high, declared.name.span)).unwrap_or(1)
    };
    let n_devices = size("devices", DEFAULT_DEVICES, MAX_DEVICES);
    let n_microbatches = size("microbatches", DEFAULT_MICROBATCHES, most_microbatches(request));
    if !report.is_empty() {
        return Err(report.into_errors());
    }
    let flush = request.forward_only;
    let steps = Steps { set: chosen(request, outside, "steps"), of_training: None, flush };
    let (turn, graph) = (request.turn, &StageGraph::chain);
    let (call, parts) = (None, None);
    let setting = ScheduleSetting { files, n_devices, n_microbatches, outside, steps, call, turn, graph, parts };
    let mut schedule = write(declared, setting, &request.settings)?;
    if let Some(asked) = &request.recompute {
        recompute::apply(asked, None, &mut schedule, &mut report);
    }
    let asked = request.activation.as_ref().map(|shares| (shares, None));
    activation::check(asked, &schedule, &mut report);
    activation::apply(asked, &mut schedule, &mut report);
    let asked = request.offload.map(|asked| (asked, declared.name.span));
    offload::check(asked, Some(&schedule), None, &mut report);
    let asked = request.zero.map(|asked| (asked, declared.name.span));
    zero::check(asked, Some(&schedule), (None, None), &mut report);
    report.finish(schedule)
}

/// Steps of which only a turn is written out may be as long as they like.
fn most_microbatches(request: &Request) -> u32 {
    if request.turn { u32::MAX } else { MAX_MICROBATCHES }
}

/// Binds a schedule's parameters and writes it out.
fn write<'a>(
    declared: &'a ast::Schedule,
    setting: ScheduleSetting<'a>,
    settings: &[(String, i64)],
) -> Result<Schedule, Diagnostics> {
    let counts = [("D", setting.n_devices), ("M", setting.n_microbatches)];
    let visible = Known::new(setting.files.definitions(), setting.outside.clone());
    let visible = visible.and(counts.map(|(name, count)| (name, i64::from(count))));
    let callee = Callee { declared: &declared.name, parameters: &declared.parameters, settings, evaluate };
    let arguments = bind(callee, setting.call, &visible)?;
    schedule::elaborate(declared, &arguments, setting)
}

/// Elaborates a pipeline and the schedule that it names.
pub(super) fn elaborate(
    files: &Files,
    declared: &ast::Pipeline,
    request: &Request,
    parameters: Values,
) -> Result<Elaborated, Diagnostics> {
    let mut report = Report::default();
    let mut items = items_of(declared, &mut report);
    let all = FrozenStages { rule: None, span: declared.name.span };
    if request.forward_only {
        items.forward_only(&all);
    }
    let known = Known::new(files.definitions(), parameters.clone());
    let n_devices = items.devices.map(|(count, _)| count);
    let n_devices = size(("devices", MAX_DEVICES), n_devices, (declared, request, &known), &mut report);
    let n_microbatches = ("microbatches", most_microbatches(request));
    let n_microbatches = size(n_microbatches, items.microbatches, (declared, request, &known), &mut report);
    // What costs and requirements may name: devices and microbatches too. Where a number is wrong, 1 stands in, so
    // that it causes no other errors.
    let sizes = [("D", n_devices), ("M", n_microbatches)];
    let sized = known.and(sizes.map(|(name, size)| (name, i64::from(size.unwrap_or(1)))));
    let said = items.devices.map_or([None; 2], |(_, said)| said);
    let devices = devices::devices(said, items.device, (n_devices.unwrap_or(1), &sized), &mut report);
    let mut model =
        items.model.and_then(|call| model_call(files, (call, items.precision), request, &known, &mut report));
    let mut of_config = [None; 2];
    if let Some(call) = items.trained {
        let has_documents = items.train.is_some_and(|(settings, _)| training::has_documents(settings));
        let of_line = (call, items.precision, has_documents);
        let graph = transformer::graph_call(files, of_line, request, &known, &mut report);
        (model, of_config) = graph.map_or((None, [None; 2]), |(call, degrees)| (Some(call), degrees));
    }
    let (asked, is_by_sizes) = ((declared.name.span, request, &known), items.config.is_some());
    let mut tensor = TENSOR.value((items.tensor, of_config[0], is_by_sizes), asked, &mut report);
    let data = DATA.value((items.data, of_config[1], is_by_sizes), asked, &mut report);
    let of_graph = items.model.or(items.trained);
    let model_line = of_graph.or(items.config);
    let cut = items.cut.and_then(|line| cut::cut(line, &sized, &mut report));
    cut::beside(cut.as_ref(), (of_graph, items.config), &mut report);
    model.iter_mut().for_each(|model| model.cut.clone_from(&cut));
    let transformer = items.config.and_then(|call| transformer::transformer(files, call, request, &known, &mut report));
    let mut training =
        items.train.and_then(|(settings, span)| training((&declared.name, span), settings, &known, &mut report));
    let config = model.as_ref().and_then(|call| call.config.clone());
    training.iter_mut().for_each(|training| training.config.clone_from(&config));
    let (Some(n_devices), Some(n_microbatches)) = (n_devices, n_microbatches) else {
        // Without a size no schedule can be written out, but a wrong name or number is known to be wrong.
        drop(items.cost.and_then(|line| costs::of_line(line, (&sized, None, request.turn), &mut report)));
        drop(items.activation.and_then(|(line, _)| activation::shares(line, (&sized, None), &mut report)));
        let named = items.schedule.filter(|call| files.schedule(&call.name.text).is_none());
        report.extend(named.map(|call| unknown_schedule(files, &call.name)));
        return Err(report.into_errors());
    };
    let of_training = training.as_ref().map(|training| training.steps);
    let steps = Steps { set: setting(request, "steps"), of_training, flush: request.forward_only };
    let graph = |n_stages: usize| {
        let found = model.as_ref().and_then(|call| pipe_model::graph_of(files, call, &parameters, n_stages));
        found.unwrap_or_else(|| StageGraph::chain(n_stages))
    };
    let setting = |call, graph| {
        let (outside, turn) = (&parameters, request.turn);
        ScheduleSetting { files, n_devices, n_microbatches, outside, steps, call: Some(call), turn, graph, parts: None }
    };
    let parts = PipelineParts { lanes: &items.lanes, parts: items.parts, known: &sized };
    let mut schedule = items.schedule.and_then(|call| {
        let setting = ScheduleSetting { parts: Some(parts), ..setting(call, &graph) };
        written(files, call, setting, &request.settings, &mut report)
    });
    // Groups of devices do what one device does; what is said of each device is of one that is in no group.
    if let Some((groups, members)) = schedule
        .as_ref()
        .filter(|_| model.is_some() && tensor.is_none() && items.device.is_none() && items.cost.is_none())
        .and_then(Schedule::of_groups)
    {
        tensor = Some((members, groups.placement_span));
        schedule = Some(groups);
    }
    let costs =
        items.cost.and_then(|line| costs::of_line(line, (&sized, schedule.as_ref(), request.turn), &mut report));
    let said = items.activation.and_then(|(line, span)| {
        Some((activation::shares(line, (&sized, schedule.as_ref()), &mut report)?, Some(span)))
    });
    let own = said.as_ref().map(|(shares, span)| (shares, *span));
    let activations = request.activation.as_ref().map(|shares| (shares, None)).or(own);
    report.extend(without_parts(schedule.as_ref(), items.config));
    report.extend(without_swaps(schedule.as_ref(), model_line));
    reads::beside_model(files, items.schedule, model_line, &mut report);
    activation::beside_model(activations, model_line, &mut report);
    if let Some(schedule) = &mut schedule {
        let untrained = model.as_ref().map(|call| pipe_model::frozen::of_model(files, call, &parameters, schedule));
        let untrained = (untrained.unwrap_or_default(), &sized);
        // Without a model, the schedule says it.
        let of_model = model.as_ref().and_then(|call| pipe_model::graph_of_rows(files, call, &parameters, schedule));
        let graph = of_model.unwrap_or_else(|| schedule.graph.clone());
        frozen::apply(items.frozen, (schedule, &graph), untrained, &mut report);
        cut::check(cut.as_ref(), schedule, &mut report);
        let named = items.recompute.and_then(|line| recompute::recomputation(line, schedule, &known, &mut report));
        if let Some(asked) = request.recompute.as_ref().or(named.as_ref()) {
            let place = items.recompute.filter(|_| request.recompute.is_none()).map(|(_, span)| span);
            recompute::apply(asked, place, schedule, &mut report);
        }
        activation::check(activations, schedule, &mut report);
        activation::apply(activations, schedule, &mut report);
        let config = items.config.filter(|_| items.data.is_some());
        let (transformer, costs) = (transformer.as_ref(), costs.as_ref());
        let device = items.device.map(|(variable, _)| variable.span);
        data::apply(data, &data::Beside { transformer, config, costs, device }, schedule, &mut report);
    }
    let mut requirements = Vec::new();
    for (subject, limit, span) in &items.requirements {
        let limit = match (limit, parameter_for(limit, files, &sized)) {
            (_, Some(expr)) => report.take(number(*subject, &expr, &sized)).map(Limit::Number),
            (ast::Limit::Number(expr), None) => report.take(number(*subject, expr, &sized)).map(Limit::Number),
            (ast::Limit::Schedule { factor, schedule }, None) => {
                let factor = factor.as_ref().map_or(Ok(Ratio::ONE), |factor| ratio(factor, &sized));
                let factor = report.take(factor);
                let is_short = !request.turn || files.schedule(&schedule.name.text).is_none_or(is_block);
                let setting = setting(schedule, &StageGraph::chain);
                let other = is_short.then(|| written(files, schedule, setting, &[], &mut report));
                let mut other = other.flatten().map(Box::new);
                other.iter_mut().for_each(|other| activation::apply(activations, other, &mut report));
                factor.map(|factor| Limit::PartOf { factor, schedule: other })
            }
        };
        requirements.extend(limit.map(|limit| Requirement { subject: *subject, limit, span: *span }));
    }
    let (name, span) = (declared.name.text.clone(), declared.name.span);
    let asked = request.offload.map(|asked| (asked, span)).or(items.offload);
    let offload = asked.map_or_else(Offload::default, |(asked, _)| asked.named());
    let may_offload = asked.is_some_and(|(asked, _)| asked == Wanted::Auto);
    let said = items.zero.and_then(|(stage, span)| Some((report.take(zero::stage(stage, &known))?, span)));
    let divided = request.zero.map(|asked| (asked, span)).or(said);
    let zero = divided.map_or_else(Zero::default, |(asked, _)| asked);
    let pipeline = Pipeline {
        name,
        span,
        model,
        transformer,
        tensor,
        memory: devices.memory,
        host: devices.host,
        speeds: devices.speeds,
        offload,
        may_offload,
        zero,
        costs,
        requirements,
        training,
        files: items.train.map(|(settings, _)| training_files(settings)).unwrap_or_default(),
    };
    offload::check(asked, schedule.as_ref(), Some(&pipeline), &mut report);
    // A line of the text can move; what the caller asks for is not in it.
    let config = items.config.filter(|_| items.zero.is_some() && request.zero.is_none());
    if items.data.is_none() || data.is_some() {
        zero::check(divided, schedule.as_ref(), (Some(&pipeline), config), &mut report);
    }
    check_clip_norm(items.train.map_or(&[], |(settings, _)| settings), schedule.as_ref(), &mut report);
    tensor::check(&pipeline, schedule.as_ref(), (model_line, items.config, items.tensor.is_some()), &mut report);
    match schedule {
        Some(schedule) => report.finish(Elaborated { schedule, pipeline: Some(pipeline), parameters }),
        None => Err(report.into_errors()),
    }
}

/// Rule: a schedule with parts has no `config.json`, which does not say what each part computes.
fn without_parts(schedule: Option<&Schedule>, config: Option<&Call>) -> Option<Diagnostic> {
    let schedule = schedule.filter(|schedule| !schedule.parts.is_empty())?;
    let message =
        format!("`{}` runs parts of stages, and a `config.json` does not say what each part computes", schedule.name);
    let error = Diagnostic::error(Code::WrongPart, config?.span, "a model of whole stages", message);
    Some(error.help("use a model whose layers have parts; or leave it out, and say with `cost` how long parts take"))
}

/// Rule: a schedule that evicts activations has no model: which bytes leave and come back is not known.
fn without_swaps(schedule: Option<&Schedule>, model: Option<&Call>) -> Option<Diagnostic> {
    let schedule = schedule.filter(|schedule| !schedule.swaps.is_empty())?;
    let message =
        format!("`{}` evicts activations, and which values of the model then leave is not known", schedule.name);
    let error = Diagnostic::error(Code::WrongSwap, model?.span, "a model", message);
    let help = "leave the model out, and say with `cost` how long tasks take; or take a schedule without `evict`, and let \
                the compiler choose with `offload activations`";
    Some(error.help(help))
}

/// Whether something says how often a pipeline stands side by side.
pub(super) fn is_repeated(declared: &ast::Pipeline, request: &Request) -> bool {
    let is_trained = declared.items.iter().any(|item| matches!(item, PipelineItem::Train { .. }));
    // Of a model that is known by its sizes, it is a setting.
    let is_by_sizes = |item: &PipelineItem| !is_trained && matches!(item, PipelineItem::Config(_));
    let says_it = |item: &PipelineItem| match item {
        PipelineItem::Data { .. } => true,
        PipelineItem::Config(call) => {
            call.arguments.iter().any(|argument| argument.name.as_ref().is_some_and(|name| name.text == DATA.word))
        }
        _ => false,
    };
    !declared.items.iter().any(is_by_sizes)
        && (setting(request, DATA.word).is_some() || declared.items.iter().any(says_it))
}

/// Microbatches of a step, however many.
pub(super) fn microbatches(
    files: &Files,
    declared: &ast::Pipeline,
    request: &Request,
    parameters: &Values,
) -> Option<i64> {
    let written = declared.items.iter().find_map(|item| match item {
        PipelineItem::Microbatches { count, .. } => {
            exact(count, &Known::new(files.definitions(), parameters.clone())).ok()
        }
        _ => None,
    });
    setting(request, "microbatches").or(written)
}

/// The number of devices or microbatches: set by the caller, or as written.
fn size(
    (what, high): (&str, u32),
    written: Option<&Expr>,
    (declared, request, known): (&ast::Pipeline, &Request, &Known<'_>),
    report: &mut Report,
) -> Option<u32> {
    let span = written.map_or(declared.name.span, |expr| expr.span);
    let value = match (setting(request, what), written) {
        (Some(value), _) => value,
        (None, Some(expr)) => report.take(exact(expr, known))?,
        (None, None) => return None,
    };
    report.take(within(what, value, 1..=high, span))
}

/// Whether a schedule's tasks come from a block.
fn is_block(declared: &ast::Schedule) -> bool {
    declared.items.iter().any(|item| matches!(item, ast::ScheduleItem::Block(_)))
}

fn written<'a>(
    files: &'a Files,
    call: &Call,
    setting: ScheduleSetting<'a>,
    settings: &[(String, i64)],
    report: &mut Report,
) -> Option<Schedule> {
    let Some(declared) = files.schedule(&call.name.text) else {
        report.add(unknown_schedule(files, &call.name));
        return None;
    };
    write(declared, setting, settings).map_err(|errors| report.extend(errors)).ok()
}

fn model_call(
    files: &Files,
    (call, (precision, precision_line)): (&Call, (DType, Option<Span>)),
    request: &Request,
    known: &Known<'_>,
    report: &mut Report,
) -> Option<ModelCall> {
    let Some(declared) = files.model(&call.name.text) else {
        let error = unknown("model", &call.name, files.model_names());
        let none = files.model_names().next().is_none();
        report.add(match stdlib::path_of_model(&call.name.text) {
            Some(path) => {
                let edit = edits::at_the_beginning(&format!("import {path}\n"));
                let help = format!("`import {path}` makes the model `{}` visible", call.name.text);
                Diagnostic { fix: None, ..error }.help(help).edit_with(Some(edit))
            }
            None if none => error.help("`import std.models.gpt` makes the model `gpt` visible"),
            None => error,
        });
        return None;
    };
    let (name, parameters_of, settings) = (&declared.name, &declared.parameters, &request.settings);
    let callee = Callee { declared: name, parameters: parameters_of, settings, evaluate: evaluate::number };
    let arguments = bind(callee, Some(call), known);
    let arguments = arguments.map_err(|errors| report.extend(errors)).ok()?;
    let (model, span) = (declared.name.text.clone(), call.span);
    Some(ModelCall { model, span, config: None, arguments, precision, precision_line, cut: None, drops: true })
}

fn unknown<'n>(word: &str, name: &ast::Name, known: impl Iterator<Item = &'n str>) -> Diagnostic {
    let message = format!("unknown {word} `{}`", name.text);
    Diagnostic::error(Code::UnknownName, name.span, "not declared", message).suggest(name.span, &name.text, known)
}

fn unknown_schedule(files: &Files, name: &ast::Name) -> Diagnostic {
    let error = unknown("schedule", name, files.schedule_names());
    let is_like_some = suggest::question(&name.text, files.schedule_names()).is_some();
    let help = || {
        let name = &name.text;
        format!("declare `schedule {name} {{ .. }}`, or import the file that does; `pipec std` lists the standard ones")
    };
    if is_like_some { error } else { error.help(help()) }
}

/// `require peak <= n`, where `n` is a parameter and no schedule.
fn parameter_for(limit: &ast::Limit, files: &Files, known: &Known<'_>) -> Option<Expr> {
    let ast::Limit::Schedule { factor: None, schedule } = limit else { return None };
    let name = &schedule.name.text;
    let is_number =
        schedule.arguments.is_empty() && files.schedule(name).is_none() && known.numbers().contains_key(name);
    is_number.then(|| Expr { kind: ExprKind::Name(name.clone()), span: schedule.name.span })
}

/// The number that a requirement allows: of bytes a whole one.
fn number(subject: Subject, expr: &Expr, known: &Known<'_>) -> Result<Ratio, Fault> {
    if subject.is_in_bytes() {
        return whole(expr, known, 0, &format!("`{}`", subject.word())).map(Ratio::whole);
    }
    ratio(expr, known)
}
