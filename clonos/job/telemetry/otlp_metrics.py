"""Metrics of a job for OTLP: those that the endpoint for Prometheus serves, under the same names.

A counter has the name without ``_total``, which the exporter for Prometheus of a collector adds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, Final

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.core import Metric as Family
from prometheus_client.samples import Sample

UNITS: Final = {"seconds": "s", "bytes": "By", "ratio": "1"}
BOUND: Final = "le"
CUMULATIVE: Final = AggregationTemporality.CUMULATIVE


def metrics_data(
    families: Iterable[Family], resource: Resource, scope: InstrumentationScope, since_ns: int, now_ns: int
) -> MetricsData:
    """Returns families as metrics of OTLP. ``since_ns``: when their counters began."""
    metrics = [metric for family in families for metric in _metrics(family, since_ns, now_ns)]
    return MetricsData([ResourceMetrics(resource, [ScopeMetrics(scope, metrics, "")], "")])


def _metrics(family: Family, since_ns: int, now_ns: int) -> Iterator[Metric]:
    if not family.samples:
        return
    data: Sum | Gauge | Histogram
    if family.type == "histogram":
        data = Histogram(list(_histograms(family.samples, since_ns, now_ns)), CUMULATIVE)
    else:
        samples = [each for each in family.samples if not each.name.endswith("_created")]
        points = [NumberDataPoint(each.labels, since_ns, now_ns, float(each.value)) for each in samples]
        data = Sum(points, CUMULATIVE, is_monotonic=True) if family.type == "counter" else Gauge(points)
    yield Metric(family.name, family.documentation, UNITS.get(family.name.rpartition("_")[2], ""), data)


def _histograms(samples: Iterable[Sample], since_ns: int, now_ns: int) -> Iterator[HistogramDataPoint]:
    """Yields one point for each series, whose buckets have counts of their own instead of running ones."""
    series: dict[tuple[tuple[str, str], ...], tuple[list[tuple[float, float]], list[float]]] = {}
    for sample in samples:
        labels = tuple((name, value) for name, value in sample.labels.items() if name != BOUND)
        buckets, sums = series.setdefault(labels, ([], []))
        if sample.name.endswith("_bucket"):
            buckets.append((float(sample.labels[BOUND]), sample.value))
        elif sample.name.endswith("_sum"):
            sums.append(sample.value)
    unknown: Any = None  # the least and the greatest value
    for labels, (buckets, sums) in series.items():
        counts = [int(high - low) for (_, low), (_, high) in pairwise([(0.0, 0.0), *buckets])]
        bounds = [bound for bound, _ in buckets[:-1]]
        yield HistogramDataPoint(
            dict(labels), since_ns, now_ns, sum(counts), sum(sums), counts, bounds, unknown, unknown
        )
