//! A table as a file of the language: a schedule with an order for each rank, and a pipeline that
//! says how many ranks and microbatches there are. Every place is that of a cell, so that whatever
//! is wrong is shown in the table.

use super::action::Action;
use super::table::{Cell, Row, Table};
use crate::ast::{
    BinaryOp, Call, Declaration, Expr, ExprKind, File, Name, Order, Pipeline, PipelineItem, Schedule, ScheduleItem,
    Statement,
};
use crate::source::{FileId, Span};

/// More cells than that have the place of their row.
const MOST_PLACES: usize = 60_000;

impl Table {
    /// The file, with a schedule and a pipeline of this name.
    pub fn syntax(&self, id: FileId, name: &str) -> File {
        let start = Span { file: id, start: 0, end: 0 };
        let span = self.rows.first().and_then(|row| row.cells.first()).map_or(start, |cell| cell.span);
        let name = Name { text: name.to_owned(), span };
        let schedule = Schedule {
            doc: String::new(),
            name: name.clone(),
            parameters: Vec::new(),
            items: vec![
                ScheduleItem::Stages { count: integer(self.n_stages(), span), span },
                self.place(span),
                self.order(span),
            ],
            span,
        };
        let call = Call { name: name.clone(), arguments: Vec::new(), span };
        let items = vec![
            PipelineItem::Devices { count: integer(self.rows.len(), span), memory: None, host: None, span },
            PipelineItem::Microbatches { count: integer(self.n_microbatches() as usize, span), span },
            PipelineItem::Schedule(call),
        ];
        let pipeline = Pipeline { doc: String::new(), name, parameters: Vec::new(), items, span };
        File { id, declarations: vec![Declaration::Schedule(schedule), Declaration::Pipeline(pipeline)] }
    }

    /// `place s on ..`: the rank of each stage, stages without tasks where the one before is.
    fn place(&self, span: Span) -> ScheduleItem {
        let (known, n_stages) = (self.placement(), self.n_stages());
        let mut ranks = Vec::new();
        for (stage, rank) in known.into_iter().filter(|(stage, _)| (*stage as usize) < n_stages) {
            ranks.resize(stage as usize, ranks.last().copied().unwrap_or(0));
            ranks.push(rank);
        }
        let stage = Name { text: "s".to_owned(), span };
        ScheduleItem::Place { stage, microbatch: None, device: choice(&ranks, 0, span), span }
    }

    fn order(&self, span: Span) -> ScheduleItem {
        let n_cells: usize = self.rows.iter().map(|row| row.cells.len()).sum();
        let each_has_a_place = n_cells <= MOST_PLACES;
        let branch = |(rank, row): (usize, &Row)| {
            let is_rank = Box::new(named("d", row.span));
            let condition = ExprKind::Binary(BinaryOp::Equal, is_rank, Box::new(integer(rank, row.span)));
            let place = |cell: &Cell| if each_has_a_place { cell.span } else { row.span };
            let body = row.cells.iter().filter_map(|cell| statement(cell, place(cell))).collect();
            (Expr { kind: condition, span: row.span }, body)
        };
        let branches = self.rows.iter().enumerate().map(branch).collect();
        let body = vec![Statement::If { branches, otherwise: Vec::new() }];
        ScheduleItem::Order(Order { device: Name { text: "d".to_owned(), span }, body, span })
    }
}

/// What the language says of a cell; nothing, if it is no task.
fn statement(cell: &Cell, span: Span) -> Option<Statement> {
    match cell.partner {
        Some(partner) => Some(Statement::Pair { halves: vec![task(cell.action, span)?, task(partner, span)?], span }),
        None => task(cell.action, span),
    }
}

fn task(action: Action, span: Span) -> Option<Statement> {
    let microbatch = Some(integer(action.microbatch? as usize, span));
    Some(Statement::Task {
        kind: action.kind.task()?,
        part: None,
        stage: integer(action.stage as usize, span),
        microbatch,
        slice: None,
        span,
    })
}

/// `if s < k then .. else ..` down to the rank of each stage from `first` on: as deep as the number
/// of stages has binary digits.
fn choice(ranks: &[usize], first: usize, span: Span) -> Expr {
    if ranks.iter().all(|rank| *rank == ranks[0]) {
        return integer(ranks.first().copied().unwrap_or(0), span);
    }
    let (low, high) = ranks.split_at(ranks.len() / 2);
    let middle = first + low.len();
    let below = ExprKind::Binary(BinaryOp::Less, Box::new(named("s", span)), Box::new(integer(middle, span)));
    let condition = Box::new(Expr { kind: below, span });
    let (then, otherwise) = (Box::new(choice(low, first, span)), Box::new(choice(high, middle, span)));
    Expr { kind: ExprKind::If { condition, then, otherwise }, span }
}

fn integer(number: usize, span: Span) -> Expr {
    Expr { kind: ExprKind::Integer(i64::try_from(number).unwrap_or(i64::MAX)), span }
}

fn named(name: &str, span: Span) -> Expr {
    Expr { kind: ExprKind::Name(name.to_owned()), span }
}
