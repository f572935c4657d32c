"""Alert rules for Prometheus and dashboards for Grafana over the metrics of jobs (docs/metrics.md)."""
