//! Collectives of a group whose members are all in this process.
//!
//! Each GPU works on the shares of its members, so that it sends as many bytes as it receives. For a sum, it reads its
//! share from all members, adds in the order of the group, and writes the result to all members, or, in a
//! reduce-scatter, to the owner of the share. All-gathers and all-to-alls are copied by the sending GPU, to the next
//! member first. The queue of the group waits for all GPUs. Groups with members in other processes are in
//! `cross_process`.

use super::super::commands::{MemberPart, Queue, Work};
use super::super::driver::{Area, Stream};
use super::super::kernels::MemberSum;
use crate::machine::cross_process::CrossProcess;
use crate::machine::gpu_assignment::GpuAssignment;
use crate::machine::kernel_args::KernelArgs;
use crate::machine::launch_plan::{Builder, Joint, Operation};
use pipe_distributed::collective::{Handed, own_bytes};
use pipe_ir::graph::DType;
use pipe_ir::instruction::Collective;
use pipe_ir::program::Program;
use pipe_runtime::RunError;
use std::collections::BTreeSet;
use std::ops::Range;

/// The sum of a share, computed by one GPU.
struct Addition {
    /// Its place among the GPUs of this process.
    gpu: usize,
    bytes: Range<usize>,
    /// The position of the member that gets the sum; `None` if all members do.
    to: Option<usize>,
}

impl Addition {
    fn sum(&self, dtype: DType, members: usize) -> MemberSum {
        MemberSum { dtype, members, to_one: self.to.is_some(), bytes: self.bytes.len() }
    }
}

/// The additions of a collective of this process; `gpus` are those of its members, buffers have `bytes` bytes.
fn additions(collective: Collective, gpus: &[usize], bytes: usize) -> Vec<Addition> {
    let share = |member| own_bytes(bytes, gpus.len(), member);
    let shares = gpus.iter().enumerate().map(|(member, gpu)| (*gpu, share(member), member));
    let mut all = Vec::<Addition>::new();
    for (gpu, bytes, member) in shares.filter(|(_, bytes, _)| !bytes.is_empty()) {
        match (collective, all.last_mut()) {
            (Collective::AllReduce, Some(last)) if last.gpu == gpu => last.bytes.end = bytes.end,
            (Collective::AllReduce, _) => all.push(Addition { gpu, bytes, to: None }),
            (Collective::ReduceScatter, _) => all.push(Addition { gpu, bytes, to: Some(member) }),
            (Collective::AllGather | Collective::AllToAll, _) => {}
        }
    }
    all
}

/// The sums that a collective of this process needs; none for other work.
pub(super) fn sums_of(program: &Program, assignment: &GpuAssignment, work: &Work) -> Vec<MemberSum> {
    let Work::Together { collective, dtype, parts } = work else { return Vec::new() };
    let Some(first) = parts.first().map(|part| part.home) else { return Vec::new() };
    let bytes = program.devices[first.device.index()].buffers[first.buffer.index()].bytes.to_usize();
    let all = additions(*collective, &assignment.doers(parts.iter().map(|part| part.home.device)), bytes);
    all.iter().map(|addition| addition.sum(*dtype, parts.len())).collect()
}

/// What one GPU does of a collective.
enum Job {
    /// Adds up places, to all of them or to one more.
    Sum(MemberSum, Vec<Area>),
    Copy {
        to: Area,
        from: Area,
    },
}

impl Builder<'_> {
    /// What a group does together.
    pub(super) fn together(
        &mut self,
        stream: usize,
        (queue, collective, dtype): (Queue, Collective, DType),
        parts: &[MemberPart],
        work: &Work,
    ) -> Result<(), RunError> {
        let looks = self.looks.trace && self.is_step();
        let first = if looks { Some(self.mark(stream)?) } else { None };
        if let Some(team) = CrossProcess::of(self.program, self.assignment, queue, work) {
            self.apart(stream, &team)?;
        } else {
            let gpus = self.assignment.doers(parts.iter().map(|part| part.home.device));
            let jobs = match collective {
                Collective::AllReduce | Collective::ReduceScatter => self.adds(parts, (collective, dtype), &gpus),
                Collective::AllGather => self.gathers(parts, &gpus),
                Collective::AllToAll => self.hands_over(parts, &gpus),
            };
            self.divide(stream, jobs)?;
        }
        if let (Some(first), Queue::Group(group)) = (first, queue) {
            let last = self.mark(stream)?;
            let (members, gpu) = (parts.iter().map(|part| part.home.device).collect(), self.gpu_of(stream));
            self.launch_plan.joint.push(Joint { collective, group, members, gpu, marks: first..last + 1 });
        }
        Ok(())
    }

    /// Sums, each with the GPU that makes it.
    fn adds(
        &self,
        parts: &[MemberPart],
        (collective, dtype): (Collective, DType),
        gpus: &[usize],
    ) -> Vec<(usize, Job)> {
        let all: Vec<Area> = parts.iter().map(|part| self.area(part.home)).collect();
        let bytes = all.first().map_or(0, |area| area.bytes);
        let job = |addition: Addition| {
            let places = all.iter().chain(addition.to.map(|to| &all[to]));
            let places = places.map(|area| area.part(addition.bytes.start, addition.bytes.len())).collect();
            (addition.gpu, Job::Sum(addition.sum(dtype, parts.len()), places))
        };
        additions(collective, gpus, bytes).into_iter().map(job).collect()
    }

    /// Every member's share comes to all others, and to itself where it is not in the buffer.
    fn gathers(&self, parts: &[MemberPart], gpus: &[usize]) -> Vec<(usize, Job)> {
        let mut jobs = Vec::new();
        for (position, own) in parts.iter().enumerate() {
            let all = self.area(own.home);
            let range = own_bytes(all.bytes, parts.len(), position);
            let of = |area: Area| area.part(range.start, range.len());
            let from = own.share.map_or_else(|| of(all), |share| self.area(share).part(0, range.len()));
            let others = usize::from(own.share.is_none())..parts.len();
            for other in others.filter(|_| !range.is_empty()).map(|step| (position + step) % parts.len()) {
                jobs.push((gpus[position], Job::Copy { to: of(self.area(parts[other].home)), from }));
            }
        }
        jobs
    }

    /// Every member gives each other one, and itself, a part.
    fn hands_over(&self, parts: &[MemberPart], gpus: &[usize]) -> Vec<(usize, Job)> {
        let mut jobs = Vec::new();
        for (from, one) in parts.iter().enumerate() {
            for to in (0..parts.len()).map(|step| (from + step) % parts.len()) {
                let (source, target) = (self.area(one.home), self.area(parts[to].home));
                let Handed { leaves, arrives } = Handed::of(source.bytes, parts.len(), from, to);
                let source = source.part(leaves.start, leaves.len());
                jobs.push((gpus[from], Job::Copy { to: target.part(arrives.start, arrives.len()), from: source }));
            }
        }
        jobs
    }

    /// Runs the jobs of all GPUs concurrently, those of one GPU in order. The stream waits for all of them.
    fn divide(&mut self, stream: usize, jobs: Vec<(usize, Job)>) -> Result<(), RunError> {
        let own = self.gpu_of(stream);
        let others: BTreeSet<usize> = jobs.iter().map(|(gpu, _)| *gpu).filter(|gpu| *gpu != own).collect();
        let begun = if others.is_empty() { None } else { Some(self.record(stream)?) };
        for (gpu, begun) in others.iter().zip(begun.iter().cycle()) {
            let helper = self.helper(stream, *gpu)?;
            self.act(helper, Operation::Wait(*begun));
        }
        for (gpu, job) in jobs {
            let at = self.helper(stream, gpu)?;
            match job {
                Job::Sum(sum, places) => self.sum(at, sum, &places),
                Job::Copy { to, from } => {
                    let copy = self.copied(at, to, from);
                    self.act(at, copy);
                }
            }
        }
        for gpu in others {
            let helper = self.helper(stream, gpu)?;
            let over = self.record(helper)?;
            self.act(stream, Operation::Wait(over));
        }
        Ok(())
    }

    /// The stream on which a GPU runs its part of a collective; on the GPU of the group's queue, that queue's stream.
    fn helper(&mut self, stream: usize, gpu: usize) -> Result<usize, RunError> {
        if self.gpu_of(stream) == gpu {
            return Ok(stream);
        }
        if let Some(helper) = self.helpers.get(&(stream, gpu)) {
            return Ok(*helper);
        }
        let helper = self.launch_plan.streams.len();
        self.launch_plan.streams.push(Stream::urgent(&self.assignment.gpus[gpu])?);
        self.here.push(None);
        self.helpers.insert((stream, gpu), helper);
        Ok(helper)
    }

    /// A sum of some places, in their order.
    pub(super) fn sum(&mut self, stream: usize, sum: MemberSum, places: &[Area]) {
        let places = KernelArgs { parts: places, ..KernelArgs::default() };
        let code = self.code;
        self.launch(stream, code.sum(&sum), &places);
    }

    /// A copy between two places of this process.
    pub(super) fn copied(&self, stream: usize, to: Area, from: Area) -> Operation {
        let is_near = self.assignment.are_near(&self.launch_plan.streams[stream], [to, from]);
        if is_near { Operation::Copy { to, from } } else { Operation::CopyAround { to, from } }
    }
}

#[cfg(test)]
mod tests {
    use super::{Addition, Collective, additions};
    use std::ops::Range;

    fn of(collective: Collective, gpus: &[usize], bytes: usize) -> Vec<(usize, Range<usize>, Option<usize>)> {
        let of_one = |Addition { gpu, bytes, to }| (gpu, bytes, to);
        additions(collective, gpus, bytes).into_iter().map(of_one).collect()
    }

    #[test]
    fn each_gpu_adds_up_the_shares_of_its_members() {
        let all = |gpus| of(Collective::AllReduce, gpus, 1024);
        assert_eq!(all(&[0, 1, 2, 3]), [0, 1, 2, 3].map(|gpu| (gpu, 256 * gpu..256 * (gpu + 1), None)));
        // Members that share a GPU are one kernel, if they follow each other.
        assert_eq!(all(&[0, 0, 1, 1]), [(0, 0..512, None), (1, 512..1024, None)]);
        assert_eq!(all(&[1, 0, 1]), [(1, 0..384, None), (0, 384..768, None), (1, 768..1024, None)]);
        assert_eq!(all(&[0; 4]), [(0, 0..1024, None)]);
        // What is too small for a share of each.
        assert_eq!(of(Collective::AllReduce, &[0, 1, 2, 3], 128), [(0, 0..64, None), (1, 64..128, None)]);
        let scattered = [(0, 0..512, Some(0)), (0, 512..1024, Some(1))];
        assert_eq!(of(Collective::ReduceScatter, &[0, 0], 1024), scattered);
        assert!(of(Collective::AllGather, &[0, 1], 1024).is_empty());
    }
}
