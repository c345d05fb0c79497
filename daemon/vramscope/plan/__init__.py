"""The plan: YAML text to a checked, immutable description of what to run."""
