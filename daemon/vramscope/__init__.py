"""vramscope shows where the VRAM went: it runs a plan of model steps and accounts for every byte."""

__version__ = "0.1.0"
