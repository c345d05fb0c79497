"""HTTP: the metrics page for Prometheus, health checks, the run as JSON, and a live page for people."""
