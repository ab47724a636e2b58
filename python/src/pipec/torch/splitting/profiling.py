"""`profile` measures what the layers of a model cost, or the stages of a split one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from ...errors import StageError
from .chain import span
from .costs import Profile
from .layers import layers_of
from .materialise import is_on_meta
from .measure import measure
from .model_split import Split
from .stage_modules import stage_module
from .trace import as_before, example_of


def profile(
    model: nn.Module | Split,
    example: Any,
    *,
    at: Sequence[str] | None = None,
    by: str | None = None,
    loss: Callable[[Any], Tensor] | None = None,
    repeats: int = 10,
) -> Profile:
    """Measures what the layers of a model cost on its device, or the stages of a `Split`.

    Each layer runs by itself: times are medians of its forward, of both halves of its backward, and of its whole
    backward. Gradients, buffers and random numbers of the model are as before. Measures of two ranks differ, so let one
    of them measure, and give its profile to all: it can be pickled and saved.

    Args:
        model: A model, or what `split` returned.
        example: One microbatch of inputs, as for `split`.
        at: Where layers begin, as for `split`.
        by: The same.
        loss: Makes the loss of what the model returns, such as `lambda scores: cross_entropy(scores, targets)`; its
            time counts for the last layer.
        repeats: How often each layer is measured.

    Raises:
        StageError: The model does not run on the example or cannot be traced, or a name is that of no module.
    """
    if repeats < 1:
        raise StageError(f"`repeats` is {repeats}: a layer is measured at least once")
    if is_on_meta(nn.ModuleList(model.stages) if isinstance(model, Split) else model):
        raise StageError("the model has weights on the device `meta`, where nothing takes time: measure it on another")
    args, kwargs = example_of(example)
    if isinstance(model, Split):
        whole: nn.Module = nn.ModuleList(model.stages)
        modules: Sequence[nn.Module] = model.stages
        names = [span(one) for one in model.layers]
    else:
        whole = model
        chain, layers = layers_of(model, example, at, by)
        names, modules = [one.name for one in layers], [stage_module([(chain, one.begin, one.end)]) for one in layers]
    with as_before(whole), _gradients_as_before(whole):
        return Profile(measure(names, modules, args, kwargs, loss, repeats))


@contextmanager
def _gradients_as_before(model: nn.Module) -> Iterator[None]:
    kept = [(one, one.grad) for one in model.parameters()]
    for one, _ in kept:
        one.grad = None
    try:
        yield
    finally:
        for one, gradient in kept:
            one.grad = gradient
