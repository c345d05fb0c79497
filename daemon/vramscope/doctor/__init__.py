"""Checks of the machine: each public file is one check, and its module docstring says what it looks at and why."""
