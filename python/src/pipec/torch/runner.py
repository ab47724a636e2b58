"""Runs a program with the modules of this rank: one call per optimizer step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.nn import Parameter

from ..errors import StageError
from ..instructions import LaneStart
from ..program import Program
from .agreement import RankFacts, agree, headline, raise_together
from .arguments import require_program, wrong_type
from .batches import Batch, Batches, Given, cut_inputs, listed, number_given, require_rows, shares_of, window
from .copies import Copier
from .data_parallel.synchronisation import synchronisations
from .data_parallel.wrappers import find_wrappers
from .device_list import DeviceList, Machine, keep_gathered, translate
from .feed import Feed
from .fit import cut_of, find_device, require_stages
from .grad_scaler import PipelineGradScaler
from .known_shapes import InputForms, KnownShapes, input_forms
from .names import Names, OriginalName, original_names
from .stage.flow import Step
from .stage.slices import Carrying
from .stage.split_report import SplitReport
from .stage.tasks import LossFunction, StageTasks
from .state import held_state, load_model_state, load_optimizer_state, model_state, optimizer_state
from .transport import Transport, control_group
from .watchdog import Watchdog
from .weights import ownership
from .weights.in_step_updates import in_step_update
from .weights.norms import clip, held_before, norm_over_ranks, not_finite
from .weights.offload import host_weights
from .weights.ties import join_ties, ties_between_devices
from .weights.updates import MakeOptimizer, Updates, updates


class Runner:
    """Executes a program over `torch.distributed`, in the order of its instructions; rank `r` of the group runs device
    `r`.

    A stage is an `nn.Module`. Its arguments are the tensors that flow in, in the order of `program.stages[s].reads`;
    the first stage gets the microbatch of the inputs. It returns a tensor, or a tuple of tensors, which the stages that
    read it get as arguments, or a dict or dataclass, which they get as it is; where several values flow out (`writes`),
    it returns a tuple with an entry for each. All microbatches of a step have the same shapes, the next step may have
    others.

    The optimizer is yours::

        program = pipec.compile("std:v_half", devices=4, microbatches=8)
        stages = {s: build_stage(s) for s in program.stages_on(dist.get_rank())}
        runner = pipec.Runner(program, stages, loss_fn=cross_entropy)
        optimizer = torch.optim.AdamW(runner.parameters())
        for inputs, targets in batches:          # [rows, ..], rows divisible by the microbatches
            losses = runner.step(inputs, targets)
            optimizer.step()
            optimizer.zero_grad()

    Args:
        program: The program; the same on all ranks.
        stages: The modules of the stages that live on this rank's device, by stage, and no others. They are on
            `device`.
        loss_fn: Called as `loss_fn(output, *targets)` with the output of the last stage and the targets of a
            microbatch; returns the mean loss of the microbatch, of shape `[]`. Without it the last stage's module is
            called with the targets behind its other arguments, and returns the loss itself. The ranks of the last
            stage need it where any rank has it.
        device: Where the modules are. By default that of their parameters.
        group: The process group whose ranks run the devices, or a mesh of one dimension, such as `mesh["pipe"]`; by
            default all ranks. Its backend carries the tensors: gloo on CPUs, nccl on GPUs. Where it is not all ranks, a
            program with replicas, or nccl, needs torch 2.15, and every rank has to have made as many process groups
            before: torch names them by their number.
        tied: Weights that are one tensor: by name, such as `"3.head.weight"`, the weight that it is,
            `"0.table.weight"`. On one device the first becomes the second; between devices the program adds up their
            gradients, or, where it does not, the runner at the end of a step.
        average: Whether gradients are those of the mean loss over microbatches, or of the sum. In the mean, slices
            count by their length.
        ordered_sums: Whether gradients of more than two replicas are added up in the order of their group, so that they
            have the same bits in every run; by default on CPUs only, where it costs little.
        optimizer: Makes the optimizer of some weights, which it gets as a list of names and parameters:
            `torch.optim.AdamW`, or `partial(torch.optim.AdamW, lr=1e-3)`. `step` then updates the weights as well,
            where the program says so, and clears their gradients. Needed where that is inside a step: `zero`, `offload`
            of state, and steps that run on without a flush.
        synchronise: Whether replicas and tied weights start with the values of the first device that holds them.
        names: What the stages' weights are called in the original model, for `state_dict`: by stage a prefix, such as
            `{3: "layers.3"}`, or a mapping of prefixes, such as `{3: {"0": "layers.6", "1": "layers.7"}}`. Without it
            names are `stage.name`. Two weights have one name only where they are tied.
        patience: Seconds after which a rank that does not get on in a step says on standard error at which instruction
            it stands, and what it waits for; `None` keeps it silent.

    Raises:
        UnsupportedError: Nobody adds up the gradients of tied weights, or torch is too old to make process groups
            within a group.
        TypeError: An argument is of another type, such as a `program` that is not compiled yet.
        ProgramError: Ranks have different programs; on all of them.
        StageError: The modules do not fit the program, or not with data parallelism of their own. Where that is so on
            one rank, all ranks raise one.
    """

    def __init__(
        self,
        program: Program,
        stages: Mapping[int, nn.Module],
        loss_fn: LossFunction | None = None,
        *,
        device: torch.device | str | None = None,
        group: dist.ProcessGroup | DeviceMesh | None = None,
        tied: Mapping[str, str] | None = None,
        average: bool = True,
        ordered_sums: bool | None = None,
        optimizer: MakeOptimizer | None = None,
        synchronise: bool = True,
        names: Names | None = None,
        patience: float | None = 60.0,
    ) -> None:
        require_program(program)
        wrong = wrong_type(stages, loss_fn, optimizer, names)
        if not dist.is_initialized():
            raise wrong or StageError(
                "torch.distributed is not initialised: call `torch.distributed.init_process_group` first"
            )
        group = group.get_group() if isinstance(group, DeviceMesh) else group
        whole = dist.group.WORLD if group is None else group
        assert isinstance(whole, dist.ProcessGroup), "the default group is there"
        self.program = program
        self.rank = dist.get_rank(whole)
        self.stages = dict(stages) if wrong is None else {}
        self._tied = dict(tied or {})
        self._names = names
        self._has_optimizer = optimizer is not None
        control = control_group(whole)
        failure: Exception | None = None
        known: tuple[OriginalName, ...] = ()
        try:
            if wrong is not None:
                raise wrong
            self._require_fit(dist.get_world_size(whole), optimizer)
            self._device = find_device(self.rank, self.stages, device, dist.get_backend(whole))
            self._owners = ownership.tie(program, self.rank, self.stages, self._tied, optimizer is not None)
            if names is not None:
                known = original_names(self.stages, names, self._tied, held_state(self.stages))
        except Exception as error:
            failure = error
        settings = {
            "average=": average,
            "ordered_sums=": ordered_sums,
            "synchronise=": synchronise,
            "tied=": dict(sorted(self._tied.items())),
            "optimizer=": "not given" if optimizer is None else "given",
            "names=": "not given" if names is None else "given",
            "the cut of the model": cut_of(self.stages),
        }
        told = None if failure is None else headline(failure)
        texts = {name: str(value) for name, value in settings.items()}
        agree(control, program, RankFacts(texts, loss_fn is not None, known, told), failure)
        own = program.devices[self.rank]
        transport = Transport(program, whole, control, self._device)
        ranks = ownership.Ranks(self.rank, dist.get_process_group_ranks(whole), whole, control)
        ordered = self._device.type == "cpu" if ordered_sums is None else ordered_sums
        joined = ownership.joined(program, ranks, self.stages, self._owners, ordered, synchronise)
        ties = ties_between_devices(program, self._tied)
        self._ties = join_ties(
            program, self.rank, ranks.all, whole, control, ties, self.stages, self._owners, ordered, synchronise
        )
        named = list(self.named_parameters())
        copier = Copier(self._device)
        hosts = host_weights(program, self.rank, named, copier)
        self._updates = Updates({}, [])
        if optimizer is not None:
            self._updates = updates(program, self.rank, named, joined.shares, joined.versions, hosts, optimizer)
        for kept in hosts.values():
            kept.begin()
        n_microbatches = program.n_microbatches
        self._step = Step(
            [None] * own.n_buffers,
            [None] * own.n_tokens,
            [None] * n_microbatches,
            [None] * n_microbatches,
            transport.forms,
            transport.structures,
        )
        transport.forms.update((value, total.forms) for value, total in joined.sums.items())
        seeds = [1.0]
        if average:
            lengths = [program.relative_length(slice) for slice in range(len(program.stages_by_slice))]
            seeds = [length * program.n_steps / n_microbatches for length in lengths]
        tasks = {
            index: StageTasks(
                [stages[index] for stages in program.stages_by_slice], module, loss_fn, seeds, self._step, self._device
            )
            for index, module in self.stages.items()
        }
        for one in tasks.values():
            one.copier = copier
        if program.n_slices > 1:
            for index, one in tasks.items():
                one.carrying = Carrying(index, one.module, program.n_slices, self._step.buffers)
        self._feed = Feed(program, self.rank, tasks, loss_fn, self._device)
        self._machine = Machine(
            program,
            self.rank,
            self._step,
            tasks,
            transport,
            joined.reductions,
            joined.shares,
            hosts,
            copier,
            joined.versions,
            joined.sums,
            self._updates.by_exec,
            synchronisations(program, self.rank, self.stages, self._wrapped, joined.reductions, self._device),
        )
        keep_gathered(self._machine)
        self._group = whole
        self._lists: dict[tuple[bool, bool, int], DeviceList] = {}
        self._shapes = KnownShapes(program, self._step, transport)
        self._failed: str | None = None
        self._scaler: PipelineGradScaler | None = None
        self._counted_before: frozenset[str] | None = None
        self._watchdog = Watchdog(program, self.rank, patience)

    def _require_fit(self, n_ranks: int, optimizer: MakeOptimizer | None) -> None:
        """Checks what this rank can tell by itself."""
        program = self.program
        inside = None if optimizer is not None else in_step_update(program)
        if inside is not None:
            raise StageError(
                f"`{program.name}` updates weights inside a step (for {inside}): give `optimizer=`, such as "
                "torch.optim.AdamW, "
                "and call no optimizer yourself"
            )
        if any(isinstance(one, LaneStart) for device in program.devices for one in device.step):
            raise StageError(
                f"`{program.name}` runs parts of stages on lanes, and PyTorch modules run as a whole: leave `on` out of "
                "the line `parts`"
            )
        if n_ranks != program.n_devices:
            raise StageError(f"`{program.name}` is for {program.n_devices} devices, but the group has {n_ranks} ranks")
        require_stages(program, self.rank, self.stages)
        self._wrapped = find_wrappers(program, self.rank, self.stages, self._tied)

    def step(
        self, inputs: Batches = None, targets: Batch = None, *, weights: float | Sequence[float] | Tensor | None = None
    ) -> list[Tensor]:
        """Runs all microbatches forward and backward, and adds to the gradients of the weights. A collective call: all
        ranks make it.

        Args:
            inputs: What the first stage gets: a tensor `[rows, ..]`, a tuple of such tensors, or a dict of them for
                keyword arguments, which are cut into as many equal microbatches as the program has; or a list with an
                entry for each microbatch. Where several stages take inputs, a mapping with the batch of each; to a
                stage into which activations flow they come behind those. Ranks that hold no such stage may pass `None`;
                entries of microbatches that this rank does not run (replicas) may be `None`.
            targets: Likewise for the loss, on the ranks of the last stage.
            weights: What the losses are multiplied with in the sum of which gradients are computed: one number, or one
                for each microbatch (of each slice, where there are any), on the ranks of the last stage. Without it
                they are equal parts (of slices: by length), or ones (`average`).

        Returns:
            The losses of the microbatches that this rank computed, in ascending order of microbatches: detached, of
            shape `[]`, neither divided by their number nor weighed by the length of slices. Empty on ranks without the
            last stage.

        Raises:
            StageError: Inputs, targets, outputs or the loss do not fit. It is raised on the ranks that see it: before
                the step begins where a batch is missing or does not divide. Other ranks then wait for this one, until
                their timeout.
        """
        self._feed.require_known_stages(inputs)
        self._feed.give(inputs, targets, self.program.n_microbatches, needs_targets=True)
        require_rows(inputs, targets)
        self._feed.weigh(weights)
        if self._scaler is not None:
            self._scaler.scale(
                torch.ones((), device=self._device)
            )  # Ranks without the loss have to know the scale as well.
        self._execute(trains=True)
        return [one for one in self._step.losses if one is not None]

    def evaluate(self, inputs: Batches = None, targets: Batch = None) -> list[Tensor]:
        """The losses of a batch, without gradients: only the forwards run. Arguments and result are those of `step`.

        Lists may have any number of microbatches, of any shapes. Modules keep their mode: call their `eval` before,
        where they have dropout or batch norms.

        Raises:
            StageError: The batch does not fit; on all ranks. An error in a module or in the loss is one of its rank
                alone, and other ranks wait for it.
        """
        found = (self._step.losses for _ in self._forwards(inputs, targets, needs_targets=True))
        return [one for losses in found for one in losses if one is not None]

    def predict(self, inputs: Batches = None) -> list[Any]:
        """What the module of the last stage returns for each microbatch that this rank computes, without gradients;
        empty on other ranks.
        """
        found = (self._step.outputs for _ in self._forwards(inputs, None, needs_targets=False))
        return [one for outputs in found for one in outputs if one is not None]

    def _forwards(self, inputs: Batches, targets: Batch, needs_targets: bool) -> Iterator[None]:
        """Runs the forwards of as many microbatches as there are: all of the program at a time, and what is left."""
        n_slices, n_microbatches = self.program.n_slices, self.program.n_microbatches
        at_once, number, is_other = n_microbatches // n_slices, 0, False
        given: Any = None
        goals: Any = None

        def part(first: int, count: int) -> tuple[Any, Any, int, bool]:
            windows = (window(one, first, count, at_once) for one in (given, goals))
            return *windows, count * n_slices, needs_targets

        failure: Exception | None = None
        try:
            self._require_ready()
            self._feed.require_known_stages(inputs)
            numbers = [one for one in (number_given(inputs), number_given(targets)) if one is not None]
            number = max(numbers, default=0 if inputs is None and targets is None else at_once)
            given, goals = listed(inputs, number, "inputs"), listed(targets, number, "targets")
            require_rows(inputs, targets)
            for first in range(0, number or at_once, at_once):
                self._feed.found(*part(first, min(at_once, (number or at_once) - first)))
            is_other = self._has_other_forms(given, number)
        except Exception as error:
            failure = error
        total, is_free = self._agree_on_forwards(number, is_other, failure)
        for first in range(0, total, at_once):
            count = min(at_once, total - first)
            self._feed.give(*part(first, count))
            self._execute(trains=False, limit=count * n_slices, is_free=is_free)
            yield

    def _has_other_forms(self, given: Any, number: int) -> bool:
        """Whether microbatches differ in their shapes from each other, or from those that are known."""
        shares = shares_of(self.program)
        found = self._input_forms(
            (index, cut_inputs(given, number * len(shares), index, tasks.stage.is_first, shares) if number else [])
            for index, tasks in self._machine.stages.items()
        )
        return self._shapes.differ(found)

    def _input_forms(self, given: Iterable[tuple[int, Sequence[Given | None]]]) -> InputForms:
        return input_forms(given, len(self.program.stages_by_slice))

    def _agree_on_forwards(self, number: int, is_other: bool, failure: Exception | None) -> tuple[int, bool]:
        """How many microbatches all ranks evaluate, and whether their shapes are announced again; ranks without data do
        not know it. Where one rank has failed before, all do.
        """
        control = self._machine.transport.control
        mine = torch.tensor([number, is_other, failure is not None])
        of_all = [torch.empty_like(mine) for _ in self.program.devices]
        dist.all_gather(of_all, mine, group=control)
        if any(bool(one[2]) for one in of_all):
            raise_together(control, failure, "cannot evaluate its batch")
        said = sorted({int(one[0]) for one in of_all} - {0})
        if len(said) > 1:
            raise StageError(f"ranks evaluate different numbers of microbatches: {said}")
        at_once = self.program.n_microbatches // self.program.n_slices
        total = said[0] if said else at_once
        is_new = self._shapes.is_empty and total % at_once != 0
        return total, is_new or any(bool(one[1]) for one in of_all)

    def mean_loss(self, losses: list[Tensor]) -> float:
        """The mean of the losses that `step` or `evaluate` returned, over the microbatches of all ranks of the
        pipeline (`group`), on all of them. A collective call.

        Slices count by their length. Other pipelines, which learn from other rows, have means of their own.
        """
        each = (one.double() * self.program.relative_length(number) for number, one in enumerate(losses))
        total = sum(each, torch.zeros((), dtype=torch.float64, device=self._device))
        both = torch.stack([total, torch.full_like(total, len(losses))])
        dist.all_reduce(both, group=self._group)
        return float(both[0] / both[1])

    def parameters(self) -> Iterator[Parameter]:
        """The weights of this rank's stages, each once, for an optimizer."""
        return (parameter for _, parameter in self.named_parameters())

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """The same with their names: the stage and the name there, such as `0.table.weight`; tied weights have that of
        their owner.
        """
        return ownership.named_weights(self.stages, self._owners)

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """What `optimizer` has made: one for each stage, chunk or share that is updated by itself. Hooks and learning
        rates go here.
        """
        return self._updates.optimizers

    def split_report(self) -> list[SplitReport]:
        """Of each stage of this rank whose backward is split: how much of it `W` does; after a step. Print them to read
        them.
        """
        halves = (one for one in self._machine.stages.values() if "W" in one.stage.kinds)
        return [one.split_report() for one in halves]

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0, *, error_if_nonfinite: bool = False) -> Tensor:
        """Scales the gradients of all ranks down, so that their norm is at most `max_norm`. A collective call: all
        ranks make it.

        It does what `torch.nn.utils.clip_grad_norm_` does with the weights of the whole model: those that several ranks
        hold (replicas, tied weights) count once, and those that are sharded (`fully_shard`, `parallelize_module`) as a
        whole.

        Returns:
            The norm before; the same on all ranks.

        Raises:
            StageError: The optimizer runs inside `step`, which has used the gradients up.
            RuntimeError: The norm is not finite, and `error_if_nonfinite`; on all ranks.
        """
        self._require_gradients("clip_grad_norm_")
        if not norm_type > 0:
            raise StageError(f"gradients have no norm of order {norm_type}: expected a number above 0, or infinity")
        total = norm_over_ranks(self._own_gradients(), norm_type, self._group, self._device)
        if error_if_nonfinite and not torch.isfinite(total):
            raise RuntimeError(
                f"the norm of order {norm_type} of all gradients is {total.item()}, so they cannot be clipped"
            )
        kinds = {one.grad.dtype for one in self.parameters() if one.grad is not None}
        total = total if torch.float64 in kinds else total.float()
        clip(self.parameters(), max_norm, total)
        return total

    def grad_scaler(self, **options: Any) -> PipelineGradScaler:
        """Makes a gradient scaler for this runner; `options` are those of `torch.amp.GradScaler`, such as `init_scale`.

        From then on `step` begins the backwards with scaled gradients; the losses that it returns are not scaled. The
        rest is as always: `unscale_`, `step` and `update`, each on all ranks.

        Raises:
            StageError: The optimizer runs inside `step`, which would use scaled gradients.
        """
        self._require_gradients("grad_scaler")
        self._scaler = PipelineGradScaler(self._device, self._find_infinite, **options)
        for tasks in self._machine.stages.values():
            tasks.scale = self._scaler.scale
        return self._scaler

    def _require_gradients(self, name: str) -> None:
        if self._has_optimizer:
            raise StageError(
                f"`{name}` needs gradients behind the step, but with `optimizer=` they are used up inside it, "
                "stage by stage: "
                "leave `optimizer=` out, and call an optimizer behind `step`"
            )

    def _own_gradients(self) -> Iterator[Tensor]:
        """The gradients of this rank that count here, and not on an earlier rank."""
        named = list(self.named_parameters())
        if self._counted_before is None:
            self._counted_before = held_before(named, self._machine.transport.control)
        before = self._counted_before
        return (one.grad for name, one in named if one.grad is not None and name not in before)

    def _find_infinite(self) -> Tensor:
        """Whether a gradient of any rank is not finite: 1 or 0."""
        gradients = (one.grad for one in self.parameters() if one.grad is not None)
        found = not_finite(gradients, self._device)
        dist.all_reduce(found, op=dist.ReduceOp.MAX, group=self._group)
        return found

    @contextmanager
    def whole_weights(self) -> Iterator[None]:
        """Inside, all weights of this rank's stages are there, to be read or saved. A collective call: all ranks make
        it.

        Between steps that is so without it, unless replicas keep shares (`zero` 3) or weights live with the host
        (`offload parameters`).
        """
        machine = self._machine
        kept = [*(machine.shares[one] for one in sorted(machine.shares)), *machine.hosts.values()]
        for one in kept:
            one.gather()
        try:
            yield
        finally:
            for one in kept:
                one.scatter()

    def state_dict(self) -> dict[str, Any]:
        """The weights and buffers of this rank's stages, by their names in the original model (`names`). A collective
        call.

        A runner can be given to `torch.distributed.checkpoint` as it is: `dcp.save({"model": runner},
        checkpoint_id=folder)`.
        """
        machine = self._machine
        with self.whole_weights():
            return model_state(self.stages, self._names, copies=bool(machine.shares or machine.hosts))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Loads what of a state belongs to this rank's stages, whichever schedule has saved it, or the whole model. A
        collective call.

        Raises:
            StageError: Something of theirs is missing.
        """
        machine = self._machine
        with self.whole_weights():
            load_model_state(self.stages, self._names, state)
            for kept in (*machine.shares.values(), *machine.hosts.values()):
                kept.keep_changes()
        for weights in machine.versions.values():
            weights.begin_alike()

    def optimizer_state_dict(self, *optimizers: torch.optim.Optimizer) -> dict[str, Any]:
        """The state of this rank's optimizers, by the original names of their weights, so that another schedule can
        load it.

        Without arguments it is that of `optimizers`. An optimizer without state gets some first, so that there is
        something to load into.

        Raises:
            StageError: An optimizer updates shares or versions of weights, which have no names in the original model.
        """
        return optimizer_state(self.stages, self._names, optimizers or self.optimizers)

    def load_optimizer_state_dict(self, state: Mapping[str, Any], *optimizers: torch.optim.Optimizer) -> None:
        """Loads what of a state belongs to the weights of this rank's optimizers.

        Args:
            state: What `optimizer_state_dict` has made, not `optimizer.state_dict()`.
            optimizers: The optimizers; without any those of `optimizers`.

        Raises:
            StageError: Something of theirs is missing, or the state knows weights by number.
        """
        load_optimizer_state(self.stages, self._names, optimizers or self.optimizers, state)

    def reset(self) -> None:
        """Forgets the shapes of what flows: where modules were changed, and return others for the same inputs. All
        ranks call it.
        """
        self._shapes.forget()

    def _require_ready(self) -> None:
        if self._failed is not None:
            raise StageError(
                f"an earlier step of this runner failed ({self._failed}), and transfers may be left: make another one"
            )
        if not self._lists:
            self._require_same_wrappers()

    def _execute(self, trains: bool, limit: int | None = None, is_free: bool = False) -> None:
        self._require_ready()
        step = self._step
        step.losses[:] = [None] * len(step.losses)
        step.outputs[:] = [None] * len(step.outputs)
        step.is_free = is_free
        limit = self.program.n_microbatches if limit is None else limit
        inputs = (
            {} if is_free else self._input_forms((index, one.inputs) for index, one in self._machine.stages.items())
        )
        watchdog = self._watchdog
        watchdog.begin()
        try:
            if trains:
                self._shapes.choose(inputs)
            learns = is_free or not self._shapes.covers(trains)
            found = self._list(trains, learns, limit)
            watchdog.follow(found.positions)
            for tie in self._ties if trains else ():
                tie.begin_step()
            for watchdog.place, call in enumerate(found.calls):
                call()
            self._finish(trains)
        except BaseException as error:
            self._failed = type(error).__name__
            self._explain(error)
            raise
        finally:
            watchdog.end()
        if learns and not is_free:
            self._shapes.learned(inputs, trains)

    def _list(self, trains: bool, learns: bool, limit: int) -> DeviceList:
        """The calls of a step."""
        found = self._lists.get((trains, learns, limit))
        if found is None:
            found = self._lists[trains, learns, limit] = translate(self._machine, trains, learns, limit)
        return found

    def _require_same_wrappers(self) -> None:
        now = find_wrappers(self.program, self.rank, self.stages, self._tied)
        changed = [stage for stage, found in now.items() if found != self._wrapped[stage]]
        if changed:
            raise StageError(
                f"the modules of stages {changed} were sharded or replicated after the runner was made, which "
                "holds their weights as they "
                "were: call fully_shard, replicate or DistributedDataParallel first"
            )

    def _finish(self, trains: bool) -> None:
        """What is left to do when a list has ended."""
        for one in self._machine.synchronisations:
            one.finish()
            one.end()
        for tie in self._ties if trains else ():
            tie.start()
            tie.finish()
        for update in self._updates.at_end if trains else ():
            update.run()
        for held in self._machine.versions.values():
            held.use_newest()
        self._watchdog.place += 1
        self._machine.transport.end_step()

    def _explain(self, error: BaseException) -> None:
        """Adds to an error which instruction it comes from."""
        for tasks in self._machine.stages.values():
            tasks.clear()
        if hasattr(error, "add_note"):
            watchdog = self._watchdog
            error.add_note(f"in `{self.program.name}`, where rank {self.rank} {watchdog.standing(watchdog.place)}")
