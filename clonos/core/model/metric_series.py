"""Metrics of user code, and the late records of its steps: definitions, and the series that one incarnation of a task
has counted.

The series belong to the task's state. A snapshot has them, and a replay counts on from there, so they are absolute
values since the job's start in which each record counts once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from clonos.core.model.errors import JobError

SERIES_MAX: Final = 1_000
"""Series of one metric in one task. What has further labels counts in one series with the labels ``OVERFLOW``."""

OVERFLOW: Final = "__overflow__"
"""Value of each label of the series for all that is above the limit."""


class MetricKind(StrEnum):
    """Kind of a metric, with the words of Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(msgspec.Struct, frozen=True, array_like=True):
    """Definition of a metric. ``bounds``: upper bounds of the buckets of a histogram, ascending, without infinity."""

    kind: MetricKind
    name: str  # of a counter: without "_total"
    text: str
    label_names: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()

    @property
    def sample_names(self) -> tuple[str, ...]:
        """Names of its samples in the text that Prometheus reads."""
        match self.kind:
            case MetricKind.COUNTER:
                return (f"{self.name}_total",)
            case MetricKind.GAUGE:
                return (self.name,)
            case MetricKind.HISTOGRAM:
                return tuple(f"{self.name}_{part}" for part in ("bucket", "count", "sum"))

    def has_form_of(self, other: Metric) -> bool:
        """Whether series of both can be one family."""
        return (self.kind, self.label_names, self.bounds) == (other.kind, other.label_names, other.bounds)


class MetricSeries(msgspec.Struct, frozen=True, array_like=True):
    """One series. ``numbers``: the value; of a histogram the sum, then the number of values in each bucket, the last
    of which has no upper bound."""

    labels: tuple[str, ...]
    numbers: tuple[float, ...]


class MetricFamily(msgspec.Struct, frozen=True, array_like=True):
    """Metric and its series in one task."""

    metric: Metric
    series: tuple[MetricSeries, ...]


LATE_RECORDS: Final = Metric(
    MetricKind.COUNTER, "clonos_late_records", "Records that a step has refused as late.", ("step",)
)
"""Late records of a task, counted beside the metrics of its code."""


def late_records(families: Iterable[MetricFamily]) -> dict[str, int]:
    """Returns the late records by step, without steps that have none."""
    return {
        each.labels[0]: int(each.numbers[0])
        for family in families
        if family.metric.name == LATE_RECORDS.name and family.metric.has_form_of(LATE_RECORDS)
        for each in family.series
    }


def united_families(tasks: Sequence[Iterable[MetricFamily]]) -> tuple[MetricFamily, ...]:
    """Returns the families of several tasks as those of the first one: counters and histograms are added up. A gauge is
    of a task and ends with it, so those of the first one count alone, as does its form of a metric."""
    found: dict[str, dict[tuple[str, ...], tuple[float, ...]]] = {}
    metrics: dict[str, Metric] = {}
    for place, families in enumerate(tasks):
        for family in families:
            metric = metrics.setdefault(family.metric.name, family.metric)
            if place and (metric.kind is MetricKind.GAUGE or not metric.has_form_of(family.metric)):
                continue
            cells = found.setdefault(metric.name, {})
            for series in family.series:
                before = cells.get(series.labels, (0,) * len(series.numbers))
                cells[series.labels] = tuple(a + b for a, b in zip(before, series.numbers, strict=True))
    return tuple(
        MetricFamily(metrics[name], tuple(MetricSeries(labels, numbers) for labels, numbers in cells.items()))
        for name, cells in found.items()
    )


class MetricConflict(JobError):
    """Two metrics of one task have the same name and another kind, other labels or other buckets."""

    name: str
    first: str
    second: str

    def __str__(self) -> str:
        return f"the metric {self.name!r} is {self.second}, and the same task has {self.first}: give one another name."


def described(metric: Metric) -> str:
    """Returns kind, name, labels and buckets in words."""
    labels = f" with the labels {', '.join(metric.label_names)}" if metric.label_names else ""
    bounds = f" with the buckets {', '.join(map(str, metric.bounds))}" if metric.bounds else ""
    return f"a {metric.kind.value} {metric.name}{labels}{bounds}"


class _Family:
    """Series of one metric, by labels. ``is_restored``: no code has used it since its state was restored."""

    __slots__ = ("metric", "cells", "is_restored")

    def __init__(self, metric: Metric, cells: dict[tuple[str, ...], list[float]], is_restored: bool) -> None:
        self.metric, self.cells, self.is_restored = metric, cells, is_restored

    def used_cell(self, labels: tuple[str, ...]) -> list[float]:
        """Returns the numbers of a series for the code, which uses the family from now on."""
        self.is_restored = False
        found = self.cells.get(labels)
        if found is None:
            if self.metric.label_names and len(self.cells) >= SERIES_MAX:
                labels = (OVERFLOW,) * len(self.metric.label_names)
            count = len(self.metric.bounds) + 2 if self.metric.kind is MetricKind.HISTOGRAM else 1
            found = self.cells.setdefault(labels, [0] * count)
        return found


class MetricTable:
    """Series of one incarnation. Its task changes them; any thread may call ``families`` and ``value``."""

    __slots__ = ("_families",)

    def __init__(self, restored: Iterable[MetricFamily] = ()) -> None:
        self._families = {
            found.metric.name: _Family(found.metric, {s.labels: list(s.numbers) for s in found.series}, True)
            for found in restored
        }

    def cell(self, metric: Metric, labels: tuple[str, ...]) -> list[float]:
        """Returns the numbers of a series, to be changed in place; a new series has zeros.

        A restored family of another form is dropped: the code has changed since.

        Raises: MetricConflict: the task uses the name for another metric.
        """
        family = self._families.get(metric.name)
        if family is None or not family.metric.has_form_of(metric):
            if family is not None and not family.is_restored:
                raise MetricConflict(metric.name, described(family.metric), described(metric))
            self._families.pop(metric.name, None)
            self._check_samples(metric)
            family = self._families[metric.name] = _Family(metric, {}, False)
        return family.used_cell(labels)

    def _check_samples(self, metric: Metric) -> None:
        """Refuses a metric whose samples would have the names of those of another one, as a gauge ``a_total`` beside a
        counter ``a``."""
        for family in list(self._families.values()):
            if not set(family.metric.sample_names).isdisjoint(metric.sample_names):
                if not family.is_restored:
                    raise MetricConflict(metric.name, described(family.metric), described(metric))
                del self._families[family.metric.name]

    def value(self, metric: Metric, labels: tuple[str, ...]) -> float:
        """Returns the first number of a series, 0 without one. Any thread may call it."""
        family = self._families.get(metric.name)
        cell = None if family is None else family.cells.get(labels)
        return cell[0] if cell else 0

    def families(self) -> tuple[MetricFamily, ...]:
        """Returns all series as they are now."""
        return tuple(
            MetricFamily(family.metric, tuple(MetricSeries(labels, tuple(cell)) for labels, cell in cells))
            for family in list(self._families.values())
            if (cells := list(family.cells.items()))
        )
