"""Files to tensors in memory: reading weights fast, assembling the model, moving it, letting go of it."""
