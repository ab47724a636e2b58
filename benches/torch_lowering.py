#!/usr/bin/env python3
"""PyTorch's lowering of the interleaved 1F1B schedule: what one rank does before the first step.

  torch_lowering.py DEVICES MICROBATCHES          2 stages per device, no model, no process group

Prints `tasks actions seconds peak_MiB`: compute tasks, actions of all ranks after the lowering, the time of the schedule's
constructor (orders of all ranks, sends, receives, waits) and the process' peak memory, the import of torch left out of the
time and contained in the memory.
"""
import resource
import sys
import time
from types import SimpleNamespace

import torch
from torch.distributed.pipelining.schedules import ScheduleInterleaved1F1B

CHUNKS = 2


def stage(index: int, devices: int) -> SimpleNamespace:
    """As much of a stage as the lowering reads."""
    return SimpleNamespace(
        stage_index=index,
        num_stages=CHUNKS * devices,
        group_size=devices,
        group_rank=0,
        is_first=index == 0,
        is_last=index == CHUNKS * devices - 1,
        has_backward=True,
        submod=torch.nn.Identity(),
    )


def main() -> None:
    devices, microbatches = map(int, sys.argv[1:3])
    stages = [stage(chunk * devices, devices) for chunk in range(CHUNKS)]
    start = time.perf_counter()
    schedule = ScheduleInterleaved1F1B(stages, microbatches, loss_fn=lambda output, target: output)
    seconds = time.perf_counter() - start
    actions = sum(len(actions) for actions in schedule.pipeline_order_with_comms.values())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(2 * CHUNKS * devices * microbatches, actions, f"{seconds:.3f}", f"{peak:.0f}")


if __name__ == "__main__":
    main()
