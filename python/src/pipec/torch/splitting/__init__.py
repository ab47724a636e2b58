"""From a model to stages: `split` cuts an `nn.Module` into the stages of a program, and `profile` measures its layers.

`leaves` says which modules stay whole, `trace` makes a graph of the forward around them (with `opaque_calls`), `chain`
says where it can be cut, and `layers` cuts it there. `cut` chooses, by `balance` and `occupancy`, how many layers a
stage has, and `stage_modules` makes the stages, with a graph for each of several `shapes`. `materialise` gives those of
a model on `meta` memory. `measure` fills the table of `costs`.
"""

from .costs import LayerCost, Profile
from .model_split import Split, split
from .profiling import profile

__all__ = ["LayerCost", "Profile", "Split", "profile", "split"]
