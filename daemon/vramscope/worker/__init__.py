"""The child process that owns torch, and the supervisor's end of the line to it."""
