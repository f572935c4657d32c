"""Metrics of a job for Prometheus (docs/metrics.md): needs the extra ``server``.

Only a run with ``metrics_port`` and the API of a job import this package.
"""
