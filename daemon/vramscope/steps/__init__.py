"""Step kinds: each public file is one kind, and its module docstring is the user's documentation of it."""
