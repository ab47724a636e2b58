//! `tensor` and `data`: how many devices stand in for each device of the schedule.

use crate::elaborate::Request;
use crate::elaborate::parameters::setting;
use pipe_model::transformer::Transformer;
use pipe_syntax::ast::{Call, Expr};
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::edits;
use pipe_syntax::expr::evaluate::exact;
use pipe_syntax::expr::known::Known;
use pipe_syntax::limits::{Report, within};
use pipe_syntax::source::Span;

/// How many, and where that was said.
pub(in crate::elaborate::pipeline) type Placed = Option<(u32, Span)>;

/// One of both words.
#[derive(Clone, Copy)]
pub(in crate::elaborate::pipeline) struct Degree {
    pub(in crate::elaborate::pipeline) word: &'static str,
    /// What is counted, for errors.
    pub(in crate::elaborate::pipeline) counted: &'static str,
    pub(in crate::elaborate::pipeline) most: u32,
    pub(in crate::elaborate::pipeline) code: Code,
}

impl Degree {
    /// What the caller sets, or else the line says, or else the brackets of a `config.json` that is trained.
    pub(in crate::elaborate::pipeline) fn value(
        self,
        (written, of_config, is_by_sizes): (Option<(&Expr, Span)>, Placed, bool),
        (span, request, known): (Span, &Request, &Known<'_>),
        report: &mut Report,
    ) -> Placed {
        // Of a `config.json` that is known by its sizes, the value is a setting of the model.
        let set = setting(request, self.word).filter(|_| !is_by_sizes);
        let (value, span) = match (set, written) {
            (Some(value), _) => (value, written.map_or(span, |(_, span)| span)),
            (None, Some((expr, span))) => (report.take(exact(expr, known))?, span),
            (None, None) => return of_config,
        };
        if let (Some((_, first)), Some((_, second))) = (of_config, written) {
            let message = format!("`{}` is given twice", self.word);
            let error = Diagnostic::error(Code::RepeatedItem, second, "given again", message);
            report.add(error.label(first, "given first").help("leave one of them out"));
        }
        Some((report.take(within(self.counted, value, 1..=self.most, span))?, span))
    }

    /// An error: the line stands beside a model that is known by its sizes, of which the number is a setting.
    pub(in crate::elaborate::pipeline) fn beside_sizes(
        self,
        (value, span): (u32, Span),
        transformer: &Transformer,
        line: Option<&Call>,
    ) -> Diagnostic {
        let (word, path) = (self.word, &transformer.config.path);
        let message = format!("how `{path}` is divided is a setting of the model");
        let help = format!("say `{word} = {value}` in the brackets behind it");
        let error = Diagnostic::error(self.code, span, "stands here for nothing", message).help(help);
        let more = line.and_then(|call| edits::one_more(call, &format!("{word} = {value}")));
        let moved = more.map(|more| error.clone().edit(span, "").edit(more.span, more.text));
        moved.unwrap_or(error)
    }
}
