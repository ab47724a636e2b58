//! Links: the communicators of one rank.
//!
//! The names of communicators are made by the first member of each, and travel through the job. All
//! ranks join theirs round by round ([`by_round`]), and move a few bytes through each, so that nothing
//! is opened inside a step.
//!
//! The library waits for the other members inside of its calls, for as long as it takes. A thread of its own makes
//! them, and this one looks meanwhile whether the job still can go on: where it cannot, that thread stays where it is
//! with all that it uses, until the process ends.

use super::super::driver::{DeviceMemory, DriverError, Gpu, Stream};
use super::library::{Communicator, Id, Library, Move, NcclError};
use super::lines::{Line, by_round, lines};
use pipe_distributed::tokens::Tokens;
use pipe_distributed::{Rank, RankView};
use pipe_ir::gpu::lines::most_blocks;
use pipe_ir::ids::DeviceId;
use pipe_ir::program::Program;
use pipe_runtime::RunError;
use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};
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
const TRIAL: usize = 64;

/// How long members of a communicator may take to join each other.
const LONGEST: Duration = Duration::from_secs(600);

/// A communicator that this rank joins as one of its members, and tries.
struct Joining {
    line: Line,
    members: Vec<Rank>,
    own: Rank,
    id: Id,
}

impl Joining {
    /// Waits for the others, moves a few bytes to and from each of them, and back: the library connects two members
    /// when they first exchange something, and waits for that. The bytes may still be on their way.
    fn join(
        &self,
        library: &'static Library,
        blocks: u32,
        (stream, trial): (&Stream, &DeviceMemory),
    ) -> Result<Communicator, NcclError> {
        let place = |rank: Rank| self.members.iter().position(|member| *member == rank).unwrap_or(0);
        let communicator = library.join(self.id, (self.members.len(), place(self.own)), blocks)?;
        let part = |number: usize| trial.all.part(number * TRIAL, TRIAL);
        let moves: Vec<Move> = match self.line {
            // A transfer goes one way: what the other one would need is room on the GPU.
            Line::Transfer(from, to, _) => {
                let sends = self.own == from;
                vec![Move { peer: place(if sends { to } else { from }), area: part(0), sends }]
            }
            Line::Group(_) => {
                let others = (0..self.members.len()).filter(|other| self.members[*other] != self.own);
                let each = |peer| {
                    [Move { peer, area: part(0), sends: true }, Move { peer, area: part(1 + peer), sends: false }]
                };
                others.flat_map(each).collect()
            }
        };
        communicator.exchange(&moves, stream)?;
        Ok(communicator)
    }
}

impl Links {
    /// Joins all communicators of a rank, with its GPU, and tries them. All ranks do it at once. Fails if there is no
    /// library, or a rank cannot be reached: then nothing that the GPU has may be given back, since the library may
    /// still be at work.
    pub(crate) fn open(program: &Program, rank_view: &RankView, gpu: &Arc<Gpu>) -> Result<Self, RunError> {
        let library = Library::open().map_err(RunError::Unsupported)?;
        let (own, lines) = (rank_view.mailbox.rank, lines(program, rank_view.division));
        let ids: BTreeMap<Line, Id> = lines.keys().copied().zip(ids(library, rank_view, &lines)?).collect();
        let tokens = Arc::new(Tokens::new(std::iter::repeat_n(0, program.devices.len()), 0));
        rank_view.watch(&tokens);
        let mut links = Self { rank_view: rank_view.clone(), tokens, lines: BTreeMap::new() };
        let blocks = most_blocks(&lines);
        let most_members = lines.values().map(Vec::len).max().unwrap_or(0);
        let (stream, trial) = (Stream::new(gpu)?, DeviceMemory::new(gpu, (1 + most_members) * TRIAL)?);
        let order = by_round(&lines).into_iter().filter(|(_, line)| lines[line].contains(&own));
        let order: Vec<Joining> =
            order.map(|(_, line)| Joining { line, members: lines[&line].clone(), own, id: ids[&line] }).collect();
        let names: Vec<(Line, Vec<Rank>)> = order.iter().map(|one| (one.line, one.members.clone())).collect();
        let (sender, receiver) = mpsc::channel();
        let joining = thread::spawn(move || {
            for one in order {
                let activated = stream.gpu.activate().map_err(RunError::from);
                let joined = activated.map(|()| one.join(library, blocks, (&stream, &trial)));
                let is_last = !matches!(joined, Ok(Ok(_)));
                let is_sent = sender.send(joined).map_err(std::mem::forget).is_ok();
                if is_last || !is_sent {
                    // The GPU may be at work for them, and wait for a rank that is lost.
                    std::mem::forget((stream, trial));
                    return None;
                }
            }
            Some((stream, trial))
        });
        for (line, members) in names {
            match links.joined(&receiver, &members) {
                Ok(communicator) => drop(links.lines.insert(line, (members, communicator))),
                Err(error) => {
                    // To leave a communicator waits for the GPU, which may wait for a rank that is lost.
                    std::mem::forget(std::mem::take(&mut links.lines));
                    return Err(error);
                }
            }
        }
        match joining.join() {
            Ok(Some((stream, trial))) => {
                if let Err(error) = links.wait(&stream, |_| Ok(())) {
                    // Before the memory that they work with.
                    links.close(false);
                    drop((stream, trial));
                    return Err(error);
                }
            }
            Ok(None) | Err(_) => return Err(RunError::Nccl("the thread that joins the others broke".to_owned())),
        }
        Ok(links)
    }

    /// The next communicator, when its members have joined each other.
    fn joined(
        &self,
        receiver: &mpsc::Receiver<Result<Result<Communicator, NcclError>, RunError>>,
        members: &[Rank],
    ) -> Result<Communicator, RunError> {
        let began = Instant::now();
        loop {
            match receiver.recv_timeout(AROUND) {
                Ok(joined) => return joined?.map_err(|error| self.lost(members, &error)),
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(RunError::Nccl("the thread that joins the others broke".to_owned()));
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
            if let Some((rank, message)) = self.rank_view.mailbox.failure() {
                return Err(RunError::Remote { rank, message });
            }
            if began.elapsed() > LONGEST {
                let (ranks, seconds) = (names(members), LONGEST.as_secs());
                return Err(RunError::Nccl(format!(
                    "{ranks} have not joined each other for {seconds} s (with NCCL_DEBUG=INFO it says what it tries, \
                     and NCCL_SOCKET_IFNAME names the network that it takes)"
                )));
            }
        }
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
            None => RunError::Nccl(format!("{} do not reach each other: {error}", names(members))),
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

fn names(ranks: &[Rank]) -> String {
    ranks.iter().map(Rank::to_string).collect::<Vec<_>>().join(" and ")
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
