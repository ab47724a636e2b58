//! Writes the sum of the squares of all gradients, for which all devices wait before they update anything: each adds
//! its part when its gradients are final, then the members of each device add up theirs, then all devices.

use super::Emitter;
use super::collectives::Joined;
use pipe_ir::ids::{BufferId, DeviceId, ExecId, GroupId, MicrobatchId};
use pipe_ir::instruction::{Collective, Fill, Instruction};

impl Emitter<'_> {
    /// What stands before the updates at the end of a step, where gradients are clipped.
    pub(super) fn norm(&mut self, device: DeviceId, joined: &mut Joined) {
        let (work, collectives) = (self.work, self.collectives);
        let Some(value) = work.norm() else { return };
        self.wait(joined, |_| true);
        let buffer = self.persistent[value.index()];
        self.code.step.push(Instruction::Fill { buffer, value, with: Fill::Zero });
        let squares = |exec: &ExecId| work.execs[exec.index()].is_squares();
        for exec in work.execs_of(device).filter(squares) {
            self.run(exec, MicrobatchId(0));
        }
        if work.has_members() {
            self.add_up(buffer, self.own_group());
        }
        if let Some(group) = collectives.all {
            self.add_up(buffer, group);
        }
    }

    fn add_up(&mut self, buffer: BufferId, group: GroupId) {
        let token = self.new_token();
        self.code.step.push(Instruction::CollStart { buffer, collective: Collective::AllReduce, group, token });
        self.code.step.push(Instruction::Wait { token });
    }
}
