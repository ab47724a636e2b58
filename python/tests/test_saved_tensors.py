"""What autograd saves goes to the host and comes back, and gradients do not change."""

from __future__ import annotations

import copy

import pytest
import torch
from models import Middle
from torch import Tensor

from pipec.torch.copies import Copier
from pipec.torch.stage.saved_tensors import SavedTensors


def gradients(comes_back: bool | None) -> tuple[list[Tensor], list[int]]:
    """Gradients of a block, and how many saved tensors were here after each move; `None` moves nothing."""
    torch.manual_seed(1)
    module = copy.deepcopy(Middle())
    x = torch.randn(3, 8, requires_grad=True)
    here = []
    with SavedTensors(module, [x], Copier(torch.device("cpu"))) as kept:
        y = module(x)
    kept.keep_here([y])
    slots = [slot for slot in (one() for one in kept._slots.values()) if slot is not None]
    if comes_back is not None:
        kept.leave()()
        here.append(sum(slot.tensor is not None for slot in slots))
    if comes_back:
        kept.come()()
        here.append(sum(slot.tensor is not None for slot in slots))
    y.sum().backward()
    assert x.grad is not None
    return [x.grad, *(one.grad for one in module.parameters() if one.grad is not None)], [len(slots), *here]


@pytest.mark.parametrize("comes_back", [True, False])
def test_saved_tensors_leave_and_come_back(comes_back: bool) -> None:
    expected, (count,) = gradients(None)
    found, (same, away, *back) = gradients(comes_back)
    assert count == same > 0 and away == 0 and back == [count] * comes_back
    assert all(torch.equal(one, other) for one, other in zip(expected, found))


def test_a_graph_takes_what_it_saved_with_it() -> None:
    module = Middle()
    with SavedTensors(module, [], Copier(torch.device("cpu"))) as kept:
        y = module(torch.randn(3, 8))
    assert any(one() is not None for one in kept._slots.values())
    del y
    assert all(one() is None for one in kept._slots.values())
