//! Links: the communicators of one rank.
//!
//! The names of communicators are made by the first member of each, and travel through the job. All
//! ranks join theirs in one order of all, and then move a few bytes through each, so that nothing
//! is opened inside a step.

use super::super::driver::{Area, DriverError, Stream};
use super::library::{Communicator, Id, Library, Move, NcclError};
use super::lines::{Line, lines, most_blocks};
use pipe_distributed::tokens::Tokens;
use pipe_distributed::{Rank, RankView};
use pipe_ir::ids::DeviceId;
use pipe_ir::program::Program;
use pipe_runtime::RunError;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

impl From<NcclError> for RunError {
    fn from(error: NcclError) -> Self {
        Self::Nccl(error.to_string())
    }
}

/// What connects the GPU of a rank with those of others.
pub(crate) struct Links {
    rank_view: RankView,
    tokens: Arc<Tokens>,
    lines: BTreeMap<Line, (Vec<Rank>, Communicator)>,
}

/// Bytes of a first message.
pub(crate) const TRIAL: usize = 64;

impl Links {
    /// Joins all communicators of a rank, with the GPU of a stream, and tries them with so many bytes for each
    /// direction. All ranks do it at once. Fails if there is no library, or a rank cannot be reached.
    pub(crate) fn open(
        program: &Program,
        rank_view: &RankView,
        stream: &Stream,
        trial: [Area; 2],
    ) -> Result<Self, RunError> {
        let library = Library::open().map_err(RunError::Unsupported)?;
        let (own, lines) = (rank_view.mailbox.rank, lines(program, rank_view.division));
        let ids = ids(library, rank_view, &lines)?;
        let tokens = Arc::new(Tokens::new(std::iter::repeat_n(0, program.devices.len()), 0));
        rank_view.watch(&tokens);
        let mut links = Self { rank_view: rank_view.clone(), tokens, lines: BTreeMap::new() };
        stream.gpu.activate()?;
        let blocks = most_blocks(&lines);
        for ((line, members), id) in lines.into_iter().zip(ids) {
            if let Some(place) = members.iter().position(|member| *member == own) {
                let communicator = library.join(id, (members.len(), place), blocks)?;
                links.lines.insert(line, (members, communicator));
            }
        }
        for (members, communicator) in links.lines.values() {
            let [from, to] = trial;
            for other in (0..members.len()).filter(|other| members[*other] != own) {
                let ends = [(from, true), (to, false)];
                let moves = ends.map(|(area, sends)| Move { peer: other, area: area.part(0, TRIAL), sends });
                communicator.exchange(&moves, stream)?;
            }
        }
        links.wait(stream, |_| Ok(()))?;
        Ok(links)
    }

    /// The rank of a device.
    pub(crate) fn rank_of(&self, device: DeviceId) -> Rank {
        self.rank_view.division.rank_of(device)
    }

    /// The place of a rank among the members of a line.
    pub(crate) fn place(&self, line: Line, rank: Rank) -> usize {
        let members = self.lines.get(&line).map_or([].as_slice(), |(members, _)| members);
        members.iter().position(|member| *member == rank).unwrap_or(0)
    }

    /// Queues moves on a stream. Fails if the library refuses them.
    pub(crate) fn exchange(&self, line: Line, moves: &[Move], stream: &Stream) -> Result<(), RunError> {
        match self.lines.get(&line) {
            Some((_, communicator)) => Ok(communicator.exchange(moves, stream)?),
            None => Err(RunError::Nccl(format!("{} has no part in {line:?}", self.rank_view.mailbox.rank))),
        }
    }

    /// Waits for a stream, and looks meanwhile whether the other ranks can still be reached. `look` says now and then
    /// where the devices are. Fails if one cannot, or the driver fails.
    pub(crate) fn wait(
        &self,
        stream: &Stream,
        look: impl Fn(&Tokens) -> Result<(), DriverError>,
    ) -> Result<(), RunError> {
        let mut looked = Instant::now();
        while !stream.is_over()? {
            for (members, communicator) in self.lines.values() {
                communicator.health().map_err(|error| self.lost(members, &error))?;
            }
            if let Some((rank, message)) = self.rank_view.mailbox.failure() {
                return Err(RunError::Remote { rank, message });
            }
            if looked.elapsed() > AROUND {
                look(&self.tokens)?;
                looked = Instant::now();
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Members of a communicator do not reach each other. If one of them was lost, the job says
    /// more than the library: it is given time for that.
    fn lost(&self, members: &[Rank], error: &NcclError) -> RunError {
        let began = Instant::now();
        while began.elapsed() < PATIENCE && self.rank_view.mailbox.failure().is_none() {
            thread::sleep(AROUND);
        }
        match self.rank_view.mailbox.failure() {
            Some((rank, message)) => RunError::Remote { rank, message },
            None => {
                let ranks: Vec<String> = members.iter().map(Rank::to_string).collect();
                RunError::Nccl(format!("{} do not reach each other: {error}", ranks.join(" and ")))
            }
        }
    }

    /// Leaves all communicators: in peace, or because the job cannot go on. Then all are left at
    /// once, since each waits for what the others have under way.
    pub(crate) fn close(&mut self, in_peace: bool) {
        let communicators = std::mem::take(&mut self.lines).into_values().map(|(_, communicator)| communicator);
        if in_peace {
            communicators.for_each(Communicator::close);
        } else {
            thread::scope(|scope| {
                for communicator in communicators {
                    scope.spawn(move || communicator.abort());
                }
            });
        }
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        // Not closed: they could not be opened to the end.
        self.close(false);
    }
}

/// Between two looks at a stream, and at where devices are.
const LOOK: Duration = Duration::from_micros(20);
const AROUND: Duration = Duration::from_millis(50);
/// How long the job may take to find out who was lost, where ranks see each other's processes.
const PATIENCE: Duration = Duration::from_secs(1);

/// The names of all communicators, in the order of the lines: those that this rank begins, exchanged for those of all.
fn ids(library: &Library, rank_view: &RankView, lines: &BTreeMap<Line, Vec<Rank>>) -> Result<Vec<Id>, RunError> {
    let own = rank_view.mailbox.rank;
    let begun = lines.values().filter(|members| members.first() == Some(&own));
    let mine = begun.map(|_| library.new_id().map(|id| id.0)).collect::<Result<Vec<_>, _>>()?;
    let by_rank = rank_view.mailbox.gather(mine.concat())?;
    let mut next = vec![0; by_rank.len()];
    let mut all = Vec::with_capacity(lines.len() * Id::BYTES);
    for members in lines.values().filter(|_| own == Rank::FIRST) {
        let first = members.first().map_or(0, |first| first.index());
        let id = by_rank.get(first).and_then(|ids| ids.get(next[first]..next[first] + Id::BYTES));
        all.extend(id.unwrap_or(&[0; Id::BYTES]));
        next[first] += Id::BYTES;
    }
    let all = rank_view.mailbox.spread(all)?;
    Ok(all.chunks_exact(Id::BYTES).filter_map(|id| id.try_into().ok()).map(Id).collect())
}
