"""Grafana dashboards as code: one public file a dashboard, `_files` are what they share.

`python -m dashboards` writes the JSON that Grafana is given; a test compares it with the code.
"""
