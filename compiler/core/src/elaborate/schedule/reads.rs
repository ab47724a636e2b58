//! `reads`: the stage graph of a schedule without a model.

use super::Writer;
use pipe_ir::ids::StageId;
use pipe_schedule::stage_graph::StageGraph;
use pipe_syntax::ast::{Expr, ExprKind, Reads};
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::expr::scope::{Fault, Resolved};

/// Numbers of stages whose names are resolved.
enum Sources<'a> {
    These(Vec<(&'a Expr, Resolved<'a>)>),
    If(Box<(Resolved<'a>, Sources<'a>, Sources<'a>)>),
}

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
            let each = stages.iter().map(|stage| Ok((stage, writer.scope.number(stage)?)));
            Sources::These(each.collect::<Result<_, Fault>>()?)
        }
        _ => Sources::These(vec![(expr, writer.scope.number(expr)?)]),
    })
}

/// The stage graph of `n_stages` stages. Numbers below 0 are left out, so the first stages may read none.
pub(super) fn graph<'a>(writer: &mut Writer<'a>, line: &'a Reads, n_stages: usize) -> Result<StageGraph, Fault> {
    let slot = writer.variable(&line.stage)?;
    let all = sources(writer, &line.sources)?;
    let mut edges = Vec::new();
    for stage in (0..n_stages).map(StageId::from_index) {
        writer.machine.set(slot, i64::from(stage.0));
        read_by(writer, (stage, n_stages), &all, &mut edges)?;
    }
    writer.machine.restore(slot, None);
    Ok(StageGraph::new(n_stages, edges))
}

/// Adds the edges to a stage.
fn read_by<'a>(
    writer: &mut Writer<'a>,
    (stage, n_stages): (StageId, usize),
    sources: &Sources<'a>,
    edges: &mut Vec<(StageId, StageId)>,
) -> Result<(), Fault> {
    let all = match sources {
        Sources::These(all) => all,
        Sources::If(branches) => {
            let (condition, then, otherwise) = &**branches;
            let branch = if writer.eval(condition)? == 1 { then } else { otherwise };
            return read_by(writer, (stage, n_stages), branch, edges);
        }
    };
    for (expr, code) in all {
        writer.machine.spend(1, expr)?;
        let read = writer.eval(code)?;
        if read >= i64::from(stage.0) {
            let (message, help) = match usize::try_from(read) {
                Ok(read) if read >= n_stages => {
                    (format!("{stage} reads stage {read}, but the last stage is s{}", n_stages - 1), None)
                }
                _ => (
                    format!("{stage} reads s{read}, which does not come before it"),
                    Some("a stage reads stages with lower numbers; what is below 0 drops out"),
                ),
            };
            let error = Diagnostic::error(Code::OutOfRange, expr.span, format!("{read} for {stage}"), message);
            return Err(Box::new(Diagnostic { help: help.map(str::to_owned), ..error }));
        }
        edges.extend(u32::try_from(read).ok().map(|read| (StageId(read), stage)));
    }
    Ok(())
}
