"""Metrics of user code: counters, gauges and histograms in which each record counts once, whatever dies.

The names are those of the Python client of Prometheus::

    kept = metrics.Counter("words_kept", "Words that the filter has kept.", labelnames=("language",))

    def keep(word):
        kept.labels(language="en").inc()
        return len(word) > 3

In a job the values of a task belong to its state: a successor restores them and counts on while it replays, so nothing
counts twice. They are values since the job's start. Use metrics in the functions of steps: not in ``open``, nor in a
call whose outcome is recorded, neither of which a replay repeats as it was.

Outside a job each object counts for itself, which unit tests read by ``value``, ``count`` and ``sum``.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable
from itertools import pairwise
from numbers import Real
from typing import Any, Final, Self

from clonos.core.model.errors import JobError
from clonos.core.model.metric_series import SERIES_MAX, Metric, MetricKind, MetricTable
from clonos.core.ports.recorder import MetricInCall, check_confined, current, is_inside_call
from clonos.core.ports.task_failure import encodable

DEFAULT_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Upper bounds of the buckets of a histogram, as in the client of Prometheus, without infinity."""

NAME_CHARACTERS_MAX: Final = 200
LABELS_MAX: Final = 10
LABEL_CHARACTERS_MAX: Final = 200
BUCKETS_MAX: Final = 100

RESERVED_LABELS: Final = frozenset({"job", "job_id", "task", "operator", "le", "quantile", "instance"})

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


class MetricInvalid(JobError):
    """A metric has a name, a label, a bucket or a value that it cannot have."""

    name: str
    problem: str

    def __str__(self) -> str:
        return f"the metric {self.name!r:.300} {self.problem}."


class _Metric:
    """Base of all kinds: the definition, and the series of one combination of labels."""

    _kind: MetricKind

    def __init__(self, metric: Metric, labels: tuple[str, ...] | None) -> None:
        self._metric, self._labels = metric, labels
        self._children: dict[tuple[str, ...], Self] = {}
        self._local = MetricTable()
        self._known: tuple[MetricTable | None, list[float]] = (None, [])  # table used last, and the series there

    def labels(self, *values: object, **named: object) -> Self:
        """Returns the metric with a value for each label, by position or by name. Values are texts; others become some
        by ``str``, and texts over 200 characters are cut.

        A metric has up to 1,000 combinations in a task. All others count in one series, whose labels are
        ``__overflow__``.

        Raises: MetricInvalid: these are not its labels.
        """
        names = self._metric.label_names
        if named and not values and named.keys() == set(names):
            values = tuple([named[name] for name in names])
        elif named or len(values) != len(names) or not names or self._labels is not None:
            wanted = f"the labels {', '.join(names)}" if names and self._labels is None else "no labels"
            given = ", ".join([*map(repr, values), *(f"{name}={value!r}" for name, value in named.items())])
            raise MetricInvalid(self._metric.name, f"takes {wanted}, not ({given:.200})")
        texts = tuple(map(str, values))
        found = self._children.get(texts)
        if found is None:
            found = self._with(tuple([encodable(text)[:LABEL_CHARACTERS_MAX] for text in texts]))
            if len(self._children) < SERIES_MAX:
                self._children[texts] = found
        return found

    def _with(self, labels: tuple[str, ...]) -> Self:
        child = self.__class__.__new__(self.__class__)
        _Metric.__init__(child, self._metric, labels)
        child._local = self._local
        return child

    def _cell(self) -> list[float]:
        """Returns the numbers of the series in the task whose code runs here."""
        recorder, known = current(), self._known  # one attribute, since tasks of one process may share this object
        if recorder is None:
            table = self._local_table()
        elif recorder.metric_table is known[0]:
            return known[1]
        else:
            table = recorder.metrics(self._metric.name)
        if self._labels is None and self._metric.label_names:
            names = ", ".join(f"{name}=..." for name in self._metric.label_names)
            raise MetricInvalid(self._metric.name, f"has labels: use .labels({names})")
        found = table.cell(self._metric, self._labels or ())
        self._known = table, found
        return found

    def _local_table(self) -> MetricTable:
        if is_inside_call():
            raise MetricInCall(self._metric.name)
        check_confined(f"the metric {self._metric.name}")
        return self._local

    def _number(self, value: Any) -> float:
        """Returns a number that is no int, such as one of NumPy. Raises: MetricInvalid: it is no finite number."""
        if not isinstance(value, Real) or not math.isfinite(value):
            raise MetricInvalid(self._metric.name, f"takes finite numbers, not {value!r:.200}")
        return float(value)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _restored, (type(self), self._metric, self._labels)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._metric.name!r})"


def _restored(kind: type[_Metric], metric: Metric, labels: tuple[str, ...] | None) -> _Metric:
    found = kind.__new__(kind)
    _Metric.__init__(found, metric, labels)
    return found


class Counter(_Metric):
    """Number that only grows. Prometheus gets it as ``<name>_total``."""

    def __init__(self, name: str, documentation: str, labelnames: Iterable[str] = ()) -> None:
        """Creates it; equal definitions are one metric.

        ``name``: letters, digits and underscores; not ``clonos_...``. ``labelnames``: names of labels, none of which is
        ``job``, ``job_id``, ``task`` or ``operator``, which all metrics have.

        Raises: MetricInvalid.
        """
        super().__init__(_defined(MetricKind.COUNTER, name, documentation, labelnames), None)

    def inc(self, amount: float = 1) -> None:
        """Adds an amount, 0 or more. Raises: MetricInvalid."""
        if amount.__class__ is not int:
            amount = self._number(amount)
        if amount < 0:
            raise MetricInvalid(self._metric.name, f"is a counter, which only grows: inc({amount}). Use a Gauge")
        recorder, known = current(), self._known
        # This is the body of _cell for most calls: a call less makes it a third faster.
        cell = known[1] if recorder is not None and recorder.metric_table is known[0] else self._cell()
        cell[0] += amount

    @property
    def value(self) -> float:
        """Value in the task whose code runs here; outside a job, in this object."""
        return self._cell()[0]


class Gauge(_Metric):
    """Number that rises and falls, such as the size of something."""

    def __init__(self, name: str, documentation: str, labelnames: Iterable[str] = ()) -> None:
        """Creates it, see ``Counter``. Raises: MetricInvalid."""
        super().__init__(_defined(MetricKind.GAUGE, name, documentation, labelnames), None)

    def set(self, value: float) -> None:
        """Sets the value. Raises: MetricInvalid: it is no finite number."""
        self._cell()[0] = value if type(value) is int else self._number(value)

    def inc(self, amount: float = 1) -> None:
        """Adds an amount. Raises: MetricInvalid: it is no finite number."""
        self._cell()[0] += amount if type(amount) is int else self._number(amount)

    def dec(self, amount: float = 1) -> None:
        """Subtracts an amount. Raises: MetricInvalid: it is no finite number."""
        self._cell()[0] -= amount if type(amount) is int else self._number(amount)

    @property
    def value(self) -> float:
        """Value in the task whose code runs here; outside a job, in this object."""
        return self._cell()[0]


class Histogram(_Metric):
    """Distribution of values over buckets. Prometheus gets ``<name>_bucket``, ``<name>_sum`` and ``<name>_count``."""

    def __init__(
        self,
        name: str,
        documentation: str,
        labelnames: Iterable[str] = (),
        buckets: Iterable[float] = DEFAULT_BUCKETS,
    ) -> None:
        """Creates it, see ``Counter``. ``buckets``: their upper bounds, ascending; one without a bound is added.

        Raises: MetricInvalid.
        """
        super().__init__(_defined(MetricKind.HISTOGRAM, name, documentation, labelnames, _bounds(name, buckets)), None)

    def observe(self, value: float) -> None:
        """Adds a value. Raises: MetricInvalid: it is no finite number."""
        if type(value) is not int:
            value = self._number(value)
        cell = self._cell()
        cell[0] += value
        cell[1 + bisect_left(self._metric.bounds, value)] += 1

    @property
    def count(self) -> int:
        """Number of values in the task whose code runs here; outside a job, in this object."""
        return int(sum(self._cell()[1:]))

    @property
    def sum(self) -> float:
        """Sum of the values in the task whose code runs here; outside a job, in this object."""
        return self._cell()[0]


def _defined(
    kind: MetricKind, name: Any, text: Any, label_names: Iterable[Any], bounds: tuple[float, ...] = ()
) -> Metric:
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > NAME_CHARACTERS_MAX:
        raise MetricInvalid(name, "needs a name of letters, digits and underscores that begins with no digit")
    if name.startswith("clonos_"):
        raise MetricInvalid(name, "needs another name: those that begin with clonos_ are metrics of the runtime")
    if not isinstance(text, str):
        raise MetricInvalid(name, f"needs a text that says what it means, not {text!r:.200}")
    names = (label_names,) if isinstance(label_names, str) else tuple(label_names)
    for label in names:
        if not isinstance(label, str) or not _NAME.fullmatch(label) or label.startswith("__"):
            raise MetricInvalid(name, f"has the label {label!r:.200}, which is no name of letters, digits and _")
        if label in RESERVED_LABELS:
            raise MetricInvalid(name, f"has the label {label}, which all metrics of a job have: name it otherwise")
    if len(set(names)) < len(names) or len(names) > LABELS_MAX:
        raise MetricInvalid(name, f"needs up to {LABELS_MAX} different labels, not {', '.join(names):.200}")
    plain = name.removesuffix("_total") if kind is MetricKind.COUNTER else name
    return Metric(kind, plain or name, encodable(text), names, bounds)


def _bounds(name: str, buckets: Iterable[Any]) -> tuple[float, ...]:
    found = tuple(buckets)
    if found and found[-1] == math.inf:
        found = found[:-1]
    if not all(isinstance(bound, Real) and math.isfinite(bound) for bound in found):
        raise MetricInvalid(name, f"needs buckets that are finite numbers, not {found!r:.200}")
    if not 0 < len(found) <= BUCKETS_MAX or any(a >= b for a, b in pairwise(found)):
        raise MetricInvalid(name, f"needs 1 to {BUCKETS_MAX} buckets that ascend, not {found!r:.200}")
    return tuple(map(float, found))
