"""The tasks of one stage, run with autograd: forwards, whole backwards and their halves, slices, saved tensors."""
