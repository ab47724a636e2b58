"""Weights in several versions: where steps run on without a flush, a task reads that version of its stage's weights
which the program says.

Each version is a set of parameters, in the buffer of the program that it is named by. A task's module gets those of its
buffer; autograd keeps what a forward has used, so a backward has the version of its forward, and complains if that was
overwritten in the meantime.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import Parameter


class Weights:
    """The trained weights of one stage on this rank: `parameters` are those that its modules have now, and hold the
    gradients.
    """

    def __init__(self, names: Sequence[str], parameters: Sequence[Parameter], modules: Iterable[nn.Module]) -> None:
        self._names = list(names)
        self.parameters = list(parameters)
        numbers = {id(parameter): number for number, parameter in enumerate(parameters)}
        self._places: list[tuple[dict[str, Parameter | None], str, int]] = []
        for module in modules:
            for part in module.modules():
                for name, parameter in part._parameters.items():
                    if parameter is not None and id(parameter) in numbers:
                        self._places.append((part._parameters, name, numbers[id(parameter)]))
        self._versions: dict[int, list[Parameter]] = {}
        self._current = self._newest = -1

    def keep(self, buffers: Sequence[int]) -> None:
        """Makes a version for each buffer, all with the contents of now; the first one is that of the modules."""
        self._current = self._newest = buffers[0]
        self._versions[buffers[0]] = self.parameters
        for buffer in buffers[1:]:
            self._versions[buffer] = [Parameter(one.detach().clone()) for one in self.parameters]

    def begin_alike(self) -> None:
        """Gives all versions the contents of the one that the modules have."""
        with torch.no_grad():
            for version in self._versions.values():
                for one, other in zip(version, self.parameters):
                    one.copy_(other)

    def use(self, buffer: int) -> None:
        """Gives the modules the version in a buffer, which takes the gradients over."""
        if buffer == self._current:
            return
        before, self.parameters, self._current = self.parameters, self._versions[buffer], buffer
        for old, new in zip(before, self.parameters):
            new.grad, old.grad = old.grad, None
        for parameters, name, number in self._places:
            parameters[name] = self.parameters[number]

    def use_newest(self) -> None:
        """Gives the modules the version that was updated last."""
        self.use(self._newest)

    def named(self) -> list[tuple[str, Parameter]]:
        """Names and parameters."""
        return list(zip(self._names, self.parameters))

    def take_gradients(self) -> list[Tensor | None]:
        """The gradients, which are then gone from here."""
        found = [one.grad for one in self.parameters]
        for one in self.parameters:
            one.grad = None
        return found

    def make(self, read: int, write: int) -> list[Parameter]:
        """Begins the next version: the parameters in the buffer `write`, with the contents of those in `read`."""
        made = self._versions[write]
        if read != write:
            with torch.no_grad():
                for new, old in zip(made, self._versions[read]):
                    new.copy_(old)
        self._newest = write
        return made
