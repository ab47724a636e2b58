//! `reads`: the stage graph of a schedule without a model.

use super::Writer;
use pipe_ir::ids::StageId;
use pipe_schedule::schedule::Schedule;
use pipe_schedule::stage_graph::{Earlier, StageGraph};
use pipe_syntax::ast::{Expr, ExprKind, Reads};
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::expr::scope::{Fault, Resolved};
use pipe_syntax::limits::within;
use pipe_syntax::source::Span;

/// Stages whose names are resolved.
enum Sources<'a> {
    These(Vec<Source<'a>>),
    If(Box<(Resolved<'a>, Sources<'a>, Sources<'a>)>),
}

/// A stage that is read, of the microbatch at hand or of an earlier one.
struct Source<'a> {
    stage: (&'a Expr, Resolved<'a>),
    behind: Option<(&'a Expr, Resolved<'a>)>,
}

/// The most microbatches that an edge leads back.
const MOST_BEHIND: u32 = 1 << 20;

/// Resolves the stages of a `reads`.
pub(super) fn resolve<'a>(writer: &mut Writer<'a>, expr: &'a Expr) -> Result<(), Fault> {
    sources(writer, expr).map(drop)
}

fn sources<'a>(writer: &mut Writer<'a>, expr: &'a Expr) -> Result<Sources<'a>, Fault> {
    Ok(match &expr.kind {
        ExprKind::If { condition, then, otherwise } => {
            let condition = writer.scope.condition(condition)?;
            Sources::If(Box::new((condition, sources(writer, then)?, sources(writer, otherwise)?)))
        }
        ExprKind::List(stages) => {
            Sources::These(stages.iter().map(|stage| source(writer, stage)).collect::<Result<_, Fault>>()?)
        }
        _ => Sources::These(vec![source(writer, expr)?]),
    })
}

fn source<'a>(writer: &mut Writer<'a>, expr: &'a Expr) -> Result<Source<'a>, Fault> {
    let (stage, behind) = match &expr.kind {
        ExprKind::Behind(stage, behind) => (&**stage, Some(&**behind)),
        _ => (expr, None),
    };
    let mut number = |expr: &'a Expr| writer.scope.number(expr).map(|code| (expr, code));
    Ok(Source { stage: number(stage)?, behind: behind.map(number).transpose()? })
}

/// The edges of a stage graph.
#[derive(Default)]
struct Edges {
    /// Within a microbatch.
    same: Vec<(StageId, StageId)>,
    earlier: Vec<Earlier>,
}

/// The stage graph of `n_stages` stages. Numbers below 0 are left out, so the first stages may read none.
pub(super) fn graph<'a>(writer: &mut Writer<'a>, line: &'a Reads, n_stages: usize) -> Result<StageGraph, Fault> {
    let slot = writer.variable(&line.stage)?;
    let all = sources(writer, &line.sources)?;
    let mut edges = Edges::default();
    for stage in (0..n_stages).map(StageId::from_index) {
        writer.machine.set(slot, i64::from(stage.0));
        read_by(writer, (stage, n_stages), &all, &mut edges)?;
    }
    writer.machine.restore(slot, None);
    if let Some(edge) = edges.earlier.first() {
        alone(writer, line, *edge)?;
    }
    Ok(StageGraph::new(n_stages, edges.same).with_earlier(edges.earlier))
}

/// Edges from earlier microbatches need whole microbatches, and steps that end before the next one begins.
fn alone(writer: &Writer<'_>, line: &Reads, edge: Earlier) -> Result<(), Fault> {
    let slices = writer.slices.count();
    let (item, does) = match writer.weights {
        Some((weights, _)) => (format!("weights {}", weights.word()), "steps run on into each other"),
        None if slices > 1 => (format!("slices {slices}"), "a slice already reads the slice before it"),
        None => return Ok(()),
    };
    let message = format!("`behind` cannot be combined with `{item}`: {does}");
    let label = format!("{} reads an earlier microbatch", edge.to);
    let error = Diagnostic::error(Code::RepeatedItem, line.span, label, message);
    Err(Box::new(match writer.weights {
        Some((_, span)) => error.label(span, "given here"),
        None => error,
    }))
}

/// Adds the edges to a stage.
fn read_by<'a>(
    writer: &mut Writer<'a>,
    (stage, n_stages): (StageId, usize),
    sources: &Sources<'a>,
    edges: &mut Edges,
) -> Result<(), Fault> {
    let all = match sources {
        Sources::These(all) => all,
        Sources::If(branches) => {
            let (condition, then, otherwise) = &**branches;
            let branch = if writer.eval(condition)? == 1 { then } else { otherwise };
            return read_by(writer, (stage, n_stages), branch, edges);
        }
    };
    for Source { stage: (expr, code), behind } in all {
        writer.machine.spend(1, expr)?;
        let read = writer.eval(code)?;
        let out_of_range = |message: String, help: Option<&str>| {
            let error = Diagnostic::error(Code::OutOfRange, expr.span, format!("{read} for {stage}"), message);
            Err(Box::new(Diagnostic { help: help.map(str::to_owned), ..error }))
        };
        if usize::try_from(read).is_ok_and(|read| read >= n_stages) {
            return out_of_range(format!("{stage} reads stage {read}, but the last stage is s{}", n_stages - 1), None);
        }
        let Ok(from) = u32::try_from(read).map(StageId) else { continue };
        match behind {
            Some((count, code)) => {
                let behind = within("microbatches back", writer.eval(code)?, 1..=MOST_BEHIND, count.span)?;
                edges.earlier.push(Earlier { to: stage, behind, from });
            }
            None if from >= stage => {
                return out_of_range(
                    format!("{stage} reads {from}, which does not come before it"),
                    Some(
                        "within a microbatch, a stage reads stages with lower numbers; what is below 0 drops out; to \
                         read an earlier microbatch, write `behind` and how many before",
                    ),
                );
            }
            None => edges.same.push((from, stage)),
        }
    }
    Ok(())
}

/// The error for a line that recomputes only some microbatches, if stages read earlier microbatches.
pub(in crate::elaborate) fn all_alike(schedule: &Schedule, line: Span) -> Option<Diagnostic> {
    (!schedule.graph.earlier().is_empty()).then(|| {
        let message = format!(
            "stages of `{}` read earlier microbatches, so all microbatches must recompute alike",
            schedule.name
        );
        let error = Diagnostic::error(Code::OutOfRange, line, "recomputes only some", message);
        error.label(schedule.span, "reads earlier microbatches").help("recompute all microbatches of a stage, or none")
    })
}
