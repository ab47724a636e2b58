"""Weights: who owns them, who adds up their gradients, who keeps which share or version, and when they are updated."""
