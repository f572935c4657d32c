"""The logical graph of a job: steps as the user wrote them, and what flows between them.

A step is made by a method of a stream and never changed. Steps stand in the order in which they were written, so each
stands behind those that it takes its input from. ``clonos.api.compiling`` makes the physical plan.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, TypeVar

from clonos.api.graph_errors import GraphRefused
from clonos.api.hot_standby_rules import check_standby
from clonos.core.model.options import Options
from clonos.operators.connector_contract import ImmediateSink, PushedSource, Source, TransactionalSink
from clonos.operators.job_image import JobImage
from clonos.operators.operator import Operator

if TYPE_CHECKING:
    from clonos.api.steps import Following
    from clonos.api.stream import Stream

T = TypeVar("T")

NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
ERRORS_STEP: Final = "errors"

AnySink = TransactionalSink | ImmediateSink
AnySource = Source[Any] | PushedSource[Any]


class Exchange(StrEnum):
    """How records get from one step to the next."""

    FORWARD = "forward"
    HASH = "hash"
    REBALANCE = "rebalance"
    BROADCAST = "broadcast"


@dataclass(frozen=True, slots=True)
class KeyBy:
    """What records are partitioned by: a function of the user's, or a column. ``name`` is that of the step."""

    name: str
    key: Callable[[Any], Any] | str
    is_named: bool


@dataclass(frozen=True, slots=True)
class Tap:
    """Where a stream comes from: a step and the exchange behind it. A union of streams has several taps."""

    step: int
    exchange: Exchange = Exchange.FORWARD
    key: KeyBy | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """A step as it was written. ``make`` gives its operator; a source and a sink get theirs when it is compiled.

    ``gives_columns``: not rows. ``needs_columns``: rows are no use to it. ``keeps_places``: one result a record.
    ``keeps_rows``: its results are some of its records. ``gives_key``: the field of its results that is their key, and
    says which task they come from; empty: the first of a tuple.
    ``parallelism`` None: that of the job; of a sink, that of the step before it. ``standby`` None: that of the job.
    """

    number: int
    name: str
    is_named: bool
    taps: tuple[Tap, ...]
    make: Callable[[], Operator] | None = None
    source: AnySource | None = None
    sink: AnySink | None = None
    parallelism: int | None = None
    has_effects: bool = False
    standby: str | None = None
    runs_user_code: bool = False
    gives_columns: bool = False
    needs_columns: bool = False
    keeps_places: bool = False
    keeps_rows: bool = False
    gives_key: str | None = None


class JobGraph:
    """The description of a job. ``errors``: a sink for records whose user code raised; without one the job fails."""

    def __init__(self, name: str, *, errors: AnySink | None = None) -> None:
        self.name = _checked_name("the job", name)
        self.errors: AnySink | None = None
        self._steps: list[Step] = []
        self._names: set[str] = {ERRORS_STEP}
        if errors is not None:
            self.check_sink(ERRORS_STEP, errors)
            self.errors = errors

    @property
    def steps(self) -> tuple[Step, ...]:
        """In the order in which they were written."""
        return tuple(self._steps)

    def source(
        self,
        source: Source[T] | PushedSource[T],
        *,
        name: str | None = None,
        parallelism: int | None = None,
        standby: Following | None = None,
    ) -> Stream[T]:
        """A stream of a source's records. ``parallelism``: of the reading tasks, by default the job's; a source that
        cannot be re-read has one. ``standby``: how its standbys follow it, by default as the job says."""
        from clonos.api.stream import Stream

        if isinstance(source, PushedSource):
            if parallelism not in (None, 1):
                raise GraphRefused(
                    name or "source",
                    f"has the parallelism {parallelism!r}, and its source is one connection",
                    "Leave it out; union several sources where one connection is not enough.",
                )
            parallelism = 1
        elif not isinstance(source, Source):
            raise GraphRefused(
                name or "source",
                f"gets a {type(source).__qualname__}, which is no source",
                "A source has splits() and reader(), such as files.lines('texts/*.txt').",
            )
        step = self.add(
            "source",
            name,
            parallelism=parallelism,
            source=source,
            standby=standby,
            gives_columns=bool(getattr(source, "is_columnar", False)),
            keeps_places=True,
        )
        return Stream(self, (Tap(step.number),))

    def add(
        self,
        kind: str,
        name: str | None,
        taps: tuple[Tap, ...] = (),
        *,
        make: Callable[[str], Callable[[], Operator]] | None = None,
        parallelism: int | None = None,
        **rest: Any,
    ) -> Step:
        """Adds a step behind some taps. ``make``: from the step's name to what makes its operators."""
        is_named, name = name is not None, self.take_name(kind, name)
        if parallelism is not None and (type(parallelism) is not int or parallelism < 1):
            raise GraphRefused(name, f"has the parallelism {parallelism!r}", "It is a number of tasks, at least 1.")
        check_standby(name, **rest)
        step = Step(
            number=len(self._steps),
            name=name,
            is_named=is_named,
            taps=taps,
            make=None if make is None else make(name),
            parallelism=parallelism,
            **rest,
        )
        self._steps.append(step)
        return step

    def take_name(self, kind: str, name: str | None) -> str:
        """A name of its own for a step: the given one, or its kind with a number where that is taken."""
        if name is not None:
            _checked_name(f"a step {kind}", name)
            if name in self._names:
                raise GraphRefused(name, "has the name of another step", "Names are unique in a job.")
        else:
            name = kind
            number = 1
            while name in self._names:
                number += 1
                name = f"{kind}-{number}"
        self._names.add(name)
        return name

    def changed(self, change: Callable[[Step], Step], errors: AnySink | None) -> JobGraph:
        """The same graph with some steps changed, and another sink for errors: for tests that replace its ends."""
        graph = copy.copy(self)
        graph._steps = [change(step) for step in self._steps]
        graph.errors = errors
        return graph

    def check_sink(self, step: str, sink: AnySink) -> None:
        """GraphRefused: it is no sink, or that of another step."""
        if not isinstance(sink, (TransactionalSink, ImmediateSink)):
            raise GraphRefused(
                step,
                f"gets a {type(sink).__qualname__}, which is no sink",
                "A sink has prepare_output(), writer() and commit(), or outside(), such as files.jsonl('out/').",
            )
        if sink is self.errors or any(other.sink is sink for other in self._steps):
            raise GraphRefused(
                step, "gets the sink of another step", "Join the streams by union, or give each a sink of its own."
            )

    def compile(
        self,
        options: Options,
        *,
        parallelism: int = 1,
        splits: Mapping[str, Sequence[bytes]] | None = None,
    ) -> JobImage:
        """The physical plan with all that its vertices run. Asks each source for its splits, unless they are given.

        ``parallelism``: of every step that names none. ``splits``: those with which the job first started
        (``JobImage.splits``), where it goes on. GraphRefused, ColumnsNeeded, BadSplits.
        """
        from clonos.api.compiling import compile_graph

        return compile_graph(self, options, parallelism, splits)


def _checked_name(what: str, name: Any) -> str:
    if not isinstance(name, str) or NAME_PATTERN.fullmatch(name) is None:
        raise GraphRefused(
            f"{name!r:.80}",
            f"({what}) has a name that cannot be used",
            "Names have at most 64 letters, digits, '_', '-' and '.', and begin with a letter or a digit.",
        )
    return name
