"""Devices that hold tensors: CUDA through torch, and a simulated one with the same allocator rules."""
