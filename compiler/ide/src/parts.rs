//! Lanes and parts: where schedules and pipelines declare them, and what their names mean elsewhere.
//!
//! A part has one name in all branches of its `parts`: it is declared where that names it first. A pipeline may name
//! the lanes and parts of its schedule.

use super::{NameKind, Walker};
use crate::completion::{OfferKind, Offers};
use crate::place::Place;
use crate::reference::KINDS;
use pipe_syntax::ast::{self, PipelineItem};
use pipe_syntax::parse::tokens::{TokenKind, tokens};
use pipe_syntax::parse::{declaration_starts, is_name};
use pipe_syntax::source::Span;

impl Walker {
    /// What a pipeline and its phases declare.
    pub(super) fn lanes_and_parts(&mut self, owner: usize, items: &[PipelineItem]) {
        for item in items {
            match item {
                PipelineItem::Lane(lane) => self.lane(owner, lane),
                PipelineItem::Parts(parts) => self.parts(owner, parts),
                PipelineItem::Phase(phase) => self.lanes_and_parts(owner, &phase.items),
                _ => {}
            }
        }
    }

    pub(super) fn lane(&mut self, owner: usize, lane: &ast::Lane) {
        self.declare_once(owner, NameKind::Lane, &lane.name, lane.span);
    }

    pub(super) fn parts(&mut self, owner: usize, parts: &ast::StageParts) {
        parts.list.each_part(&mut |name, lane| {
            let end = lane.map_or(name.span.end, |lane| lane.span.end);
            self.declare_once(owner, NameKind::Part, name, Span { end, ..name.span });
        });
    }

    /// A member of a declaration; where it is named again, the first one is meant.
    fn declare_once(&mut self, owner: usize, kind: NameKind, name: &ast::Name, whole: Span) {
        match self.member(owner, kind, &name.text) {
            Some(first) => self.refer(name.span, Some(first)),
            None => {
                let index = self.define(kind, name, whole, "");
                self.members.insert((owner, kind, name.text.clone()), index);
            }
        }
    }

    /// Lanes that parts of the declaration at hand are on.
    pub(super) fn lanes_of(&mut self, parts: &ast::StageParts) {
        parts.list.each_part(&mut |_, lane| {
            if let Some(lane) = lane {
                self.refer(lane.span, self.of_schedule(NameKind::Lane, &lane.text));
            }
        });
    }

    /// A part that a task or a number names.
    pub(super) fn part(&mut self, part: Option<&ast::Name>) {
        if let Some(part) = part {
            self.refer(part.span, self.of_schedule(NameKind::Part, &part.text));
        }
    }

    /// Refers to the part in a name such as `F.attention`.
    pub(super) fn part_behind(&mut self, name: &ast::Name) {
        let Some((_, part)) = name.text.split_once('.') else { return };
        let start = name.span.end.saturating_sub(u32::try_from(part.len()).unwrap_or(u32::MAX));
        self.refer(Span { start, ..name.span }, self.of_schedule(NameKind::Part, part));
    }

    /// What a name of a lane or part means: of the declaration at hand, or of the schedule that it names. A function of
    /// a file may be for any schedule: there it means what is declared only once.
    fn of_schedule(&self, kind: NameKind, name: &str) -> Option<usize> {
        let owner = self.owner?;
        let own = [Some(owner), self.schedule].into_iter().flatten().find_map(|owner| self.member(owner, kind, name));
        if own.is_some() || self.names.definitions[owner].kind != NameKind::Function {
            return own;
        }
        let mut all = self.members.iter().filter(|((_, other, text), _)| *other == kind && text == name);
        all.next().map(|(_, index)| *index).filter(|_| all.next().is_none())
    }
}

/// Which names of a text are lanes, and which are parts, also where it does not parse.
#[derive(Default)]
struct Written<'t> {
    /// Each with its kind and all that declares it.
    names: Vec<(NameKind, &'t str, &'t str)>,
    /// Whether the name of a lane comes next.
    expects_lane: bool,
}

/// Where a line of parts is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Line {
    Outside,
    /// In front of a part.
    Part,
    /// In a condition or a count, which a word ends.
    Expression,
    /// Behind a part, or its lane.
    Behind,
    /// In front of a lane.
    Lane,
}

impl<'t> Written<'t> {
    fn of(text: &'t str) -> Self {
        let is_comment = |kind| matches!(kind, TokenKind::Comment | TokenKind::Documentation);
        let all: Vec<_> = tokens(text).into_iter().filter(|token| !is_comment(token.kind)).collect();
        let word = |index: usize| all.get(index).and_then(|token| text.get(token.place.clone())).unwrap_or_default();
        let (mut found, mut line) = (Self::default(), Line::Outside);
        for index in 0..all.len() {
            let (own, back) = (word(index), |by: usize| index.checked_sub(by).map_or("", word));
            line = match (line, own) {
                (Line::Outside, "=") if back(2) == "parts" => Line::Part,
                (Line::Outside, _) => {
                    if back(1) == "lane" && is_name(own, false) {
                        found.names.push((
                            NameKind::Lane,
                            own,
                            text.get(all[index - 1].place.start..all[index].place.end).unwrap_or_default(),
                        ));
                    }
                    Line::Outside
                }
                (Line::Part, "if" | "repeat") => Line::Expression,
                (Line::Expression, "then" | "{") | (Line::Behind, "," | "else") => Line::Part,
                (Line::Expression, _) => Line::Expression,
                (Line::Behind, "}") => Line::Behind,
                (Line::Behind, "on") => Line::Lane,
                (Line::Part, name) if is_name(name, false) => {
                    let end =
                        if word(index + 1) == "on" && is_name(word(index + 2), false) { index + 2 } else { index };
                    let whole = text.get(all[index].place.start..all[end].place.end).unwrap_or_default();
                    found.names.push((NameKind::Part, name, whole));
                    Line::Behind
                }
                (Line::Lane, name) if is_name(name, false) => Line::Behind,
                _ => Line::Outside,
            };
        }
        found.expects_lane = line == Line::Lane;
        found
    }
}

/// What comes next behind the beginning of a declaration, if it is the name of a part or of a lane.
pub(crate) fn wanted(begin: &str) -> Option<NameKind> {
    let kind =
        begin.strip_suffix('.').and_then(|before| before.rsplit(|letter: char| !letter.is_ascii_alphanumeric()).next());
    if kind.is_some_and(|kind| KINDS.iter().any(|(known, _)| *known == kind)) {
        return Some(NameKind::Part);
    }
    Written::of(begin).expects_lane.then_some(NameKind::Lane)
}

/// Returns the lanes or parts that the source may name at a place. A schedule or pipeline may name its own, and a
/// pipeline may also name the ones of its schedule. A function may name the ones of all schedules in the file.
pub(crate) fn known(place: &Place<'_>, wanted: NameKind, begin: &str, rest: &str) -> Offers {
    let end = declaration_starts(rest).find(|begins| *begins > 0).unwrap_or(rest.len());
    let text = format!("{begin} {}", &rest[..end]);
    let written = Written::of(&text);
    let words: Vec<&str> = tokens(&text).iter().filter_map(|token| text.get(token.place.clone())).collect();
    let is_named = |name: &str| words.windows(2).any(|pair| pair[0] == "schedule" && pair[1] == name);
    let is_meant = |owner: usize| match words.first() {
        Some(&"let") => true,
        Some(&"pipeline") => place.names.definitions.get(owner).is_some_and(|owner| is_named(&owner.name)),
        _ => false,
    };
    let others =
        place.names.definitions.iter().filter(|found| found.kind == wanted && found.owner.is_some_and(is_meant));
    let others = others.map(|found| (found.name.clone(), place.written(found.whole).to_owned()));
    let own = written.names.iter().filter(|(kind, ..)| *kind == wanted);
    let own = own.rev().map(|(_, name, whole)| ((*name).to_owned(), (*whole).to_owned()));
    let mut offers = Offers::new();
    for (name, whole) in others.chain(own) {
        let detail = whole.split_whitespace().collect::<Vec<_>>().join(" ");
        let detail = if wanted == NameKind::Part { format!("part {detail}") } else { detail };
        offers.insert(name, (OfferKind::Part, detail));
    }
    offers
}
