//! MPI: ranks that are processes, wherever a launcher such as `mpirun` or `srun` started them.
//!
//! A crate of its own, so that a build with MPI compiles little more than one without. It is empty unless the feature
//! `mpi` is on.
#![cfg(feature = "mpi")]

use mpi::environment::Universe;
use mpi::request::StaticScope;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, Destination, Source};
use mpi::{Rank as Number, Threading};
use pipe_distributed::memory::Region;
use pipe_distributed::{Job, Rank, Settings, Tag, Unconnected, Wire};

/// This process among all that were started with it.
struct World {
    // First: it has no use once the library was left.
    all: SimpleCommunicator,
    universe: Universe,
}

/// A message under way.
type Request = mpi::request::Request<'static, [u8], StaticScope>;

impl Wire for World {
    type Request = Request;

    fn send(&mut self, to: Rank, tag: Tag, from: Region) -> Request {
        self.all.process_at_rank(number(to)).immediate_send_with_tag(StaticScope, from.lent(), tag)
    }

    fn receive(&mut self, from: Rank, tag: Tag, into: Region) -> Request {
        self.all.process_at_rank(number(from)).immediate_receive_into_with_tag(StaticScope, into.lent_mut(), tag)
    }

    fn test(&mut self, request: Request) -> Option<Request> {
        request.test().err()
    }

    fn forget(&mut self, request: Request) {
        // Its drop would complain that the message has not ended.
        std::mem::forget(request);
    }

    fn close(self) {
        drop(self);
    }

    fn leave(self) {
        // To end the library, all ranks would have to be there.
        std::mem::forget(self.universe);
    }
}

fn number(rank: Rank) -> Number {
    Number::try_from(rank.0).unwrap_or(Number::MAX)
}

/// Joins the job of this process.
///
/// # Errors
/// If the library cannot be used, or does not connect all processes in time.
pub fn join(settings: Settings) -> Result<Job, Unconnected> {
    Job::start(settings, || {
        // All calls come from the thread that makes this one.
        let initialised = mpi::initialize_with_threading(Threading::Funneled);
        let (universe, threading) = initialised.ok_or("MPI was started before in this process")?;
        let all = universe.world();
        let (rank, n_ranks) = (unsigned(all.rank())?, unsigned(all.size())?);
        let world = World { all, universe };
        if threading < Threading::Funneled {
            world.leave();
            return Err("this MPI library is not for processes with several threads".to_owned());
        }
        Ok((world, Rank(rank), n_ranks))
    })
}

fn unsigned(number: Number) -> Result<u32, String> {
    u32::try_from(number).map_err(|_| format!("MPI counts ranks as {number}"))
}
