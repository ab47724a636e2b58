"""Turns the instruction list of a device into Python calls, one for each instruction that has something to do, in its
order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..instruction import Instruction
from ..instructions import CollStart, CopyStart, Fill, Free, GatherStart, RecvStart, Run, SendStart, Wait
from ..program import Exec, Operand, Program
from .copies import Copier
from .copy_calls import SAVED, Copies
from .data_parallel.synchronisation import Synchronisation
from .stage.flow import Step
from .stage.slices import carry_of
from .stage.tasks import StageTasks
from .transport import Incoming, Transport, forms_of
from .weights.flat_params import Resident
from .weights.offload import HostWeights
from .weights.reduction import Reduction
from .weights.shares import Shares
from .weights.sums import TravellingSum
from .weights.updates import Update
from .weights.versions import Weights

Call = Callable[[], Any]
Operands = list[tuple[Operand, int]]
"""Operands of an executable, with their buffers."""


@dataclass(frozen=True)
class DeviceList:
    """Calls, and the position in the step list of the instruction that each carries out."""

    calls: tuple[Call, ...]
    positions: tuple[int, ...]


@dataclass(frozen=True)
class Machine:
    """Everything that the instructions of a device act on."""

    program: Program
    device: int
    step: Step
    stages: Mapping[int, StageTasks]
    transport: Transport
    reductions: Mapping[int, Reduction]
    """By value: that of the gradients that are summed up."""
    shares: Mapping[int, Shares]
    """By stage: its weights, where replicas divide them."""
    hosts: Mapping[int, HostWeights]
    """By stage: its weights, where they live with the host, or are updated in chunks."""
    copier: Copier
    versions: Mapping[int, Weights]
    """By stage: its weights, where there are several versions, or sums of their gradients travel."""
    sums: Mapping[int, TravellingSum]
    """By value: the gradients whose sums travel."""
    updates: Mapping[int, Update]
    """By executable: none where the optimizer is left to the user."""
    synchronisations: Sequence[Synchronisation]
    """Those of modules with data parallelism of their own, in the order in which they start."""


def translate(machine: Machine, trains: bool, learns: bool, limit: int) -> DeviceList:
    """Translates the step list of a machine's device.

    Args:
        machine: What the calls act on.
        trains: Whether gradients are computed; otherwise only forwards run, and only activations travel.
        learns: Whether what flows has to be announced.
        limit: Microbatches from this one on are left out.
    """
    translator = _Translator(machine, trains, learns, limit)
    calls: list[Call] = []
    positions: list[int] = []

    def add(call: Call | None, position: int) -> None:
        if call is not None:
            calls.append(call)
            positions.append(position)

    waiting = list(machine.synchronisations) if trains else []
    for one in waiting:
        add(one.begin_step, 0)
    for position, instruction in enumerate(machine.program.devices[machine.device].step):
        if isinstance(instruction, Run) and machine.program.execs[instruction.exec].kind == "Update":
            for one in machine.synchronisations if trains else ():
                add(one.finish if one.after < position else None, position)
        add(translator.call(instruction), position)
        while waiting and waiting[0].after == position:
            add(waiting.pop(0).start, position)
    return DeviceList(tuple(calls), tuple(positions))


def keep_gathered(machine: Machine) -> None:
    """Weights that come and go stay for the backwards of a stage that, in the program, do not read them: `W`, or that
    of an embedding.

    The modules are the user's, and autograd may read weights there.
    """
    residents: list[tuple[int, Resident]] = [*machine.shares.items(), *machine.hosts.items()]
    for owner, resident in residents:
        for stage, tasks in machine.stages.items():
            reads = _readers(machine.program, stage, owner)
            if reads.get("Forward") and not all(reads.values()):
                resident.keep_for(tasks)
                tasks.on_empty.append(resident.release_if_due)


def _readers(program: Program, stage: int, owner: int) -> dict[str, bool]:
    """By kind of task of a stage: whether it reads the weights of another one, or its own."""
    weights = {number for number, one in enumerate(program.values) if (one.kind, one.stage) == ("parameters", owner)}
    tasks = [exec for exec in program.execs if exec.stage == stage and exec.kind != "Update"]
    return {exec.kind: any(one.value in weights for one in exec.operands) for exec in tasks}


class _Translator:
    def __init__(self, machine: Machine, trains: bool, learns: bool, limit: int) -> None:
        self._limit = limit
        self._machine = machine
        self._trains = trains
        self._learns = learns
        fills = (one for one in machine.program.devices[machine.device].setup if isinstance(one, Fill))
        self._holds: dict[int, tuple[int, int]] = {one.buffer: (one.value, 0) for one in fills}
        self._gathered: dict[int, Resident] = {}
        self._copies = Copies(machine, self._holds, self._gathered, trains)
        self._used: dict[tuple[int, int], list[Call]] = {}
        self._ends: dict[int, Call | None] = {}

    def call(self, instruction: Instruction) -> Call | None:
        """What an instruction does; `None` where a module, autograd or the optimizer does it by itself."""
        if isinstance(instruction, Run):
            return self._run(instruction)
        if isinstance(instruction, SendStart):
            return self._send(instruction)
        if isinstance(instruction, RecvStart):
            return self._receive(instruction)
        if isinstance(instruction, CollStart):
            return self._join(instruction)
        if isinstance(instruction, GatherStart):
            return self._gather(instruction)
        if isinstance(instruction, CopyStart):
            self._ends[instruction.token] = self._copies.end(instruction)
            return self._copies.start(instruction)
        if isinstance(instruction, Wait):
            return self._ends.pop(instruction.token)
        if isinstance(instruction, Free):
            self._copies.free(instruction.buffer)
            if instruction.buffer in self._gathered:
                return self._gathered.pop(instruction.buffer).release
            if self._is_of_graph(instruction.buffer):
                return None
            return partial(self._machine.step.buffers.__setitem__, instruction.buffer, None)
        if isinstance(instruction, Fill):
            self._holds[instruction.buffer] = (instruction.value, 0)
            if instruction.value in self._machine.sums:
                return None
            reduction = self._machine.reductions.get(instruction.value)
            return reduction.begin_step if reduction is not None and self._trains else None
        return None

    def _is_of_graph(self, buffer: int) -> bool:
        """Whether a buffer is what a graph has saved, which autograd gives back by itself."""
        value, _ = self._holds.get(buffer, (-1, 0))
        return value >= 0 and self._machine.program.values[value].kind in SAVED

    def _run(self, run: Run) -> Call | None:
        exec = self._machine.program.execs[run.exec]
        operands = list(zip(exec.operands, run.buffers))
        for operand, buffer in operands:
            if operand.access == "write":
                self._holds[buffer] = (operand.value, run.microbatch)
                self._copies.wrote(buffer)
            if operand.access == "update" and operand.value in self._machine.sums:
                self._holds[buffer] = (operand.value, run.microbatch)
        if exec.kind == "Update":
            return self._update(run)
        if run.microbatch >= self._limit:
            return None
        task = self._task(run, exec, operands)
        carrying = self._machine.stages[exec.stage].carrying
        if task is not None and carrying is not None:
            kinds = [value.kind for value in self._machine.program.values]
            carry = partial(setattr, carrying, "carry", carry_of(exec, run.buffers, kinds))
            task = _one_after_the_other([carry], task)
        if task is None or not self._trains or not self._machine.versions:
            return task
        used = self._used.setdefault((exec.stage, run.microbatch), [])
        if exec.kind == "Forward":
            used += self._versions(operands)
        return _one_after_the_other(used, task)

    def _versions(self, operands: Operands) -> list[Call]:
        """What gives modules the versions that a forward reads; its backward does so again, to add to the gradients of
        these.
        """
        values = self._machine.program.values
        found: list[Call] = []
        for operand, buffer in operands:
            weights = self._machine.versions.get(values[operand.value].stage)
            if weights is not None and values[operand.value].kind == "parameters":
                found.append(partial(weights.use, buffer))
        return found

    def _update(self, run: Run) -> Call | None:
        update = self._machine.updates.get(run.exec)
        if update is None or not self._trains:
            return None
        values, exec = self._machine.program.values, self._machine.program.execs[run.exec]
        weights = [
            (operand.access, buffer)
            for operand, buffer in zip(exec.operands, run.buffers)
            if values[operand.value].kind == "parameters"
        ]
        return partial(update.run, weights[0][1], weights[-1][1])

    def _task(self, run: Run, exec: Exec, operands: Operands) -> Call | None:
        at = {operand.value: buffer for operand, buffer in operands if operand.ahead == 0}
        tasks = self._machine.stages[exec.stage]
        stage = tasks.stage_of(run.microbatch)
        reads = tuple(at[read.value] for read in stage.reads if read.value in at)
        if exec.kind == "Forward":
            writes = tuple(at[write.value] for write in stage.writes)
            forward = tasks.forward if self._machine.program.saves(exec) else tasks.forward_to_repeat
            forward = forward if self._trains and stage.runs_backward else tasks.forward_alone
            return partial(forward, run.microbatch, reads, writes)
        if not self._trains:
            return None
        if exec.kind == "Recompute":
            return partial(tasks.recompute, run.microbatch, reads)
        if exec.kind == "BackwardWeight":
            return partial(tasks.weight_half, run.microbatch)
        arriving = tuple(tuple(at[gradient] for gradient in write.gradients) for write in stage.writes)
        returned = tuple(None if read.gradient is None else at[read.gradient] for read in stage.reads)
        backward = tasks.backward if exec.kind == "Backward" else tasks.input_half
        return partial(backward, run.microbatch, arriving, returned)

    def _send(self, send: SendStart) -> Call | None:
        step, transport = self._machine.step, self._machine.transport
        self._ends[send.token] = None
        if not self._trains and send.kind != "activation":
            return None
        value, microbatch = self._holds[send.buffer]
        if microbatch >= self._limit:
            return None
        if send.kind == "sum":
            return self._send_sum(send, value, microbatch)
        tag = transport.tag(value, microbatch)
        buffers, tokens, buffer, token = step.buffers, step.tokens, send.buffer, send.token

        def start() -> None:
            tokens[token] = transport.send(send, tag, buffers[buffer])

        def announce() -> None:
            forms = None if step.is_free else step.forms.get(value)
            if forms is None:
                forms = forms_of(buffers[buffer], [False] * len(buffers[buffer]))
            transport.announce(value, microbatch, forms, step.structures.get(value), send.to)
            transport.end_later(transport.send(send, tag, buffers[buffer]))

        def end() -> None:
            transport.retire(send, tokens[token])
            tokens[token] = None

        # A receive that has to be announced begins at its `wait`, so nobody may wait for its send before that.
        self._ends[send.token] = None if self._learns else end
        return announce if self._learns else start

    def _receive(self, receive: RecvStart) -> Call | None:
        step, transport = self._machine.step, self._machine.transport
        self._holds[receive.buffer] = (receive.value, receive.microbatch)
        self._ends[receive.token] = None
        if receive.microbatch >= self._limit or (not self._trains and receive.kind != "activation"):
            return None
        buffers, tokens, buffer, token = step.buffers, step.tokens, receive.buffer, receive.token
        replaced = self._machine.sums.get(receive.value)

        def start() -> None:
            tokens[token] = transport.receive(receive)

        def expect() -> None:
            tokens[token] = transport.expect(receive)

        def end() -> None:
            incoming: Incoming = tokens[token]
            for work in incoming.works:
                work.wait()
            if replaced is None:
                buffers[buffer] = incoming.tensors
            else:
                replaced.replace(incoming.tensors)
            tokens[token] = None

        def learn() -> None:
            transport.learn(tokens[token], remembers=not step.is_free)
            end()

        learns = self._learns and replaced is None
        self._ends[receive.token] = learn if learns else end
        return expect if learns else start

    def _send_sum(self, send: SendStart, value: int, microbatch: int) -> Call:
        """Sums have the shapes of weights, so they are not announced."""
        tokens, transport, total = self._machine.step.tokens, self._machine.transport, self._machine.sums[value]
        tag = transport.tag(value, microbatch)

        def start() -> None:
            tokens[send.token] = transport.send(send, tag, total.gradients())

        def end() -> None:
            transport.retire(send, tokens[send.token])
            tokens[send.token] = None

        self._ends[send.token] = end
        return start

    def _join(self, collective: CollStart) -> Call | None:
        self._ends[collective.token] = None
        if not self._trains:
            return None
        value, _ = self._holds[collective.buffer]
        if collective.collective == "all_reduce":
            reduction = self._machine.reductions[value]
            self._ends[collective.token] = reduction.finish
            return reduction.start
        shares = self._machine.shares[self._machine.program.values[value].stage]
        if collective.collective == "reduce_scatter":
            self._ends[collective.token] = shares.finish_sum
            return shares.start_sum
        self._ends[collective.token] = shares.finish_gathering
        return shares.start_gathering

    def _gather(self, gather: GatherStart) -> Call:
        value, _ = self._holds[gather.share]
        shares = self._machine.shares[self._machine.program.values[value].stage]
        self._gathered[gather.buffer] = shares
        self._ends[gather.token] = shares.finish_gathering
        return shares.start_gathering


def _one_after_the_other(first: list[Call], last: Call) -> Call:
    """Several calls as one."""
    if not first:
        return last

    def call() -> None:
        for one in first:
            one()
        last()

    return call
