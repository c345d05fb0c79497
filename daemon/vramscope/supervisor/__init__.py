"""The parent process: it owns the run's state, keeps a worker alive, and never imports torch."""
