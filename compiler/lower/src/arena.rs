//! The arena of a device: every lifespan gets a place, so that the run allocates once.
//!
//! Which bytes are alive at which instruction is known, so the peak is exact; the arena is as large
//! only if lifespans can be packed without holes. Placing rectangles in time and address space is
//! NP-hard (Garey and Johnson, SR2, dynamic storage allocation), so a few cheap strategies compete,
//! the smallest arena wins, and in small programs a search improves it: whatever reaches highest is
//! placed earlier, as long as that makes nothing worse.

use super::emit::Code;
use super::{Options, index32};
use pipe_ir::ids::{BufferId, DeviceId};
use pipe_ir::instruction::LifespanEvent;
use pipe_ir::program::{Buffer, DeviceProgram, Extent, Space};
use pipe_ir::units::Bytes;
use std::collections::BTreeMap;

/// Lifespans up to which all strategies are tried, also the quadratic ones.
const FEW: usize = 2_000;
/// Pairs of lifespans that the search compares at most.
const EFFORT: usize = 10_000_000;
/// Lifespans up to which the linear ones are tried.
const MANY: usize = 200_000;

/// One lifespan: bytes, and the half-open range of events in which they are alive.
#[derive(Clone, Copy, Debug)]
struct Span {
    bytes: u64,
    from: u32,
    to: u32,
}

impl Span {
    /// Whether both are alive at some moment.
    fn meets(&self, other: &Self) -> bool {
        self.from < other.to && other.from < self.to
    }
}

/// What is alive when.
struct Lifespans {
    /// By buffer.
    spans: Vec<Span>,
    /// Allocations and frees in their order; the buffer, and whether it is allocated.
    events: Vec<(u32, bool)>,
    peak: u64,
}

/// Gives every buffer of a device its place. Lifespans at the same place share a row of the table.
pub(super) fn place(device: DeviceId, code: Code, options: &Options) -> DeviceProgram {
    let lifespans = Space::ALL.map(|space| Lifespans::of(&code, space));
    let offsets = [best(&lifespans[0]), best(&lifespans[1])];
    let (mut rows, mut buffers) = (BTreeMap::new(), Vec::new());
    let mut arenas = [Bytes::ZERO; Space::ALL.len()];
    let row_of = |(index, (bytes, space)): (usize, &(Bytes, Space))| {
        let (bytes, space, offset) = (*bytes, *space, Bytes(offsets[space.index()][index]));
        arenas[space.index()] = arenas[space.index()].max(offset + bytes);
        // Of those without bytes, several may be alive at once: shares of weights that are too small for all.
        let stays = lifespans[space.index()].spans[index].to == u32::MAX;
        let number = if bytes == Bytes::ZERO && stays { index } else { 0 };
        *rows.entry((space, offset, bytes, number)).or_insert_with(|| {
            buffers.push(Buffer { bytes, offset, space });
            BufferId(index32(buffers.len() - 1))
        })
    };
    let names: Vec<BufferId> = code.buffers.iter().enumerate().map(row_of).collect();
    let [own, host] = Space::ALL.map(Space::index);
    let host = Extent { limit: None, arena: arenas[host], peak: Bytes(lifespans[host].peak) };
    let [memory, of_host] = [&options.memory, &options.host].map(|said| said.as_ref().map(|all| all.of(device)));
    let mut device = DeviceProgram {
        limit: memory,
        arena: arenas[own],
        peak: Bytes(lifespans[own].peak),
        host: if host == Extent::default() { host } else { Extent { limit: of_host, ..host } },
        buffers,
        operands: code.operands,
        n_tokens: code.n_tokens,
        setup: code.setup,
        step: code.step,
    };
    // An operand without a buffer stays as it is, for the verifier to find.
    let rename = |buffer: &mut BufferId| *buffer = names.get(buffer.index()).copied().unwrap_or(*buffer);
    device.operands.iter_mut().for_each(rename);
    for instruction in device.setup.iter_mut().chain(&mut device.step) {
        instruction.fields(|buffer, _| rename(buffer));
    }
    device
}

impl Lifespans {
    /// Those in one space; the others have no bytes.
    fn of(code: &Code, space: Space) -> Self {
        let is_own = |buffer: BufferId| code.buffers[buffer.index()].1 == space;
        let span = |(bytes, own): &(Bytes, Space)| Span {
            bytes: if *own == space { bytes.0 } else { 0 },
            from: 0,
            to: u32::MAX,
        };
        let mut lifespans = Self { spans: code.buffers.iter().map(span).collect(), events: Vec::new(), peak: 0 };
        let mut alive = 0;
        for instruction in code.setup.iter().chain(&code.step) {
            let now = index32(lifespans.events.len());
            match instruction.lifespan() {
                Some(LifespanEvent::Begins(buffer)) if is_own(buffer) => {
                    let span = &mut lifespans.spans[buffer.index()];
                    span.from = now;
                    alive += span.bytes;
                    lifespans.peak = lifespans.peak.max(alive);
                    lifespans.events.push((buffer.0, true));
                }
                Some(LifespanEvent::Ends(buffer)) if is_own(buffer) => {
                    let span = &mut lifespans.spans[buffer.index()];
                    span.to = now;
                    alive -= span.bytes;
                    lifespans.events.push((buffer.0, false));
                }
                Some(LifespanEvent::Begins(_) | LifespanEvent::Ends(_)) | None => {}
            }
        }
        lifespans
    }
}

/// The offsets of the smallest arena that any strategy finds.
fn best(lifespans: &Lifespans) -> Vec<u64> {
    let mut offsets = in_order(lifespans, 0);
    let mut smallest = size(lifespans, &offsets);
    if smallest == lifespans.peak {
        return offsets;
    }
    let mut consider = |candidate: Vec<u64>| {
        let size = size(lifespans, &candidate);
        if size < smallest {
            (smallest, offsets) = (size, candidate);
        }
        smallest == lifespans.peak
    };
    let n_spans = lifespans.spans.len();
    let mut done = n_spans > MANY;
    for divisor in [4, 16, 64, 2] {
        done = done || consider(in_order(lifespans, lifespans.events.len() / divisor));
    }
    if !done && n_spans <= FEW {
        let area = |span: &Span| u128::from(span.bytes) * u128::from(span.to - span.from);
        done = consider(by_rank(lifespans, |span| u128::from(span.bytes)));
        done = done || consider(by_rank(lifespans, area));
        done = done || consider(by_rank(lifespans, |span| u128::from(span.to - span.from)));
        if !done {
            offsets = search(lifespans, offsets);
        }
    }
    offsets
}

/// Bytes up to the end of the highest lifespan.
fn size(lifespans: &Lifespans, offsets: &[u64]) -> u64 {
    lifespans.spans.iter().zip(offsets).map(|(span, offset)| offset + span.bytes).max().unwrap_or(0)
}

/// Places lifespans as they begin, where they fit best: those of at most `short` events at the upper end of the peak,
/// the others at the lower end, so that neither cut the other's holes in pieces.
fn in_order(lifespans: &Lifespans, short: usize) -> Vec<u64> {
    let mut offsets = vec![0; lifespans.spans.len()];
    let mut gaps = Gaps { free: vec![(0, u64::MAX)], top: lifespans.peak };
    for (buffer, begins) in &lifespans.events {
        let span = lifespans.spans[*buffer as usize];
        let offset = &mut offsets[*buffer as usize];
        if span.bytes == 0 {
            continue;
        }
        if *begins {
            let high = ((span.to - span.from) as usize) < short;
            *offset = if high { gaps.take_high(span.bytes) } else { gaps.take_low(span.bytes) };
        } else {
            gaps.give_back(*offset, *offset + span.bytes);
        }
    }
    offsets
}

/// The bytes that nobody uses, as ranges in their order that do not touch. The last one never ends.
struct Gaps {
    free: Vec<(u64, u64)>,
    top: u64,
}

impl Gaps {
    /// The gap that leaves least over, where `usable` says how much of it can be used.
    fn fit(&self, bytes: u64, usable: impl Fn(&(u64, u64)) -> u64) -> Option<usize> {
        let mut found = None;
        let mut least = u64::MAX;
        for (index, gap) in self.free.iter().enumerate() {
            let length = usable(gap);
            if length >= bytes && length < least {
                (found, least) = (Some(index), length);
                if length == bytes {
                    break;
                }
            }
        }
        found
    }

    /// Takes the lower end of a gap.
    fn take_low(&mut self, bytes: u64) -> u64 {
        let index = self.fit(bytes, |(start, end)| end - start).unwrap_or(self.free.len() - 1);
        let (start, end) = self.free[index];
        if end - start == bytes {
            self.free.remove(index);
        } else {
            self.free[index].0 += bytes;
        }
        start
    }

    /// Takes the upper end of a gap below the top; failing that, the lower end of any.
    fn take_high(&mut self, bytes: u64) -> u64 {
        let top = self.top;
        let Some(index) = self.fit(bytes, |(start, end)| (*end).min(top).saturating_sub(*start)) else {
            return self.take_low(bytes);
        };
        let (start, end) = self.free[index];
        let taken = end.min(top) - bytes;
        let (below, above) = ((start, taken), (end.min(top), end));
        match (below.0 < below.1, above.0 < above.1) {
            (true, true) => {
                self.free[index] = below;
                self.free.insert(index + 1, above);
            }
            (true, false) => self.free[index] = below,
            (false, true) => self.free[index] = above,
            (false, false) => {
                self.free.remove(index);
            }
        }
        taken
    }

    fn give_back(&mut self, start: u64, end: u64) {
        let after = self.free.partition_point(|gap| gap.0 < start);
        let joins_before = after > 0 && self.free[after - 1].1 == start;
        let joins_after = self.free.get(after).is_some_and(|gap| gap.0 == end);
        match (joins_before, joins_after) {
            (true, true) => {
                self.free[after - 1].1 = self.free[after].1;
                self.free.remove(after);
            }
            (true, false) => self.free[after - 1].1 = end,
            (false, true) => self.free[after].0 = start,
            (false, false) => self.free.insert(after, (start, end)),
        }
    }
}

/// Places lifespans from the highest rank to the lowest.
fn by_rank(lifespans: &Lifespans, rank: impl Fn(&Span) -> u128) -> Vec<u64> {
    let spans = &lifespans.spans;
    let mut order: Vec<usize> = (0..spans.len()).filter(|index| spans[*index].bytes > 0).collect();
    order.sort_by_key(|index| std::cmp::Reverse(rank(&spans[*index])));
    let mut offsets = vec![0; spans.len()];
    first_fit(spans, &order, 0, &mut offsets, u64::MAX);
    offsets
}

/// Places lifespans in this order, each at the lowest offset that is free during its whole life. The first `n_placed`
/// of `order` keep their `offsets`. Returns the size in bytes. Stops early if the size exceeds `most`.
fn first_fit(spans: &[Span], order: &[usize], n_placed: usize, offsets: &mut [u64], most: u64) -> u64 {
    // With their offsets, by offset.
    let mut placed: Vec<(u64, Span)> = Vec::with_capacity(order.len());
    placed.extend(order[..n_placed].iter().map(|index| (offsets[*index], spans[*index])));
    placed.sort_by_key(|(start, _)| *start);
    let mut highest = placed.iter().map(|(start, span)| start + span.bytes).max().unwrap_or(0);
    for index in &order[n_placed..] {
        let span = spans[*index];
        let mut offset = 0;
        for (start, other) in &placed {
            if !span.meets(other) {
                continue;
            }
            if *start >= offset + span.bytes {
                break;
            }
            offset = offset.max(start + other.bytes);
        }
        highest = highest.max(offset + span.bytes);
        if highest > most {
            break;
        }
        offsets[*index] = offset;
        placed.insert(placed.partition_point(|(start, _)| *start < offset), (offset, span));
    }
    highest
}

/// Looks for a smaller arena: the highest lifespan is placed right before one that it shares time
/// with, again and again. The choices are random and the same for every run.
fn search(lifespans: &Lifespans, mut offsets: Vec<u64>) -> Vec<u64> {
    let spans = &lifespans.spans;
    let mut order: Vec<usize> = (0..spans.len()).filter(|index| spans[*index].bytes > 0).collect();
    // From the lowest place up, first fit puts everything where it is, or lower.
    order.sort_by_key(|index| offsets[*index]);
    let mut smallest = first_fit(spans, &order, 0, &mut offsets, u64::MAX);
    let mut candidate = offsets.clone();
    let mut random = 1_u64;
    let rounds = EFFORT / (order.len() * order.len()).max(1);
    for _ in 0..rounds {
        let ends_highest = |index: &usize| offsets[*index] + spans[*index].bytes == smallest;
        let Some(highest) = order.iter().position(ends_highest) else { break };
        let rivals =
            order[..highest].iter().enumerate().filter(|(_, other)| spans[**other].meets(&spans[order[highest]]));
        let rivals: Vec<usize> = rivals.map(|(position, _)| position).collect();
        if rivals.is_empty() || smallest == lifespans.peak {
            break;
        }
        // A linear congruential generator (Knuth, MMIX); its high bits are the random ones.
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let rival = rivals[(random >> 33) as usize % rivals.len()];
        order[rival..=highest].rotate_right(1);
        candidate.copy_from_slice(&offsets);
        let size = first_fit(spans, &order, rival, &mut candidate, smallest);
        if size <= smallest {
            smallest = size;
            std::mem::swap(&mut offsets, &mut candidate);
        } else {
            order[rival..=highest].rotate_left(1);
        }
    }
    offsets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifespans_that_keep_their_offsets_change_nothing_and_a_size_above_the_limit_is_noticed() {
        let mut random = 7_u64;
        let mut number = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        for _ in 0..50 {
            let mut span = || {
                let from = index32(number(90) as usize);
                Span { bytes: 1 + number(9), from, to: from + 1 + index32(number(30) as usize) }
            };
            let spans: Vec<Span> = (0..40).map(|_| span()).collect();
            let order: Vec<usize> = (0..spans.len()).collect();
            let mut whole = vec![0; spans.len()];
            let size = first_fit(&spans, &order, 0, &mut whole, u64::MAX);
            for (index, one) in spans.iter().enumerate() {
                for (other, two) in spans.iter().enumerate().skip(index + 1) {
                    let apart = whole[index] + one.bytes <= whole[other] || whole[other] + two.bytes <= whole[index];
                    assert!(apart || !one.meets(two), "{one:?} and {two:?}");
                }
            }
            for n_placed in [1, 13, 39, 40] {
                let mut again = whole.clone();
                again[n_placed..].fill(0);
                assert_eq!(first_fit(&spans, &order, n_placed, &mut again, size), size);
                assert_eq!(again, whole, "{n_placed} keep their offsets");
            }
            assert!(first_fit(&spans, &order, 0, &mut whole.clone(), size - 1) >= size);
        }
    }
}
