"""Dashboards for Grafana: a description of their panels, from which the JSON is made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, NamedTuple

ALERT_RULES: Final = Path(__file__).with_name("alerts.yml")
SCHEMA_VERSION: Final = 39
PANEL_WIDTH: Final = 12
PANEL_HEIGHT: Final = 8
PANELS_IN_A_ROW: Final = 2

JOBS: Final = '{job=~"$job"}'
SPAN: Final = "[$__rate_interval]"


class Panel(NamedTuple):
    """One curve or several. ``legend``: text with labels in double braces; ``unit``: as Grafana calls it."""

    title: str
    query: str
    legend: str
    unit: str = "short"


class Dashboard(NamedTuple):
    """One page of panels."""

    title: str
    panels: tuple[Panel, ...]


def _rate(metric: str, by: str) -> str:
    return f"sum by ({by}) (rate({metric}{JOBS}{SPAN}))"


def _quantile(quantile: float, metric: str, by: str = "") -> str:
    return f"histogram_quantile({quantile}, sum by (le{by}) (rate({metric}_bucket{JOBS}{SPAN})))"


DASHBOARDS: Final = {
    "cluster": Dashboard(
        "Clonos: all jobs",
        (
            Panel("Running jobs", 'sum(clonos_job_phase{phase="running"})', "jobs"),
            Panel("Slots", "sum by (job) (clonos_slots)", "{{job}}"),
            Panel("Records", "sum by (job) (rate(clonos_records_processed_total[$__rate_interval]))", "{{job}}", "cps"),
            Panel("Recoveries", "sum by (job) (clonos_recoveries_total)", "{{job}}"),
            Panel("Alarms", "sum by (job) (clonos_alarms_total)", "{{job}}"),
            Panel("Age of the last checkpoint", "time() - clonos_last_checkpoint_timestamp_seconds", "{{job}}", "s"),
            Panel("Back-pressure", "max by (job) (clonos_backpressure_ratio)", "{{job}}", "percentunit"),
            Panel("Processors", "sum by (job) (rate(clonos_slot_cpu_seconds_total[$__rate_interval]))", "{{job}}"),
            Panel("Memory of slots", "sum by (job) (clonos_slot_memory_bytes)", "{{job}}", "bytes"),
        ),
    ),
    "job": Dashboard(
        "Clonos: one job",
        (
            Panel("Records processed", _rate("clonos_records_processed_total", "operator"), "{{operator}}", "cps"),
            Panel("Records sent", _rate("clonos_records_sent_total", "operator"), "{{operator}}", "cps"),
            Panel("Backlog", f"sum by (operator) (clonos_backlog_elements{JOBS})", "{{operator}}"),
            Panel(
                "Latency from source, median",
                _quantile(0.5, "clonos_end_to_end_latency_seconds", ", operator"),
                "{{operator}}",
                "s",
            ),
            Panel(
                "Latency from source, 99 of 100",
                _quantile(0.99, "clonos_end_to_end_latency_seconds", ", operator"),
                "{{operator}}",
                "s",
            ),
            Panel("State", f"sum by (operator) (clonos_state_size_bytes{JOBS})", "{{operator}}", "bytes"),
            Panel("Watermark lag", f"max by (operator) (clonos_watermark_lag_seconds{JOBS})", "{{operator}}", "s"),
            Panel(
                "Back-pressure", f"max by (operator) (clonos_backpressure_ratio{JOBS})", "{{operator}}", "percentunit"
            ),
            Panel("Busy", f"max by (operator) (clonos_busy_ratio{JOBS})", "{{operator}}", "percentunit"),
            Panel("Phase", f"clonos_job_phase{JOBS} == 1", "{{phase}}"),
            Panel("Alarms", f"clonos_alarms_total{JOBS}", "alarms"),
        ),
    ),
    "checkpoints": Dashboard(
        "Clonos: checkpoints and recovery",
        (
            Panel("Checkpoint, median", _quantile(0.5, "clonos_checkpoint_duration_seconds"), "median", "s"),
            Panel("Checkpoint, 99 of 100", _quantile(0.99, "clonos_checkpoint_duration_seconds"), "99 %", "s"),
            Panel("Checkpoints by outcome", _rate("clonos_checkpoints_total", "outcome"), "{{outcome}}", "cps"),
            Panel("Age of the last checkpoint", f"time() - clonos_last_checkpoint_timestamp_seconds{JOBS}", "age", "s"),
            Panel("Size of the last checkpoint", f"clonos_last_checkpoint_size_bytes{JOBS}", "size", "bytes"),
            Panel("Recoveries", f"sum by (task) (clonos_recoveries_total{JOBS})", "{{task}}"),
            Panel("Recovery, 99 of 100", _quantile(0.99, "clonos_recovery_duration_seconds"), "99 %", "s"),
            Panel(
                "Recovery by phase, 99 of 100",
                _quantile(0.99, "clonos_recovery_phase_seconds", ", phase"),
                "{{phase}}",
                "s",
            ),
            Panel("Records replayed", f"sum by (task) (clonos_replayed_records_total{JOBS})", "{{task}}"),
            Panel("Calls from the log", f"sum by (task) (clonos_replayed_calls_total{JOBS})", "{{task}}"),
            Panel("Calls made", _rate("clonos_live_calls_total", "task"), "{{task}}", "cps"),
            Panel("Rollbacks", f"clonos_rollbacks_total{JOBS}", "rollbacks"),
            Panel("Losses that each task survives", f"clonos_losses_survived{JOBS}", "{{task}}"),
        ),
    ),
    "tasks": Dashboard(
        "Clonos: tasks",
        (
            Panel("Records processed", _rate("clonos_records_processed_total", "task"), "{{task}}", "cps"),
            Panel("Busy", f"clonos_busy_ratio{JOBS}", "{{task}}", "percentunit"),
            Panel("Back-pressure", f"clonos_backpressure_ratio{JOBS}", "{{task}}", "percentunit"),
            Panel("Backlog", f"clonos_backlog_elements{JOBS}", "{{task}}"),
            Panel(
                "Processing latency, 99 of 100",
                _quantile(0.99, "clonos_processing_latency_seconds", ", task"),
                "{{task}}",
                "s",
            ),
            Panel("State", f"clonos_state_size_bytes{JOBS}", "{{task}}", "bytes"),
            Panel("Processors of a slot", f"rate(clonos_slot_cpu_seconds_total{JOBS}{SPAN})", "{{slot}}"),
            Panel("Memory of a slot", f"clonos_slot_memory_bytes{JOBS}", "{{slot}}", "bytes"),
            Panel("Causal log written", _rate("clonos_causal_log_written_bytes_total", "task"), "{{task}}", "Bps"),
            Panel("Causal logs in memory", f"clonos_causal_log_memory_bytes{JOBS}", "{{task}}", "bytes"),
            Panel("In-flight log in memory", f"clonos_inflight_log_memory_bytes{JOBS}", "{{task}}", "bytes"),
            Panel("In-flight log on disk", f"clonos_inflight_log_spilled_bytes{JOBS}", "{{task}}", "bytes"),
            Panel("Phase", f"clonos_task_phase{JOBS} == 1", "{{task}} {{phase}}"),
            Panel("Standbys that are ready", f"clonos_standbys_ready{JOBS}", "{{task}}"),
            Panel("Keepers that are ready", f"clonos_keepers_ready{JOBS}", "{{task}}"),
        ),
    ),
}
"""Dashboards by the name of their file."""


def dashboard_json(name: str) -> dict[str, Any]:
    """Returns a dashboard in the form that Grafana imports."""
    dashboard = DASHBOARDS[name]
    return {
        "uid": f"clonos-{name}",
        "title": dashboard.title,
        "tags": ["clonos"],
        "schemaVersion": SCHEMA_VERSION,
        "refresh": "5s",
        "time": {"from": "now-15m", "to": "now"},
        "templating": {"list": [_data_source(), _job_choice()]},
        "panels": [_panel(number, panel) for number, panel in enumerate(dashboard.panels)],
    }


def _data_source() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _job_choice() -> dict[str, Any]:
    return {
        "name": "job",
        "label": "Job",
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": {"query": "label_values(clonos_job_phase, job)", "refId": "job"},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    row, place = divmod(number, PANELS_IN_A_ROW)
    source = {"type": "prometheus", "uid": "${datasource}"}
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "datasource": source,
        "gridPos": {"x": place * PANEL_WIDTH, "y": row * PANEL_HEIGHT, "w": PANEL_WIDTH, "h": PANEL_HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [{"refId": "A", "datasource": source, "expr": panel.query, "legendFormat": panel.legend}],
    }


def write_monitoring(folder: Path) -> list[Path]:
    """Writes the alert rules and the dashboards into a folder; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    rules = folder / ALERT_RULES.name
    rules.write_bytes(ALERT_RULES.read_bytes())
    written = [rules]
    for name in DASHBOARDS:
        file = folder / f"clonos-{name}.json"
        file.write_text(json.dumps(dashboard_json(name), indent=2) + "\n", "utf-8")
        written.append(file)
    return written
