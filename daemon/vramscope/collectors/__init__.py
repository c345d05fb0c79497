"""Metrics: one file an area. To add a metric, add it to the file of its area; to add an area, add a file."""
