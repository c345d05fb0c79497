"""The journal: what happened in a run, in a file that outlives it. One JSON object a line, appended and rotated.

A run is written by `writer` through `file`, and read by `reader`; `lines` is what both agree on.
"""
