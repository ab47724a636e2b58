//! Models: from declared layers to the tensor graphs of stages.
