"""Runs programs with `nn.Module` stages over `torch.distributed`; needs PyTorch.

`runner` is what users see. `device_list` translates the instructions of a device into calls, `transport` moves tensors
between ranks, the folder `stage` runs the tasks of a stage with autograd, `weights` holds who owns, sums up, divides
and updates which weights, and `data_parallel` what modules with data parallelism of their own need.
Around a step, `agreement` compares the ranks, `watchdog` says where one stands still, `grad_scaler` agrees on infinite
gradients, and `state` gives weights their original names. The folder `splitting` cuts a
model into stages and measures its layers.
"""

from .runner import Runner
from .splitting import LayerCost, Profile, Split, profile, split

__all__ = ["LayerCost", "Profile", "Runner", "Split", "profile", "split"]
