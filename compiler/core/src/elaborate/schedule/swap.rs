//! `swap`, `evict` and `fetch`: where the activations of stages may wait, and which leave and come back when.

use super::Writer;
use super::items::{Body, Items};
use super::marks::stage_here;
use pipe_ir::ids::{DeviceId, MicrobatchId, StageId};
use pipe_schedule::placement::names;
use pipe_schedule::swaps::{Home, Swap, SwapKind, Swaps};
use pipe_syntax::ast;
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::expr::scope::{Fault, Resolved};
use pipe_syntax::source::Span;
use std::collections::{BTreeMap, VecDeque};

/// What the line of a schedule says.
#[derive(Clone)]
pub(super) struct SwapLine {
    /// By stage: where its activations may wait, or the number of a device that is not there.
    homes: Vec<Result<Home, i64>>,
    span: Span,
}

/// A statement of an order.
pub(super) struct Movement<'a> {
    pub(super) kind: SwapKind,
    pub(super) stage: Resolved<'a>,
    pub(super) microbatch: Option<Resolved<'a>>,
    pub(super) slice: Option<Resolved<'a>>,
    pub(super) origin: u16,
    pub(super) span: Span,
}

/// Rule: activations leave by statements of an order, and whole stages alone have them.
pub(super) fn allowed(writer: &mut Writer<'_>, items: &Items<'_>, has_parts: Option<Span>) {
    let Some(line) = items.swap else { return };
    if let Some((Body::Block(block), _)) = items.body {
        let message = "`swap` needs an `order` with `evict` and `fetch`, and this schedule has a `block`";
        let error = Diagnostic::error(Code::RepeatedItem, line.span, "nothing evicts", message);
        writer.report.add(error.label(block.span, "has tasks only"));
    }
    if let Some(parts) = has_parts {
        let message = "`swap` is for whole stages, and stages have parts";
        let error = Diagnostic::error(Code::WrongSwap, line.span, "of whole stages", message);
        writer.report.add(error.label(parts, "these are parts").help("leave `parts` or `swap` out"));
    }
}

/// Evaluates the line for every stage.
pub(super) fn line<'a>(writer: &mut Writer<'a>, line: &'a ast::Swap, n_stages: u32) -> Result<SwapLine, Fault> {
    let Some(device) = &line.device else {
        return Ok(SwapLine { homes: vec![Ok(Home::Host); n_stages as usize], span: line.span });
    };
    let slot = writer.variable(&line.stage)?;
    let code = writer.scope.number(device)?;
    let mut homes = Vec::with_capacity(n_stages as usize);
    for stage in 0..n_stages {
        writer.machine.set(slot, i64::from(stage));
        let value = writer.eval(&code)?;
        let known = u32::try_from(value).ok().filter(|device| *device < writer.n_devices);
        homes.push(known.map(|device| Home::Peer(DeviceId(device))).ok_or(value));
    }
    writer.machine.restore(slot, None);
    Ok(SwapLine { homes, span: line.span })
}

/// The error for a statement of a schedule without the line.
pub(super) fn without_line(kind: SwapKind, span: Span) -> Diagnostic {
    let word = kind.word();
    let message = format!("`{word}` needs a line `swap`: nothing says where activations wait");
    let error = Diagnostic::error(Code::WrongSwap, span, "nowhere to wait", message);
    error.help("add a line such as `swap s to D - 1 - s` for another device, or `swap s to host`")
}

/// What of a stage is out, as far as its list was run.
#[derive(Default)]
struct Away {
    /// The microbatch after the last one that was evicted. Each slice counts as one.
    next: u32,
    /// What is out, in the order in which it left.
    out: VecDeque<u32>,
}

/// The swaps of all devices, as far as they were run.
pub(super) struct WrittenSwaps {
    away: BTreeMap<StageId, Away>,
    homes: Vec<Option<Home>>,
}

impl WrittenSwaps {
    pub(super) fn new(n_stages: usize) -> Self {
        Self { away: BTreeMap::new(), homes: vec![None; n_stages] }
    }

    /// Returns all swaps. `lists` has the swaps of each device, in the order of its list.
    pub(super) fn finish(self, lists: Vec<Vec<Swap>>) -> Swaps {
        Swaps::new(self.homes, lists)
    }

    /// Runs a statement of a device. Returns the reason if it is refused.
    pub(super) fn run<'a>(
        &mut self,
        writer: &mut Writer<'a>,
        movement: &Movement<'a>,
        device: DeviceId,
    ) -> Result<Result<Swap, Diagnostic>, Fault> {
        let stage = match self.stage(writer, movement, device)? {
            Ok(stage) => stage,
            Err(refused) => return Ok(Err(refused)),
        };
        let microbatch = match self.microbatch(writer, movement, stage)? {
            Ok(microbatch) => microbatch,
            Err(refused) => return Ok(Err(refused)),
        };
        let Movement { kind, origin, .. } = *movement;
        let away = self.away.entry(stage).or_default();
        match kind {
            SwapKind::Evict => {
                away.next = microbatch.saturating_add(1);
                away.out.push_back(microbatch);
            }
            SwapKind::Fetch => away.out.retain(|out| *out != microbatch),
        }
        Ok(Ok(Swap { kind, stage, microbatch: MicrobatchId(microbatch), at: 0, origin }))
    }

    /// The stage, which lives on this device alone and has somewhere to wait.
    fn stage<'a>(
        &mut self,
        writer: &mut Writer<'a>,
        movement: &Movement<'a>,
        device: DeviceId,
    ) -> Result<Result<StageId, Diagnostic>, Fault> {
        let word = movement.kind.word();
        let stage = match stage_here(writer, (word, &movement.stage, movement.span), device)? {
            Ok(stage) => stage,
            Err(refused) => return Ok(Err(refused)),
        };
        let homes = writer.placement.devices_of(stage);
        if homes.len() > 1 {
            let message = format!("{stage} lives on {}, and only what one device keeps can leave", names(homes));
            let label = format!("of a stage on {} devices", homes.len());
            return Ok(Err(Diagnostic::error(Code::WrongSwap, movement.span, label, message)));
        }
        let Some(line) = &writer.swap else {
            return Ok(Err(without_line(movement.kind, movement.span)));
        };
        let home = match line.homes.get(stage.index()) {
            Some(Ok(home)) => *home,
            Some(Err(number)) => {
                let last = writer.n_devices - 1;
                let message = format!("activations of {stage} wait on device {number}, but devices are d0 to d{last}");
                let error = Diagnostic::error(Code::OutOfRange, line.span, format!("{number} for {stage}"), message);
                return Ok(Err(error.label(movement.span, "one leaves here")));
            }
            None => return Ok(Err(without_line(movement.kind, movement.span))),
        };
        if home == Home::Peer(device) {
            let message = format!("activations of {stage} wait on {device}, where {stage} lives");
            let error = Diagnostic::error(Code::WrongSwap, line.span, format!("{device} for {stage}"), message);
            let help = format!("name another device for {stage}, or evict nothing of it");
            return Ok(Err(error.label(movement.span, "one leaves here").help(help)));
        }
        self.homes[stage.index()] = Some(home);
        Ok(Ok(stage))
    }

    /// What leaves or comes back. Each slice counts as a microbatch.
    fn microbatch<'a>(
        &self,
        writer: &mut Writer<'a>,
        movement: &Movement<'a>,
        stage: StageId,
    ) -> Result<Result<u32, Diagnostic>, Fault> {
        let named = movement.microbatch.as_ref().map(|code| writer.eval(code)).transpose()?;
        let slice = movement.slice.as_ref().map(|code| writer.eval(code)).transpose()?;
        let (word, n_slices, n_microbatches) = (movement.kind.word(), writer.slices.count(), writer.n_microbatches);
        let away = self.away.get(&stage);
        let outside = |code: Option<&Resolved<'a>>, label: String, message: String| {
            let span = code.map_or(movement.span, |code| code.expr.span);
            Ok(Err(Diagnostic::error(Code::TaskOutside, span, label, message)))
        };
        let next = match (movement.kind, away) {
            (SwapKind::Evict, away) => Some(away.map_or(0, |away| away.next)),
            (SwapKind::Fetch, away) => away.and_then(|away| away.out.front().copied()),
        };
        let Some(number) = named else {
            return match next {
                Some(next) if next / n_slices < n_microbatches => Ok(Ok(next)),
                Some(_) => {
                    let last = n_microbatches - 1;
                    let message = format!("`{word}` of {stage} has no microbatch left: the last one is m{last}");
                    outside(None, "without a microbatch, it takes the one after the last".to_owned(), message)
                }
                None => {
                    let message =
                        format!("`{word}` of {stage} has nothing to take: no activation of {stage} is out here");
                    let error = Diagnostic::error(Code::WrongSwap, movement.span, "nothing to fetch", message);
                    Ok(Err(error.help("without a microbatch, it takes what has been out longest")))
                }
            };
        };
        let Some(microbatch) = u32::try_from(number).ok().filter(|number| *number < n_microbatches) else {
            let last = n_microbatches - 1;
            let message = format!("`{word}` of {stage} names microbatch {number}, but microbatches are m0 to m{last}");
            return outside(movement.microbatch.as_ref(), format!("this is {number}"), message);
        };
        let first = microbatch * n_slices;
        let of_same = |one: &u32| *one / n_slices == microbatch;
        Ok(Ok(match (slice, movement.kind) {
            (None, SwapKind::Evict) => next.filter(of_same).unwrap_or(first),
            (None, SwapKind::Fetch) => {
                let mut out = away.into_iter().flat_map(|away| &away.out).copied();
                out.find(of_same).unwrap_or(first)
            }
            (Some(slice), _) => match u32::try_from(slice).ok().filter(|slice| *slice < n_slices) {
                Some(slice) => first + slice,
                None => {
                    let last = n_slices - 1;
                    let message = format!("`{word}` of {stage} names slice {slice}, but slices are q0 to q{last}");
                    return outside(movement.slice.as_ref(), format!("this is {slice}"), message);
                }
            },
        }))
    }
}
