//! What collectives find in buffers, and what they leave there.
//!
//! Gradients are reduced after all that is added to them, once in a step: whole, or each device its
//! share. Shares of weights are exchanged once each device has updated its own, and are those of
//! the next version from then on. Of weights that are kept in shares, what is gathered has the
//! version of the shares.

use super::{Content, Contents, Joined, Sum};
use crate::ids::{BufferId, GroupId, MicrobatchId, ValueId};
use crate::instruction::Collective;
use crate::shares::share;
use crate::units::ALIGNMENT;
use crate::value::ValueKind;
use crate::verify::tables::shares;

impl Contents<'_> {
    /// Takes part in a collective.
    pub(super) fn join(
        &mut self,
        index: usize,
        buffer: BufferId,
        collective: Collective,
        group: GroupId,
    ) -> Result<(), String> {
        let content = self.buffers[buffer.index()];
        if let Content::Of(value, microbatch) | Content::Exchanged(value, microbatch) = content {
            return self.exchange(index, (buffer, value, microbatch), collective, group);
        }
        let gathers = collective == Collective::AllGather;
        let value = match content {
            Content::Unknown => return Ok(()),
            Content::Version(value, _) | Content::Share(value, _) if gathers => value,
            Content::Persistent(value) if !gathers => value,
            Content::Nothing
            | Content::Persistent(_)
            | Content::Version(..)
            | Content::Between(..)
            | Content::Share(..)
            | Content::Exchanged(..)
            | Content::Of(..) => return self.unfit(buffer, collective),
        };
        let bytes = self.code.buffers[buffer.index()].bytes;
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        self.joined.push(Joined { index, collective, group, value, bytes, version: None });
        let row = self.program.value(value);
        if collective != Collective::AllReduce && bytes != row.bytes.aligned() {
            return Err(format!(
                "{buffer} has {} bytes, so that shares of `{}` are not found in it",
                bytes.0, row.name
            ));
        }
        match (collective, row.kind) {
            (Collective::AllGather, ValueKind::Parameters) => self.gather(buffer, (value, content), group),
            (Collective::AllReduce, ValueKind::ParameterGradients) => self.reduce(buffer, value, Sum::Reduced),
            (Collective::ReduceScatter, ValueKind::ParameterGradients) => {
                self.reduce(buffer, value, Sum::Scattered(group))
            }
            (Collective::AllReduce, ValueKind::GradientNorm) => self.reduce_norm(group),
            _ => self.unfit(buffer, collective),
        }
    }

    /// The members of a device exchange what a piece of a task made.
    fn exchange(
        &mut self,
        index: usize,
        (buffer, value, microbatch): (BufferId, ValueId, MicrobatchId),
        collective: Collective,
        group: GroupId,
    ) -> Result<(), String> {
        let row = self.program.value(value);
        if row.kind != ValueKind::Exchanged || self.buffers[buffer.index()] != Content::Of(value, microbatch) {
            return self.unfit(buffer, collective);
        }
        if let Some(other) = self.holders.exchanges(value).filter(|other| *other != collective) {
            let (own, other) = (collective.word(), other.word());
            return Err(format!("joins `{}` by {own}, and its readers expect {other}", row.name));
        }
        let bytes = self.code.buffers[buffer.index()].bytes;
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        self.joined.push(Joined { index, collective, group, value, bytes, version: None });
        self.buffers[buffer.index()] = Content::Exchanged(value, microbatch);
        let part = share(bytes, self.program.members as usize, 0).end;
        if collective != Collective::AllReduce && part.0 * u64::from(self.program.members) != row.bytes.0 {
            return Err(format!(
                "{} bytes of `{}` are no parts of {} members",
                row.bytes.0, row.name, self.program.members
            ));
        }
        let end = row.tensors.iter().map(|slot| slot.offset.0.saturating_add(slot.ty.bytes().0)).max().unwrap_or(0);
        if collective == Collective::AllToAll && end > row.bytes.0 / 2 {
            return Err(format!("`{}` is written up to byte {end}, where members write what they exchange", row.name));
        }
        Ok(())
    }

    fn unfit(&self, buffer: BufferId, collective: Collective) -> Result<(), String> {
        let held = self.buffers[buffer.index()].describe(self.program);
        let fit = if collective == Collective::AllGather {
            "weights are gathered"
        } else {
            "gradients of weights are reduced"
        };
        Err(format!("{buffer} holds {held}; only {fit}"))
    }

    fn reduce(&mut self, buffer: BufferId, value: ValueId, becomes: Sum) -> Result<(), String> {
        let name = &self.program.value(value).name;
        let (sum, home) = self.sums.entry(value).or_default();
        if *home != Some(buffer) {
            return Err(format!("`{name}` of this step is not in {buffer}"));
        }
        match std::mem::replace(sum, becomes) {
            Sum::Zeroed | Sum::Added => Ok(()),
            Sum::Stale => Err(format!("`{name}` was not filled with zeros in this step")),
            Sum::Reduced | Sum::Scattered(_) | Sum::Upto(_) => {
                Err(format!("`{name}` was reduced already in this step"))
            }
        }
    }

    /// Each member comes with its own share of the next version; one whose share is empty, with the version before.
    fn gather(&mut self, buffer: BufferId, (value, content): (ValueId, Content), group: GroupId) -> Result<(), String> {
        let row = self.program.value(value);
        if self.holders.divides(value) != Some(group) {
            return Err(format!("{group} does not divide `{}`", row.name));
        }
        let own = shares::of_device(self.program, group, self.device, row.bytes);
        match content {
            Content::Share(_, version) => self.buffers[buffer.index()] = Content::Version(value, version + 1),
            Content::Version(_, version) if own.is_empty() => {
                self.buffers[buffer.index()] = Content::Version(value, version + 1);
            }
            _ => return Err(format!("the share of {} in `{}` is not updated before", self.device, row.name)),
        }
        Ok(())
    }

    /// Gathers weights from the shares in which they are kept. A member whose share is empty, and
    /// which therefore never changes, takes part in what others gather before their first update.
    pub(super) fn gather_shares(
        &mut self,
        index: usize,
        (buffer, from): (BufferId, BufferId),
        group: GroupId,
    ) -> Result<(), String> {
        if buffer == from {
            return Err(format!("{buffer} is gathered into itself"));
        }
        let content = self.buffers[from.index()];
        self.buffers[buffer.index()] = Content::Unknown;
        let (value, version) = match content {
            Content::Unknown => return Ok(()),
            Content::Version(value, version) => (value, version),
            Content::Nothing
            | Content::Persistent(_)
            | Content::Between(..)
            | Content::Share(..)
            | Content::Exchanged(..)
            | Content::Of(..) => {
                return Err(self.no_share(from, group));
            }
        };
        let row = self.program.value(value);
        let Some(own) = row.share.filter(|own| own.group == group) else { return Err(self.no_share(from, group)) };
        let whole = self.program.value(own.whole);
        for (buffer, row) in [(from, row), (buffer, whole)] {
            let (bytes, name) = (self.code.buffers[buffer.index()].bytes.0, &row.name);
            if row.bytes.0.checked_next_multiple_of(ALIGNMENT.0) != Some(bytes) {
                return Err(format!("{buffer} has {bytes} bytes, so that shares of `{name}` are not found in it"));
            }
        }
        self.buffers[buffer.index()] = Content::Version(own.whole, version);
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        let (collective, bytes) = (Collective::AllGather, self.code.buffers[buffer.index()].bytes);
        self.joined.push(Joined { index, collective, group, value: own.whole, bytes, version: Some(version) });
        Ok(())
    }

    fn no_share(&self, from: BufferId, group: GroupId) -> String {
        let held = self.buffers[from.index()].describe(self.program);
        format!("{from} holds {held}, which is not a share of {group}")
    }
}
