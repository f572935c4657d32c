"""Late records as a task reports them."""

from __future__ import annotations

from clonos.core.model.metric_series import LATE_RECORDS, MetricFamily, MetricSeries


def late_families(**by_step: int) -> tuple[MetricFamily, ...]:
    """Returns the metrics of a task from the number of records that each of its steps has refused."""
    return (MetricFamily(LATE_RECORDS, tuple(MetricSeries((step,), (count,)) for step, count in by_step.items())),)
