"""Which modules of a model stay whole when its forward is traced: around the places where it may be cut, or those
without parts.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from ...errors import StageError

_LISTS = (nn.ModuleList, nn.Sequential, nn.ModuleDict)


def find_blocks(model: nn.Module) -> list[str]:
    """The blocks of a model: the members of its lists of modules of one class, such as `model.layers` of a Llama,
    `transformer.h` of a GPT-2 or `layer1` to `layer4` of a ResNet, of the class with the most members. Lists inside of
    blocks do not count. Empty if there are fewer than two.
    """
    by_class: dict[type[nn.Module], list[str]] = {}
    inside: list[str] = []
    for name, module in model.named_modules():
        members = list(module.children())
        if not isinstance(module, _LISTS) or any(name.startswith(one) for one in inside):
            continue
        if len({type(one) for one in members}) == 1 and not any(_is_atom(one) for one in members):
            blocks = [f"{name}.{key}" if name else key for key, _ in module.named_children()]
            inside += [f"{one}." for one in blocks]
            by_class.setdefault(type(members[0]), []).extend(blocks)
    best = max(by_class.values(), key=len, default=[])
    return best if len(best) > 1 else []


def require_modules(model: nn.Module, names: Sequence[str]) -> None:
    """Checks that names are those of modules, each named once.

    Raises:
        StageError: One is not, and which there are.
    """
    known = dict(model.named_modules(remove_duplicate=False))
    for name in names:
        if not name or name not in known:
            parent = name
            while parent and parent not in known:
                parent = parent.rpartition(".")[0]
            children = [key for key, _ in known[parent].named_children()]
            there = ", ".join(f"`{one}`" for one in children[:8]) + (", .." if len(children) > 8 else "")
            where = f"`{parent}`" if parent else "the model"
            raise StageError(f"there is no module `{name}`: {where} has {there or 'no modules in it'}")
    twice = sorted({name for name in names if list(names).count(name) > 1})
    if twice:
        raise StageError(f"`at=` names `{twice[0]}` twice: each place once")


def whole_around(model: nn.Module, places: Sequence[str]) -> list[str]:
    """The largest modules that do not have one of these places inside of them; the places are among them."""
    containers = {""}
    for place in places:
        parts = place.split(".")
        containers.update(".".join(parts[:depth]) for depth in range(1, len(parts)))
    return _each_once(
        model,
        [
            f"{container}.{key}" if container else key
            for container in sorted(containers)
            for key, _ in model.get_submodule(container).named_children()
            if (f"{container}.{key}" if container else key) not in containers
        ],
    )


def atoms(model: nn.Module) -> list[str]:
    """The modules that have no modules in them, such as a convolution or a norm."""
    return _each_once(model, [name for name, module in model.named_modules() if name and _is_atom(module)])


def without_weights(model: nn.Module, leaves: Sequence[str]) -> list[str]:
    """Those without weights that are not of PyTorch: perhaps what they return is the same for all inputs, as positions
    are.
    """
    found = ((name, model.get_submodule(name)) for name in leaves)
    return [
        name
        for name, one in found
        if next(one.parameters(), None) is None and not type(one).__module__.startswith("torch.nn.")
    ]


def _is_atom(module: nn.Module) -> bool:
    return next(module.children(), None) is None


def _each_once(model: nn.Module, names: Sequence[str]) -> list[str]:
    """Without lists, which are no calls, and second names of one module."""
    seen: set[int] = set()
    kept = []
    for name in names:
        module = model.get_submodule(name)
        if id(module) not in seen and not isinstance(module, (nn.ModuleList, nn.ModuleDict)):
            seen.add(id(module))
            kept.append(name)
    return kept
