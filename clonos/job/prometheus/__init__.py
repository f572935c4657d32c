"""Metrics of a job for Prometheus (docs/metrics.md): needs the extra ``server``, but for ``job_counters``.

Only a run with ``metrics_port`` and the API of a job import the rest of it.
"""
