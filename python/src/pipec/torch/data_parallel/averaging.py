"""Averages gradients where `DistributedDataParallel` replicates a module: it would do so at each backward, and `B` and
`W` are several.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn import Parameter
from torch.nn.parallel import DistributedDataParallel

from ...errors import StageError
from ..weights.flat_params import Slot
from ..weights.reduction import Reduction


def refuse_options(ddp: DistributedDataParallel) -> None:
    """Refuses what a wrapper would do with gradients when it averages them by itself.

    Raises:
        StageError: It has been asked for something that the runner does not do.
    """
    has = [
        ("a communication hook", bool(getattr(ddp, "_comm_hooks", ()))),
        ("mixed precision of its own", getattr(ddp, "mixed_precision", None) is not None),
        ("weights that are DTensors", any(isinstance(one, DTensor) for one in ddp.parameters())),
    ]
    for what, is_there in has:
        if is_there:
            raise StageError(
                f"a stage is replicated by DistributedDataParallel with {what}, which a runner does not know: it averages "
                "gradients itself, once a step. Leave that out, or use fully_shard"
            )


class Replica:
    """A module that `DistributedDataParallel` has wrapped, or the composable `replicate` has changed."""

    def __init__(self, module: nn.Module) -> None:
        ddp = module if isinstance(module, DistributedDataParallel) else _hooked(module)
        self._composable: Any = None if ddp is module else module
        self.ddp = ddp
        self.group: dist.ProcessGroup = ddp.process_group
        refuse_options(ddp)
        # With `static_graph` it would reduce once more at the end of the very first backward.
        ddp._static_graph_delay_allreduce_enqueued = True
        self._synced = True

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """The weights whose gradients are averaged."""
        ignored = set(getattr(self.ddp, "parameters_to_ignore", ()))
        for name, parameter in self.ddp.module.named_parameters():
            if parameter.requires_grad and name not in ignored:
                yield name, parameter

    @property
    def is_local(self) -> bool:
        """Whether the user has said that this step's gradients stay here (`no_sync`)."""
        return not self._synced

    def pause(self) -> None:
        """Keeps the module from averaging by itself; buffers such as those of a batch norm are still taken over once a
        step.
        """
        if self._composable is not None:
            self._synced = not self._state()._no_sync
            self._composable.set_requires_gradient_sync(False)
        else:
            self._synced = self.ddp.require_backward_grad_sync
        self.ddp.require_backward_grad_sync = False
        self.ddp.require_forward_param_sync = self._synced

    def resume(self) -> None:
        """Lets it do as it did."""
        self.ddp.require_backward_grad_sync = self._synced
        if self._composable is not None:
            self._composable.set_requires_gradient_sync(self._synced)

    def _state(self) -> Any:
        return _state_of(self._composable)


def _state_of(module: nn.Module) -> Any:
    from torch.distributed._composable.replicate import replicate

    return replicate.state(module)


def _hooked(module: nn.Module) -> DistributedDataParallel:
    """The wrapper that `replicate` makes at a module's first forward; all replicas are here now, so it is made now."""
    state = _state_of(module)
    if state._init_args:
        state.lazy_init()
    ddp: DistributedDataParallel = state._ddp
    return ddp


class Averaging:
    """The average of some gradients over a group, once in each step; what earlier steps have left is an average
    already.
    """

    def __init__(
        self,
        named: Mapping[Parameter, str],
        group: dist.ProcessGroup,
        replicas: Sequence[Replica],
        after: int,
        on: torch.device,
    ) -> None:
        self.after = after
        self._replicas = replicas
        slots = [Slot(name, one.shape, one.dtype, one) for one, name in named.items()]
        self._reduction = Reduction(slots, group, on, ordered=False, is_mean=True)
        self._averages = False
        self._had_local = False
        self._begun = False

    def begin_step(self) -> None:
        """Puts gradients of earlier steps aside, if these are averages."""
        for one in self._replicas:
            one.pause()
        self._begun = True
        self._averages = not any(one.is_local for one in self._replicas)
        if self._averages and not self._had_local:
            self._reduction.begin_step()
        self._had_local = not self._averages

    def start(self) -> None:
        """Starts the sums of all types of weights."""
        if self._averages:
            self._reduction.start()

    def finish(self) -> None:
        """Waits for them."""
        self._reduction.finish()

    def end(self) -> None:
        """Gives the modules back as they were."""
        if self._begun:
            self._begun = False
            for one in self._replicas:
                one.resume()
