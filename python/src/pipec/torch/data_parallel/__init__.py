"""Data parallelism that the modules of stages bring along: gradients go between replicas once a step, when they are
complete.
"""
